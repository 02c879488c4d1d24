//! One keep-alive HTTP/1.1 connection of the load, as bare as it can be: one write, then reads up to the answer's end.

use std::net::SocketAddr;

use anyhow::{Context as _, bail, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Longest answer, bytes, head included.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;

/// An open connection.
pub(crate) struct Connection {
    stream: TcpStream,
    answer: Vec<u8>,
    body_at: usize,
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).await.context("connecting to the receiver")?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, answer: Vec::with_capacity(4096), body_at: 0 })
    }

    /// Sends a request and waits for the whole answer. Returns its status.
    pub(crate) async fn exchange(&mut self, request: &[u8]) -> anyhow::Result<u16> {
        self.stream.write_all(request).await.context("sending a request")?;
        self.answer.clear();
        loop {
            let read = self.stream.read_buf(&mut self.answer).await.context("reading an answer")?;
            ensure!(read > 0, "the receiver closed a connection");
            if let Some((status, body_at, end)) = parse(&self.answer)? {
                ensure!(self.answer.len() <= end, "the receiver sent more than one answer");
                if self.answer.len() == end {
                    self.body_at = body_at;
                    return Ok(status);
                }
            }
            ensure!(self.answer.len() <= ANSWER_BYTES_MAX, "an answer is too long");
        }
    }

    /// The body of the last answer, as text; empty when it is none.
    pub(crate) fn body(&self) -> &str {
        std::str::from_utf8(self.answer.get(self.body_at..).unwrap_or_default()).unwrap_or_default()
    }
}

/// Status, the body's place and the total length, once the head is complete.
fn parse(answer: &[u8]) -> anyhow::Result<Option<(u16, usize, usize)>> {
    let Some(head) = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n") else { return Ok(None) };
    let text = std::str::from_utf8(&answer[..head]).context("an answer's head is not text")?;
    let mut lines = text.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).and_then(|code| code.parse().ok());
    let length = lines.filter_map(|line| line.split_once(':')).find_map(|(name, value)| {
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    match (status, length) {
        (Some(status), Some(length)) => Ok(Some((status, head + 4, head + 4 + length))),
        _ => bail!("an answer without a status or a length"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_ends_where_its_length_says() {
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";
        assert_eq!(parse(answer).expect("well-formed"), Some((200, answer.len() - 2, answer.len())));
        assert_eq!(parse(&answer[..20]).expect("incomplete"), None);
        assert!(parse(b"HTTP/1.1 200 OK\r\n\r\n").is_err());
    }
}
