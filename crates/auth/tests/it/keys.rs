//! Keys that are read from files and HTTP servers, and read again.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use portero_auth::{Issuer, JWKS_BYTES_MAX, JwksUrl, KeySource, Reason, Verifier};
use portero_types::{ManualClock, Timestamp};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::forge::{NOW, issuer, minted};

/// An HTTP server that answers each request with the answer set last, and counts them.
struct Server {
    url: String,
    answer: Arc<Mutex<Vec<u8>>>,
    requests: Arc<AtomicUsize>,
    last_request: Arc<Mutex<String>>,
}

fn ok(body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

impl Server {
    async fn start(answer: Vec<u8>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Self {
            url: format!("http://{}/keys", listener.local_addr().unwrap()),
            answer: Arc::new(Mutex::new(answer)),
            requests: Arc::default(),
            last_request: Arc::default(),
        };
        let (answer, requests, last) =
            (server.answer.clone(), server.requests.clone(), server.last_request.clone());
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    let Ok(byte) = stream.read_u8().await else { break };
                    head.push(byte);
                }
                *last.lock().unwrap() = String::from_utf8(head).unwrap();
                requests.fetch_add(1, Ordering::SeqCst);
                let answer = answer.lock().unwrap().clone();
                let _ = stream.write_all(&answer).await;
            }
        });
        server
    }

    fn set(&self, answer: Vec<u8>) {
        *self.answer.lock().unwrap() = answer;
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }

    fn verifier(&self) -> Verifier {
        verifier(KeySource::Url(JwksUrl { url: self.url.clone(), ca_file: None, bearer_token_file: None }))
    }
}

fn verifier(keys: KeySource) -> Verifier {
    // Installed once per process; later calls find it there.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut trusted = issuer().trusted();
    trusted.keys = keys;
    Verifier::new(vec![trusted]).unwrap()
}

fn other() -> Issuer {
    Issuer::generate("https://portero.test", "portero", [2; 32])
}

fn after(secs: u64) -> Timestamp {
    NOW.plus(Duration::from_secs(secs))
}

#[tokio::test]
async fn the_first_token_fetches_the_keys_and_the_next_ones_do_not() {
    let server = Server::start(ok(&issuer().jwks())).await;
    let verifier = server.verifier();
    assert!(!verifier.is_ready());
    for _ in 0..10 {
        assert!(verifier.verify(&minted(&issuer()), NOW).await.is_ok());
    }
    assert!(verifier.is_ready());
    assert_eq!(server.requests(), 1);
}

#[tokio::test]
async fn a_rotated_key_is_found_at_its_first_token() {
    let server = Server::start(ok(&issuer().jwks())).await;
    let verifier = server.verifier();
    verifier.refresh_due(NOW).await;
    server.set(ok(&other().jwks()));
    assert!(verifier.verify(&minted(&other()), after(10)).await.is_ok());
    assert_eq!(
        verifier.verify(&minted(&issuer()), after(10)).await.unwrap_err(),
        Reason::KeyUnknown,
        "the withdrawn key ceased to verify"
    );
}

#[tokio::test]
async fn unknown_keys_do_not_make_us_fetch_without_end() {
    let server = Server::start(ok(&issuer().jwks())).await;
    let verifier = Arc::new(server.verifier());
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..100 {
        let verifier = verifier.clone();
        // Each names another key, which nobody has to sign with for that.
        let stranger = Issuer::generate("https://portero.test", "portero", [100 + n; 32]);
        tasks.spawn(async move { verifier.verify(&minted(&stranger), NOW).await });
    }
    for outcome in tasks.join_all().await {
        assert_eq!(outcome.unwrap_err(), Reason::KeyUnknown);
    }
    assert_eq!(server.requests(), 1);
    assert!(verifier.verify(&minted(&other()), after(9)).await.is_err());
    assert_eq!(server.requests(), 1);
    assert!(verifier.verify(&minted(&other()), after(10)).await.is_err());
    assert_eq!(server.requests(), 2);
}

#[tokio::test]
async fn the_last_good_keys_outlive_every_kind_of_failed_fetch() {
    let server = Server::start(ok(&issuer().jwks())).await;
    let verifier = server.verifier();
    verifier.refresh_due(NOW).await;
    let elsewhere = Server::start(ok(&other().jwks())).await;
    let redirect = format!("HTTP/1.1 302 Found\r\nlocation: {}\r\ncontent-length: 0\r\n\r\n", elsewhere.url);
    let answers = [
        b"HTTP/1.1 500 Oops\r\ncontent-length: 0\r\n\r\n".to_vec(),
        redirect.into_bytes(),
        ok("<html>not a key set</html>"),
        ok(r#"{"keys":[]}"#),
        ok(&format!(r#"{{"keys":[],"x":"{}"}}"#, "x".repeat(JWKS_BYTES_MAX))),
        b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\ncut".to_vec(),
        b"not HTTP at all".to_vec(),
        Vec::new(),
    ];
    for (i, answer) in answers.into_iter().enumerate() {
        server.set(answer);
        let now = NOW.plus(Duration::from_secs(300)).plus(Duration::from_secs(10 * i as u64));
        verifier.refresh_due(now).await;
        assert_eq!(server.requests(), 2 + i, "while it fails it is tried every 10 seconds");
        assert!(verifier.verify(&minted(&issuer()), NOW).await.is_ok());
    }
    assert_eq!(elsewhere.requests(), 0, "redirects are not followed");
    let new = verifier.verify(&minted(&other()), NOW).await.unwrap_err();
    assert_eq!(new, Reason::KeysUnavailable, "a key that is not known may be a new one");
    server.set(ok(&other().jwks()));
    verifier.refresh_due(after(3_600)).await;
    assert!(verifier.verify(&minted(&other()), NOW).await.is_ok(), "and it recovers");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_answers_is_given_up() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/keys", listener.local_addr().unwrap());
    let verifier = verifier(KeySource::Url(JwksUrl { url, ca_file: None, bearer_token_file: None }));
    let begun = tokio::time::Instant::now();
    let reason = verifier.verify(&minted(&issuer()), NOW).await.unwrap_err();
    assert_eq!(reason, Reason::KeysUnavailable);
    assert!(begun.elapsed() <= Duration::from_secs(6), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn keys_that_were_never_read_are_told_apart_from_unknown_ones() {
    let server = Server::start(b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n".to_vec()).await;
    let verifier = server.verifier();
    assert_eq!(verifier.verify(&minted(&issuer()), NOW).await.unwrap_err(), Reason::KeysUnavailable);
}

#[tokio::test]
async fn keys_are_fetched_again_every_five_minutes_and_after_the_clock_was_set_back() {
    let server = Server::start(ok(&issuer().jwks())).await;
    let verifier = server.verifier();
    for (secs, requests) in [(0, 1), (299, 1), (300, 2), (301, 2)] {
        verifier.refresh_due(after(secs)).await;
        assert_eq!(server.requests(), requests, "after {secs} s");
    }
    verifier.refresh_due(NOW.minus(Duration::from_secs(3_600))).await;
    assert_eq!(server.requests(), 3);
}

#[tokio::test]
async fn the_running_verifier_reads_keys_by_itself() {
    let server = Server::start(ok(&issuer().jwks())).await;
    let verifier = Arc::new(server.verifier());
    let running = tokio::spawn(verifier.clone().run(Arc::new(ManualClock::at(NOW))));
    let ready = async {
        while !verifier.is_ready() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), ready).await.unwrap();
    running.abort();
}

#[tokio::test]
async fn a_bearer_token_file_is_read_at_each_fetch() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("token");
    std::fs::write(&path, "first\n").unwrap();
    let server = Server::start(ok(&issuer().jwks())).await;
    let verifier = verifier(KeySource::Url(JwksUrl {
        url: server.url.clone(),
        ca_file: None,
        bearer_token_file: Some(path.clone()),
    }));
    verifier.refresh_due(NOW).await;
    assert!(server.last_request.lock().unwrap().contains("authorization: Bearer first\r\n"));
    std::fs::write(&path, "second\n").unwrap();
    verifier.refresh_due(after(300)).await;
    assert!(server.last_request.lock().unwrap().contains("authorization: Bearer second\r\n"));
}

#[tokio::test]
async fn a_certificate_file_that_holds_none_fails_the_fetch_and_nothing_else() {
    let dir = TempDir::new().unwrap();
    let ca_file: PathBuf = dir.path().join("ca.pem");
    std::fs::write(&ca_file, "no certificate").unwrap();
    let server = Server::start(ok(&issuer().jwks())).await;
    let verifier = verifier(KeySource::Url(JwksUrl {
        url: server.url.clone(),
        ca_file: Some(ca_file),
        bearer_token_file: None,
    }));
    assert_eq!(verifier.verify(&minted(&issuer()), NOW).await.unwrap_err(), Reason::KeysUnavailable);
    assert_eq!(server.requests(), 0);
}

#[tokio::test]
async fn keys_in_a_file_follow_the_file() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("jwks.json");
    let verifier = verifier(KeySource::File(path.clone()));
    assert_eq!(verifier.verify(&minted(&issuer()), NOW).await.unwrap_err(), Reason::KeysUnavailable);
    std::fs::write(&path, issuer().jwks()).unwrap();
    assert!(verifier.verify(&minted(&issuer()), after(1)).await.is_ok());
    std::fs::write(&path, other().jwks()).unwrap();
    assert!(verifier.verify(&minted(&other()), after(2)).await.is_ok());
    std::fs::remove_file(&path).unwrap();
    verifier.refresh_due(after(60)).await;
    assert!(verifier.verify(&minted(&other()), after(61)).await.is_ok(), "the last good keys stay");
}
