//! Looks whether entries, one after the other, are the chain that they were written as.

use super::{AuditEntry, AuditHash, entry_hash};

/// Where a chain does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// Entries are missing.
    #[error("entries {from} to {to} are missing")]
    Missing {
        /// The first that is missing.
        from: u64,
        /// The last that is missing.
        to: u64,
    },
    /// An entry is where one with a higher number must be.
    #[error("entry {seq} stands where entry {expected} must stand")]
    Repeated {
        /// The number that is there.
        seq: u64,
        /// The number that must be there.
        expected: u64,
    },
    /// The entry's hash is not that of its fields.
    #[error("entry {seq} was altered: its hash is not that of what it says")]
    Altered {
        /// Its number.
        seq: u64,
    },
    /// The entry seals another one than the one before it.
    #[error("entry {seq} does not follow entry {before}: one of them was replaced")]
    Unlinked {
        /// Its number.
        seq: u64,
        /// The one before.
        before: u64,
    },
    /// The chain ends before an entry that is known to have been there.
    #[error(
        "the log ends with entry {last}, and entry {expected} is known to have been there: its end was cut off"
    )]
    CutOff {
        /// The last that is there.
        last: u64,
        /// The one that is known.
        expected: u64,
    },
    /// An entry is not the one that is known to have been there.
    #[error("entry {seq} is not the one that is known to have been there: the log was rewritten")]
    Rewritten {
        /// Its number.
        seq: u64,
    },
}

/// Follows the chain from its beginning.
#[derive(Clone, Debug)]
pub struct Chain {
    last: (u64, AuditHash),
    expected: Option<(u64, AuditHash)>,
}

impl Chain {
    /// From the first entry. `expected` is an entry's number and hash that were noted down before, outside of the database.
    #[must_use]
    pub const fn new(expected: Option<(u64, AuditHash)>) -> Self {
        Self { last: (0, AuditHash::GENESIS), expected }
    }

    /// Looks at the next entry.
    ///
    /// # Errors
    /// [`Broken`], which names the first entry that is wrong.
    pub fn follow(&mut self, entry: &AuditEntry) -> Result<(), Broken> {
        let expected = self.last.0.saturating_add(1);
        if entry.seq > expected {
            return Err(Broken::Missing { from: expected, to: entry.seq - 1 });
        }
        if entry.seq < expected {
            return Err(Broken::Repeated { seq: entry.seq, expected });
        }
        if entry_hash(entry) != entry.hash {
            return Err(Broken::Altered { seq: entry.seq });
        }
        if entry.prev_hash != self.last.1 {
            return Err(Broken::Unlinked { seq: entry.seq, before: self.last.0 });
        }
        if self.expected.is_some_and(|(seq, hash)| seq == entry.seq && hash != entry.hash) {
            return Err(Broken::Rewritten { seq: entry.seq });
        }
        self.last = (entry.seq, entry.hash);
        Ok(())
    }

    /// The last entry that was followed.
    #[must_use]
    pub const fn last(&self) -> (u64, AuditHash) {
        self.last
    }

    /// At the end: whether the entry that was noted down came by.
    ///
    /// # Errors
    /// [`Broken::CutOff`].
    pub const fn finish(self) -> Result<(u64, AuditHash), Broken> {
        match self.expected {
            Some((expected, _)) if expected > self.last.0 => {
                Err(Broken::CutOff { last: self.last.0, expected })
            }
            Some(_) | None => Ok(self.last),
        }
    }
}

#[cfg(test)]
mod tests {
    use portero_types::Timestamp;

    use super::*;
    use crate::{Actor, Change, NewAuditEntry};

    fn entries() -> Vec<AuditEntry> {
        let change = Change::new(Actor::local("test"), "req-1", Timestamp::EPOCH);
        let mut entries: Vec<AuditEntry> = Vec::new();
        for n in 0..5 {
            let head = entries.last().map_or((0, AuditHash::GENESIS), |last| (last.seq, last.hash));
            let new = NewAuditEntry::deed(&change, "RevealSecret", format!("tenants/t{n}"), None);
            entries.push(new.following(head, None));
        }
        entries
    }

    fn verify(entries: &[AuditEntry], expected: Option<(u64, AuditHash)>) -> Result<u64, Broken> {
        let mut chain = Chain::new(expected);
        entries.iter().try_for_each(|entry| chain.follow(entry))?;
        chain.finish().map(|(seq, _)| seq)
    }

    #[test]
    fn a_chain_as_it_was_written_holds() {
        let entries = entries();
        assert_eq!(verify(&entries, None), Ok(5));
        assert_eq!(verify(&[], None), Ok(0));
        assert_eq!(verify(&entries, Some((3, entries[2].hash))), Ok(5));
    }

    #[test]
    fn a_removed_entry_is_named() {
        let mut entries = entries();
        entries.drain(1..3);
        assert_eq!(verify(&entries, None), Err(Broken::Missing { from: 2, to: 3 }));
    }

    #[test]
    fn an_altered_entry_is_named_even_when_it_was_sealed_again() {
        let mut entries = entries();
        entries[2].actor.subject = "somebody else".to_owned();
        assert_eq!(verify(&entries, None), Err(Broken::Altered { seq: 3 }));
        entries[2].hash = entry_hash(&entries[2]);
        assert_eq!(verify(&entries, None), Err(Broken::Unlinked { seq: 4, before: 3 }));
    }

    #[test]
    fn what_was_renumbered_after_a_removal_does_not_fit() {
        let mut entries = entries();
        entries.remove(1);
        for (entry, seq) in entries.iter_mut().zip(1..) {
            entry.seq = seq;
        }
        assert_eq!(verify(&entries, None), Err(Broken::Altered { seq: 2 }));
    }

    #[test]
    fn a_repeated_entry_is_named() {
        let mut entries = entries();
        let twice = entries[1].clone();
        entries.insert(2, twice);
        assert_eq!(verify(&entries, None), Err(Broken::Repeated { seq: 2, expected: 3 }));
    }

    #[test]
    fn a_cut_end_and_a_rewritten_log_are_noticed_by_what_was_noted_down() {
        let whole = entries();
        let noted = Some((5, whole[4].hash));
        assert_eq!(verify(&whole[..3], None), Ok(3));
        assert_eq!(verify(&whole[..3], noted), Err(Broken::CutOff { last: 3, expected: 5 }));
        let mut forged: Vec<AuditEntry> = Vec::new();
        for mut entry in whole {
            entry.actor.subject = "nobody".to_owned();
            entry.prev_hash = forged.last().map_or(AuditHash::GENESIS, |last| last.hash);
            entry.hash = entry_hash(&entry);
            forged.push(entry);
        }
        assert_eq!(verify(&forged, None), Ok(5));
        assert_eq!(verify(&forged, noted), Err(Broken::Rewritten { seq: 5 }));
    }
}
