//! Large bodies take time to examine, and nobody else waits for it.

use std::sync::mpsc;

use super::*;
use crate::examine::SMALL_BYTES_MAX;

/// A body of the smallest size that counts as large.
fn large(id: &str) -> Vec<u8> {
    let mut body = stripe_event(id);
    body.resize(SMALL_BYTES_MAX + 1, b' ');
    body
}

/// Waits until so many large bodies may begin.
async fn until_free(gateway: &Gateway, slots: usize) {
    let waiting = async {
        while gateway.edge.slots_for_large().available_permits() != slots {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), waiting).await.expect("so many are free in time");
}

/// A task that posts.
fn posting(gateway: &Gateway, headers: Vec<(String, String)>, body: &[u8]) -> JoinHandle<Reply> {
    let (address, request) = (gateway.address, post(&path(1), &headers, body));
    tokio::spawn(async move {
        let mut stream = TcpStream::connect(address).await.expect("listening");
        stream.write_all(&request).await.expect("sent");
        Reply::read(&mut stream).await
    })
}

#[test]
fn a_large_forged_body_does_not_hold_up_small_good_ones() {
    // One thread for everything that is async, and one for what may block; the test keeps that one busy.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build();
    runtime.expect("a runtime").block_on(async {
        let gateway = Gateway::start().await;
        let slots = gateway.edge.slots_for_large().available_permits();
        let (release, busy) = mpsc::channel::<()>();
        let blocking = tokio::task::spawn_blocking(move || busy.recv());
        let (headers, _) = signed(1, &large("evt_other"), NOW);
        let forged = posting(&gateway, headers, &large("evt_forged"));
        until_free(&gateway, slots - 1).await;
        for n in 0..20 {
            let body = stripe_event(&format!("evt_{n}"));
            assert_eq!(gateway.deliver(1, &body).await.status, 200, "{n}");
        }
        assert!(!forged.is_finished(), "its thread is busy");
        release.send(()).expect("the thread waits");
        blocking.await.expect("no panic").expect("released");
        let reply = forged.await.expect("no panic");
        assert_eq!((reply.status, reply.json()["reason"].as_str()), (401, Some("SIGNATURE_MISMATCH")));
        until_free(&gateway, slots).await;
        assert_eq!(gateway.stored().len(), 20);
        gateway.stop().await;
    });
}

#[tokio::test]
async fn a_large_good_body_is_accepted_like_a_small_one() {
    let gateway = Gateway::start().await;
    for status in ["accepted", "duplicate"] {
        let reply = gateway.deliver(1, &large("evt_1")).await;
        assert_eq!((reply.status, reply.json()["status"].as_str()), (200, Some(status)), "{reply:?}");
    }
    let reply = gateway.post(1, &[], &large("evt_2")).await;
    assert_eq!(reply.json()["reason"], "SIGNATURE_MISSING", "{reply:?}");
    assert_eq!(gateway.stored(), ["evt_1"]);
    let kept = Arc::clone(&gateway.rejections);
    gateway.stop().await;
    assert_eq!(kept.rows().len(), 1, "a refusal is remembered");
}

#[tokio::test]
async fn a_large_body_that_finds_no_slot_before_the_deadline_is_given_up() {
    let config = EdgeConfig { deadline: Duration::from_millis(50), ..EdgeConfig::default() };
    let gateway = Gateway::bounded(config).await;
    let slots = gateway.edge.slots_for_large();
    let all = u32::try_from(slots.available_permits()).expect("few");
    let taken = slots.acquire_many(all).await.expect("never closed");
    let reply = gateway.deliver(1, &large("evt_1")).await;
    assert_eq!((reply.status, reply.json()["error"].as_str()), (503, Some("deadline_exceeded")));
    assert_eq!(gateway.deliver(1, &stripe_event("evt_2")).await.status, 200, "a small one needs none");
    // Nothing of it is left that would begin now.
    gateway.edge.drain().await;
    drop(taken);
    assert_eq!(gateway.stored(), ["evt_2"]);
    gateway.stop().await;
}
