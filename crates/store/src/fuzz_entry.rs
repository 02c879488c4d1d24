//! What the fuzzer `audit` runs (see crates/recipe/fuzz). Hidden, and only there with the feature `fuzzing` or in tests, which
//! run its kept inputs through the same function.
//!
//! It takes any bytes and panics when something that must hold does not.

use bytes::Bytes;
use portero_types::{TenantNo, Timestamp};

use crate::audit::{AuditEntry, AuditHash, Chain, entry_hash};
use crate::{Actor, CapturedRequest, EventContent};

/// An audit log whose texts are cut out of the bytes, and the same bytes as a kept request and as an event's content.
///
/// # Panics
/// When a chain that was written does not hold, or an entry that was changed in one place is not noticed.
pub fn audit(data: &[u8]) {
    if let Ok(request) = CapturedRequest::decode(data) {
        assert_eq!(CapturedRequest::decode(&request.encode()).as_ref(), Ok(&request), "it reads back");
    }
    if let Ok(content) = EventContent::decode(&Bytes::copy_from_slice(data)) {
        assert_eq!(EventContent::decode(&content.encode().into()).as_ref(), Ok(&content), "it reads back");
    }
    let texts: Vec<String> =
        data.split(|byte| *byte == 0).map(|part| String::from_utf8_lossy(part).into_owned()).collect();
    let mut written: Vec<AuditEntry> = Vec::new();
    for at in 0..texts.len().min(8) {
        let last = written.last().map_or(AuditHash::GENESIS, |last| last.hash);
        written.push(entry(&texts, at, last));
    }
    let mut chain = Chain::new(written.last().map(|last| (last.seq, last.hash)));
    for entry in &written {
        chain.follow(entry).expect("it was written so");
    }
    chain.finish().expect("nothing was cut off");
    for entry in &written {
        for changed in changes(entry) {
            let same = changed.actor == entry.actor
                && (&changed.action, &changed.resource, &changed.request_id)
                    == (&entry.action, &entry.resource, &entry.request_id)
                && (&changed.before, &changed.after) == (&entry.before, &entry.after)
                && changed.reason == entry.reason
                && (changed.at, changed.tenant_no) == (entry.at, entry.tenant_no);
            assert!(same || entry_hash(&changed) != entry.hash, "another entry has the same hash");
        }
    }
}

/// The entry whose texts begin at `at`.
fn entry(texts: &[String], at: usize, prev_hash: AuditHash) -> AuditEntry {
    let text = |offset: usize| texts[(at + offset) % texts.len()].clone();
    let mut entry = AuditEntry {
        seq: u64::try_from(at).expect("small") + 1,
        at: Timestamp::from_micros(i64::try_from(text(0).len()).expect("small")),
        actor: Actor { issuer: text(0), subject: text(1) },
        action: text(2),
        resource: text(3),
        tenant: None,
        tenant_no: None,
        request_id: text(4),
        reason: Some(text(7)).filter(|text| !text.is_empty()),
        before: Some(text(5)).filter(|text| !text.is_empty()),
        after: Some(text(6)).filter(|text| !text.is_empty()),
        prev_hash,
        hash: AuditHash::GENESIS,
    };
    entry.hash = entry_hash(&entry);
    entry
}

/// The entry with texts moved from one field to its neighbour, and with fields exchanged, emptied or left out.
fn changes(entry: &AuditEntry) -> Vec<AuditEntry> {
    let changed = |change: &dyn Fn(&mut AuditEntry)| {
        let mut copy = entry.clone();
        change(&mut copy);
        copy
    };
    vec![
        changed(&|it| it.actor.subject.extend(it.actor.issuer.pop())),
        changed(&|it| it.resource.extend(it.action.pop())),
        changed(&|it| std::mem::swap(&mut it.action, &mut it.resource)),
        changed(&|it| std::mem::swap(&mut it.before, &mut it.after)),
        changed(&|it| it.before = it.before.take().xor(Some(String::new()))),
        changed(&|it| it.after = it.before.take()),
        changed(&|it| std::mem::swap(&mut it.after, &mut it.reason)),
        changed(&|it| it.reason = it.reason.take().xor(Some(String::new()))),
        changed(&|it| it.tenant_no = Some(TenantNo(1))),
        changed(&|it| it.at = Timestamp::from_micros(it.at.as_micros() + 1)),
        changed(&|it| it.request_id.push('0')),
    ]
}

#[cfg(test)]
mod tests {
    #[test]
    fn kept_audit_logs_hold_and_changes_are_noticed() {
        super::audit(b"");
        for kind in ["seeds", "findings"] {
            let folder = format!("{}/../recipe/fuzz/{kind}/audit", env!("CARGO_MANIFEST_DIR"));
            let Ok(files) = std::fs::read_dir(folder) else { continue };
            for file in files {
                super::audit(&std::fs::read(file.expect("an entry").path()).expect("readable"));
            }
        }
    }
}
