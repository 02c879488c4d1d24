//! The search for canaries finds what it is for: planted leaks, in every form and place, fail the test that owns the gateway.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status};

use crate::harness::{Consumer, Gateway, Heard, Kind, Setup, Site, canaries, get, raw, stripe_event, unique};

const PATIENCE: Duration = Duration::from_secs(30);

/// A secret that nothing but the test itself says.
fn planted() -> String {
    let secret = unique("planted?leak\"of a secret");
    canaries::plant("planted", &secret);
    secret
}

#[test]
fn a_canary_is_found_in_every_form_and_at_every_place() {
    let secret = planted();
    let bytes = secret.as_bytes();
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let url: String = url::form_urlencoded::byte_serialize(bytes).collect::<String>().replace('+', "%20");
    let within = |before: &str| [before.as_bytes(), bytes, b" and more"].concat();
    let forms = [
        secret.clone(),
        format!("{secret:?}"),
        format!("{bytes:?}"),
        serde_json::json!({ "value": secret }).to_string(),
        hex.to_uppercase(),
        hex,
        url,
        STANDARD.encode(within("")),
        STANDARD.encode(within("1")),
        URL_SAFE_NO_PAD.encode(within("12")),
    ];
    for form in forms {
        for text in [form.clone(), format!("a line\n{{\"message\":\"{form}\"}}\nanother")] {
            let finds = canaries::search(text.as_bytes());
            assert!(finds.iter().any(|find| find.what == "planted"), "{text}");
        }
    }
    assert_eq!(canaries::search(&bytes[..canaries::BYTES_MIN]), [], "a part is not it");
}

#[test]
fn keys_in_files_and_answers_of_commands_become_canaries() {
    let site = Site::new(Kind::Sqlite);
    let keyring = std::fs::read_to_string(site.path("keyring.json")).expect("a keyring");
    let keyring: serde_json::Value = serde_json::from_str(&keyring).expect("JSON");
    let key = keyring["keys"]["v1"].as_str().expect("a key");
    let bytes = STANDARD.decode(key).expect("base64");
    let pem = std::fs::read_to_string(site.path("issuer.pem")).expect("a key");
    let seed = STANDARD.decode(pem.lines().nth(1).expect("a body")).expect("base64");
    let token = site.admin_token();
    let (_, signature) = token.rsplit_once('.').expect("three parts");
    let texts = [
        key.to_owned(),
        format!("{bytes:?}"),
        format!("{:?}", &seed[seed.len() - 32..]),
        format!("Bearer {token}"),
        signature.to_owned(),
        format!("connecting to {}", "postgres://postgres:@".replace('@', canaries::DATABASE_PASSWORD)),
    ];
    for text in texts {
        assert!(!canaries::search(text.as_bytes()).is_empty(), "{text}");
    }
    let value = unique("whsec_ofAnAnswerThatIsShownOnce");
    canaries::plant_answer(format!("{{\"secrets\":[{{\"value\":\"{value}\"}}]}}\n").as_bytes());
    assert!(!canaries::search(value.as_bytes()).is_empty());
}

/// Writes a line to a gateway's log, as a careless line of it would.
fn write_line(gateway: &Gateway, line: &str) {
    let mut log = OpenOptions::new().append(true).open(&gateway.log.path).expect("a log");
    writeln!(log, "{line}").expect("written");
}

/// Whether the end of a gateway fails the test, and for a leak.
fn fails_for_a_leak(gateway: Gateway) -> bool {
    let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(gateway))) else { return false };
    panic.downcast_ref::<String>().is_some_and(|text| text.contains("holds what nobody may see"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_whose_log_holds_a_canary_fails_its_test_however_it_ended() {
    let site = Site::new(Kind::Sqlite);
    for killed in [false, true] {
        let mut gateway = Gateway::start(&site).await;
        if !killed {
            let setup = Setup::new(&gateway).await;
            let consumer = Consumer::start(&gateway).await;
            let answer = setup.provider(&gateway).send(&stripe_event("evt_1", "entity", 0)).await;
            assert!(answer.is_success(), "{answer:?}");
            consumer.has_acked(1, PATIENCE).await;
            consumer.stop().await;
        }
        assert_eq!(canaries::search(&gateway.log.bytes()), [], "nothing was leaked yet");
        write_line(&gateway, &serde_json::json!({ "level": "DEBUG", "value": planted() }).to_string());
        if killed {
            gateway.kill();
        }
        assert!(fails_for_a_leak(gateway), "killed: {killed}");
    }
    let gateway = Gateway::start(&site).await;
    write_line(&gateway, &format!("thread 'main' panicked at src/x.rs:1:2:\nno {:?}", planted()));
    assert!(fails_for_a_leak(gateway), "a panic");
    let gateway = Gateway::start(&site).await;
    write_line(&gateway, &format!("{{\"level\":\"DEBUG\",\"body\":\"{}\"}}", canaries::PAYLOAD_MARKER));
    assert!(fails_for_a_leak(gateway), "a payload");
    assert!(!fails_for_a_leak(Gateway::new(&site)), "one that never ran holds nothing");
}

/// A server that gives every request the same answer.
async fn parrot(answer: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound").to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 1024];
            let _ = stream.read(&mut request).await;
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_and_a_page_that_repeat_a_canary_fail_the_test() {
    let text = format!("the secret {} does not fit", planted());
    let head = format!("content-length: {}\r\nconnection: close\r\n\r\n{text}", text.len());
    let refusing = parrot(format!("HTTP/1.1 401 Unauthorized\r\n{head}")).await;
    let serving = parrot(format!("HTTP/1.1 200 OK\r\n{head}")).await;
    let asked = b"POST / HTTP/1.1\r\nhost: x\r\n\r\n";
    let at = refusing.clone();
    tokio::spawn(async move { raw(&at, asked).await }).await.expect_err("found");
    assert_eq!(
        raw(&serving, asked).await.status,
        200,
        "what was accepted may be answered with its own words"
    );
    let page = format!("http://{serving}/metrics");
    tokio::spawn(async move { get(&page).await }).await.expect_err("found");
}

/// Refuses every call in the same words.
struct Refusing(String);

#[tonic::async_trait]
impl TraceService for Refusing {
    async fn export(
        &self,
        _: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        Err(Status::invalid_argument(&self.0))
    }
}

/// Calls a service that refuses in these words.
async fn refused_with(words: String) -> Status {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    let server = tonic::transport::Server::builder().add_service(TraceServiceServer::new(Refusing(words)));
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    let mut client = TraceServiceClient::new(Heard::new(url, ""));
    client.export(ExportTraceServiceRequest::default()).await.expect_err("refused")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_status_that_repeats_a_canary_fails_the_test() {
    let status = refused_with("the secret is too short: give 16 bytes".to_owned()).await;
    assert_eq!(status.code(), tonic::Code::InvalidArgument);
    let leak = format!("the secret {:?} is too short", planted());
    tokio::spawn(refused_with(leak)).await.expect_err("found");
}
