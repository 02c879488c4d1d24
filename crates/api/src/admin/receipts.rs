//! Receipts: what became of an event.

use portero_auth::Action;
use portero_proto::v1;
use portero_proto::v1::get_receipt_request::Key;
use portero_types::{ProviderName, ReceiptId};
use tonic::{Request, Response};

use super::{Admin, Answer, split};
use crate::error::{from_store, invalid, not_found};
use crate::{name, time};

impl Admin {
    pub(super) async fn do_get_receipt(
        &self,
        request: Request<v1::GetReceiptRequest>,
    ) -> Answer<v1::Receipt> {
        let (metadata, message) = split(request);
        let id = name::tenant(&message.parent, "parent")?;
        self.check(&metadata, Action::GetReceipt(&id)).await?;
        let tenant = self.store.tenant(&id).await.map_err(|error| from_store(&error))?;
        let tenant = tenant.ok_or_else(|| not_found(&message.parent))?;
        let found = match &message.key {
            Some(Key::ReceiptId(text)) => {
                let receipt: ReceiptId = name::id(text, "receipt_id")?;
                self.store.receipt(tenant.no, receipt).await
            }
            Some(Key::Event(event)) => {
                let provider: ProviderName = name::id(&event.provider, "event.provider")?;
                self.store.receipt_by_event_id(tenant.no, &provider, &event.event_id).await
            }
            None => return Err(invalid("key", "must be given: a receipt id, or provider and event id")),
        };
        let receipt = found.map_err(|error| from_store(&error))?.ok_or_else(|| not_found("the receipt"))?;
        let snapshot = self.directory.snapshot();
        let source = snapshot.source_by_no(receipt.source_no);
        let secret = source.zip(receipt.secret_no).and_then(|(source, no)| source.secret_id(no));
        Ok(Response::new(v1::Receipt {
            receipt_id: receipt.receipt_id.to_string(),
            source: source.map(|source| format!("tenants/{id}/sources/{}", source.id)).unwrap_or_default(),
            provider: receipt.provider.to_string(),
            event_id: receipt.event_id,
            event_id_derived: receipt.id_derived,
            event_type: receipt.event_type,
            ordering_key: receipt.ordering_key,
            secret: secret.map(ToString::to_string).unwrap_or_default(),
            body_sha256: hex::encode(receipt.body_digest),
            receive_time: Some(time::to_proto(receipt.received_at)),
            expire_time: Some(time::to_proto(receipt.expires_at)),
            request_id: receipt.request_id.to_string(),
            duplicates: receipt.duplicates,
            conflicts: receipt.conflicts,
        }))
    }
}
