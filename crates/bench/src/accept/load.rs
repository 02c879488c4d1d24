//! The closed loop: every connection sends its next request when it has the answer to the last.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use hdrhistogram::Histogram;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::requests::Requests;
use crate::connection::Connection;

/// Longest latency told apart, microseconds.
const LATENCY_MICROS_MAX: u64 = 60_000_000;

/// How to drive a receiver.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) connections: u32,
    pub(super) threads: u32,
    pub(super) warm_up: Duration,
    pub(super) measured: Duration,
}

/// What a round showed.
pub(super) struct Measured {
    /// Latencies of the requests answered 200 within the measured time, microseconds.
    pub(super) latencies: Histogram<u64>,
    /// How long that was.
    pub(super) length: Duration,
    /// Requests answered 200, warm-up included.
    pub(super) answered: u64,
    /// Requests answered otherwise, warm-up included.
    pub(super) refused: u64,
}

impl Load {
    /// Drives the receiver from threads of its own, to the end of the round.
    pub(super) fn run(self, requests: &Arc<Requests>) -> anyhow::Result<Measured> {
        let began = Instant::now();
        let share = move |thread: u32| {
            let (even, rest) = (self.connections / self.threads, self.connections % self.threads);
            even + u32::from(thread < rest)
        };
        let threads: Vec<_> = (0..self.threads)
            .map(|thread| {
                let requests = Arc::clone(requests);
                std::thread::spawn(move || self.drive(share(thread), &requests, began))
            })
            .collect();
        let mut total = Measured::none(self.measured)?;
        for thread in threads {
            let part = thread.join().map_err(|_| anyhow::anyhow!("a thread of the load panicked"))??;
            total.add(&part)?;
        }
        Ok(total)
    }

    /// One thread's connections.
    fn drive(self, connections: u32, requests: &Arc<Requests>, began: Instant) -> anyhow::Result<Measured> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.context("starting the load's runtime")?.block_on(async {
            let mut tasks = JoinSet::new();
            for _ in 0..connections {
                let requests = Arc::clone(requests);
                tasks.spawn(async move { self.one_connection(&requests, began).await });
            }
            let mut total = Measured::none(self.measured)?;
            while let Some(part) = tasks.join_next().await {
                total.add(&part.context("a connection's task")??)?;
            }
            Ok(total)
        })
    }

    async fn one_connection(self, requests: &Requests, began: Instant) -> anyhow::Result<Measured> {
        let (from, until) = (began + self.warm_up, began + self.warm_up + self.measured);
        let mut connection = Connection::open(requests.address).await?;
        let mut measured = Measured::none(self.measured)?;
        let mut request = Vec::with_capacity(8192);
        loop {
            requests.write_next(&mut request);
            let sent = Instant::now();
            let status = connection.exchange(&request).await?;
            let now = Instant::now();
            if status == 200 {
                measured.answered += 1;
                if from <= now && now < until {
                    let micros = u64::try_from((now - sent).as_micros()).unwrap_or(LATENCY_MICROS_MAX);
                    measured.latencies.saturating_record(micros);
                }
            } else {
                measured.refused += 1;
            }
            if now >= until {
                return Ok(measured);
            }
        }
    }
}

impl Measured {
    fn none(length: Duration) -> anyhow::Result<Self> {
        let latencies = Histogram::new_with_bounds(1, LATENCY_MICROS_MAX, 3)?;
        Ok(Self { latencies, length, answered: 0, refused: 0 })
    }

    fn add(&mut self, part: &Self) -> anyhow::Result<()> {
        self.latencies.add(&part.latencies)?;
        self.answered += part.answered;
        self.refused += part.refused;
        Ok(())
    }
}
