//! The noisy tenant's requests: as many as asked for, whatever the answers are.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use portero_types::Clock as _;
use serde::Serialize;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval};

use crate::clock::SystemClock;
use crate::connection::Connection;
use crate::delivery::setup::Source;
use crate::stripe::Events;

/// A flood, for a time.
#[derive(Clone)]
pub(super) struct Flood {
    pub(super) address: SocketAddr,
    pub(super) source: Source,
    pub(super) events: Events,
    /// Requests per second; 0 is none.
    pub(super) rate: u32,
    pub(super) connections: u32,
    pub(super) time: Duration,
    /// Whether the signatures hold.
    pub(super) is_genuine: bool,
}

/// How requests were answered.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Answers {
    pub(super) accepted: u64,
    /// 429.
    limited: u64,
    /// 401.
    unverified: u64,
    /// Everything else, and connections that were closed.
    other: u64,
}

impl Flood {
    /// Sends evenly, as far as answers come in time.
    pub(super) async fn run(self) -> anyhow::Result<Answers> {
        let mut total = Answers::default();
        if self.rate == 0 {
            return Ok(total);
        }
        let (flood, mut tasks) = (Arc::new(self), JoinSet::new());
        for connection in 0..flood.connections {
            tasks.spawn(Arc::clone(&flood).one_connection(connection));
        }
        while let Some(part) = tasks.join_next().await {
            total.add(&part?);
        }
        Ok(total)
    }

    async fn one_connection(self: Arc<Self>, connection: u32) -> Answers {
        let until = Instant::now() + self.time;
        let mut pace = interval(Duration::from_secs(1) * self.connections / self.rate);
        let (mut answers, mut open, mut request) = (Answers::default(), None, Vec::new());
        for n in 0.. {
            pace.tick().await;
            if Instant::now() >= until {
                break;
            }
            self.write((u64::from(connection) << 32) | n, &mut request);
            if open.is_none() {
                open = Connection::open(self.address).await.ok();
            }
            let answer = match open.as_mut() {
                Some(open) => open.exchange(&request).await.ok(),
                None => None,
            };
            match answer {
                Some(200) => answers.accepted += 1,
                Some(429) => answers.limited += 1,
                Some(401) => answers.unverified += 1,
                Some(_) => answers.other += 1,
                None => {
                    answers.other += 1;
                    open = None;
                }
            }
        }
        answers
    }

    /// A provider's request comes from its one address, forged ones from many.
    fn write(&self, n: u64, out: &mut Vec<u8>) {
        let mut body = Vec::with_capacity(self.events.bytes());
        self.events.write(n, &mut body);
        let time = SystemClock.now().as_secs();
        let mut signature = self.source.key.sign(time, &body);
        let client = if self.is_genuine {
            "192.0.2.10".to_owned()
        } else {
            signature[0] ^= 1;
            format!("198.51.100.{}", n % 250)
        };
        out.clear();
        let head = format!(
            "POST {} HTTP/1.1\r\nhost: {}\r\nx-forwarded-for: {client}\r\ncontent-type: application/json\r\n\
             content-length: {}\r\nstripe-signature: t={time},v1={}\r\n\r\n",
            self.source.path,
            self.address,
            body.len(),
            hex::encode(signature)
        );
        out.extend_from_slice(head.as_bytes());
        out.extend_from_slice(&body);
    }
}

impl Answers {
    pub(super) const fn add(&mut self, other: &Self) {
        self.accepted += other.accepted;
        self.limited += other.limited;
        self.unverified += other.unverified;
        self.other += other.other;
    }
}

impl fmt::Display for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { accepted, limited, unverified, other } = self;
        write!(f, "{accepted} accepted, {limited} limited, {unverified} unverified, {other} other")
    }
}
