//! Connections over which nobody has shown a good token yet: few of each address, and none for long. Strangers may open
//! connections as they like, and leave room for those who may call.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

/// How long a connection may go without a token.
const TIME_MAX: Duration = Duration::from_secs(30);
/// How long what is under way on it then may take to end.
const LEAVE_WITHIN: Duration = Duration::from_secs(5);
/// The part of all connections that one address may have of such.
const PART: usize = 10;
/// So many it may always have.
const PART_MIN: usize = 16;
/// The bits of an IPv6 address that one customer of a network usually has as one.
const NETWORK_MASK: u128 = !((1 << 64) - 1);

/// How many of them each address has.
#[derive(Debug)]
pub(crate) struct Unproven {
    most: usize,
    counts: Mutex<HashMap<IpAddr, usize>>,
}

impl Unproven {
    /// Of so many connections in all.
    pub(crate) fn new(connections_max: usize) -> Arc<Self> {
        Arc::new(Self { most: (connections_max / PART).max(PART_MIN), counts: Mutex::default() })
    }

    /// A place for one more connection of an address; `None` when it has too many.
    pub(crate) fn admit(self: &Arc<Self>, peer: IpAddr) -> Option<Place> {
        let address = match peer.to_canonical() {
            IpAddr::V4(address) => address.into(),
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & NETWORK_MASK).into(),
        };
        let mut counts = self.lock();
        let count = counts.entry(address).or_default();
        (*count < self.most).then(|| {
            *count += 1;
            Place { all: Arc::clone(self), address }
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        // Nothing under this lock panics.
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of a connection that is not proven. Dropping it makes room for another one.
#[derive(Debug)]
pub(crate) struct Place {
    all: Arc<Unproven>,
    address: IpAddr,
}

impl Place {
    /// Waits for the connection's proof and makes room when there is one. Without one it has the connection `leave` when the
    /// time is up, and returns when it has to be cut. Never returns for one that is proven.
    pub(crate) async fn watch(self, proof: Proof, leave: CancellationToken) {
        let proven = timeout(TIME_MAX, proof.0.cancelled()).await.is_ok();
        if proven {
            drop(self);
            return std::future::pending().await;
        }
        tracing::debug!("a gRPC connection without a token is closed");
        leave.cancel();
        sleep(LEAVE_WITHIN).await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.all.lock();
        if let Some(count) = counts.get_mut(&self.address) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                counts.remove(&self.address);
            }
        }
    }
}

/// Whether somebody has shown a good token over a connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Proof(CancellationToken);

impl Proof {
    /// Somebody has.
    pub(crate) fn show(&self) {
        self.0.cancel();
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use tokio::time::Instant;

    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn an_address_has_a_part_of_all_connections_and_leaves_the_rest() {
        let unproven = Unproven::new(200);
        let mut places: Vec<_> =
            (0..20).map(|_| unproven.admit(address("192.0.2.1")).expect("room")).collect();
        assert!(unproven.admit(address("::ffff:192.0.2.1")).is_none(), "the same address");
        places.push(unproven.admit(address("192.0.2.2")).expect("another one"));
        places.remove(0);
        assert!(unproven.admit(address("192.0.2.1")).is_some());
        drop(places);
        assert!(unproven.lock().is_empty(), "nothing is kept of who has none");
        let one = Unproven::new(1);
        let few = (0..99).map_while(|n| one.admit(address(&format!("2001:db8::{n:x}")))).collect::<Vec<_>>();
        assert_eq!(few.len(), PART_MIN, "one network is one address");
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_token_it_is_asked_to_leave_and_cut_and_with_one_its_place_is_free() {
        let (unproven, began) = (Unproven::new(1), Instant::now());
        let leave = CancellationToken::new();
        let watching =
            unproven.admit(address("192.0.2.1")).expect("room").watch(Proof::default(), leave.clone());
        tokio::join!(watching, async {
            leave.cancelled().await;
            assert_eq!(began.elapsed(), TIME_MAX);
        });
        assert_eq!(began.elapsed(), TIME_MAX + LEAVE_WITHIN);
        let (proof, leave) = (Proof::default(), CancellationToken::new());
        let mut watching =
            Box::pin(unproven.admit(address("192.0.2.1")).expect("room").watch(proof.clone(), leave.clone()));
        proof.show();
        assert!((&mut watching).now_or_never().is_none() && unproven.lock().is_empty());
        tokio::time::advance(TIME_MAX * 2).await;
        assert!((&mut watching).now_or_never().is_none() && !leave.is_cancelled());
    }
}
