//! What two readers could understand differently is refused, and what a token brings along is never trusted.

use std::time::Duration;

use jsonwebtoken::{Algorithm as Alg, EncodingKey};
use portero_auth::{Issuer, KeySource, LEEWAY, Reason, Verifier};
use portero_types::Timestamp;
use serde_json::{Value, json};

use crate::forge::{NOW, RSA, good_parts, issuer, issuer_key, jwks, sign_text, signed, verifier};

/// The last second of the year 9999.
const LAST: i64 = 253_402_300_799;

async fn verified(header: &str, claims: &str) -> Result<portero_auth::Caller, Reason> {
    verifier().verify(&sign_text(header, claims, Alg::EdDSA, &issuer_key()), NOW).await
}

/// The text with a member put before all others.
fn with_first(object: &Value, member: &str) -> String {
    object.to_string().replacen('{', &format!("{{{member},"), 1)
}

#[tokio::test]
async fn a_repeated_field_of_the_header_is_refused_whatever_its_values() {
    let (header, claims) = good_parts();
    let kid = issuer().key_id().to_owned();
    for member in [r#""alg":"none""#, r#""alg":"EdDSA""#, r#""kid":"other""#, &format!(r#""kid":"{kid}""#)] {
        let refused = verified(&with_first(&header, member), &claims.to_string()).await.unwrap_err();
        assert_eq!(refused, Reason::TokenMalformed, "{member}");
    }
}

#[tokio::test]
async fn a_repeated_claim_is_refused_whatever_its_values() {
    let (header, claims) = good_parts();
    for member in [
        r#""iss":"https://portero.test""#,
        r#""sub":"ops""#,
        r#""aud":"other""#,
        r#""exp":99999999999"#,
        r#""nbf":0"#,
        r#""iat":0"#,
        r#""portero":{"role":"viewer"}"#,
    ] {
        let refused = verified(&header.to_string(), &with_first(&claims, member)).await.unwrap_err();
        assert_eq!(refused, Reason::ClaimsMalformed, "{member}");
    }
    let grant = r#"{"role":"viewer","role":"platform-admin"}"#;
    let twice = claims.to_string().replace(r#"{"role":"platform-admin"}"#, grant);
    assert!(twice.contains(grant));
    assert_eq!(verified(&header.to_string(), &twice).await.unwrap_err(), Reason::GrantMalformed);
}

#[tokio::test]
async fn a_repeated_field_that_nobody_reads_here_does_no_harm() {
    let (header, claims) = good_parts();
    let mut odd = claims.clone();
    odd["groups"] = json!(["a"]);
    let claims = with_first(&odd, r#""groups":["b"]"#);
    assert!(verified(&header.to_string(), &claims).await.is_ok());
}

#[tokio::test]
async fn lists_are_not_taken_for_objects() {
    let (header, claims) = good_parts();
    let values = |object: &Value, names: &[&str]| {
        Value::Array(names.iter().map(|name| object[name].clone()).collect()).to_string()
    };
    let list = values(&header, &["alg", "kid", "crit", "b64"]);
    assert_eq!(verified(&list, &claims.to_string()).await.unwrap_err(), Reason::TokenMalformed);
    let list = values(&claims, &["iss", "sub", "aud", "exp", "nbf", "iat", "portero"]);
    assert_eq!(verified(&header.to_string(), &list).await.unwrap_err(), Reason::TokenMalformed);
    let mut odd = claims.clone();
    odd["portero"] = json!(["platform-admin", null, []]);
    assert_eq!(verified(&header.to_string(), &odd.to_string()).await.unwrap_err(), Reason::GrantMalformed);
    let spaced = format!(" \n{header}");
    assert!(verified(&spaced, &claims.to_string()).await.is_ok(), "white space is no matter");
}

#[tokio::test]
async fn json_nested_without_end_overflows_nothing_and_is_refused_where_it_is_read() {
    let (header, claims) = good_parts();
    let lists = format!("{}1{}", "[".repeat(4_000), "]".repeat(4_000));
    let passed_over = with_first(&claims, &format!(r#""x":{lists}"#));
    assert!(verified(&header.to_string(), &passed_over).await.is_ok());
    let objects = format!("{}1{}", r#"{"a":"#.repeat(1_500), "}".repeat(1_500));
    for name in ["portero", "aud", "iss", "exp"] {
        let mut others = claims.clone();
        others.as_object_mut().unwrap().remove(name);
        for deep in [&lists, &objects] {
            let claims = with_first(&others, &format!(r#""{name}":{deep}"#));
            assert!(verified(&header.to_string(), &claims).await.is_err(), "{name}");
        }
    }
}

#[tokio::test]
async fn an_audience_is_one_of_a_list_and_nothing_but_texts() {
    let (header, mut claims) = good_parts();
    for (aud, expected) in [
        (json!(["other", "portero"]), None),
        (json!(vec!["portero"; 500]), None),
        (json!(["Portero"]), Some(Reason::AudienceWrong)),
        (json!("portero "), Some(Reason::AudienceWrong)),
        (json!(["portero", 7]), Some(Reason::ClaimsMalformed)),
        (json!([["portero"]]), Some(Reason::ClaimsMalformed)),
        (json!({ "portero": true }), Some(Reason::ClaimsMalformed)),
    ] {
        claims["aud"] = aud;
        let outcome = verifier().verify(&signed(&header, &claims), NOW).await;
        assert_eq!(outcome.err(), expected, "{}", claims["aud"]);
    }
}

#[tokio::test]
async fn an_expiry_is_taken_up_to_the_year_9999_and_not_beyond() {
    let (header, mut claims) = good_parts();
    claims["exp"] = json!(LAST);
    let caller = verifier().verify(&signed(&header, &claims), NOW).await.unwrap();
    assert_eq!(caller.expires_at, Timestamp::from_secs(LAST));
    assert!(caller.expires_at.plus(LEEWAY) > caller.expires_at, "it can be calculated with");
    for beyond in [json!(LAST + 1), json!(u64::MAX), json!(i64::MIN), json!(1e308)] {
        claims["exp"] = beyond;
        let refused = verifier().verify(&signed(&header, &claims), NOW).await.unwrap_err();
        assert_eq!(refused, Reason::ClaimsMalformed, "{}", claims["exp"]);
    }
}

#[tokio::test]
async fn times_may_have_fractions_and_the_earlier_second_counts() {
    let (header, mut claims) = good_parts();
    claims["iat"] = json!(1_800_000_000.75);
    let caller = verifier().verify(&signed(&header, &claims), NOW).await.unwrap();
    assert_eq!(caller.claimed.unwrap().issued_at, Some(NOW));
    claims.as_object_mut().unwrap().remove("iat");
    let caller = verifier().verify(&signed(&header, &claims), NOW).await.unwrap();
    assert_eq!(caller.claimed.unwrap().issued_at, None, "it need not be there");
}

#[tokio::test]
async fn a_key_that_the_token_brings_along_is_never_used() {
    let stranger = Issuer::generate("https://portero.test", "portero", [2; 32]);
    let own: Value = serde_json::from_str(&stranger.jwks()).unwrap();
    let key = {
        use ed25519_dalek::pkcs8::EncodePrivateKey;
        EncodingKey::from_ed_der(
            ed25519_dalek::SigningKey::from_bytes(&[2; 32]).to_pkcs8_der().unwrap().as_bytes(),
        )
    };
    let (header, claims) = good_parts();
    for (kid, expected) in
        [(stranger.key_id(), Reason::KeyUnknown), (issuer().key_id(), Reason::SignatureMismatch)]
    {
        let mut header = header.clone();
        header["kid"] = json!(kid);
        header["jwk"] = own["keys"][0].clone();
        header["jku"] = json!("https://evil.test/keys");
        header["x5u"] = json!("https://evil.test/certificate");
        let token = sign_text(&header.to_string(), &claims.to_string(), Alg::EdDSA, &key);
        assert_eq!(verifier().verify(&token, NOW).await.unwrap_err(), expected);
    }
}

#[tokio::test]
async fn key_ids_of_any_length_and_content_are_looked_up_and_nothing_else() {
    let (mut header, claims) = good_parts();
    for kid in ["../../etc/passwd", "' OR 1=1 --", "\u{0}", &"k".repeat(8_000)] {
        header["kid"] = json!(kid);
        let refused = verified(&header.to_string(), &claims.to_string()).await.unwrap_err();
        assert_eq!(refused, Reason::KeyUnknown, "{kid:?}");
    }
    header["kid"] = json!(7);
    let refused = verified(&header.to_string(), &claims.to_string()).await.unwrap_err();
    assert_eq!(refused, Reason::TokenMalformed);
}

#[tokio::test]
async fn a_set_with_one_key_twice_verifies_by_either() {
    let rsa = EncodingKey::from_rsa_pem(RSA.as_bytes()).unwrap();
    let mut keys: Value = serde_json::from_str(&issuer().jwks()).unwrap();
    let mut other: Value = serde_json::from_str(&jwks(&rsa, Alg::RS256, issuer().key_id())).unwrap();
    keys["keys"].as_array_mut().unwrap().append(other["keys"].as_array_mut().unwrap());
    let mut trusted = issuer().trusted();
    trusted.keys = KeySource::Inline(keys.to_string());
    let verifier = Verifier::new(vec![trusted]).unwrap();
    let (header, claims) = good_parts();
    assert!(verifier.verify(&signed(&header, &claims), NOW).await.is_ok());
    let mut confused = header.clone();
    confused["alg"] = json!("RS256");
    let token = sign_text(&confused.to_string(), &claims.to_string(), Alg::RS256, &rsa);
    let refused = verifier.verify(&token, NOW).await.unwrap_err();
    assert_eq!(refused, Reason::AlgorithmNotAllowed, "the issuer is pinned to the other one");
}

#[test]
fn every_reason_says_what_is_wrong_and_what_to_do_and_nothing_of_the_token_or_the_settings() {
    let all = [
        Reason::TokenTooLarge,
        Reason::TokenMalformed,
        Reason::AlgorithmNone,
        Reason::AlgorithmSymmetric,
        Reason::AlgorithmNotAllowed,
        Reason::IssuerUnknown,
        Reason::KeyIdMissing,
        Reason::KeyUnknown,
        Reason::KeysUnavailable,
        Reason::SignatureMismatch,
        Reason::AudienceWrong,
        Reason::ExpiryMissing,
        Reason::Expired,
        Reason::NotYetValid,
        Reason::ClaimsMalformed,
        Reason::GrantMalformed,
    ];
    for reason in all {
        let text = reason.to_string();
        let (wrong, advice) = text.split_once([':', ';']).unwrap_or_else(|| panic!("{text}: no advice"));
        assert!(wrong.len() > 10 && advice.len() > 8, "{text}");
        assert!(text.len() < 300, "{text}");
    }
}

#[tokio::test]
async fn a_token_of_the_far_future_is_refused_however_long_it_lives() {
    let (header, mut claims) = good_parts();
    let begins = NOW.plus(Duration::from_secs(31)).as_secs();
    for name in ["nbf", "iat"] {
        let (was, exp) = (claims[name].clone(), claims["exp"].clone());
        claims["exp"] = json!(LAST);
        for at in [begins, LAST] {
            claims[name] = json!(at);
            let refused = verifier().verify(&signed(&header, &claims), NOW).await.unwrap_err();
            assert_eq!(refused, Reason::NotYetValid, "{name}");
        }
        (claims[name], claims["exp"]) = (was, exp);
    }
}
