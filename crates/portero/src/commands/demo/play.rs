//! Sends the nine deliveries, each to both receivers.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Context as _;
use portero_example_ledger::scenario::{self, Planned, Twist};
use portero_recipe::SignedRequest;
use tokio::sync::Barrier;
use tokio_util::task::AbortOnDropHandle;

use super::consumer::{Consumer, Trails};
use super::pagora::{Pagora, RETRY_AFTER};
use super::wire::{Answer, Wire};
use crate::clock::SystemClock;

/// The endpoints that the shop entered at the provider.
#[derive(Clone)]
pub(super) struct Receivers {
    pub(super) portero: String,
    pub(super) naive: String,
}

/// A delivery and its answers.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) planned: Planned,
    pub(super) portero: Answer,
    pub(super) naive: Answer,
}

/// Everything that takes part.
pub(super) struct Play<'a> {
    pub(super) pagora: Pagora,
    /// The gateway's clock and the provider's.
    pub(super) clock: SystemClock,
    pub(super) receivers: Receivers,
    pub(super) consumer: &'a mut Consumer,
}

impl Play<'_> {
    /// Plays the whole scenario; returns when every accepted event is in the ledger.
    pub(super) async fn perform(mut self) -> anyhow::Result<Vec<Sent>> {
        let wire = Wire::new()?;
        let mut sent: Vec<Sent> = Vec::new();
        let mut requests: BTreeMap<String, SignedRequest> = BTreeMap::new();
        let mut rest = scenario::deliveries().into_iter().peekable();
        while let Some(planned) = rest.next() {
            if planned.twist == Twist::SameMoment {
                let twin = rest.next_if(|next| next.event == planned.event);
                let twin = twin.context("the scenario lacks the second of two copies")?;
                sent.extend(self.at_the_same_moment([planned, twin]).await?);
                continue;
            }
            let request = match planned.twist {
                Twist::Retry => {
                    self.clock.advance(RETRY_AFTER);
                    self.pagora.request(&planned.event)?
                }
                Twist::ReplayAfter(later) => {
                    self.all_applied(&sent).await?;
                    self.clock.advance(later);
                    let seen = requests.get(&planned.event.id);
                    seen.context("the scenario replays what was never sent")?.clone()
                }
                Twist::Forged => self.pagora.forgery(&planned.event)?,
                Twist::Plain | Twist::SameMoment | Twist::TooEarly => self.pagora.request(&planned.event)?,
            };
            let portero = wire.post(&self.receivers.portero, &request).await?;
            let naive = wire.post(&self.receivers.naive, &request).await?;
            if let (Twist::TooEarly, Some(receipt)) = (planned.twist, portero.accepted()) {
                // The consumer has said that it is too early, before what it waits for is sent.
                self.consumer.until(|trails| trails.contains_key(receipt)).await?;
            }
            requests.entry(planned.event.id.clone()).or_insert(request);
            sent.push(Sent { planned, portero, naive });
        }
        self.all_applied(&sent).await?;
        Ok(sent)
    }

    /// Sends two copies over two connections, neither before the other.
    async fn at_the_same_moment(&self, copies: [Planned; 2]) -> anyhow::Result<Vec<Sent>> {
        let start = Arc::new(Barrier::new(copies.len()));
        let mut under_way = Vec::new();
        for planned in copies {
            let (wire, request) = (Wire::new()?, self.pagora.request(&planned.event)?);
            let (start, receivers) = (Arc::clone(&start), self.receivers.clone());
            let sending = tokio::spawn(async move {
                start.wait().await;
                let portero = wire.post(&receivers.portero, &request).await?;
                start.wait().await;
                let naive = wire.post(&receivers.naive, &request).await?;
                anyhow::Ok(Sent { planned, portero, naive })
            });
            under_way.push(AbortOnDropHandle::new(sending));
        }
        let mut sent = Vec::new();
        for sending in under_way {
            sent.push(sending.await.context("a connection of the provider failed")??);
        }
        Ok(sent)
    }

    async fn all_applied(&mut self, sent: &[Sent]) -> anyhow::Result<()> {
        let receipts: Vec<&str> = sent.iter().filter_map(|sent| sent.portero.accepted()).collect();
        let is_applied = |trails: &Trails, receipt: &str| {
            trails.get(receipt).is_some_and(|trail| matches!(trail.last(), Some(&("ack" | "reject"))))
        };
        self.consumer
            .until(|trails| receipts.iter().all(|receipt| is_applied(trails, receipt)))
            .await
            .context("not every accepted event reached the ledger")
    }
}
