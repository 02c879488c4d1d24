//! The audit log, as far as a caller may see it: the whole of it, or one tenant's part.

use portero_auth::{Action, allows};
use portero_proto::v1;
use portero_store::{AUDIT_PAGE_MAX, AuditEntry, AuditFilter, AuditOrder, Page};
use portero_types::TenantId;
use tonic::{Request, Response, Status};

use super::{Admin, Answer, split};
use crate::error::{from_store, invalid, not_found};
use crate::{name, page, time};

/// Most bytes of views on a page, unless a single entry holds more. An answer's own bound lies above it.
const PAGE_BYTES_MAX: usize = 640 * 1024;
/// Longest subject and action that are asked for, bytes: longer than any that is written.
const FILTER_BYTES_MAX: usize = 1024;

impl Admin {
    pub(super) async fn do_list_audit_entries(
        &self,
        request: Request<v1::ListAuditEntriesRequest>,
    ) -> Answer<v1::ListAuditEntriesResponse> {
        let (metadata, message) = split(request);
        let tenant = match message.parent.as_str() {
            "" => None,
            parent => Some(name::tenant(parent, "parent")?),
        };
        let caller = self.check(&metadata, Action::ListAuditEntries(tenant.as_ref())).await?;
        let sees_all = allows(&caller, Action::ListAuditEntries(None));
        let mut filter = filter(&message)?;
        if let Some(tenant) = &tenant {
            self.only_of(&mut filter, tenant, sees_all, &message.parent).await?;
        }
        let size = page::size(message.page_size)?.min(AUDIT_PAGE_MAX);
        let (head_seq, head_hash) = if sees_all {
            let (seq, hash) = self.store.audit_head().await.map_err(|error| from_store(&error))?;
            (seq, hash.to_string())
        } else {
            (0, String::new())
        };
        let page = self.store.audit_entries(filter, size).await.map_err(|error| from_store(&error))?;
        let page = cut(page);
        Ok(Response::new(v1::ListAuditEntriesResponse {
            next_page_token: page::next(&page, |entry| entry.seq.to_string()),
            audit_entries: page.items.into_iter().map(to_proto).collect(),
            head_seq,
            head_hash,
        }))
    }

    /// A tenant's own people see what was done to the tenant that there is, and nothing of an earlier one of its name. Who sees
    /// everything sees both.
    async fn only_of(
        &self,
        filter: &mut AuditFilter,
        tenant: &TenantId,
        sees_all: bool,
        parent: &str,
    ) -> Result<(), Status> {
        if sees_all {
            filter.tenant = Some(tenant.clone());
            return Ok(());
        }
        let found = self.store.tenant(tenant).await.map_err(|error| from_store(&error))?;
        filter.tenant_no = Some(found.ok_or_else(|| not_found(parent))?.no);
        Ok(())
    }
}

fn filter(message: &v1::ListAuditEntriesRequest) -> Result<AuditFilter, Status> {
    let given = |text: &str, field: &str| match text {
        "" => Ok(None),
        text if text.len() > FILTER_BYTES_MAX || text.contains('\0') => {
            Err(invalid(field, format!("must have at most {FILTER_BYTES_MAX} bytes, without NUL")))
        }
        text => Ok(Some(text.to_owned())),
    };
    let after_seq =
        match message.page_token.as_str() {
            "" => None,
            token => {
                Some(token.parse::<u64>().ok().filter(|seq| i64::try_from(*seq).is_ok()).ok_or_else(
                    || invalid("page_token", "must be the next_page_token of the answer before"),
                )?)
            }
        };
    let order = if message.newest_first { AuditOrder::NewestFirst } else { AuditOrder::OldestFirst };
    Ok(AuditFilter {
        tenant: None,
        tenant_no: None,
        subject: given(&message.subject, "subject")?,
        action: given(&message.action, "action")?,
        after_seq,
        order,
    })
}

/// As many of a page's first entries as an answer holds; at least one.
fn cut(mut page: Page<AuditEntry>) -> Page<AuditEntry> {
    let view = |view: &Option<String>| view.as_ref().map_or(0, String::len);
    let mut bytes = 0;
    let fits = page.items.iter().take_while(|entry| {
        bytes += view(&entry.before) + view(&entry.after);
        bytes <= PAGE_BYTES_MAX
    });
    let fitting = fits.count().max(1);
    if fitting < page.items.len() {
        page.items.truncate(fitting);
        page.more = true;
    }
    page
}

fn to_proto(entry: AuditEntry) -> v1::AuditEntry {
    v1::AuditEntry {
        seq: entry.seq,
        time: Some(time::to_proto(entry.at)),
        issuer: entry.actor.issuer,
        subject: entry.actor.subject,
        action: entry.action,
        resource: entry.resource,
        tenant: entry.tenant.map(|tenant| format!("tenants/{tenant}")).unwrap_or_default(),
        tenant_no: entry.tenant_no.map(|no| no.0),
        request_id: entry.request_id,
        before: entry.before,
        after: entry.after,
        prev_hash: entry.prev_hash.to_string(),
        hash: entry.hash.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use portero_store::{Actor, AuditHash, Change, NewAuditEntry};
    use portero_types::Timestamp;

    use super::*;

    #[test]
    fn a_page_holds_no_more_than_an_answer_and_at_least_one_entry() {
        let change = Change::new(Actor::local("test"), "r", Timestamp::EPOCH);
        let entry = |bytes: usize| {
            let deed = NewAuditEntry::deed(&change, "UpdateSource", "tenants/a/sources/b".to_owned(), None);
            NewAuditEntry { after: Some("x".repeat(bytes)), ..deed }.following((0, AuditHash::GENESIS), None)
        };
        let page =
            |sizes: &[usize]| Page { items: sizes.iter().map(|size| entry(*size)).collect(), more: false };
        let count = |sizes: &[usize]| {
            let page = cut(page(sizes));
            (page.items.len(), page.more)
        };
        assert_eq!(count(&[]), (0, false));
        assert_eq!(count(&[10, 10]), (2, false));
        assert_eq!(count(&[250_000; 5]), (2, true));
        let huge = Page {
            items: vec![AuditEntry { before: Some("y".repeat(PAGE_BYTES_MAX)), ..entry(9) }],
            more: true,
        };
        assert_eq!((cut(huge.clone()).items.len(), cut(huge).more), (1, true));
    }

    #[test]
    fn an_odd_token_or_filter_is_named() {
        let bad = |message: v1::ListAuditEntriesRequest| {
            filter(&message).expect_err("refused").message().to_owned()
        };
        let none = v1::ListAuditEntriesRequest::default;
        for token in ["x", "-1", "18446744073709551615"] {
            let message = bad(v1::ListAuditEntriesRequest { page_token: token.to_owned(), ..none() });
            assert!(message.starts_with("page_token"), "{message}");
        }
        let message = bad(v1::ListAuditEntriesRequest { subject: "a\0b".to_owned(), ..none() });
        assert!(message.starts_with("subject"), "{message}");
    }
}
