//! Messages as they go over the wire, and answers as they come back.

use portero_recipe::{SignOptions, sign};
use serde_json::Value;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

use super::{Endpoint, NOW};

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) method: String,
    pub(crate) query: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Message {
    pub(crate) fn post(headers: &[(&str, &str)], body: &[u8]) -> Self {
        Self {
            method: "POST".to_owned(),
            query: String::new(),
            headers: headers.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
            body: body.to_vec(),
        }
    }

    pub(crate) fn get(query: &str) -> Self {
        Self { method: "GET".to_owned(), query: query.to_owned(), ..Self::post(&[], b"") }
    }

    /// Signed as the endpoint's provider would, with its newest secret and for its first URL.
    pub(crate) fn signed(endpoint: &Endpoint, body: &[u8]) -> Self {
        Self::signed_with(endpoint, body, SignOptions::default())
    }

    /// The same with one's own options; what they leave open is as in [`Message::signed`].
    pub(crate) fn signed_with(endpoint: &Endpoint, body: &[u8], options: SignOptions<'_>) -> Self {
        let secret = endpoint.secrets.last().expect("the endpoint has a secret");
        Self::signed_by(endpoint, secret, body, options)
    }

    /// The same with a secret of one's own.
    pub(crate) fn signed_by(
        endpoint: &Endpoint,
        secret: &str,
        body: &[u8],
        options: SignOptions<'_>,
    ) -> Self {
        let options = SignOptions {
            id: options.id.or(Some("id-1")),
            now: if options.now == SignOptions::default().now { NOW } else { options.now },
            url: options.url.or(endpoint.urls.first().map(String::as_str)),
            settings: &endpoint.settings,
            ..options
        };
        let signed = sign(&endpoint.parsed(), secret, body, options)
            .unwrap_or_else(|error| panic!("{}: {error}", endpoint.name));
        let Self { method, .. } = Self::post(&[], b"");
        Self { method, query: signed.query, headers: signed.headers, body: signed.body }
    }

    /// One more header.
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Another body under the same headers.
    pub(crate) fn with_body(self, body: &[u8]) -> Self {
        Self { body: body.to_vec(), ..self }
    }

    /// The value of a header that is there once.
    pub(crate) fn header_mut(&mut self, name: &str) -> &mut String {
        let found = self.headers.iter_mut().find(|(have, _)| have.eq_ignore_ascii_case(name));
        &mut found.unwrap_or_else(|| panic!("no header {name}")).1
    }

    /// Its head without the empty line, and without saying how long the body is.
    pub(crate) fn head(&self, path: &str) -> String {
        let query = if self.query.is_empty() { String::new() } else { format!("?{}", self.query) };
        let mut head = format!("{} {path}{query} HTTP/1.1\r\n", self.method);
        if !self.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            head.push_str("host: localhost\r\n");
        }
        head.push_str("connection: close\r\n");
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head
    }

    /// All of it, with the body's length.
    pub(crate) fn to_bytes(&self, path: &str) -> Vec<u8> {
        let mut head = self.head(path);
        if self.method != "GET" && self.method != "HEAD" {
            head.push_str(&format!("content-length: {}\r\n", self.body.len()));
        }
        [head.as_bytes(), b"\r\n", &self.body].concat()
    }
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Answer {
    /// Reads until the peer closes; interim answers are passed over.
    pub(crate) async fn read(stream: &mut TcpStream) -> Self {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).await.expect("answered");
        let mut text = String::from_utf8(bytes).expect("text");
        while let Some(rest) = text.strip_prefix("HTTP/1.1 100 Continue\r\n\r\n") {
            text = rest.to_owned();
        }
        Self::parse(&text)
    }

    fn parse(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no head: {text:?}"));
        let mut lines = head.lines();
        let status = lines.next().and_then(|line| line.split(' ').nth(1)).expect("a status");
        let header = |line: &str| {
            let (name, value) = line.split_once(':').expect("a header");
            (name.to_ascii_lowercase(), value.trim().to_owned())
        };
        let headers = lines.map(header).collect();
        Self { status: status.parse().expect("a number"), headers, body: body.to_owned() }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(have, _)| have == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("not JSON: {self:?}"))
    }

    /// A text of the answer's JSON; empty where it has none.
    pub(crate) fn field(&self, name: &str) -> String {
        self.json()[name].as_str().unwrap_or_default().to_owned()
    }

    /// Asserts that the gateway took it; as a new event, where it answers in its own words.
    pub(crate) fn is_accepted(&self, what: &str) {
        assert!((200..300).contains(&self.status), "{what}: {self:?}");
        if let Ok(json) = serde_json::from_str::<Value>(&self.body) {
            assert_eq!(json["status"], "accepted", "{what}: {self:?}");
        }
    }

    /// Asserts that it was refused as not verified, for this reason.
    pub(crate) fn is_refused(&self, reason: &str, what: &str) {
        assert_eq!((self.status, self.field("reason").as_str()), (401, reason), "{what}: {self:?}");
    }
}
