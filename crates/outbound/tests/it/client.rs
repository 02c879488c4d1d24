//! What the client takes, and what it refuses.

use std::time::Duration;

use portero_outbound::testing::wanted;
use portero_outbound::{Fetch as _, FetchError, HttpConfig, HttpFetcher, InvalidConfig, RESPONSE_BYTES_MAX};
use portero_types::{Redacted, SourceNo};

use crate::proxy;
use crate::server::{Answer, Authority};

const NAME: &str = "certs.example.com";
const SOURCE: SourceNo = SourceNo(1);
const URL: &str = "https://certs.example.com/v1/certs/a.pem?x=1";

fn through(proxy: &str, authority: &Authority) -> HttpFetcher {
    let config = HttpConfig {
        proxy: Some(Redacted::new(proxy.to_owned())),
        ca_file: Some(authority.file()),
        timeout: Duration::from_secs(3),
    };
    HttpFetcher::new(&config).expect("a client")
}

/// What fetching [`URL`] gives when the server there answers so.
async fn fetched(answer: Answer) -> Result<Vec<u8>, FetchError> {
    let authority = Authority::new();
    let server = authority.serve(NAME, answer).await;
    let proxy = proxy::start(Some(server.address)).await;
    through(&proxy.url, &authority).fetch(&wanted(URL), SOURCE).await.map(Into::into)
}

#[tokio::test]
async fn a_get_brings_the_body_and_tells_nothing_but_what_it_wants() {
    let authority = Authority::new();
    let mut server = authority.serve(NAME, Answer::ok(b"-----BEGIN CERTIFICATE-----")).await;
    let mut proxy = proxy::start(Some(server.address)).await;
    let body = through(&proxy.url, &authority).fetch(&wanted(URL), SOURCE).await.expect("fetched");
    assert_eq!(body, "-----BEGIN CERTIFICATE-----");
    assert_eq!(proxy.asked.recv().await.expect("asked"), "certs.example.com:443");
    let asked = server.asked.recv().await.expect("asked");
    assert!(asked.starts_with("GET /v1/certs/a.pem?x=1 HTTP/1.1\r\n"), "{asked}");
    let mut names: Vec<_> =
        asked.lines().filter_map(|line| line.split_once(':')).map(|(name, _)| name).collect();
    names.sort_unstable();
    assert_eq!(names, ["accept", "host", "user-agent"], "{asked}");
    assert!(asked.contains("user-agent: portero/"), "{asked}");
}

#[tokio::test]
async fn a_post_carries_the_json_that_the_recipe_gave() {
    let authority = Authority::new();
    let mut server = authority.serve(NAME, Answer::ok(b"{}")).await;
    let proxy = proxy::start(Some(server.address)).await;
    let mut post = wanted(URL);
    post.post_json = Some(Redacted::new(r#"{"key_id":"k"}"#.to_owned()));
    assert_eq!(through(&proxy.url, &authority).fetch(&post, SOURCE).await.expect("fetched"), "{}");
    let asked = server.asked.recv().await.expect("asked");
    assert!(asked.starts_with("POST ") && asked.ends_with("\r\n\r\n{\"key_id\":\"k\"}"), "{asked}");
    assert!(asked.contains("content-type: application/json"), "{asked}");
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let authority = Authority::new();
    let answer =
        "HTTP/1.1 302 Found\r\nlocation: https://certs.example.com/other\r\ncontent-length: 0\r\n\r\n";
    let mut server = authority.serve(NAME, Answer::raw(answer)).await;
    let proxy = proxy::start(Some(server.address)).await;
    assert_eq!(
        through(&proxy.url, &authority).fetch(&wanted(URL), SOURCE).await,
        Err(FetchError::Refused(302))
    );
    assert!(server.asked.recv().await.is_some());
    assert!(server.asked.try_recv().is_err(), "it was asked once");
}

#[tokio::test]
async fn each_status_that_is_not_a_success_is_a_refusal() {
    for status in [304, 400, 404, 429, 500, 503] {
        let answer = format!("HTTP/1.1 {status} X\r\ncontent-length: 0\r\n\r\n");
        assert_eq!(fetched(Answer::raw(answer)).await, Err(FetchError::Refused(status)));
    }
}

#[tokio::test]
async fn an_answer_is_as_large_as_the_bound_and_not_a_byte_larger() {
    let full = vec![b'x'; RESPONSE_BYTES_MAX];
    assert_eq!(fetched(Answer::ok(&full)).await.map(|body| body.len()), Ok(RESPONSE_BYTES_MAX));
    assert_eq!(fetched(Answer::ok(&vec![b'x'; RESPONSE_BYTES_MAX + 1])).await, Err(FetchError::TooLarge));
    // No length is announced, and the end never comes.
    let mut endless = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    for _ in 0..=16 {
        endless.extend_from_slice(b"1000\r\n");
        endless.extend_from_slice(&full[..4096]);
        endless.extend_from_slice(b"\r\n");
    }
    assert_eq!(fetched(Answer::hanging(&endless)).await, Err(FetchError::TooLarge));
}

#[tokio::test]
async fn a_server_that_hangs_costs_the_time_out_and_no_more() {
    for begun in [&b""[..], b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n1234"] {
        let authority = Authority::new();
        let server = authority.serve(NAME, Answer::hanging(begun)).await;
        let proxy = proxy::start(Some(server.address)).await;
        let config = HttpConfig {
            proxy: Some(Redacted::new(proxy.url)),
            ca_file: Some(authority.file()),
            timeout: Duration::from_millis(300),
        };
        let client = HttpFetcher::new(&config).expect("a client");
        let hung = wanted(URL);
        let asking = tokio::time::timeout(Duration::from_secs(5), client.fetch(&hung, SOURCE)).await;
        assert_eq!(asking.expect("it gave up by itself"), Err(FetchError::TimedOut));
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_no_answer() {
    let cut = "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n1234";
    assert_eq!(fetched(Answer::raw(cut)).await, Err(FetchError::Unreachable));
    assert_eq!(fetched(Answer::raw("not http at all\r\n\r\n")).await, Err(FetchError::Unreachable));
}

#[tokio::test]
async fn a_certificate_of_another_host_or_of_an_unknown_authority_is_not_trusted() {
    let (authority, other) = (Authority::new(), Authority::new());
    let wrong_name = authority.serve("other.example.com", Answer::ok(b"x")).await;
    let wrong_issuer = other.serve(NAME, Answer::ok(b"x")).await;
    for server in [wrong_name, wrong_issuer] {
        let proxy = proxy::start(Some(server.address)).await;
        let client = through(&proxy.url, &authority);
        assert_eq!(client.fetch(&wanted(URL), SOURCE).await, Err(FetchError::Untrusted));
    }
}

#[tokio::test]
async fn a_proxy_that_refuses_is_unreachable() {
    let authority = Authority::new();
    let proxy = proxy::start(None).await;
    assert_eq!(
        through(&proxy.url, &authority).fetch(&wanted(URL), SOURCE).await,
        Err(FetchError::Unreachable)
    );
}

#[tokio::test]
async fn without_a_proxy_nothing_inside_of_the_network_is_asked() {
    let authority = Authority::new();
    let mut server = authority.serve("localhost", Answer::ok(b"inside")).await;
    let config = HttpConfig { ca_file: Some(authority.file()), ..HttpConfig::default() };
    let client = HttpFetcher::new(&config).expect("a client");
    let port = server.address.port();
    for host in ["localhost", "127.0.0.1", "[::1]", "0.0.0.0", "[::ffff:127.0.0.1]"] {
        let url = format!("https://{host}:{port}/");
        assert_eq!(client.fetch(&wanted(&url), SOURCE).await, Err(FetchError::Forbidden), "{url}");
    }
    assert!(server.asked.try_recv().is_err());
    assert_eq!(client.fetch(&wanted("http://localhost/"), SOURCE).await, Err(FetchError::Forbidden));
}

#[test]
fn settings_that_cannot_work_are_found_at_once() {
    let authority = Authority::new();
    let folder = tempfile::tempdir().expect("a folder");
    let empty = folder.path().join("empty.pem");
    std::fs::write(&empty, "").expect("written");
    let with = |ca_file| HttpConfig { ca_file: Some(ca_file), ..HttpConfig::default() };
    assert_eq!(HttpFetcher::new(&with(empty)).err(), Some(InvalidConfig::NoCertificate));
    let missing = HttpFetcher::new(&with(folder.path().join("missing.pem"))).err();
    assert_eq!(missing, Some(InvalidConfig::CaFile(std::io::ErrorKind::NotFound)));
    assert!(HttpFetcher::new(&with(authority.file())).is_ok());
    let proxy = Some(Redacted::new("socks5://proxy".to_owned()));
    assert_eq!(
        HttpFetcher::new(&HttpConfig { proxy, ..HttpConfig::default() }).err(),
        Some(InvalidConfig::Proxy)
    );
}
