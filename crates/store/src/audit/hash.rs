//! What seals an entry.
//!
//! SHA-256 over these parts, one after the other:
//!
//! | part | as |
//! |---|---|
//! | `portero.audit.1` | text |
//! | hash of the entry before | 32 bytes |
//! | number | 8 bytes, big-endian |
//! | time, microseconds since 1970 | 8 bytes, big-endian, two's complement |
//! | issuer, subject, action, resource, id of the request | text each |
//! | tenant's name | optional text |
//! | tenant's row number | optional: 8 bytes, big-endian |
//! | before, after, reason | optional text each |
//!
//! A text is its length in bytes (8 bytes, big-endian) and its UTF-8. What is optional is one byte 0 when it is missing, or one
//! byte 1 and itself. So no two different entries have the same encoding.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest as _, Sha256};

use super::AuditEntry;

const VERSION: &str = "portero.audit.1";

/// The hash of an entry. It is no secret; its text is 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct AuditHash(pub [u8; 32]);

impl AuditHash {
    /// What stands before the first entry.
    pub const GENESIS: Self = Self([0; 32]);
}

impl fmt::Display for AuditHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for AuditHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Not 64 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a hash has 64 hexadecimal digits")]
pub struct NoHash;

impl FromStr for AuditHash {
    type Err = NoHash;

    fn from_str(text: &str) -> Result<Self, NoHash> {
        if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(NoHash);
        }
        let mut bytes = [0; 32];
        for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
            let digits = std::str::from_utf8(digits).map_err(|_| NoHash)?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| NoHash)?;
        }
        Ok(Self(bytes))
    }
}

/// The hash of everything in an entry but its own hash.
#[must_use]
pub fn entry_hash(entry: &AuditEntry) -> AuditHash {
    let mut hash = Sha256::new();
    text(&mut hash, VERSION);
    hash.update(entry.prev_hash.0);
    hash.update(entry.seq.to_be_bytes());
    hash.update(entry.at.as_micros().to_be_bytes());
    let (actor, request_id) = (&entry.actor, &entry.request_id);
    for part in [&actor.issuer, &actor.subject, &entry.action, &entry.resource, request_id] {
        text(&mut hash, part);
    }
    optional(&mut hash, entry.tenant.as_ref().map(|tenant| tenant.as_str()));
    match entry.tenant_no {
        None => hash.update([0]),
        Some(no) => {
            hash.update([1]);
            hash.update(no.0.to_be_bytes());
        }
    }
    for part in [&entry.before, &entry.after, &entry.reason] {
        optional(&mut hash, part.as_deref());
    }
    AuditHash(hash.finalize().into())
}

fn text(hash: &mut Sha256, text: &str) {
    hash.update((text.len() as u64).to_be_bytes());
    hash.update(text.as_bytes());
}

fn optional(hash: &mut Sha256, part: Option<&str>) {
    match part {
        None => hash.update([0]),
        Some(part) => {
            hash.update([1]);
            text(hash, part);
        }
    }
}

#[cfg(test)]
mod tests {
    use portero_types::{TenantId, TenantNo, Timestamp};

    use super::*;
    use crate::Actor;

    fn entry() -> AuditEntry {
        AuditEntry {
            seq: 7,
            at: Timestamp::from_secs(1_750_000_000),
            actor: Actor { issuer: "https://id.example.com".to_owned(), subject: "ann".to_owned() },
            action: "UpdateSource".to_owned(),
            resource: "tenants/acme/sources/stripe".to_owned(),
            tenant: Some(TenantId::new("acme").expect("valid")),
            tenant_no: Some(TenantNo(3)),
            request_id: "req-1".to_owned(),
            reason: Some("asked for by the provider".to_owned()),
            before: Some("{}".to_owned()),
            after: Some("{\"preset\":\"stripe\"}".to_owned()),
            prev_hash: AuditHash([9; 32]),
            hash: AuditHash::GENESIS,
        }
    }

    #[test]
    fn the_encoding_stays_as_it_is_documented() {
        // Made by another program from the table above: exports of years ago must verify.
        let known = "133b7782389fc8a6dd28395fcfa02d747196a5203de5cebdaeab6a7659e7ab27";
        assert_eq!(entry_hash(&entry()).to_string(), known);
    }

    #[test]
    fn every_field_but_the_hash_itself_changes_the_hash() {
        let changes: [fn(&mut AuditEntry); 16] = [
            |e| e.seq += 1,
            |e| e.at = Timestamp::from_secs(1_750_000_001),
            |e| e.actor.issuer.push('x'),
            |e| e.actor.subject.push('x'),
            |e| e.action.push('x'),
            |e| e.resource.push('x'),
            |e| e.tenant = None,
            |e| e.tenant = Some(TenantId::new("acm").expect("valid")),
            |e| e.tenant_no = None,
            |e| e.tenant_no = Some(TenantNo(4)),
            |e| e.request_id.push('x'),
            |e| e.reason = None,
            |e| e.reason = Some("asked for by the provide".to_owned()),
            |e| e.before = None,
            |e| e.after = Some(String::new()),
            |e| e.prev_hash = AuditHash::GENESIS,
        ];
        let mut seen = vec![entry_hash(&entry())];
        for change in changes {
            let mut changed = entry();
            change(&mut changed);
            seen.push(entry_hash(&changed));
        }
        let distinct: std::collections::HashSet<_> = seen.iter().collect();
        assert_eq!(distinct.len(), seen.len());
        let sealed = AuditEntry { hash: AuditHash([1; 32]), ..entry() };
        assert_eq!(entry_hash(&sealed), seen[0]);
    }

    #[test]
    fn where_a_field_ends_counts() {
        let mut moved = entry();
        moved.actor.issuer = "https://id.example.coma".to_owned();
        moved.actor.subject = "nn".to_owned();
        assert_ne!(entry_hash(&moved), entry_hash(&entry()));
        let (after, reason) = (entry().after, entry().reason);
        let swapped = AuditEntry { after: reason, reason: after, ..entry() };
        assert_ne!(entry_hash(&swapped), entry_hash(&entry()));
    }

    #[test]
    fn a_hash_reads_back_and_odd_texts_are_none() {
        let hash = entry_hash(&entry());
        assert_eq!(hash.to_string().parse(), Ok(hash));
        for odd in ["", "00", &"g".repeat(64), &"0".repeat(63), &"é".repeat(32)] {
            assert_eq!(odd.parse::<AuditHash>(), Err(NoHash), "{odd}");
        }
    }
}
