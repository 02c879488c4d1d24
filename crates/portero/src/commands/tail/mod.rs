//! `portero tail`: follow a subscription, print each event, acknowledge it.

mod event;
mod notes;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use portero_client::{Delivery, Lost, Outcome, SettlementStatus, Settling, SubscribeOptions, Subscription};

use self::event::Event;
use self::notes::Notes;
use super::connection::{self, Purpose};
use super::exit::Failure;
use super::stop::Stop;
use crate::cli::{Output, TailArgs};
use crate::print;

/// How long the end may wait for outcomes to be recorded.
const FAREWELL: Duration = Duration::from_secs(5);
/// Unsettled events at a time when they are acknowledged at once.
const INFLIGHT_EVENTS: u64 = 256;
/// Events that are held at a time when none is acknowledged: as many as the protocol allows.
const HELD_MAX: u32 = 10_000;
const HELD_BYTES_MAX: u64 = 64 << 20;
/// How long an event is asked to be held; the protocol's longest.
const HOLD: Duration = Duration::from_secs(3600);

/// Follows until the count is reached, or a signal comes.
pub(crate) async fn run(args: TailArgs) -> anyhow::Result<()> {
    let mut stop = Stop::listen()?;
    let client = connection::client(&args.connect, Purpose::Consume).await?;
    let origin = connection::origin(&args.connect.endpoint);
    let (events, bytes) = limits(&args);
    let options = SubscribeOptions {
        max_inflight_events: events,
        max_inflight_bytes: bytes,
        observer: Arc::new(Notes::new(&args.subscription, &origin)),
        ..SubscribeOptions::default()
    };
    let opened = client.subscribe(&args.subscription, options).open();
    let subscription = opened.map_err(|error| connection::of_client(&error, &origin))?;
    let mut tail = Tail::new(args, subscription, origin);
    let followed = tail.follow(&mut stop).await;
    tokio::select! {
        ended = tail.finish() => followed.and(ended),
        () = stop.insisted() => Err(Failure::failed("stopped at once: some events may come again").into()),
    }
}

/// How many events and bytes may be unsettled: no more than will be shown, so that others get theirs.
fn limits(args: &TailArgs) -> (u32, u64) {
    let wanted = args.count.unwrap_or(u64::MAX);
    if args.no_ack {
        (u32::try_from(wanted).unwrap_or(HELD_MAX).min(HELD_MAX), HELD_BYTES_MAX)
    } else {
        (u32::try_from(wanted.min(INFLIGHT_EVENTS)).unwrap_or(0), 0)
    }
}

/// Where an event stands in the log: generation, shard, position.
type Place = (i64, u32, u64);

struct Tail {
    args: TailArgs,
    origin: String,
    subscription: Subscription,
    settling: FuturesUnordered<Settling>,
    /// Acks on record.
    confirmed: u64,
    /// Acks that did not count: their events come again.
    unconfirmed: u64,
    /// With `--no-ack`: what was shown and not yet released.
    held: HashMap<Place, Delivery>,
}

impl Tail {
    fn new(args: TailArgs, subscription: Subscription, origin: String) -> Self {
        Self {
            args,
            origin,
            subscription,
            settling: FuturesUnordered::new(),
            confirmed: 0,
            unconfirmed: 0,
            held: HashMap::new(),
        }
    }

    async fn follow(&mut self, stop: &mut Stop) -> anyhow::Result<()> {
        while !self.is_complete() {
            let has_room = self.has_room();
            tokio::select! {
                biased;
                () = stop.wanted() => return Ok(()),
                Some(status) = self.settling.next() => self.settled(status),
                delivery = self.subscription.next(), if has_room => {
                    match delivery.map_err(|error| connection::of_client(&error, &self.origin))? {
                        Some(delivery) => self.show(delivery).await?,
                        None => return Ok(()),
                    }
                }
            }
        }
        Ok(())
    }

    fn is_complete(&self) -> bool {
        let done = if self.args.no_ack { count(self.held.len()) } else { self.confirmed };
        self.args.count.is_some_and(|wanted| done >= wanted)
    }

    /// Whether a further event may be shown: those that are not yet confirmed count.
    fn has_room(&self) -> bool {
        let shown = if self.args.no_ack { 0 } else { self.confirmed + count(self.settling.len()) };
        self.args.count.is_none_or(|wanted| shown < wanted)
    }

    async fn show(&mut self, delivery: Delivery) -> anyhow::Result<()> {
        let place = (delivery.generation(), delivery.shard(), delivery.position());
        if self.args.no_ack {
            delivery.hold(HOLD).await;
            // After a reconnect the same events come again; they were shown.
            if self.held.insert(place, delivery.clone()).is_none() {
                self.print(&delivery)?;
            }
            return Ok(());
        }
        // Printed first: an event that nobody saw is not acknowledged.
        self.print(&delivery)?;
        let settling = self.subscription.settle(&delivery, Outcome::Ack).await;
        self.settling.push(settling);
        Ok(())
    }

    fn print(&self, delivery: &Delivery) -> anyhow::Result<()> {
        let event = Event::new(delivery, self.args.body);
        match self.args.output.output {
            Output::Json => print::json(&event),
            Output::Text => print::line(&event.line()),
        }
    }

    fn settled(&mut self, status: Result<SettlementStatus, Lost>) {
        if status.is_ok_and(SettlementStatus::is_durable) {
            self.confirmed += 1;
        } else {
            self.unconfirmed += 1;
        }
    }

    /// Releases what is held, brings the outcomes home, and ends the stream.
    async fn finish(self) -> anyhow::Result<()> {
        let Self { subscription, mut settling, mut unconfirmed, held, origin, .. } = self;
        for delivery in held.into_values() {
            // The stream brings it home before it ends.
            drop(subscription.settle(&delivery, Outcome::Release).await);
        }
        let closed = subscription.close(FAREWELL).await;
        // The stream is gone: what has no status now gets none.
        while let Some(status) = settling.next().await {
            unconfirmed += u64::from(!status.is_ok_and(SettlementStatus::is_durable));
        }
        if unconfirmed > 0 {
            print::note(&format!("{unconfirmed} acknowledgments were not recorded: their events come again"));
        }
        Ok(closed.map_err(|error| connection::of_client(&error, &origin))?)
    }
}

fn count(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::{Cli, Command};

    fn args(line: &str) -> TailArgs {
        let Command::Tail(args) = Cli::try_parse_from(line.split_whitespace()).expect("understood").command
        else {
            panic!("tail")
        };
        args
    }

    #[test]
    fn no_more_events_are_taken_than_will_be_shown() {
        assert_eq!(limits(&args("portero tail demo")), (256, 0));
        assert_eq!(limits(&args("portero tail demo -n 3")), (3, 0));
        assert_eq!(limits(&args("portero tail demo -n 100000")), (256, 0));
        assert_eq!(limits(&args("portero tail demo --no-ack")), (10_000, 64 << 20));
        assert_eq!(limits(&args("portero tail demo --no-ack -n 7")), (7, 64 << 20));
    }
}
