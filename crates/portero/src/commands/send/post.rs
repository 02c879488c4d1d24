//! Posting: one bounded client, no redirects, a few requests at a time.

use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use portero_client::TlsFailure;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, redirect};
use tokio::time::Instant;

use super::answer::{Answer, Heads};
use super::report::Report;
use super::request::Request;
use crate::cli::{Output, TlsArgs};
use crate::commands::connection::{of_tls, origin};
use crate::commands::exit::Failure;

/// Requests at a time.
const CONCURRENCY: usize = 8;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// From the start of a request to the end of its answer.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Longest part of an answer that is read, bytes.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// Posts the same request `count` times and shows what comes back. Succeeds when every answer was 2xx.
pub(super) async fn run(request: &Request, tls: &TlsArgs, count: u32, output: Output) -> anyhow::Result<()> {
    let poster = Poster::new(request, tls)?;
    let mut report = Report::new(output, count);
    let mut answers = futures::stream::iter(0..count).map(|_| poster.post()).buffer_unordered(CONCURRENCY);
    while let Some(answer) = answers.next().await {
        report.add(&answer)?;
    }
    report.finish()
}

struct Poster {
    client: Client,
    url: reqwest::Url,
    headers: HeaderMap,
    body: Bytes,
    origin: String,
}

impl Poster {
    fn new(request: &Request, tls: &TlsArgs) -> anyhow::Result<Self> {
        let mut builder = Client::builder()
            .redirect(redirect::Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(TIMEOUT)
            .pool_max_idle_per_host(CONCURRENCY);
        if is_this_machine(&request.url) {
            // A proxy elsewhere cannot reach it.
            builder = builder.no_proxy();
        }
        let client = super::tls::apply(builder, tls, &request.url)?.build().map_err(|_| {
            Failure::failed("HTTPS cannot be set up: are certificate authorities installed here?")
        })?;
        let mut headers = HeaderMap::new();
        for (name, value) in &request.headers {
            let bad = || {
                Failure::usage(format!("the header {name:?} has a name or a value that HTTP does not allow"))
            };
            let (name, value) = (
                HeaderName::try_from(name.as_str()).map_err(|_| bad())?,
                HeaderValue::try_from(value.as_str()).map_err(|_| bad())?,
            );
            headers.append(name, value);
        }
        headers.entry("content-type").or_insert(HeaderValue::from_static("application/json"));
        Ok(Self {
            client,
            url: request.url.clone(),
            headers,
            body: request.body.clone(),
            origin: origin(request.url.as_str()),
        })
    }

    async fn post(&self) -> Answer {
        let began = Instant::now();
        let sent = self
            .client
            .post(self.url.clone())
            .headers(self.headers.clone())
            .body(self.body.clone())
            .send()
            .await;
        let mut response = match sent {
            Ok(response) => response,
            Err(error) => return Answer::none(&self.words(&error), began.elapsed()),
        };
        let head = |name: &str| {
            response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
        };
        let heads = Heads {
            status: head("x-portero-status"),
            receipt_id: head("x-portero-receipt"),
            request_id: head("x-request-id"),
        };
        let mut body = Vec::new();
        loop {
            match response.chunk().await {
                Ok(Some(chunk)) if body.len() < ANSWER_BYTES_MAX => body.extend_from_slice(&chunk),
                Ok(_) => break,
                Err(error) => return Answer::none(&self.words(&error), began.elapsed()),
            }
        }
        Answer::read(response.status().as_u16(), heads, &body, began.elapsed())
    }

    /// The library's own words would show the whole URL.
    fn words(&self, error: &reqwest::Error) -> String {
        let origin = &self.origin;
        if let Some(failure) = TlsFailure::of(error) {
            of_tls(failure, origin).to_string()
        } else if error.is_timeout() {
            format!("{origin} did not answer in time")
        } else if error.is_connect() {
            format!("nobody answers at {origin}: is the gateway running?")
        } else {
            format!("the connection to {origin} broke before the answer was complete")
        }
    }
}

fn is_this_machine(url: &url::Url) -> bool {
    match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    fn poster(port: u16) -> Poster {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let request = Request {
            url: url::Url::parse(&format!("http://127.0.0.1:{port}/in/hush")).expect("a URL"),
            headers: vec![("x-sig".to_owned(), "1".to_owned())],
            body: Bytes::from_static(b"{}"),
        };
        Poster::new(&request, &TlsArgs::default()).expect("a client")
    }

    /// Answers one request with these bytes, and gives back what it was asked.
    async fn answer_with(reply: &'static str) -> (Answer, String) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let poster = poster(listener.local_addr().expect("bound").port());
        let server = async {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            let mut asked = Vec::new();
            while !asked.ends_with(b"\r\n\r\n{}") {
                assert_ne!(stream.read_buf(&mut asked).await.expect("readable"), 0);
            }
            stream.write_all(reply.as_bytes()).await.expect("writable");
            String::from_utf8(asked).expect("text")
        };
        tokio::join!(poster.post(), server)
    }

    #[tokio::test]
    async fn a_request_is_posted_as_signed_and_redirects_are_answers() {
        let (answer, asked) = answer_with(
            "HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\nx-request-id: req_1\r\ncontent-length: 0\r\n\r\n",
        )
        .await;
        assert!(asked.starts_with("POST /in/hush HTTP/1.1\r\n"), "{asked}");
        assert!(
            asked.contains("\r\nx-sig: 1\r\n") && asked.contains("\r\ncontent-type: application/json\r\n")
        );
        assert_eq!((answer.status, answer.request_id.as_deref()), (Some(302), Some("req_1")));
    }

    #[tokio::test]
    async fn what_became_of_an_event_is_told_where_a_provider_has_words_of_its_own() {
        let (answer, _) = answer_with(
            "HTTP/1.1 200 OK\r\nx-portero-status: accepted\r\nx-portero-receipt: rcpt_1\r\ncontent-length: 0\r\n\r\n",
        )
        .await;
        assert_eq!(answer.line(), "200 accepted  rcpt_1");
    }

    #[tokio::test]
    async fn a_broken_answer_is_none_and_the_path_stays_confidential() {
        let (answer, _) = answer_with("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nshort").await;
        assert_eq!(answer.status, None);
        assert!(!answer.line().contains("hush"), "{}", answer.line());
    }

    #[tokio::test]
    async fn a_closed_port_is_told_by_its_address() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let port = listener.local_addr().expect("bound").port();
        drop(listener);
        let answer = poster(port).post().await;
        assert_eq!(
            answer.message,
            Some(format!("nobody answers at http://127.0.0.1:{port}: is the gateway running?"))
        );
    }
}
