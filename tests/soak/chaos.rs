//! Kills, stops and restarts, one every few seconds.

use std::time::Duration;

use tokio::time::Instant;

use super::checker::{Pause, Who};
use crate::harness::{Cluster, ConsumerProcess, Gateway, Member, now};

/// How long a gateway's session outlives the gateway, and a little more.
const LONGER_THAN_A_SESSION: Duration = Duration::from_secs(15);
/// How long a process may take to end after SIGTERM.
const ENDS_WITHIN: Duration = Duration::from_secs(40);
/// How often ended consumers and stopped processes are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// One thing that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blow {
    Gateway(Hit),
    Consumer(Hit),
    /// A consumer's connection breaks.
    Sever,
    /// Nothing reaches a consumer or comes from it for a while, for less than anybody notices.
    LosePackets(Duration),
}

/// What happens to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hit {
    Kill,
    Terminate,
    Stop(Duration),
}

/// What happens first, so that a short run has some of everything.
const FIRST: [Blow; 9] = [
    Blow::Gateway(Hit::Stop(LONGER_THAN_A_SESSION)),
    Blow::Consumer(Hit::Kill),
    Blow::Gateway(Hit::Kill),
    Blow::Consumer(Hit::Terminate),
    Blow::Consumer(Hit::Stop(Duration::from_secs(2))),
    Blow::Sever,
    Blow::Gateway(Hit::Terminate),
    Blow::LosePackets(Duration::from_secs(2)),
    Blow::Gateway(Hit::Stop(Duration::from_secs(2))),
];

/// Deals blows to a cluster and remembers who was stopped when.
pub(super) struct Chaos {
    random: Random,
    dealt: usize,
    stopped: Vec<(Who, i64, Instant)>,
    pub(super) pauses: Vec<Pause>,
}

impl Chaos {
    pub(super) fn new(seed: u64) -> Self {
        Self { random: Random(seed), dealt: 0, stopped: Vec::new(), pauses: Vec::new() }
    }

    /// Deals blows until then, with a pause of about this length after each.
    pub(super) async fn reign(&mut self, cluster: &mut Cluster, until: Instant, pause: Duration) {
        while Instant::now() < until {
            let blow = FIRST.get(self.dealt).copied().unwrap_or_else(|| self.choose());
            self.dealt += 1;
            let began = Instant::now();
            self.deal(cluster, blow).await;
            say(&format!("{blow:?} took {:?}", began.elapsed()));
            let length = pause.mul_f64(0.5 + self.random.below(100) as f64 / 100.0);
            self.rest(cluster, (Instant::now() + length).min(until)).await;
        }
        while !self.stopped.is_empty() {
            self.rest(cluster, Instant::now() + LOOK_EVERY).await;
        }
    }

    fn choose(&mut self) -> Blow {
        let length = Duration::from_millis(500 + 100 * self.random.below(30));
        match self.random.below(10) {
            0 | 1 => Blow::Gateway(Hit::Kill),
            2 | 3 => Blow::Consumer(Hit::Kill),
            4 => Blow::Gateway(Hit::Terminate),
            5 => Blow::Consumer(Hit::Terminate),
            6 if self.random.below(4) == 0 => Blow::Gateway(Hit::Stop(LONGER_THAN_A_SESSION)),
            6 => Blow::Gateway(Hit::Stop(length)),
            7 => Blow::Sever,
            8 => Blow::LosePackets(length),
            _ => Blow::Consumer(Hit::Stop(length)),
        }
    }

    async fn deal(&mut self, cluster: &mut Cluster, blow: Blow) {
        cluster.revive_consumers();
        if let Blow::Gateway(hit) = blow {
            let number = self.victim(cluster.gateways.len(), Who::Gateway);
            return self.hit_gateway(&mut cluster.gateways[number], number, hit).await;
        }
        let name = |number: usize| Who::Consumer(cluster.consumers[number].process.name().to_owned());
        let number = self.victim(cluster.consumers.len(), name);
        let Member { process, link } = &mut cluster.consumers[number];
        match blow {
            Blow::Consumer(hit) => self.hit_consumer(process, hit).await,
            Blow::LosePackets(length) => {
                link.blackhole();
                tokio::time::sleep(length).await;
                link.heal();
            }
            Blow::Sever | Blow::Gateway(_) => link.sever(),
        }
    }

    async fn hit_gateway(&mut self, gateway: &mut Gateway, number: usize, hit: Hit) {
        match hit {
            Hit::Stop(length) => {
                self.stopped.push((Who::Gateway(number), now().as_micros(), Instant::now() + length));
                gateway.signal("STOP");
            }
            Hit::Terminate => {
                gateway.terminate();
                let status = gateway.ended(ENDS_WITHIN).await;
                assert!(status.success(), "a gateway ended with {status}");
                gateway.launch().await;
            }
            Hit::Kill => {
                gateway.kill();
                gateway.launch().await;
            }
        }
    }

    async fn hit_consumer(&mut self, consumer: &mut ConsumerProcess, hit: Hit) {
        match hit {
            Hit::Stop(length) => {
                let who = Who::Consumer(consumer.name().to_owned());
                self.stopped.push((who, now().as_micros(), Instant::now() + length));
                consumer.signal("STOP");
            }
            Hit::Terminate => {
                // It may crash on an event instead, which is as good.
                consumer.stop(ENDS_WITHIN).await;
                consumer.launch();
            }
            Hit::Kill => {
                consumer.kill();
                consumer.launch();
            }
        }
    }

    /// Somebody who is not stopped.
    fn victim(&mut self, count: usize, who: impl Fn(usize) -> Who) -> usize {
        loop {
            let number = usize::try_from(self.random.below(100)).expect("small") % count;
            if !self.stopped.iter().any(|(stopped, _, _)| *stopped == who(number)) {
                return number;
            }
        }
    }

    /// Lets things run; wakes who was stopped for long enough, starts consumers again that crashed.
    async fn rest(&mut self, cluster: &mut Cluster, until: Instant) {
        loop {
            let (due, waiting) =
                std::mem::take(&mut self.stopped).into_iter().partition(|(_, _, at)| *at <= Instant::now());
            self.stopped = waiting;
            for (who, from, _) in due {
                match &who {
                    Who::Gateway(number) => cluster.gateways[*number].signal("CONT"),
                    Who::Consumer(name) => {
                        let of = cluster.consumers.iter().find(|member| member.process.name() == name);
                        of.expect("a consumer of the cluster").process.signal("CONT");
                    }
                }
                self.pauses.push(Pause { who, from, until: now().as_micros() });
            }
            cluster.revive_consumers();
            if Instant::now() >= until {
                return;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

/// Tells a person who follows a long run what happens.
#[expect(clippy::print_stdout, reason = "the test's output is where its runner looks")]
fn say(text: &str) {
    println!("soak: {text}");
}

/// Numbers that follow from a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        // Steele, Lea and Flood's SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}
