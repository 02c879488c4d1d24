//! What is remembered of refused requests, and that it disturbs nothing.

use portero_store::{CAPTURED_BODY_BYTES_MAX, CapturedRequest, NewRejection, TenantKey};
use sha2::{Digest as _, Sha256};

use super::*;
use crate::sweep_rejections;

/// Opens what was kept of a request to a source of the list of presets.
fn opened(row: &NewRejection, source: &str) -> CapturedRequest {
    let capture = row.capture.as_ref().expect("captured");
    let (tenant, source) = (TenantId::new("acme").expect("valid"), SourceId::new(source).expect("valid"));
    let aad = rejection_aad(&tenant, &source, row.request_id);
    let bytes = tenant_keys().open(&aad, &capture.0).expect("it is that request of that source");
    CapturedRequest::decode(&bytes).expect("in the format")
}

#[tokio::test]
async fn a_refused_request_is_kept_sealed_with_everything_it_held() {
    let gateway = Gateway::start().await;
    let headers = pairs(&[("stripe-signature", "t=1,v1=00"), ("x-a", "1"), ("x-a", "2")]);
    let reply = gateway.raw(&post(&format!("{}?a=%00&b", path(1)), &headers, b"{\"id\":1}")).await;
    assert_eq!(reply.status, 401);
    let kept = Arc::clone(&gateway.rejections);
    gateway.stop().await;
    let rows = kept.rows();
    let [row] = &rows[..] else { panic!("one row: {rows:?}") };
    assert_eq!(Some(row.request_id.to_string().as_str()), reply.header("x-request-id"));
    assert_eq!((row.tenant_no, row.source_no, row.received_at), (TenantNo(1), SourceNo(1), NOW));
    assert_eq!((row.method.as_str(), Some(row.reason.as_str())), ("POST", reply.json()["reason"].as_str()));
    assert_eq!(Some(row.detail.as_str()), reply.json()["message"].as_str());
    assert_eq!(row.body_bytes, 8);
    assert_eq!(row.body_digest, <[u8; 32]>::from(Sha256::digest(b"{\"id\":1}")));
    assert!(!format!("{row:?}").contains("v1=00"), "sealed");
    let request = opened(row, "stripe-1");
    assert_eq!((request.method.as_str(), request.query.as_str()), ("POST", "a=%00&b"));
    assert_eq!(request.body, "{\"id\":1}");
    let values = |name| {
        request
            .headers
            .iter()
            .filter(|header| header.name == name)
            .map(|header| header.value.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(values("stripe-signature"), [b"t=1,v1=00"]);
    assert_eq!(values("x-a"), [b"1", b"2"]);
}

#[tokio::test]
async fn of_a_large_body_only_length_and_digest_are_kept_and_of_an_unread_one_the_reason() {
    let gateway = Gateway::start().await;
    let large = vec![b'x'; CAPTURED_BODY_BYTES_MAX + 1];
    assert_eq!(gateway.post(1, &[], &large).await.status, 401);
    assert_eq!(gateway.post(1, &pairs(&[("content-encoding", "gzip")]), b"x").await.status, 415);
    assert_eq!(gateway.post(1, &[], &vec![b'x'; (1 << 20) + 1]).await.status, 413);
    let kept = Arc::clone(&gateway.rejections);
    gateway.stop().await;
    let rows = kept.rows();
    let told: Vec<_> = rows.iter().map(|row| (row.reason.as_str(), row.body_bytes)).collect();
    let length = u64::try_from(large.len()).expect("small");
    assert_eq!(told, [("SIGNATURE_MISSING", length), ("ENCODING_UNSUPPORTED", 0), ("BODY_TOO_LARGE", 0)]);
    assert_eq!(rows[0].body_digest, <[u8; 32]>::from(Sha256::digest(&large)));
    assert!(rows.iter().all(|row| row.capture.is_none()));
}

#[tokio::test]
async fn accepted_unknown_and_unlucky_requests_are_not_kept() {
    let gateway = Gateway::start().await;
    assert_eq!(gateway.deliver(1, &stripe_event("evt_1")).await.status, 200);
    assert_eq!(gateway.post(99, &[], b"{}").await.status, 404);
    assert_eq!(gateway.post(DISABLED, &[], b"{}").await.status, 503);
    assert_eq!(gateway.raw(&request(&format!("PUT {}", path(1)), &[], b"")).await.status, 405);
    gateway.store.with(|state| state.faults.push_back(crate::testing::Fault::Unavailable));
    assert_eq!(gateway.deliver(1, &stripe_event("evt_2")).await.status, 503);
    let kept = Arc::clone(&gateway.rejections);
    gateway.stop().await;
    assert!(kept.rows().is_empty(), "{:?}", kept.rows());
}

#[tokio::test]
async fn a_source_that_gets_much_rubbish_keeps_a_little_of_it_and_leaves_room_to_others() {
    let gateway = Gateway::start().await;
    for _ in 0..100 {
        assert_eq!(gateway.post(1, &[], b"{}").await.status, 401);
    }
    assert_eq!(gateway.post(2, &[], b"{}").await.status, 401);
    let kept = Arc::clone(&gateway.rejections);
    gateway.stop().await;
    let of = |source| kept.rows().iter().filter(|row| row.source_no == SourceNo(source)).count();
    // One more may come for each second that the hundred take.
    assert!((10..60).contains(&of(1)), "{}", of(1));
    assert_eq!(of(2), 1);
}

#[tokio::test]
async fn a_tenant_with_rubbish_at_many_sources_leaves_room_to_others() {
    let gateway = Gateway::start().await;
    gateway.config.change(|snapshot| {
        let key = snapshot.tenant_keys[0].clone();
        snapshot.tenant_keys.push(TenantKey { tenant_no: TenantNo(2), ..key });
    });
    let sources = 10..40_u8;
    for source in sources.clone() {
        gateway.add(source, "stripe", Some(PRESETS[0].1), |_| {}).await;
    }
    gateway.add(9, "stripe", Some(PRESETS[0].1), |source| source.tenant_no = TenantNo(2)).await;
    let gate = &gateway.rejections.gate;
    gate.forget_permits(gate.available_permits());
    for source in sources {
        for _ in 0..10 {
            assert_eq!(gateway.post(source, &[], b"{}").await.status, 401);
        }
    }
    assert_eq!(gateway.post(9, &[], b"{}").await.status, 401);
    gateway.rejections.gate.add_permits(1_000);
    let kept = Arc::clone(&gateway.rejections);
    gateway.stop().await;
    let of = |tenant| kept.rows().iter().filter(|row| row.tenant_no == TenantNo(tenant)).count();
    assert_eq!(of(2), 1);
    assert!((64..=128).contains(&of(1)), "{}", of(1));
}

#[tokio::test]
async fn a_store_that_hangs_or_fails_delays_and_changes_no_answer() {
    let gateway = Gateway::start().await;
    let gate = &gateway.rejections.gate;
    gate.forget_permits(gate.available_permits());
    for n in 0..40_u8 {
        assert_eq!(gateway.post(1 + n % 4, &[], b"{}").await.status, 401);
    }
    assert_eq!(gateway.deliver(1, &stripe_event("evt_1")).await.status, 200);
    assert!(gateway.rejections.rows().is_empty(), "the store hangs");
    gateway.rejections.down.store(true, Ordering::SeqCst);
    gateway.rejections.gate.add_permits(1_000);
    assert_eq!(gateway.post(1, &[], b"{}").await.status, 401);
    gateway.stop().await;
}

#[tokio::test(start_paused = true)]
async fn old_ones_are_forgotten_every_now_and_then() {
    let store = FakeRejections::open();
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::at(NOW));
    let stop = CancellationToken::new();
    let retention = Duration::from_secs(3 * 86_400);
    let sweeping = tokio::spawn(sweep_rejections(Arc::clone(&store) as _, clock, retention, stop.clone()));
    tokio::time::sleep(Duration::from_secs(1)).await;
    let swept = || store.swept.lock().expect("not poisoned").clone();
    assert_eq!(swept().len(), 3, "again at once while there are many");
    assert!(swept().iter().all(|(before, _)| *before == NOW.minus(retention)));
    tokio::time::sleep(Duration::from_secs(601)).await;
    assert_eq!(swept().len(), 4);
    stop.cancel();
    sweeping.await.expect("it ends");
}
