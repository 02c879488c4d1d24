//! What a request's head alone decides.

use super::*;

#[tokio::test]
async fn every_unknown_url_gets_the_same_404() {
    let gateway = Gateway::start().await;
    let mut answers = Vec::new();
    for path in [
        path(99),
        "/".to_owned(),
        "/in".to_owned(),
        "/in/".to_owned(),
        "/in/not-a-key".to_owned(),
        path(1).to_uppercase(),
        format!("{}//", path(1)),
        format!("{}/extra", path(1)),
        format!("/in/%30{}", &path(1)[5..]),
        "/../in".to_owned(),
    ] {
        for method in ["POST", "GET", "PUT"] {
            let reply = gateway.raw(&request(&format!("{method} {path}"), &[], b"")).await;
            assert_eq!(reply.status, 404, "{method} {path}");
            assert!(reply.header("x-request-id").is_some_and(|id| id.starts_with("req_")), "{reply:?}");
            answers.push(reply.body);
        }
    }
    answers.dedup();
    assert_eq!(answers.len(), 1, "one body for all: {answers:?}");
    gateway.stop().await;
}

#[tokio::test]
async fn a_deleted_source_is_as_unknown_as_one_that_never_was() {
    let gateway = Gateway::start().await;
    let never = gateway.post(99, &[], b"").await;
    gateway.config.change(|config| config.sources.retain(|source| source.no != SourceNo(1)));
    gateway.directory.refresh_now().await.expect("readable");
    let deleted = gateway.post(1, &[], b"").await;
    assert_eq!((deleted.status, deleted.body), (404, never.body));
    gateway.stop().await;
}

#[tokio::test]
async fn a_probe_with_head_gets_200_and_makes_no_event() {
    let gateway = Gateway::start().await;
    for path in [path(1), format!("{}/", path(1))] {
        let reply = gateway.raw(&request(&format!("HEAD {path}"), &[], b"")).await;
        assert_eq!((reply.status, reply.body.as_str()), (200, ""));
    }
    assert_eq!(gateway.raw(&request(&format!("HEAD {}", path(99)), &[], b"")).await.status, 404);
    assert!(gateway.stored().is_empty());
    gateway.stop().await;
}

#[tokio::test]
async fn other_methods_get_405_and_learn_which_one_to_use() {
    let gateway = Gateway::start().await;
    for method in ["GET", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"] {
        let reply = gateway.raw(&request(&format!("{method} {}", path(1)), &[], b"")).await;
        assert_eq!((reply.status, reply.header("allow")), (405, Some("post, head")), "{method}");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn an_encoded_body_gets_415_and_identity_is_no_encoding() {
    let gateway = Gateway::start().await;
    for coding in ["gzip", "GZIP", "identity, br", "x-unknown"] {
        let reply = gateway.post(1, &pairs(&[("content-encoding", coding)]), b"{}").await;
        assert_eq!(reply.status, 415, "{coding}");
        assert_eq!(reply.header("accept-encoding"), Some("identity"));
    }
    for coding in ["identity", "Identity", ""] {
        let reply = gateway.post(1, &pairs(&[("content-encoding", coding)]), b"{}").await;
        assert_eq!(reply.status, 401, "{coding}: goes on to verification");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_stale_configuration_answers_503_to_everybody() {
    let (snapshot, keyring) = configuration();
    let store: Arc<dyn ConfigStore> = Arc::new(FixedConfig::new(snapshot));
    let stale = DirectoryConfig { stale_after: Duration::ZERO, ..DirectoryConfig::default() };
    let (directory, _) = Directory::open(store, keyring, stale).await.expect("readable");
    let accept = AcceptHandle::new(
        AcceptConfig::default(),
        FakeStore::open() as _,
        Arc::new(Disabled),
        Arc::new(|_| {}),
    );
    let parts = Parts {
        directory,
        accept,
        prefilter: Arc::new(Disabled),
        fetch: Scripted::new(),
        secrets: Arc::new(crate::NoSecrets),
        secret_uses: crate::SecretUses::new(),
        rejections: RejectionQueue::disabled(),
        clock: Arc::new(ManualClock::at(NOW)),
        random: Arc::new(|| 1),
        trace_parent: Arc::new(String::new),
    };
    let edge = Edge::new(EdgeConfig::default(), parts);
    for path in [path(1), path(99)] {
        let request = http::Request::post(path).body(http_body_util::Full::new(Bytes::new()));
        let response = edge.handle(request.expect("valid"), None).await;
        assert_eq!(response.status(), 503);
        assert!(
            response.headers().contains_key("retry-after") && response.headers().contains_key("x-request-id")
        );
    }
}

#[tokio::test]
async fn a_disabled_source_answers_503_and_the_others_go_on() {
    let gateway = Gateway::start().await;
    let (headers, body) = signed(1, &stripe_event("evt_1"), NOW);
    let reply = gateway.post(DISABLED, &headers, &body).await;
    assert_eq!((reply.status, reply.header("retry-after")), (503, Some("60")));
    assert_eq!(gateway.post(1, &headers, &body).await.status, 200);
    gateway.stop().await;
}
