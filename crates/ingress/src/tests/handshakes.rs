//! Checks of a URL, and secrets that they bring.

use std::sync::atomic::Ordering::SeqCst;

use super::*;
use crate::SecretNotWritten;

const ASANA: u8 = 20;
const HOOK_SECRET: &str = "b537207f20cbfa02357cf448134da559e8bd39d61597dcd5631b8012eae53e81";

/// A gateway with a source that waits for its secret for an hour, and has none yet.
async fn waiting() -> Gateway {
    let gateway = Gateway::start().await;
    let until = NOW.plus(Duration::from_secs(3600));
    gateway.add(ASANA, "asana", None, |source| source.secret_expected_until = Some(until)).await;
    gateway
}

async fn shake(gateway: &Gateway) -> Reply {
    gateway.post(ASANA, &pairs(&[("x-hook-secret", HOOK_SECRET)]), b"").await
}

#[tokio::test]
async fn a_secret_that_is_waited_for_is_stored_and_sent_back() {
    let gateway = waiting().await;
    let reply = shake(&gateway).await;
    assert_eq!((reply.status, reply.header("x-hook-secret")), (200, Some(HOOK_SECRET)), "{reply:?}");
    assert_eq!(gateway.secrets.written(), [(SourceNo(i64::from(ASANA)), HOOK_SECRET.to_owned())]);
    assert!(gateway.stored().is_empty(), "a handshake is no event");
    gateway.stop().await;
}

#[tokio::test]
async fn the_answer_goes_out_only_after_the_secret_is_committed() {
    let gateway = waiting().await;
    gateway.secrets.gate.forget_permits(1_000);
    let mut shaking = Box::pin(shake(&gateway));
    while gateway.secrets.waiting.load(SeqCst) == 0 {
        assert!(futures::poll!(&mut shaking).is_pending());
        tokio::task::yield_now().await;
    }
    // Whatever is sent meanwhile is answered, and this is not.
    assert_eq!(gateway.deliver(1, &stripe_event("evt_1")).await.status, 200);
    assert!(futures::poll!(&mut shaking).is_pending());
    gateway.secrets.gate.add_permits(1);
    assert_eq!(shaking.await.status, 200);
    gateway.stop().await;
}

#[tokio::test]
async fn a_secret_that_nobody_waits_for_is_refused_without_asking_the_store() {
    let gateway = waiting().await;
    gateway.add(21, "asana", None, |_| {}).await;
    let hook = pairs(&[("x-hook-secret", HOOK_SECRET)]);
    let never = gateway.post(21, &hook, b"").await;
    gateway.clock.set(NOW.plus(Duration::from_secs(3601)));
    let late = shake(&gateway).await;
    for reply in [never, late] {
        let reason = reply.json()["reason"].clone();
        assert_eq!((reply.status, reason.as_str()), (401, Some("HANDSHAKE_NOT_EXPECTED")), "{reply:?}");
        assert!(reply.header("x-hook-secret").is_none(), "{reply:?}");
    }
    assert!(gateway.secrets.written().is_empty());
    gateway.stop().await;
}

#[tokio::test]
async fn the_store_has_the_last_word_and_when_it_is_away_the_provider_comes_again() {
    let gateway = waiting().await;
    gateway.secrets.answer(Ok(false));
    let reply = shake(&gateway).await;
    assert_eq!((reply.status, reply.json()["reason"].as_str()), (401, Some("HANDSHAKE_NOT_EXPECTED")));
    gateway.secrets.answer(Err(SecretNotWritten));
    let reply = shake(&gateway).await;
    assert_eq!((reply.status, reply.json()["error"].as_str()), (503, Some("store_unavailable")));
    assert!(reply.header("retry-after").is_some() && reply.header("x-hook-secret").is_none());
    gateway.secrets.answer(Ok(true));
    assert_eq!(shake(&gateway).await.status, 200);
    let kept = Arc::clone(&gateway.rejections);
    gateway.stop().await;
    let reasons: Vec<_> = kept.rows().into_iter().map(|row| row.reason).collect();
    assert_eq!(reasons, ["HANDSHAKE_NOT_EXPECTED"], "an outage says nothing about the request");
}

#[tokio::test]
async fn a_source_without_its_secret_yet_refuses_events() {
    let gateway = waiting().await;
    let signed = pairs(&[("x-hook-signature", &"0".repeat(64))]);
    let reply = gateway.post(ASANA, &signed, br#"{"events":[]}"#).await;
    assert_eq!((reply.status, reply.json()["reason"].as_str()), (401, Some("NO_ACTIVE_SECRET")));
    gateway.stop().await;
}

#[tokio::test]
async fn a_permission_is_asked_for_with_options_and_granted() {
    let gateway = Gateway::start().await;
    gateway.add(22, "cloudevents", Some("a-bearer-token-of-some-length"), |_| {}).await;
    let ask = pairs(&[("webhook-request-origin", "eventemitter.example.com")]);
    let reply = gateway.raw(&request(&format!("OPTIONS {}", path(22)), &ask, b"")).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    assert_eq!(reply.header("webhook-allowed-origin"), Some("eventemitter.example.com"));
    let bare = gateway.raw(&request(&format!("OPTIONS {}", path(22)), &[], b"")).await;
    assert_eq!((bare.status, bare.header("allow")), (405, Some("post, head")));
    gateway.stop().await;
}

#[tokio::test]
async fn a_challenge_in_a_get_is_answered_when_its_token_is_right() {
    let gateway = Gateway::start().await;
    let token = |source: &mut portero_store::Source| {
        source.settings.insert("verify_token".to_owned(), "meatyhamhock".to_owned());
    };
    gateway.add(23, "meta", Some("an-app-secret-of-some-length"), token).await;
    let ask = |token: &str| {
        let query = format!("hub.mode=subscribe&hub.challenge=1158201444&hub.verify_token={token}");
        request(&format!("GET {}?{query}", path(23)), &[], b"")
    };
    let reply = gateway.raw(&ask("meatyhamhock")).await;
    assert_eq!((reply.status, reply.body.as_str()), (200, "1158201444"), "{reply:?}");
    let reply = gateway.raw(&ask("wrong")).await;
    assert_eq!((reply.status, reply.json()["reason"].as_str()), (401, Some("HANDSHAKE_TOKEN_MISMATCH")));
    // A body means nothing here, however large it says it is.
    let mut with_body = String::from_utf8(ask("meatyhamhock")).expect("text");
    with_body = with_body.replacen("\r\n\r\n", "\r\ncontent-length: 3\r\n\r\nabc", 1);
    assert_eq!(gateway.raw(with_body.as_bytes()).await.status, 200);
    gateway.stop().await;
}
