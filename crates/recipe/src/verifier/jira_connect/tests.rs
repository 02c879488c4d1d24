use std::time::Duration;

use proptest::prelude::*;

use super::super::tests::{NOW, Owned, recipe};
use super::*;
use crate::Recipe;

const SECRET: &str = "shared-secret-of-the-installation-0123456789";
const URL: &str = "https://hooks.example.test/v1/t/acme/jira";

fn jira() -> Recipe {
    recipe(r#"{"kind":"jira-connect"}"#)
}

fn request(query: &str, token: &str) -> Owned {
    let mut request = Owned {
        query: query.to_owned(),
        body: br#"{"webhookEvent":"jira:issue_updated"}"#.to_vec(),
        urls: vec![URL.to_owned()],
        ..Owned::default()
    };
    request.set("authorization", &format!("JWT {token}"));
    request.setting("client_key", "client-key-1");
    request
}

/// Made by Atlassian's own package atlassian-jwt.
fn by_atlassian() -> [Owned; 3] {
    let plain = request(
        "",
        "eyJ0eXAiOiJKV1QiLCJhbGciOiJIUzI1NiJ9.eyJpc3MiOiJjbGllbnQta2V5LTEiLCJpYXQiOjE3NTAwMDAwMDAsImV4cCI6MTc1MDAwMDE4MCwicXNoIjoiOTkwYmRkNWZkM2JkMzdmYWFlZGE2NjJiZjQ2MGVhNmQzMGQ0MjdhMDA0N2E0NjNkYTNjNTJmMzQ3NDhlMWFmYyJ9.d_sO3xbwDMHE8ZVp-1ZFzqzbxBRXgcV10NefzoPJReE",
    );
    let mut below = request(
        "b=2&a=x%20y&a=%C3%A9&jwt=no&user=a@b*c",
        "eyJ0eXAiOiJKV1QiLCJhbGciOiJIUzI1NiJ9.eyJpc3MiOiJjbGllbnQta2V5LTEiLCJpYXQiOjE3NTAwMDAwMDAsImV4cCI6MTc1MDAwMDE4MCwicXNoIjoiOGM0YWNlZjE3MjBiMzU4OTg0MmY3OWJmZDM0NDcyZTBkNTRlYmI5M2ZmMTcwZTA2MWJmNGVjODBkMjdiOWZiOCJ9.xUKwOYVkvZWjV-gWPAu94K5AugsOZEnVOUjWaD-Eis0",
    );
    below.setting("base_url", "https://hooks.example.test/v1/t");
    let mut root = request(
        "",
        "eyJ0eXAiOiJKV1QiLCJhbGciOiJIUzI1NiJ9.eyJpc3MiOiJjbGllbnQta2V5LTEiLCJpYXQiOjE3NTAwMDAwMDAsImV4cCI6MTc1MDAwMDE4MCwicXNoIjoiNmRmYjU4MzIxNjkyZDA4ZDQ0NTY1ZDEzMzE4NDZmYzI0ZTdkYzA4YjMzMjU5ZDI2MmY0ZWZmNzliMjFkOGUwNSJ9.pmAHdixSbeP5n4GC2OorVuFNQQZWJyVaLO0GGWuGBCA",
    );
    root.urls = vec![format!("{URL}/")];
    root.setting("base_url", URL);
    [plain, below, root]
}

fn with_claims(claims: &serde_json::Value) -> Owned {
    with_header(r#"{"typ":"JWT","alg":"HS256"}"#, claims)
}

fn with_header(header: &str, claims: &serde_json::Value) -> Owned {
    let sign = |signed: &[u8]| mac(Algorithm::HmacSha256, SECRET.as_bytes(), signed);
    request("", &jwt::write(header, &claims.to_string(), sign))
}

fn claims(changes: &[(&str, serde_json::Value)]) -> serde_json::Value {
    let mut claims = serde_json::json!({
        "iss": "client-key-1",
        "iat": NOW.as_secs(),
        "exp": NOW.as_secs() + 180,
        "qsh": hex::encode(Sha256::digest("POST&/v1/t/acme/jira&")),
    });
    for (name, value) in changes {
        claims[*name] = value.clone();
    }
    claims
}

#[test]
fn what_atlassians_own_package_signs_verifies() {
    for request in by_atlassian() {
        assert_eq!(request.verify(&jira(), &[SECRET], NOW), Ok(Some(1)));
        assert_eq!(request.verify(&jira(), &["another-secret-0123", SECRET], NOW), Ok(Some(2)));
        assert_eq!(request.refused(&jira(), &["another-secret-0123"], NOW), Some(Reason::SignatureMismatch));
    }
}

#[test]
fn method_path_and_query_are_bound_and_the_body_is_not() {
    for good in by_atlassian() {
        let mut changed = good.clone();
        changed.query.push_str("&x=1");
        assert_eq!(changed.refused(&jira(), &[SECRET], NOW), Some(Reason::SignatureMismatch));
        changed = good.clone();
        changed.urls = vec!["https://hooks.example.test/v1/t/acme/other".to_owned()];
        assert_eq!(changed.refused(&jira(), &[SECRET], NOW), Some(Reason::SignatureMismatch));
        changed = good.clone();
        changed.urls.clear();
        assert_eq!(changed.refused(&jira(), &[SECRET], NOW), Some(Reason::PublicUrlUnknown));
        changed = good.clone();
        changed.body = b"{}".to_vec();
        assert_eq!(changed.refused(&jira(), &[SECRET], NOW), None, "which is why this proves so little");
    }
    assert_eq!(jira().strength(), crate::Strength::Token);
}

#[test]
fn only_hs256_is_read() {
    for alg in ["none", "RS256", "HS512", "ES256"] {
        let request = with_header(&format!(r#"{{"alg":"{alg}"}}"#), &claims(&[]));
        assert_eq!(request.refused(&jira(), &[SECRET], NOW), Some(Reason::SignatureMalformed), "{alg}");
    }
}

#[test]
fn the_sender_must_be_the_installation_that_the_source_names() {
    assert_eq!(with_claims(&claims(&[])).refused(&jira(), &[SECRET], NOW), None);
    let other = with_claims(&claims(&[("iss", "client-key-2".into())]));
    assert_eq!(other.refused(&jira(), &[SECRET], NOW), Some(Reason::NotForThisSource));
    let nobody = with_claims(&claims(&[("iss", serde_json::Value::Null)]));
    assert_eq!(nobody.refused(&jira(), &[SECRET], NOW), Some(Reason::NotForThisSource));
    let mut unset = with_claims(&claims(&[]));
    unset.settings.clear();
    assert_eq!(unset.refused(&jira(), &[SECRET], NOW), Some(Reason::SettingMissing));
}

#[test]
fn an_audience_counts_where_both_name_one() {
    for (audience, reason) in [
        (serde_json::Value::Null, None),
        ("app".into(), None),
        (serde_json::json!(["other", "app"]), None),
        ("other".into(), Some(Reason::NotForThisSource)),
        (serde_json::json!(["other"]), Some(Reason::NotForThisSource)),
    ] {
        let mut request = with_claims(&claims(&[("aud", audience.clone())]));
        request.setting("audience", "app");
        assert_eq!(request.refused(&jira(), &[SECRET], NOW), reason, "{audience}");
    }
}

#[test]
fn a_token_lives_from_when_it_was_made_until_it_ends() {
    let second = Duration::from_secs(1);
    let request = with_claims(&claims(&[]));
    for (now, reason) in [
        (NOW.plus(second * 240), None),
        (NOW.plus(second * 241), Some(Reason::TimestampTooOld)),
        (NOW.minus(second * 60), None),
        (NOW.minus(second * 61), Some(Reason::TimestampInFuture)),
    ] {
        assert_eq!(request.refused(&jira(), &[SECRET], now), reason);
    }
    let for_ever = with_claims(&claims(&[("exp", (NOW.as_secs() + 1_000_000).into())]));
    assert_eq!(for_ever.refused(&jira(), &[SECRET], NOW.plus(second * 3601)), Some(Reason::TimestampTooOld));
    for name in ["iat", "exp"] {
        let request = with_claims(&claims(&[(name, serde_json::Value::Null)]));
        assert_eq!(request.refused(&jira(), &[SECRET], NOW), Some(Reason::TimestampMissing), "{name}");
    }
}

#[test]
fn other_ways_to_authorize_are_no_signature() {
    for value in ["", "Bearer a.b.c", "JWT", "jwt a.b.c", "Basic YTpi"] {
        let mut request = with_claims(&claims(&[]));
        request.set("authorization", value);
        assert_eq!(request.refused(&jira(), &[SECRET], NOW), Some(Reason::SignatureMissing), "{value}");
    }
    let mut request = with_claims(&claims(&[]));
    request.set("authorization", "JWT a.b.c");
    assert_eq!(request.refused(&jira(), &[SECRET], NOW), Some(Reason::SignatureMalformed));
}

#[test]
fn only_whole_steps_of_the_path_are_the_base() {
    let mut request = with_claims(&claims(&[]));
    request.setting("base_url", "https://hooks.example.test/v1/t/ac");
    assert_eq!(request.refused(&jira(), &[SECRET], NOW), None, "not below it, so the whole path counts");
}

proptest! {
    #[test]
    fn what_is_signed_verifies_for_any_query(query in "[a-zA-Z0-9=&%+/.~_-]{0,30}") {
        let unsigned = request(&query, "");
        let headers = unsigned
            .with(|request| sign(&Signing { request, secret: SECRET, now: NOW }))
            .expect("signed");
        let mut signed = unsigned;
        for (name, value) in headers {
            signed.set(&name, &value);
        }
        prop_assert_eq!(signed.verify(&jira(), &[SECRET], NOW), Ok(Some(1)));
        signed.query.push_str("&zz=1");
        prop_assert_eq!(signed.refused(&jira(), &[SECRET], NOW), Some(Reason::SignatureMismatch));
    }
}
