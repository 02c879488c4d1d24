//! What needs no token: the edge, the probes and metrics, gRPC health and reflection. A token changes nothing there.

use std::collections::BTreeSet;

use bytes::Bytes;
use tonic::Code;

use crate::harness::{Answer, Gateway, Heard, Kind, Setup, Site, raw};

use super::call::{Line, compiled_rpcs};
use super::world::{Place, callers};

/// The management port's routes, as its router is written.
fn management_routes() -> BTreeSet<String> {
    let source = include_str!("../../crates/portero/src/gateway/management.rs");
    let routes = source.split(".route(\"").skip(1);
    routes.map(|rest| rest.split('"').next().expect("a path").to_owned()).collect()
}

/// What a request on a connection of its own is answered with, but for what is every time another: times, ids, counters.
async fn ask(address: &str, method: &str, path: &str, token: &str) -> (u16, String, Vec<(String, String)>) {
    let authorization =
        if token.is_empty() { String::new() } else { format!("authorization: Bearer {token}\r\n") };
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{authorization}content-length: 0\r\n\r\n"
    );
    let answer = raw(address, request.as_bytes()).await;
    let headers = answer
        .headers
        .iter()
        .filter(|(name, _)| !["date", "content-length", "x-request-id"].contains(&name.as_str()));
    let headers = headers
        .map(|(name, value)| (name.to_string(), value.to_str().unwrap_or_default().to_owned()))
        .collect();
    (answer.status, said(&answer, path), headers)
}

fn said(answer: &Answer, path: &str) -> String {
    if path == "/metrics" {
        // Names of series, without their labels and values.
        let lines = answer.text.lines().filter(|line| !line.starts_with('#'));
        let names: BTreeSet<&str> = lines.filter_map(|line| line.split(['{', ' ']).next()).collect();
        return format!("{} series", usize::from(!names.is_empty()));
    }
    let id = answer.field("request_id");
    if id.is_empty() { answer.text.clone() } else { answer.text.replace(&id, "REQUEST") }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_token_opens_or_closes_an_http_route() {
    let site = Site::new(Kind::Sqlite);
    let gateway = Gateway::start(&site).await;
    let mut setup = Setup::new(&gateway).await;
    let doomed = crate::harness::Source::preset(&mut setup.admin, &gateway, "acme", "github").await;
    let request = portero_client::v1::DeleteSourceRequest { name: doomed.name.clone(), ..Default::default() };
    setup.admin.delete_source(request).await.expect("deleted");
    let nowhere = Place::nowhere();
    let mut tokens = vec![String::new(), "garbage".to_owned()];
    tokens.extend(callers(&gateway, [&nowhere, &nowhere, &nowhere]).into_iter().map(|caller| caller.token));

    let edge = gateway.edge_address();
    let unknown = format!("/in/{}", "0".repeat(32));
    let paths = [
        "/",
        "/in",
        "/in/",
        "/in/not-a-key",
        "/metrics",
        "/readyz",
        &unknown,
        &doomed.path,
        &setup.stripe.path,
    ];
    for path in paths {
        for method in ["POST", "GET", "PUT", "DELETE", "OPTIONS"] {
            let expected = ask(&edge, method, path, "").await;
            assert!((400..500).contains(&expected.0), "{method} {path}: {expected:?}");
            for token in &tokens {
                assert_eq!(ask(&edge, method, path, token).await, expected, "{method} {path}");
            }
        }
    }
    for method in ["POST", "GET", "PUT"] {
        let (deleted, never) =
            (ask(&edge, method, &doomed.path, "").await, ask(&edge, method, &unknown, "").await);
        assert_eq!(deleted, never, "a URL that was and one that never was");
    }

    let management = gateway.management_url().replace("http://", "");
    assert_eq!(management_routes(), ["/livez", "/metrics", "/readyz"].map(str::to_owned).into());
    for path in ["/livez", "/readyz", "/metrics", "/", "/in/", "/debug", &setup.stripe.path] {
        let expected = ask(&management, "GET", path, "").await;
        let is_route = management_routes().contains(path);
        assert_eq!(expected.0, if is_route { 200 } else { 404 }, "{path}: {expected:?}");
        for token in &tokens {
            assert_eq!(ask(&management, "GET", path, token).await, expected, "{path}");
        }
    }
    let page = crate::harness::get(&format!("{}/metrics", gateway.management_url())).await.text;
    assert!(!page.contains("acme"), "no tenant is named in the metrics");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_token_grpc_tells_health_and_the_shape_of_calls_and_nothing_else() {
    let site = Site::new(Kind::Sqlite);
    let gateway = Gateway::start(&site).await;
    let stranger = Line::new(&gateway.grpc_url(), "");
    assert_eq!(
        served(&gateway).await,
        [
            "grpc.health.v1.Health",
            "grpc.reflection.v1.ServerReflection",
            "portero.v1.AdminService",
            "portero.v1.SubscriberService",
        ]
    );
    for rpc in compiled_rpcs() {
        let answer = stranger.call(&rpc, Bytes::new()).await;
        assert_eq!(answer.code, Code::Unauthenticated, "{rpc}, with an empty message: {answer:?}");
    }
    let keeper = Line::new(&gateway.grpc_url(), &site.admin_token());
    for (line, expected) in [(stranger, Code::Unauthenticated), (keeper, Code::Unimplemented)] {
        assert_eq!(line.call("AdminService/NoSuchCall", Bytes::new()).await.code, expected);
    }
}

/// The services that the gateway says it has.
async fn served(gateway: &Gateway) -> Vec<String> {
    use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
    use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
    use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
    use tonic_reflection::pb::v1::{ServerReflectionRequest, ServiceResponse};

    let mut client = ServerReflectionClient::new(Heard::new(gateway.grpc_url(), ""));
    let request = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let answers = client.server_reflection_info(tokio_stream::iter([request])).await.expect("answers");
    let answer = answers.into_inner().message().await.expect("an answer").expect("one").message_response;
    let Some(MessageResponse::ListServicesResponse(listed)) = answer else { panic!("{answer:?}") };
    let mut names: Vec<String> = listed.service.into_iter().map(|ServiceResponse { name }| name).collect();
    names.sort();
    names
}
