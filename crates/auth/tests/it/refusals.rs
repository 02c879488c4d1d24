//! Each way a token can be wrong has its own reason.

use std::time::Duration;

use jsonwebtoken::{Algorithm as Alg, EncodingKey};
use portero_auth::{
    Algorithm, Claimed, Grant, Issuer, KeySource, LEEWAY, NewToken, Reason, Role, TOKEN_BYTES_MAX,
    TrustedIssuer, Verifier,
};
use portero_types::{SubjectPattern, SubscriptionId, TenantId, Timestamp};
use serde_json::{Value, json};

use crate::forge::{
    NOW, P256, RSA, encode, good_parts, issuer, issuer_key, jwks, minted, sign_text, signed, verifier,
};

async fn reason(token: &str) -> Reason {
    verifier().verify(token, NOW).await.unwrap_err()
}

async fn reason_with_claims(change: impl FnOnce(&mut Value)) -> Reason {
    let (header, mut claims) = good_parts();
    change(&mut claims);
    reason(&signed(&header, &claims)).await
}

async fn reason_with_header(change: impl FnOnce(&mut Value)) -> Reason {
    let (mut header, claims) = good_parts();
    change(&mut header);
    reason(&signed(&header, &claims)).await
}

#[tokio::test]
async fn a_minted_token_says_who_calls_and_until_when() {
    let grant = Grant {
        tenant: Some(TenantId::new("acme").unwrap()),
        ..Grant::consumer(vec![SubscriptionId::new("billing").unwrap()])
    };
    let new = NewToken {
        subject: "billing-service".into(),
        grant: Some(grant.clone()),
        lifetime: Duration::from_secs(60),
    };
    let minted = issuer().mint(&new, NOW, 7).unwrap();
    let caller = verifier().verify(minted.token.expose_secret(), NOW).await.unwrap();
    assert_eq!(caller.subject, "billing-service");
    assert_eq!(caller.issuer, "https://portero.test");
    assert_eq!(caller.grants, []);
    assert_eq!(caller.claimed, Some(Claimed { grant, issued_at: Some(NOW) }));
    assert_eq!(caller.expires_at, NOW.plus(Duration::from_secs(60)));
    assert_eq!(caller.expires_at, minted.expires_at);
}

#[tokio::test]
async fn the_forger_used_in_these_tests_makes_good_tokens() {
    let (header, claims) = good_parts();
    assert!(verifier().verify(&signed(&header, &claims), NOW).await.is_ok());
}

#[tokio::test]
async fn an_oversized_token_is_not_even_read() {
    assert_eq!(reason(&"a".repeat(TOKEN_BYTES_MAX + 1)).await, Reason::TokenTooLarge);
    assert_eq!(reason(&"a".repeat(TOKEN_BYTES_MAX)).await, Reason::TokenMalformed);
}

#[tokio::test]
async fn what_is_no_token_is_malformed() {
    let good = minted(&issuer());
    let parts: Vec<&str> = good.split('.').collect();
    for bad in [
        String::new(),
        "..".to_owned(),
        "a.b.c".to_owned(),
        parts[..2].join("."),
        format!("{good}.{}", parts[2]),
        format!("{}=.{}.{}", parts[0], parts[1], parts[2]),
        format!("{}.{}.", parts[0], parts[1]),
        format!(" {good}"),
        format!("{}.{}.{}", encode("[]"), parts[1], parts[2]),
        format!("{}.{}.{}", parts[0], encode([0xff, 0xfe]), parts[2]),
    ] {
        assert_eq!(reason(&bad).await, Reason::TokenMalformed, "{bad}");
    }
}

#[tokio::test]
async fn header_fields_that_must_be_understood_are_refused() {
    assert_eq!(reason_with_header(|h| h["crit"] = json!(["exp"])).await, Reason::TokenMalformed);
    assert_eq!(reason_with_header(|h| h["b64"] = json!(false)).await, Reason::TokenMalformed);
}

#[tokio::test]
async fn an_unsigned_token_is_refused_in_every_spelling() {
    let (_, claims) = good_parts();
    for name in ["none", "None", "NONE", "nOnE"] {
        let header = json!({ "alg": name, "kid": issuer().key_id() }).to_string();
        for signature in ["", "AAAA"] {
            let token = format!("{}.{}.{signature}", encode(&header), encode(claims.to_string()));
            assert_eq!(reason(&token).await, Reason::AlgorithmNone, "{name}");
        }
    }
}

#[tokio::test]
async fn a_public_key_used_as_a_shared_secret_is_refused() {
    let (mut header, claims) = good_parts();
    header["alg"] = json!("HS256");
    let x = serde_json::from_str::<Value>(&issuer().jwks()).unwrap()["keys"][0]["x"].clone();
    for secret in [x.as_str().unwrap().as_bytes(), issuer().jwks().as_bytes()] {
        let key = EncodingKey::from_secret(secret).unwrap();
        let token = sign_text(&header.to_string(), &claims.to_string(), Alg::HS256, &key);
        assert_eq!(reason(&token).await, Reason::AlgorithmSymmetric);
    }
}

#[tokio::test]
async fn an_algorithm_that_the_issuer_is_not_pinned_to_is_refused() {
    for name in ["RS256", "ES256", "eddsa", "ES512", ""] {
        assert_eq!(
            reason_with_header(|h| h["alg"] = json!(name)).await,
            Reason::AlgorithmNotAllowed,
            "{name}"
        );
    }
}

#[tokio::test]
async fn a_key_of_another_kind_than_the_header_says_is_refused() {
    let mut trusted = issuer().trusted();
    trusted.algorithms = vec![Algorithm::EdDsa, Algorithm::Rs256];
    let (mut header, claims) = good_parts();
    header["alg"] = json!("RS256");
    let key = EncodingKey::from_rsa_pem(RSA.as_bytes()).unwrap();
    let token = sign_text(&header.to_string(), &claims.to_string(), Alg::RS256, &key);
    let verifier = Verifier::new(vec![trusted]).unwrap();
    assert_eq!(verifier.verify(&token, NOW).await.unwrap_err(), Reason::AlgorithmNotAllowed);
}

#[tokio::test]
async fn an_issuer_that_is_not_configured_is_refused() {
    for iss in [json!("https://evil.test"), json!("https://portero.test/"), Value::Null] {
        assert_eq!(reason_with_claims(|c| c["iss"] = iss).await, Reason::IssuerUnknown);
    }
}

#[tokio::test]
async fn a_key_must_be_named_and_known() {
    assert_eq!(
        reason_with_header(|h| drop(h.as_object_mut().unwrap().remove("kid"))).await,
        Reason::KeyIdMissing
    );
    assert_eq!(reason_with_header(|h| h["kid"] = json!("other")).await, Reason::KeyUnknown);
}

#[tokio::test]
async fn a_signature_of_another_key_or_over_other_claims_is_refused() {
    let (header, claims) = good_parts();
    let stranger = Issuer::generate("https://portero.test", "portero", [2; 32]);
    let mut foreign = minted(&stranger);
    foreign = format!("{}.{}", encode(header.to_string()), foreign.split_once('.').unwrap().1);
    assert_eq!(reason(&foreign).await, Reason::SignatureMismatch);

    let good = signed(&header, &claims);
    let (head, rest) = good.split_once('.').unwrap();
    let (_, signature) = rest.split_once('.').unwrap();
    let mut raised = claims.clone();
    raised["sub"] = json!("root");
    let token = format!("{head}.{}.{signature}", encode(raised.to_string()));
    assert_eq!(reason(&token).await, Reason::SignatureMismatch);
    for odd in ["AA", "!", &"A".repeat(200)] {
        let token = format!("{head}.{}.{odd}", encode(claims.to_string()));
        assert_eq!(reason(&token).await, Reason::SignatureMismatch, "{odd}");
    }
}

#[tokio::test]
async fn a_token_for_somebody_else_is_refused() {
    for aud in [json!("other"), json!(["a", "b"]), json!([]), Value::Null] {
        assert_eq!(reason_with_claims(|c| c["aud"] = aud).await, Reason::AudienceWrong);
    }
    let (header, mut claims) = good_parts();
    claims["aud"] = json!(["other", "portero"]);
    assert!(verifier().verify(&signed(&header, &claims), NOW).await.is_ok(), "one of several is enough");
}

#[tokio::test]
async fn a_token_ends_at_its_expiry_plus_the_leeway() {
    let token = minted(&issuer());
    let end = NOW.plus(Duration::from_secs(600)).plus(LEEWAY);
    let verifier = verifier();
    assert!(verifier.verify(&token, end.minus(Duration::from_micros(1))).await.is_ok());
    assert_eq!(verifier.verify(&token, end).await.unwrap_err(), Reason::Expired);
    assert_eq!(reason_with_claims(|c| c["exp"] = json!(0)).await, Reason::Expired);
    let no_expiry = |c: &mut Value| drop(c.as_object_mut().unwrap().remove("exp"));
    assert_eq!(reason_with_claims(no_expiry).await, Reason::ExpiryMissing);
}

#[tokio::test]
async fn a_token_begins_at_its_nbf_and_iat_less_the_leeway() {
    let token = minted(&issuer());
    let verifier = verifier();
    assert!(verifier.verify(&token, NOW.minus(LEEWAY)).await.is_ok());
    let early = NOW.minus(LEEWAY).minus(Duration::from_micros(1));
    assert_eq!(verifier.verify(&token, early).await.unwrap_err(), Reason::NotYetValid);
    let later = NOW.as_secs() + 31;
    assert_eq!(reason_with_claims(|c| c["nbf"] = json!(later)).await, Reason::NotYetValid);
    assert_eq!(reason_with_claims(|c| c["iat"] = json!(later)).await, Reason::NotYetValid);
}

#[tokio::test]
async fn claims_of_another_type_or_range_are_malformed() {
    for exp in [json!("1800000600"), json!(-1), json!(1e300), json!([]), json!({})] {
        assert_eq!(reason_with_claims(|c| c["exp"] = exp).await, Reason::ClaimsMalformed);
    }
    for sub in [json!(""), json!("a".repeat(257)), json!("a\nb"), json!(7), Value::Null] {
        assert_eq!(reason_with_claims(|c| c["sub"] = sub).await, Reason::ClaimsMalformed);
    }
    assert_eq!(reason_with_claims(|c| c["aud"] = json!(7)).await, Reason::ClaimsMalformed);
    let (header, claims) = good_parts();
    let twice = claims.to_string().replacen('{', r#"{"sub":"root","#, 1);
    let token = sign_text(&header.to_string(), &twice, Alg::EdDSA, &issuer_key());
    assert_eq!(reason(&token).await, Reason::ClaimsMalformed, "a repeated claim");
}

#[tokio::test]
async fn a_grant_that_is_not_fully_understood_refuses_the_token() {
    for grant in [
        json!({}),
        json!("platform-admin"),
        json!([{ "role": "platform-admin" }]),
        json!({ "role": "root" }),
        json!({ "role": "admin" }),
        json!({ "role": "platform-admin", "scope": "all" }),
        json!({ "role": "platform-admin", "tenant": "acme" }),
        json!({ "role": "platform-admin", "subscriptions": ["billing"] }),
        json!({ "role": "tenant-admin" }),
        json!({ "role": "viewer", "tenant": "Not A Slug" }),
        json!({ "role": "consumer" }),
        json!({ "role": "consumer", "subscriptions": [] }),
        json!({ "role": "consumer", "subscriptions": (0..101).map(|n| format!("s{n}")).collect::<Vec<_>>() }),
    ] {
        let text = grant.to_string();
        assert_eq!(reason_with_claims(|c| c["portero"] = grant).await, Reason::GrantMalformed, "{text}");
    }
}

#[tokio::test]
async fn an_issuer_without_our_claims_gets_grants_by_subject_only() {
    let service = "system:serviceaccount:shop:billing";
    let grant = Grant::consumer(vec![SubscriptionId::new("billing").unwrap()]);
    let mut trusted = issuer().trusted();
    trusted.grants_in_token = false;
    let all = Grant::of(Role::Viewer, None);
    trusted.subjects = vec![
        (SubjectPattern::new(service).unwrap(), grant.clone()),
        (SubjectPattern::new("system:serviceaccount:shop:*").unwrap(), all.clone()),
    ];
    let verifier = Verifier::new(vec![trusted]).unwrap();
    let (header, mut claims) = good_parts();
    for (subject, grants) in [
        (service, vec![grant, all.clone()]),
        ("system:serviceaccount:shop:other", vec![all]),
        ("system:serviceaccount:other:billing", Vec::new()),
    ] {
        claims["sub"] = json!(subject);
        let caller = verifier.verify(&signed(&header, &claims), NOW).await.unwrap();
        assert_eq!(caller.grants, grants, "{subject}");
        assert_eq!(caller.claimed, None, "{subject}: the token's own claim to be admin is ignored");
    }
}

#[tokio::test]
async fn a_token_may_say_only_who_its_holder_is() {
    let new = NewToken { subject: "ops".into(), grant: None, lifetime: Duration::from_secs(60) };
    let minted = issuer().mint(&new, NOW, 7).unwrap();
    let caller = verifier().verify(minted.token.expose_secret(), NOW).await.unwrap();
    assert_eq!((caller.subject.as_str(), caller.grants, caller.claimed), ("ops", Vec::new(), None));
}

#[tokio::test]
async fn the_grants_of_token_and_configuration_are_told_apart() {
    let mut trusted = issuer().trusted();
    let configured = Grant::of(Role::Security, None);
    trusted.subjects = vec![(SubjectPattern::new("ops").unwrap(), configured.clone())];
    let (header, claims) = good_parts();
    let verifier = Verifier::new(vec![trusted]).unwrap();
    let caller = verifier.verify(&signed(&header, &claims), NOW).await.unwrap();
    assert_eq!(caller.grants, [configured]);
    assert_eq!(caller.claimed.map(|claimed| claimed.grant), Some(Grant::platform_admin()));
}

#[tokio::test]
async fn rsa_and_elliptic_curve_issuers_verify_beside_each_other() {
    let rsa = EncodingKey::from_rsa_pem(RSA.as_bytes()).unwrap();
    let p256 = EncodingKey::from_ec_pem(P256.as_bytes()).unwrap();
    let trusted = |issuer: &str, algorithm, keys| TrustedIssuer {
        issuer: issuer.to_owned(),
        audiences: vec!["portero".to_owned()],
        algorithms: vec![algorithm],
        keys: KeySource::Inline(keys),
        grants_in_token: true,
        subjects: Vec::new(),
    };
    let verifier = Verifier::new(vec![
        trusted("https://rsa.test", Algorithm::Rs256, jwks(&rsa, Alg::RS256, "r")),
        trusted("https://ec.test", Algorithm::Es256, jwks(&p256, Alg::ES256, "e")),
    ])
    .unwrap();
    for (iss, kid, alg, key) in
        [("https://rsa.test", "r", Alg::RS256, &rsa), ("https://ec.test", "e", Alg::ES256, &p256)]
    {
        let (mut header, mut claims) = good_parts();
        header["kid"] = json!(kid);
        header["alg"] = json!(alg);
        claims["iss"] = json!(iss);
        let token = sign_text(&header.to_string(), &claims.to_string(), alg, key);
        assert_eq!(verifier.verify(&token, NOW).await.unwrap().issuer, iss);
        claims["iss"] = json!(if iss.contains("rsa") { "https://ec.test" } else { "https://rsa.test" });
        let crossed = sign_text(&header.to_string(), &claims.to_string(), alg, key);
        assert_eq!(verifier.verify(&crossed, NOW).await.unwrap_err(), Reason::AlgorithmNotAllowed);
    }
}

#[test]
fn all_problems_of_a_configuration_are_told_at_once() {
    let bad = TrustedIssuer {
        issuer: "https://a.test".to_owned(),
        audiences: Vec::new(),
        algorithms: Vec::new(),
        keys: KeySource::Inline("{}".to_owned()),
        grants_in_token: true,
        subjects: vec![(SubjectPattern::new("ops").unwrap(), Grant::of(Role::TenantAdmin, None))],
    };
    let twice = issuer().trusted();
    let problems = Verifier::new(vec![bad, twice.clone(), twice]).unwrap_err();
    assert_eq!(problems.len(), 5, "{problems:?}");
}

#[test]
fn codes_are_distinct_and_only_missing_keys_are_worth_a_retry() {
    assert!(Reason::KeysUnavailable.is_retryable());
    assert!(!Reason::KeyUnknown.is_retryable());
    assert_ne!(Reason::KeyUnknown.code(), Reason::KeysUnavailable.code());
    assert_eq!(Timestamp::EPOCH.plus(LEEWAY).as_secs(), 30);
}
