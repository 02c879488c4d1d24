//! A provider: it signs, posts, and sends the same request again until it hears 2xx.

use std::sync::Once;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use portero_recipe::SignOptions;
use portero_types::Timestamp;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use super::{Gateway, Source, canaries};

/// Longest time that one request may take.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How long a provider pauses between two attempts. Real ones take longer.
const RETRY_EVERY: Duration = Duration::from_millis(50);

/// The time of this machine, to sign with.
#[expect(clippy::disallowed_methods, reason = "a provider outside of the program has the machine's clock")]
pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    Timestamp::from_micros(i64::try_from(since.as_micros()).expect("fits"))
}

/// A signed request.
#[derive(Clone, Debug)]
pub(crate) struct Signed {
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

/// What came back.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Answer {
    /// One field of the JSON body; empty when there is none.
    pub(crate) fn field(&self, name: &str) -> String {
        let body: Value = serde_json::from_str(&self.text).unwrap_or_default();
        body[name].as_str().unwrap_or_default().to_owned()
    }

    /// Why it was rejected.
    pub(crate) fn reason(&self) -> String {
        self.field("reason")
    }

    /// One header; empty when it is absent.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

/// A provider that delivers to one source at one gateway. Cheap to clone; clones share connections.
#[derive(Clone)]
pub(crate) struct Provider {
    client: reqwest::Client,
    pub(crate) url: String,
    pub(crate) source: Source,
}

impl Provider {
    /// At a gateway's edge.
    pub(crate) fn new(gateway: &Gateway, source: &Source) -> Self {
        let url = format!("{}{}", gateway.edge_url(), source.path);
        Self { client: client(), url, source: source.clone() }
    }

    /// The same by another client, at the gateway behind this URL.
    pub(crate) fn by(self, client: reqwest::Client, edge_url: &str) -> Self {
        let url = format!("{edge_url}{}", self.source.path);
        Self { client, url, ..self }
    }

    /// Signs a body as of now, with the source's first secret.
    pub(crate) fn sign(&self, body: &[u8]) -> Signed {
        self.sign_with(&self.source.secret, body, SignOptions { now: now(), ..SignOptions::default() })
    }

    /// Signs a body.
    pub(crate) fn sign_with(&self, secret: &str, body: &[u8], options: SignOptions<'_>) -> Signed {
        let signed =
            portero_recipe::sign(&self.source.recipe, secret, body, options).expect("it can be signed");
        canaries::plant_secret(secret);
        Signed { headers: signed.headers, body: signed.body }
    }

    /// Posts once; `None` when no complete answer came.
    pub(crate) async fn try_post(&self, signed: &Signed) -> Option<Answer> {
        canaries::plant_request(&signed.headers, &signed.body);
        let mut headers = HeaderMap::new();
        headers.insert("content-type", HeaderValue::from_static("application/json"));
        for (name, value) in &signed.headers {
            let name = HeaderName::try_from(name).expect("a header's name");
            headers.append(name, HeaderValue::try_from(value).expect("a header's value"));
        }
        let request = self.client.post(&self.url).headers(headers).body(signed.body.clone());
        read(request.send().await.ok()?).await
    }

    /// Posts once and must hear an answer.
    pub(crate) async fn post(&self, signed: &Signed) -> Answer {
        self.try_post(signed).await.expect("an answer")
    }

    /// Signs and posts an event once.
    pub(crate) async fn send(&self, body: &[u8]) -> Answer {
        self.post(&self.sign(body)).await
    }

    /// Sends the same request again until it is answered with 2xx, as providers do. `during` bounds that.
    pub(crate) async fn deliver(&self, signed: &Signed, during: Duration) -> Answer {
        let deadline = Instant::now() + during;
        loop {
            let answer = self.try_post(signed).await;
            match answer {
                Some(answer) if answer.is_success() => return answer,
                answer => assert!(Instant::now() < deadline, "not accepted within {during:?}: {answer:?}"),
            }
            tokio::time::sleep(RETRY_EVERY).await;
        }
    }
}

/// One bounded client.
fn client() -> reqwest::Client {
    static TLS: Once = Once::new();
    // Only plain HTTP is spoken, but the client insists on a provider.
    TLS.call_once(|| drop(rustls::crypto::ring::default_provider().install_default()));
    let builder = reqwest::Client::builder().timeout(TIMEOUT).redirect(reqwest::redirect::Policy::none());
    builder.no_proxy().build().expect("a client")
}

async fn read(response: reqwest::Response) -> Option<Answer> {
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let answer = Answer { status, headers, text: response.text().await.ok()? };
    search(&answer);
    Some(answer)
}

/// Searches what a stranger may be told: all but the answers to what was verified, which may repeat a part of it.
fn search(answer: &Answer) {
    if answer.is_success() {
        return;
    }
    canaries::assert_none("a refusal", &answer.text);
    for (name, value) in &answer.headers {
        canaries::assert_none(&format!("a refusal's header {name}"), value.as_bytes());
    }
}

/// A GET of a page.
pub(crate) async fn get(url: &str) -> Answer {
    let answer = read(client().get(url).send().await.expect("an answer")).await.expect("a complete answer");
    canaries::assert_none(url, &answer.text);
    answer
}

/// Sends bytes over a connection of its own and reads the answer until its end; the request should ask for `connection:
/// close`. A server that answers before it has read everything is heard all the same.
pub(crate) async fn raw(address: &str, request: &[u8]) -> Answer {
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    let (mut reader, mut writer) = stream.split();
    let mut bytes = Vec::new();
    let exchange = async {
        // The server may close before it has read everything.
        let _ = writer.write_all(request).await;
        let _ = reader.read_to_end(&mut bytes).await;
    };
    timeout(TIMEOUT, exchange).await.expect("an answer in time");
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("not an answer: {text:?}"));
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok()).expect("a status");
    let headers = lines
        .filter_map(|line| {
            let (name, value) = line.split_once(':')?;
            Some((HeaderName::try_from(name).ok()?, HeaderValue::try_from(value.trim()).ok()?))
        })
        .collect();
    let answer = Answer { status, headers, text: body.to_owned() };
    search(&answer);
    answer
}

/// An event of Stripe about `entity`; `sequence` is its place among the entity's events.
pub(crate) fn stripe_event(id: &str, entity: &str, sequence: usize) -> Vec<u8> {
    let body = json!({
        "id": id,
        "object": "event",
        "type": "invoice.paid",
        "data": { "object": { "id": entity, "object": "invoice", "sequence": sequence }, "note": canaries::PAYLOAD_MARKER },
    });
    body.to_string().into_bytes()
}
