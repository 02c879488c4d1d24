//! Kills, stops and restarts, one every few seconds.

use std::time::Duration;

use tokio::time::Instant;

use super::checker::{Pause, Who};
use crate::harness::{Cluster, now};

/// How long a gateway's session outlives the gateway, and a little more.
const LONGER_THAN_A_SESSION: Duration = Duration::from_secs(15);
/// How long a process may take to end after SIGTERM.
const ENDS_WITHIN: Duration = Duration::from_secs(40);
/// How often ended consumers and stopped processes are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// One thing that happens to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blow {
    KillGateway,
    KillConsumer,
    StopGateway(Duration),
    TerminateConsumer,
    TerminateGateway,
    StopConsumer(Duration),
}

/// What happens first, so that a short run has some of everything.
const FIRST: [Blow; 7] = [
    Blow::StopGateway(LONGER_THAN_A_SESSION),
    Blow::KillConsumer,
    Blow::KillGateway,
    Blow::TerminateConsumer,
    Blow::StopConsumer(Duration::from_secs(2)),
    Blow::TerminateGateway,
    Blow::StopGateway(Duration::from_secs(2)),
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
            println!("soak: {blow:?} took {:?}", began.elapsed());
            let length = pause.mul_f64(0.5 + self.random.below(100) as f64 / 100.0);
            self.rest(cluster, (Instant::now() + length).min(until)).await;
        }
        while !self.stopped.is_empty() {
            self.rest(cluster, Instant::now() + LOOK_EVERY).await;
        }
    }

    fn choose(&mut self) -> Blow {
        let length = Duration::from_millis(500 + 100 * self.random.below(30));
        match self.random.below(8) {
            0 | 1 => Blow::KillGateway,
            2 | 3 => Blow::KillConsumer,
            4 => Blow::TerminateGateway,
            5 => Blow::TerminateConsumer,
            6 if self.random.below(4) == 0 => Blow::StopGateway(LONGER_THAN_A_SESSION),
            6 => Blow::StopGateway(length),
            _ => Blow::StopConsumer(length),
        }
    }

    async fn deal(&mut self, cluster: &mut Cluster, blow: Blow) {
        cluster.revive_consumers();
        match blow {
            Blow::KillGateway | Blow::TerminateGateway | Blow::StopGateway(_) => {
                let number = self.victim(cluster.gateways.len(), Who::Gateway);
                let gateway = &mut cluster.gateways[number];
                match blow {
                    Blow::StopGateway(length) => {
                        self.stopped.push((Who::Gateway(number), now().as_micros(), Instant::now() + length));
                        gateway.signal("STOP");
                    }
                    Blow::TerminateGateway => {
                        gateway.terminate();
                        let status = gateway.ended(ENDS_WITHIN).await;
                        assert!(status.success(), "a gateway ended with {status}");
                        gateway.launch().await;
                    }
                    _ => {
                        gateway.kill();
                        gateway.launch().await;
                    }
                }
            }
            Blow::KillConsumer | Blow::TerminateConsumer | Blow::StopConsumer(_) => {
                let names: Vec<String> =
                    cluster.consumers.iter().map(|member| member.process.name().to_owned()).collect();
                let number = self.victim(names.len(), |number| Who::Consumer(names[number].clone()));
                let consumer = &mut cluster.consumers[number].process;
                match blow {
                    Blow::StopConsumer(length) => {
                        let who = Who::Consumer(names[number].clone());
                        self.stopped.push((who, now().as_micros(), Instant::now() + length));
                        consumer.signal("STOP");
                    }
                    // It may crash on an event instead, which is as good.
                    Blow::TerminateConsumer => {
                        consumer.stop(ENDS_WITHIN).await;
                        consumer.launch();
                    }
                    _ => {
                        consumer.kill();
                        consumer.launch();
                    }
                }
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
