//! Looking again at data keys that could not be opened: somebody may have mended their rows, which changes no revision.

use std::sync::Arc;
use std::time::Duration;

use portero_types::TenantNo;
use tokio::time::Instant;

use super::{Directory, Error};
use crate::{Snapshot, metrics};

/// How often.
const EVERY: Duration = Duration::from_secs(5);

/// How long the store may take for it. The next look at the revision waits.
const WITHIN: Duration = Duration::from_secs(1);

/// Of how many tenants at once. Where there are more, they are looked at in turns.
const TENANTS_MAX: usize = 1_000;

/// Whose keys are looked at next, and when.
pub(super) struct Mending {
    due: Instant,
    /// The last tenant that was looked at.
    after: Option<TenantNo>,
}

impl Mending {
    /// All of them were looked at then.
    pub(super) fn from(then: Instant) -> Self {
        Self { due: then + EVERY, after: None }
    }

    /// The tenants whose turn it is; none when it is nobody's. They are not asked for again before all others were.
    fn next(&mut self, known: &Snapshot, now: Instant) -> Vec<TenantNo> {
        if now < self.due {
            return Vec::new();
        }
        self.due = now + EVERY;
        let tenants: Vec<TenantNo> = known.unopened_after(self.after).take(TENANTS_MAX).collect();
        self.after = tenants.last().copied().filter(|_| tenants.len() == TENANTS_MAX);
        tenants
    }
}

impl Directory {
    /// Reads the data keys that could not be opened, when they are due, and opens those that can be by now. Nobody hears of it
    /// unless something is different. The caller refreshes, so that the snapshot stays the one that is looked at.
    pub(super) async fn mend(&self, mending: &mut Mending) -> Result<(), Error> {
        let shared = &self.0;
        let known = shared.snapshot.load_full();
        let tenants = mending.next(&known, Instant::now());
        if tenants.is_empty() {
            return Ok(());
        }
        let rows = tokio::time::timeout(WITHIN, shared.store.tenant_keys_of(&tenants)).await;
        let rows = rows.map_err(|_| Error::Timeout)??;
        metrics::loaded("keys");
        let keyring = Arc::clone(&shared.keyring);
        let opening = tokio::task::spawn_blocking(move || known.reopened(rows, &keyring));
        if let Some(snapshot) = opening.await.map_err(|_| Error::Interrupted)? {
            metrics::applied(&snapshot);
            self.put(snapshot);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn more_tenants_than_one_look_takes_have_their_turns() {
        let began = Instant::now();
        let mut mending = Mending::from(began);
        let many = i64::try_from(TENANTS_MAX).expect("small") * 2 + 7;
        let known = Snapshot { unopened: (1..=many).map(TenantNo).collect(), ..Snapshot::default() };
        assert_eq!(mending.next(&known, began + EVERY / 2), [], "not yet");
        let mut seen = Vec::new();
        for look in 1..=3 {
            let now = began + EVERY * look;
            seen.extend(mending.next(&known, now));
            assert_eq!(mending.next(&known, now + EVERY / 2), [], "not so soon");
        }
        assert_eq!(seen, (1..=many).map(TenantNo).collect::<Vec<_>>());
        assert_eq!(mending.next(&known, began + EVERY * 4).first(), Some(&TenantNo(1)), "from the beginning");
        let few = Snapshot { unopened: BTreeSet::from([TenantNo(3)]), ..Snapshot::default() };
        let mut mending = Mending::from(began);
        for look in 1..=3 {
            assert_eq!(mending.next(&few, began + EVERY * look), [TenantNo(3)]);
        }
    }
}
