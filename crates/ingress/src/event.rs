//! From what a recipe extracted to what the store takes: scoped ids, ordering keys, kept headers, expiry.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http::header::{CONTENT_TYPE, USER_AGENT};
use portero_directory::Source;
use portero_keyring::{NONCE_BYTES, TenantKeys};
use portero_prefilter::Key;
use portero_recipe::{Extracted, IdScope, Recipe};
use portero_store::EventContent;
use portero_store::codec::encode_headers;
use portero_types::{
    EntityHash, Header, NewEvent, ProviderName, ReceiptId, RequestId, SourceId, Timestamp, limits,
};
use sha2::{Digest as _, Sha256};

use crate::config::EdgeConfig;

/// Longest content type kept, bytes.
const CONTENT_TYPE_BYTES_MAX: usize = 256;

/// Parts of header names whose values prove something. They are never kept, whatever a recipe asks.
const SECRETIVE: [&str; 8] =
    ["signature", "authorization", "cookie", "token", "secret", "hmac", "password", "api-key"];

/// What all events of one request share.
pub(crate) struct Shared<'a> {
    pub(crate) source: &'a Source,
    pub(crate) recipe: &'a Recipe,
    pub(crate) request_id: RequestId,
    pub(crate) received_at: Timestamp,
    pub(crate) trace_parent: String,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) body: &'a Bytes,
    /// What seals the content of each.
    pub(crate) keys: &'a TenantKeys,
}

/// The events to store, in the request's order. `random` makes each receipt id and the nonce of each content.
pub(crate) fn build(
    shared: &Shared<'_>,
    extracted: Vec<Extracted>,
    config: &EdgeConfig,
    random: &Arc<dyn Fn() -> u128 + Send + Sync>,
) -> Vec<NewEvent> {
    let content_type = content_type(shared.headers);
    let headers = encode_headers(&kept_headers(shared.headers, shared.recipe.kept_headers()));
    let source = shared.source;
    extracted
        .into_iter()
        .map(|found| {
            let body = shared.body.slice(found.body.clone());
            let receipt_id = ReceiptId::new(shared.received_at, random());
            let (event_id, id_derived) = if found.distinct {
                (format!("src:{}:distinct:{receipt_id}", source.id), true)
            } else {
                event_id(&found, shared.recipe.id_scope(), &source.id)
            };
            let ordering_key = ordering_key(&source.provider, found.entity.as_deref(), &event_id);
            let content = EventContent::encode_parts(&content_type, &headers, &body);
            let content = shared.keys.seal_event(receipt_id, &content, nonce(random()));
            let retention = retention(id_derived, shared.recipe.info().redelivery, config);
            NewEvent {
                receipt_id,
                tenant_no: source.tenant_no,
                source_no: source.no,
                secret_no: found.secret,
                provider: source.provider.clone(),
                entity: EntityHash::of(&source.tenant, &ordering_key),
                event_id,
                id_derived,
                event_type: event_type(found.event_type),
                ordering_key,
                body_digest: Sha256::digest(&body).into(),
                received_at: shared.received_at,
                expires_at: shared.received_at.plus(retention),
                request_id: shared.request_id,
                trace_parent: shared.trace_parent.clone(),
                body_bytes: u32::try_from(body.len()).unwrap_or(u32::MAX),
                content: content.into(),
            }
        })
        .collect()
}

fn nonce(random: u128) -> [u8; NONCE_BYTES] {
    let [nonce @ .., _, _, _, _] = random.to_ne_bytes();
    nonce
}

/// The pre-filter's name for what the store's unique key holds.
pub(crate) fn key_of(event: &NewEvent) -> Key {
    Key { tenant_no: event.tenant_no, provider: event.provider.clone(), event_id: event.event_id.clone() }
}

/// How long a repeat is recognised: as configured, and always a day longer than the provider may send one.
fn retention(id_derived: bool, redelivery: Option<Duration>, config: &EdgeConfig) -> Duration {
    const DAY: Duration = Duration::from_secs(24 * 60 * 60);
    let configured = if id_derived { config.derived_id_retention } else { config.receipt_retention };
    redelivery.map_or(configured, |span| configured.max(span + DAY))
}

/// The id for the unique key, and whether it is derived.
///
/// Different (account or source or neither, id) give different texts: an unscoped id that looks like a scoped one is
/// marked, and `:` and `%` in an account are escaped. A derived id holds only within its source: two sources may well get the same
/// bytes for two different things.
fn event_id(found: &Extracted, scope: IdScope, source: &SourceId) -> (String, bool) {
    let id = &found.event_id;
    let scope = if found.id_derived { IdScope::Source } else { scope };
    let account = found.account.as_deref().filter(|account| !account.is_empty());
    let scoped = match (scope, account) {
        (IdScope::Account, Some(account)) => format!("acct:{}:{id}", escaped(account)),
        // An event of the provider's own account, say: it has no other name.
        (IdScope::Account, None) | (IdScope::Global, _) => {
            let looks_scoped = ["acct:", "src:", "raw:", "sha256:"].iter().any(|mark| id.starts_with(mark));
            if looks_scoped { format!("raw:{id}") } else { id.clone() }
        }
        (IdScope::Source, _) => format!("src:{source}:{id}"),
    };
    if is_storable(&scoped, limits::EVENT_ID_BYTES_MAX) {
        (scoped, found.id_derived)
    } else {
        (sha256_text(&scoped), true)
    }
}

fn escaped(account: &str) -> String {
    let mut text = String::with_capacity(account.len());
    for c in account.chars() {
        match c {
            '%' => text.push_str("%25"),
            ':' => text.push_str("%3A"),
            c => text.push(c),
        }
    }
    text
}

/// `{provider}:{entity}`; an event without an entity is an entity of its own.
fn ordering_key(provider: &ProviderName, entity: Option<&str>, event_id: &str) -> String {
    let entity = entity.filter(|entity| !entity.is_empty()).unwrap_or(event_id);
    let key = format!("{provider}:{entity}");
    if is_storable(&key, limits::ORDERING_KEY_BYTES_MAX) {
        key
    } else {
        format!("{provider}:{}", sha256_text(entity))
    }
}

fn is_storable(text: &str, bytes_max: usize) -> bool {
    text.len() <= bytes_max && !text.contains('\0')
}

fn sha256_text(text: &str) -> String {
    let mut shown = String::with_capacity(7 + 64);
    shown.push_str("sha256:");
    for byte in Sha256::digest(text) {
        write!(shown, "{byte:02x}").expect("a String takes everything");
    }
    shown
}

fn event_type(mut text: String) -> String {
    if text.contains('\0') {
        text = text.replace('\0', "\u{fffd}");
    }
    text.truncate(text.floor_char_boundary(limits::EVENT_TYPE_BYTES_MAX));
    text
}

fn content_type(headers: &HeaderMap) -> String {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if value.len() <= CONTENT_TYPE_BYTES_MAX { value.to_owned() } else { String::new() }
}

/// The user agent and what the recipe asks for; bounded, and never a proof.
fn kept_headers(headers: &HeaderMap, asked: &[String]) -> Vec<Header> {
    headers
        .iter()
        .filter(|(name, value)| {
            let kept = **name == USER_AGENT || asked.iter().any(|asked| asked == name.as_str());
            kept && !SECRETIVE.iter().any(|part| name.as_str().contains(part))
                && value.len() <= limits::HEADER_VALUE_BYTES_MAX
        })
        .take(limits::HEADERS_KEPT_MAX)
        .map(|(name, value)| Header { name: name.as_str().to_owned(), value: value.as_bytes().to_vec() })
        .collect()
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    fn found(id: &str, account: Option<&str>) -> Extracted {
        Extracted {
            event_id: id.to_owned(),
            id_derived: false,
            distinct: false,
            id_anomaly: None,
            account: account.map(str::to_owned),
            event_type: String::new(),
            entity: None,
            secret: None,
            body: 0..0,
        }
    }

    fn scoped(id: &str, account: Option<&str>, scope: IdScope) -> (String, bool) {
        event_id(&found(id, account), scope, &SourceId::new("shop").expect("valid"))
    }

    #[test]
    fn a_repeat_is_recognised_for_longer_than_the_provider_may_send_one() {
        let config = EdgeConfig::default();
        let days = |days: u64| Duration::from_secs(days * 24 * 60 * 60);
        assert_eq!(retention(true, None, &config), days(3));
        assert_eq!(retention(true, Some(days(1)), &config), days(3));
        assert_eq!(retention(true, Some(days(14)), &config), days(15));
        assert_eq!(retention(false, Some(days(14)), &config), days(35));
    }

    #[test]
    fn ids_are_scoped_as_the_recipe_says() {
        assert_eq!(scoped("evt_1", Some("a"), IdScope::Global).0, "evt_1");
        assert_eq!(scoped("evt_1", Some("a"), IdScope::Account).0, "acct:a:evt_1");
        assert_eq!(scoped("evt_1", None, IdScope::Account).0, "evt_1");
        assert_eq!(scoped("evt_1", Some(""), IdScope::Account).0, "evt_1");
        assert_eq!(scoped("evt_1", Some("a"), IdScope::Source).0, "src:shop:evt_1");
    }

    #[test]
    fn no_two_scoped_ids_are_spelled_alike() {
        let spellings = [
            scoped("c", Some("a:b"), IdScope::Account),
            scoped("b:c", Some("a"), IdScope::Account),
            scoped("c", Some("a%3Ab"), IdScope::Account),
            scoped("acct:a:c", None, IdScope::Global),
            scoped("c", Some("a"), IdScope::Account),
            scoped("raw:acct:a:c", None, IdScope::Global),
            scoped("src:shop:c", None, IdScope::Global),
            scoped("c", None, IdScope::Source),
            scoped("c", None, IdScope::Account),
        ];
        let distinct: std::collections::HashSet<_> = spellings.iter().collect();
        assert_eq!(distinct.len(), spellings.len(), "{spellings:?}");
    }

    #[test]
    fn an_id_that_is_too_long_or_holds_a_nul_becomes_its_hash_and_is_marked() {
        let long = "x".repeat(limits::EVENT_ID_BYTES_MAX);
        assert_eq!(scoped(&long, None, IdScope::Global), (long.clone(), false));
        let (id, derived) = scoped(&long, None, IdScope::Source);
        assert!(derived && id.starts_with("sha256:") && id.len() == 71, "{id}");
        let (id, derived) = scoped("a\0b", None, IdScope::Global);
        assert!(derived && !id.contains('\0'));
    }

    #[test]
    fn a_derived_id_holds_only_within_its_source() {
        let mut derived = found("sha256:00", None);
        derived.id_derived = true;
        let (id, still) = event_id(&derived, IdScope::Global, &SourceId::new("shop").expect("valid"));
        assert_eq!((id.as_str(), still), ("src:shop:sha256:00", true));
    }

    #[test]
    fn ordering_keys_name_the_entity_or_stand_alone_and_are_bounded() {
        let provider = ProviderName::new("stripe").expect("valid");
        assert_eq!(ordering_key(&provider, Some("sub_1"), "evt_1"), "stripe:sub_1");
        assert_eq!(ordering_key(&provider, None, "evt_1"), "stripe:evt_1");
        assert_eq!(ordering_key(&provider, Some(""), "evt_1"), "stripe:evt_1");
        let (long, other) = ("é".repeat(600), "è".repeat(600));
        let (long, other) =
            (ordering_key(&provider, Some(&long), "e"), ordering_key(&provider, Some(&other), "e"));
        assert!(long.len() <= limits::ORDERING_KEY_BYTES_MAX && long != other, "entities stay apart");
        assert!(!ordering_key(&provider, Some("a\0"), "e").contains('\0'));
    }

    #[test]
    fn event_types_are_cut_at_a_character_and_hold_no_nul() {
        let cut = event_type("é".repeat(200));
        assert_eq!(cut.len(), limits::EVENT_TYPE_BYTES_MAX);
        assert_eq!(event_type("a\0b".into()), "a\u{fffd}b");
    }

    #[test]
    fn headers_are_kept_by_list_and_proofs_never() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("user-agent", "Stripe/1.0"),
            ("x-github-event", "push"),
            ("x-hub-signature-256", "sha256=00"),
            ("authorization", "Bearer x"),
            ("x-other", "1"),
        ] {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        let asked = ["x-github-event", "x-hub-signature-256", "authorization"].map(str::to_owned);
        let kept = kept_headers(&headers, &asked);
        let names: Vec<_> = kept.iter().map(|header| header.name.as_str()).collect();
        assert_eq!(names, ["user-agent", "x-github-event"]);
    }
}
