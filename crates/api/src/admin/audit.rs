//! The audit log, as far as a caller may see it: the whole of it, or one tenant's part.

use portero_auth::{Action, allows};
use portero_proto::v1;
use portero_store::{AUDIT_PAGE_MAX, AuditEntry, AuditFilter, AuditOrder};
use portero_types::TenantId;
use tonic::{Request, Response, Status};

use super::{Admin, Answer, split};
use crate::error::{from_store, invalid, not_found};
use crate::{name, page, time};

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
        let show = |entry: &AuditEntry| to_proto(entry.clone());
        let (audit_entries, next_page_token) = page::shown(&page, show, |entry| entry.seq.to_string());
        Ok(Response::new(v1::ListAuditEntriesResponse {
            audit_entries,
            next_page_token,
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
        reason: entry.reason,
        before: entry.before,
        after: entry.after,
        prev_hash: entry.prev_hash.to_string(),
        hash: entry.hash.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
