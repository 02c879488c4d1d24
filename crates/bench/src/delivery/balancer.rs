//! What stands before several gateways: a TCP balancer that asks each gateway whether it takes traffic, as an orchestrator
//! does, and gives new connections to those that do, in turn. Open connections are left alone.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

use super::gateway::is_ready;

/// How often each gateway is asked.
const ASK_EVERY: Duration = Duration::from_millis(100);

/// Which gateways take traffic.
pub(super) struct Readiness {
    management: Vec<SocketAddr>,
    ready: Vec<AtomicBool>,
}

/// A running balancer of one port; it ends when dropped.
pub(super) struct Balancer {
    pub(super) address: SocketAddr,
    _task: AbortOnDropHandle<()>,
}

impl Readiness {
    /// Asks until dropped.
    pub(super) fn follow(management: Vec<SocketAddr>) -> (Arc<Self>, AbortOnDropHandle<()>) {
        let ready = management.iter().map(|_| AtomicBool::new(true)).collect();
        let readiness = Arc::new(Self { management, ready });
        let asked = Arc::clone(&readiness);
        let asking = tokio::spawn(async move {
            loop {
                for (address, ready) in asked.management.iter().zip(&asked.ready) {
                    ready.store(is_ready(*address).await, Ordering::Relaxed);
                }
                sleep(ASK_EVERY).await;
            }
        });
        (readiness, AbortOnDropHandle::new(asking))
    }

    /// The gateways that take traffic, beginning with another one each time; then the others, should it come to that.
    fn in_turn(&self, turn: usize) -> Vec<usize> {
        let count = self.ready.len();
        let all = || (0..count).map(|offset| (turn + offset) % count);
        let is_ready = |which: &usize| self.ready[*which].load(Ordering::Relaxed);
        all().filter(is_ready).chain(all().filter(|which| !is_ready(which))).collect()
    }
}

impl Balancer {
    /// Balances over these addresses, which are the gateways' in the order of `readiness`.
    pub(super) async fn start(readiness: Arc<Readiness>, gateways: Vec<SocketAddr>) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let turn = AtomicUsize::new(0);
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                while connections.try_join_next().is_some() {}
                let order = readiness.in_turn(turn.fetch_add(1, Ordering::Relaxed));
                let addresses: Vec<SocketAddr> = order.into_iter().map(|which| gateways[which]).collect();
                connections.spawn(carry(client, addresses));
            }
        });
        Ok(Self { address, _task: AbortOnDropHandle::new(task) })
    }
}

/// Connects to the first that answers and copies both ways. Failures are for the two ends to notice.
async fn carry(mut client: TcpStream, addresses: Vec<SocketAddr>) {
    for address in addresses {
        if let Ok(mut gateway) = TcpStream::connect(address).await {
            let _ = (client.set_nodelay(true), gateway.set_nodelay(true));
            let _ = tokio::io::copy_bidirectional(&mut client, &mut gateway).await;
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gateways_that_take_no_traffic_come_last() {
        let ready = [true, false, true].map(AtomicBool::new).into();
        let readiness = Readiness { management: Vec::new(), ready };
        assert_eq!(readiness.in_turn(0), [0, 2, 1]);
        assert_eq!(readiness.in_turn(1), [2, 0, 1]);
        assert_eq!(readiness.in_turn(2), [2, 0, 1]);
    }
}
