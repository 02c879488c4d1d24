//! `portero receipt`.

use portero_client::v1;
use portero_client::v1::get_receipt_request::Key;
use serde::Serialize;

use super::name;
use crate::cli::ReceiptCommand;
use crate::commands::connection::AdminApi;
use crate::commands::exit::Failure;
use crate::commands::present::{self, Record};

/// Runs one of its commands.
pub(crate) async fn run(command: ReceiptCommand) -> anyhow::Result<()> {
    let ReceiptCommand::Get { tenant, key, common } = command;
    let wanted = parse(&key)?;
    let api = AdminApi::open(&common.connect).await?;
    let request = v1::GetReceiptRequest { parent: name::tenant(&tenant), key: Some(wanted) };
    let found = api.ask(api.calls().get_receipt(request)).await.map_err(|error| error.about(&key))?;
    present::one(common.output.output, &Receipt::from(found))
}

/// `rcpt_…`, or `provider/event-id`; an event id may hold further slashes.
fn parse(key: &str) -> Result<Key, Failure> {
    match key.split_once('/') {
        Some((provider, event_id)) if !provider.is_empty() && !event_id.is_empty() => {
            Ok(Key::Event(v1::EventKey { provider: provider.to_owned(), event_id: event_id.to_owned() }))
        }
        None if key.starts_with("rcpt_") => Ok(Key::ReceiptId(key.to_owned())),
        _ => Err(Failure::usage(
            "the receipt is named by `rcpt_…`, or by provider/event-id such as stripe/evt_123",
        )),
    }
}

/// A receipt as it is shown.
#[derive(Debug, Serialize)]
struct Receipt {
    receipt_id: String,
    tenant: Option<String>,
    source: Option<String>,
    provider: String,
    event_id: String,
    event_id_derived: bool,
    event_type: String,
    ordering_key: String,
    secret: Option<String>,
    body_sha256: String,
    receive_time: Option<String>,
    expire_time: Option<String>,
    request_id: String,
    duplicates: u64,
    conflicts: u64,
}

impl From<v1::Receipt> for Receipt {
    fn from(receipt: v1::Receipt) -> Self {
        let some = |text: String| Some(text).filter(|text| !text.is_empty());
        Self {
            tenant: some(name::id(&receipt.source, 0)),
            source: some(name::id(&receipt.source, 1)),
            receipt_id: receipt.receipt_id,
            provider: receipt.provider,
            event_id: receipt.event_id,
            event_id_derived: receipt.event_id_derived,
            event_type: receipt.event_type,
            ordering_key: receipt.ordering_key,
            secret: some(receipt.secret),
            body_sha256: receipt.body_sha256,
            receive_time: present::time(receipt.receive_time.as_ref()),
            expire_time: present::time(receipt.expire_time.as_ref()),
            request_id: receipt.request_id,
            duplicates: receipt.duplicates,
            conflicts: receipt.conflicts,
        }
    }
}

impl Record for Receipt {
    const COLUMNS: &'static [&'static str] = &["RECEIPT", "PROVIDER", "EVENT", "RECEIVED", "DUPLICATES"];

    fn row(&self) -> Vec<String> {
        vec![
            self.receipt_id.clone(),
            self.provider.clone(),
            self.event_id.clone(),
            self.receive_time.clone().unwrap_or_default(),
            self.duplicates.to_string(),
        ]
    }

    fn details(&self) -> Vec<(&'static str, String)> {
        let derived = if self.event_id_derived { " (derived from the body)" } else { "" };
        vec![
            ("receipt", self.receipt_id.clone()),
            ("tenant", self.tenant.clone().unwrap_or_default()),
            ("source", self.source.clone().unwrap_or_default()),
            ("provider", self.provider.clone()),
            ("event id", format!("{}{derived}", self.event_id)),
            ("event type", self.event_type.clone()),
            ("entity", self.ordering_key.clone()),
            ("verified by secret", self.secret.clone().unwrap_or_default()),
            ("body's SHA-256", self.body_sha256.clone()),
            ("request", self.request_id.clone()),
            ("received", self.receive_time.clone().unwrap_or_default()),
            ("remembered until", self.expire_time.clone().unwrap_or_default()),
            ("came again", self.duplicates.to_string()),
            ("came with other bytes", self.conflicts.to_string()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receipt_is_named_in_two_ways() {
        assert!(matches!(parse("rcpt_0123"), Ok(Key::ReceiptId(id)) if id == "rcpt_0123"));
        let Ok(Key::Event(key)) = parse("shopify/gid://Order/1") else { panic!("an event key") };
        assert_eq!((key.provider.as_str(), key.event_id.as_str()), ("shopify", "gid://Order/1"));
        for bad in ["", "evt_1", "/evt_1", "stripe/"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_json_form_is_stable() {
        let receipt = Receipt::from(v1::Receipt {
            receipt_id: "rcpt_1".to_owned(),
            source: "tenants/acme/sources/pay".to_owned(),
            duplicates: 4,
            ..v1::Receipt::default()
        });
        let json = serde_json::to_value(&receipt).expect("serialises");
        let keys: Vec<&String> = json.as_object().expect("an object").keys().collect();
        let mut wanted = [
            "receipt_id",
            "tenant",
            "source",
            "provider",
            "event_id",
            "event_id_derived",
            "event_type",
            "ordering_key",
            "secret",
            "body_sha256",
            "receive_time",
            "expire_time",
            "request_id",
            "duplicates",
            "conflicts",
        ];
        wanted.sort_unstable();
        let mut keys: Vec<&str> = keys.into_iter().map(String::as_str).collect();
        keys.sort_unstable();
        assert_eq!(keys, wanted);
        assert_eq!((json["source"].as_str(), json["duplicates"].as_u64()), (Some("pay"), Some(4)));
        assert_eq!(receipt.row().len(), Receipt::COLUMNS.len());
    }
}
