//! An entry as it is shown, exported and read again.

use portero_client::v1;
use portero_store::{Actor, AuditEntry, AuditHash};
use portero_types::{TenantId, TenantNo, Timestamp};
use serde::{Deserialize, Serialize};

use super::name;
use crate::commands::present::{self, Record};

/// What `--output json` and an export promise. Hashes are computed of exactly these values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Entry {
    pub(super) seq: u64,
    time: String,
    issuer: String,
    subject: String,
    action: String,
    resource: String,
    tenant: Option<String>,
    tenant_no: Option<i64>,
    request_id: String,
    reason: Option<String>,
    before: Option<String>,
    after: Option<String>,
    prev_hash: String,
    pub(super) hash: String,
}

impl From<v1::AuditEntry> for Entry {
    fn from(entry: v1::AuditEntry) -> Self {
        Self {
            seq: entry.seq,
            time: present::time(entry.time.as_ref()).unwrap_or_default(),
            issuer: entry.issuer,
            subject: entry.subject,
            action: entry.action,
            resource: entry.resource,
            tenant: Some(name::id(&entry.tenant, 0)).filter(|tenant| !tenant.is_empty()),
            tenant_no: entry.tenant_no,
            request_id: entry.request_id,
            reason: entry.reason,
            before: entry.before,
            after: entry.after,
            prev_hash: entry.prev_hash,
            hash: entry.hash,
        }
    }
}

impl Entry {
    /// The entry as the log's chain takes it; the name of the first field that cannot be one.
    pub(super) fn read(self) -> Result<AuditEntry, &'static str> {
        let hash = |text: &str, field| text.parse::<AuditHash>().map_err(|_| field);
        Ok(AuditEntry {
            seq: self.seq,
            at: moment(&self.time).ok_or("time")?,
            prev_hash: hash(&self.prev_hash, "prev_hash")?,
            hash: hash(&self.hash, "hash")?,
            actor: Actor { issuer: self.issuer, subject: self.subject },
            action: self.action,
            resource: self.resource,
            tenant: self.tenant.map(TenantId::new).transpose().map_err(|_| "tenant")?,
            tenant_no: self.tenant_no.map(TenantNo),
            request_id: self.request_id,
            reason: self.reason,
            before: self.before,
            after: self.after,
        })
    }
}

/// Only as it is written: another way to write the same moment is an alteration, too.
fn moment(text: &str) -> Option<Timestamp> {
    let time = humantime::parse_rfc3339(text).ok()?;
    let micros = time.duration_since(std::time::UNIX_EPOCH).ok()?.as_micros();
    let moment = Timestamp::from_micros(i64::try_from(micros).ok()?);
    (present::moment(moment) == text).then_some(moment)
}

impl Record for Entry {
    const COLUMNS: &'static [&'static str] =
        &["NO", "TIME", "WHO", "ACTION", "RESOURCE", "REQUEST", "REASON"];

    fn row(&self) -> Vec<String> {
        vec![
            self.seq.to_string(),
            self.time.clone(),
            format!("{} ({})", self.subject, self.issuer),
            self.action.clone(),
            self.resource.clone(),
            self.request_id.clone(),
            self.reason.clone().unwrap_or_default(),
        ]
    }

    fn details(&self) -> Vec<(&'static str, String)> {
        vec![
            ("number", self.seq.to_string()),
            ("time", self.time.clone()),
            ("subject", self.subject.clone()),
            ("issuer", self.issuer.clone()),
            ("action", self.action.clone()),
            ("resource", self.resource.clone()),
            ("tenant", self.tenant.clone().unwrap_or_default()),
            ("request", self.request_id.clone()),
            ("reason", self.reason.clone().unwrap_or_default()),
            ("before", self.before.clone().unwrap_or_default()),
            ("after", self.after.clone().unwrap_or_default()),
            ("hash", self.hash.clone()),
        ]
    }
}

#[cfg(test)]
pub(super) mod tests {
    use portero_store::{Change, NewAuditEntry};

    use super::*;

    /// A chain as a gateway exports it.
    pub(in super::super) fn exported(count: u64) -> Vec<Entry> {
        let actor = Actor { issuer: "portero".to_owned(), subject: "ann".to_owned() };
        let change = Change::new(actor, "req-1", Timestamp::from_micros(1_750_000_000_123_456));
        let change = change.because("asked for").expect("a reason");
        let tenant = TenantId::new("acme").expect("valid");
        let mut head = (0, AuditHash::GENESIS);
        let entries = (0..count).map(|n| {
            let name = format!("tenants/acme/sources/s{n}");
            let deed = NewAuditEntry::deed(&change, "CreateSource", name, Some(&tenant));
            let new = NewAuditEntry { after: Some(format!("{{\"preset\":\"p{n}\"}}")), ..deed };
            let entry = new.following(head, Some(TenantNo(7)));
            head = (entry.seq, entry.hash);
            shown(entry)
        });
        entries.collect()
    }

    fn shown(entry: AuditEntry) -> Entry {
        Entry {
            seq: entry.seq,
            time: present::moment(entry.at),
            issuer: entry.actor.issuer,
            subject: entry.actor.subject,
            action: entry.action,
            resource: entry.resource,
            tenant: entry.tenant.map(|tenant| tenant.to_string()),
            tenant_no: entry.tenant_no.map(|no| no.0),
            request_id: entry.request_id,
            reason: entry.reason,
            before: entry.before,
            after: entry.after,
            prev_hash: entry.prev_hash.to_string(),
            hash: entry.hash.to_string(),
        }
    }

    #[test]
    fn an_entry_reads_back_as_it_was() {
        let entry = exported(1).remove(0);
        let read = entry.clone().read().expect("an entry");
        assert_eq!(portero_store::entry_hash(&read), read.hash);
        assert_eq!(shown(read), entry);
        assert_eq!(entry.row().len(), Entry::COLUMNS.len());
    }

    #[test]
    fn a_field_that_cannot_be_one_is_named() {
        let odd = |change: fn(&mut Entry)| {
            let mut entry = exported(1).remove(0);
            change(&mut entry);
            entry.read().expect_err("odd")
        };
        assert_eq!(odd(|entry| entry.time = "2025-06-15T15:06:40Z".to_owned()), "time");
        assert_eq!(odd(|entry| entry.tenant = Some("No Tenant".to_owned())), "tenant");
        assert_eq!(odd(|entry| entry.hash.push('0')), "hash");
        assert_eq!(odd(|entry| entry.prev_hash.clear()), "prev_hash");
    }

    #[test]
    fn the_json_form_is_stable() {
        let json = serde_json::to_value(exported(1).remove(0)).expect("serialises");
        let mut keys: Vec<&str> = json.as_object().expect("an object").keys().map(String::as_str).collect();
        keys.sort_unstable();
        let wanted = [
            "action",
            "after",
            "before",
            "hash",
            "issuer",
            "prev_hash",
            "reason",
            "request_id",
            "resource",
            "seq",
            "subject",
            "tenant",
            "tenant_no",
            "time",
        ];
        assert_eq!(keys, wanted);
    }
}
