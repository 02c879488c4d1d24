//! Requests on one kept connection, cheaper than a client of HTTP, so that what is measured is the gateway.

use std::time::Duration;

use portero_recipe::SignOptions;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::harness::{Provider, now};

const TIMEOUT: Duration = Duration::from_secs(30);

/// A request, ready to be written.
#[derive(Clone)]
pub(crate) struct Ready(Vec<u8>);

impl Ready {
    /// A body of the provider's, as it comes from `client` through a proxy; `is_genuine` says whether its signature holds.
    pub(crate) fn new(provider: &Provider, body: &[u8], client: &str, is_genuine: bool) -> Self {
        let signed = provider.sign_with(
            &provider.source.secret,
            body,
            SignOptions { now: now(), ..SignOptions::default() },
        );
        let mut body = signed.body;
        if !is_genuine {
            body.push(b' ');
        }
        let mut head = format!(
            "POST {} HTTP/1.1\r\nhost: x\r\nx-forwarded-for: {client}\r\ncontent-length: {}\r\n",
            provider.source.path,
            body.len()
        );
        for (name, value) in signed.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        Self([head.into_bytes(), body].concat())
    }
}

/// A connection that is opened again when the gateway has closed it.
pub(crate) struct Wire {
    address: String,
    stream: Option<TcpStream>,
}

impl Wire {
    pub(crate) const fn new(address: String) -> Self {
        Self { address, stream: None }
    }

    /// Sends a request; the answer's status. Its words are read and dropped.
    pub(crate) async fn send(&mut self, request: &Ready) -> u16 {
        for _ in 0..2 {
            let mut stream = match self.stream.take() {
                Some(stream) => stream,
                None => {
                    let stream = TcpStream::connect(&self.address).await.expect("a connection");
                    stream.set_nodelay(true).expect("a TCP socket");
                    stream
                }
            };
            let exchange = timeout(TIMEOUT, exchange(&mut stream, request)).await.expect("an answer in time");
            if let Some((status, stays)) = exchange {
                self.stream = stays.then_some(stream);
                return status;
            }
        }
        panic!("the gateway closes connections without an answer");
    }
}

/// Status, and whether the connection stays; `None` when it was closed before an answer.
async fn exchange(stream: &mut TcpStream, request: &Ready) -> Option<(u16, bool)> {
    stream.write_all(&request.0).await.ok()?;
    let mut answer = Vec::with_capacity(1_024);
    let head_bytes = loop {
        if let Some(end) = answer.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
        if stream.read_buf(&mut answer).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8_lossy(&answer[..head_bytes]).to_ascii_lowercase();
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let length: usize = length.map_or(0, |length| length.parse().expect("a number"));
    while answer.len() < head_bytes + length {
        if stream.read_buf(&mut answer).await.ok()? == 0 {
            return None;
        }
    }
    Some((status, !head.contains("connection: close")))
}
