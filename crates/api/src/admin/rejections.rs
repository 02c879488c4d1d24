//! Requests that sources refused of late, without what they held.

use portero_auth::Action;
use portero_proto::v1;
use portero_store::{Rejection, StoredRejection};
use portero_types::{RequestId, SourceId, TenantId};
use tonic::{Request, Response, Status};

use super::{Admin, Answer, split};
use crate::error::{from_store, not_found};
use crate::{name, page, time};

impl Admin {
    pub(super) async fn do_list_rejections(
        &self,
        request: Request<v1::ListRejectionsRequest>,
    ) -> Answer<v1::ListRejectionsResponse> {
        let (metadata, message) = split(request);
        let (tenant, source) = name::source(&message.parent, "parent")?;
        self.check(&metadata, Action::ListRejections(&tenant)).await?;
        let (after, size) = (page::after::<RequestId>(&message.page_token)?, page::size(message.page_size)?);
        let page =
            self.store.list(&tenant, &source, after, size).await.map_err(|error| from_store(&error))?;
        let show = |rejection: &Rejection| to_proto(&tenant, &source, rejection);
        let (rejections, next_page_token) =
            page::shown(&page, show, |rejection| rejection.request_id.to_string());
        Ok(Response::new(v1::ListRejectionsResponse { rejections, next_page_token }))
    }

    pub(super) async fn do_get_rejection(
        &self,
        request: Request<v1::GetRejectionRequest>,
    ) -> Answer<v1::Rejection> {
        let (metadata, message) = split(request);
        let (tenant, source, id) = name::rejection(&message.name, "name")?;
        self.check(&metadata, Action::GetRejection(&tenant)).await?;
        let row = self.store.source(&tenant, &source).await.map_err(|error| from_store(&error))?;
        let row = row.ok_or_else(|| not_found(&message.name))?;
        let stored = self.stored_rejection(&row, id, &message.name).await?;
        Ok(Response::new(to_proto(&tenant, &source, &stored.rejection)))
    }

    /// A rejection of this very source; one of another source is as absent as one that never was.
    pub(super) async fn stored_rejection(
        &self,
        source: &portero_store::Source,
        id: RequestId,
        name: &str,
    ) -> Result<StoredRejection, Status> {
        let stored = self.store.get(&source.tenant, id).await.map_err(|error| from_store(&error))?;
        stored.filter(|stored| stored.rejection.source_no == source.no).ok_or_else(|| not_found(name))
    }
}

fn to_proto(tenant: &TenantId, source: &SourceId, rejection: &Rejection) -> v1::Rejection {
    v1::Rejection {
        name: format!("tenants/{tenant}/sources/{source}/rejections/{}", rejection.request_id),
        request_id: rejection.request_id.to_string(),
        receive_time: Some(time::to_proto(rejection.received_at)),
        method: rejection.method.clone(),
        reason: rejection.reason.clone(),
        detail: rejection.detail.clone(),
        body_bytes: rejection.body_bytes,
        body_sha256: hex::encode(rejection.body_digest),
        explainable: rejection.is_captured,
    }
}
