//! Calls by name, of messages as bytes: every RPC is called in one way, and its answer kept to the last byte.

use std::collections::BTreeSet;

use bytes::{Buf as _, BufMut as _, Bytes};
use prost::Message as _;
use prost_types::FileDescriptorSet;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Code, Request, Status};
use tonic_types::StatusExt as _;

use crate::harness::Heard;

/// The services whose calls stand in the table.
const PACKAGE: &str = "portero.v1";

/// Every RPC of the program's own services, `Service/Method`, as it was compiled.
pub(super) fn compiled_rpcs() -> BTreeSet<String> {
    let set = FileDescriptorSet::decode(portero_proto::FILE_DESCRIPTOR_SET).expect("descriptors");
    let files = set.file.iter().filter(|file| file.package() == PACKAGE);
    files
        .flat_map(|file| &file.service)
        .flat_map(|service| {
            service.method.iter().map(|method| format!("{}/{}", service.name(), method.name()))
        })
        .collect()
}

/// What a call was answered with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) code: Code,
    pub(super) message: String,
    /// `google.rpc.Status`, as sent.
    details: Vec<u8>,
    /// Every other header and trailer, but for the date.
    metadata: Vec<(String, String)>,
    /// The answer's message, when there is one.
    pub(super) body: Bytes,
    /// The stable reason of a refusal.
    pub(super) reason: String,
}

impl Answer {
    fn ok(body: Bytes) -> Self {
        let (message, details, metadata, reason) = (String::new(), Vec::new(), Vec::new(), String::new());
        Self { code: Code::Ok, message, details, metadata, body, reason }
    }

    fn refused(status: &Status) -> Self {
        let reason = status.get_error_details().error_info().map(|info| info.reason.clone());
        let mut metadata: Vec<(String, String)> = status
            .metadata()
            .clone()
            .into_headers()
            .iter()
            .filter(|(name, _)| *name != "date")
            .map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
            .collect();
        metadata.sort();
        Self {
            code: status.code(),
            message: status.message().to_owned(),
            details: status.details().to_vec(),
            metadata,
            body: Bytes::new(),
            reason: reason.unwrap_or_default(),
        }
    }

    /// The same with each of these words replaced, so that answers that differ in what they repeat of the request are equal.
    pub(super) fn without(&self, words: &[(&str, &str)]) -> Self {
        let mut text = (self.message.clone(), String::from_utf8_lossy(&self.details).into_owned());
        for (word, other) in words {
            text = (text.0.replace(word, other), text.1.replace(word, other));
        }
        // Lengths within the details differ with the words: their text is what counts.
        let details = text.1.chars().filter(|c| c.is_alphanumeric()).collect::<String>().into_bytes();
        Self { message: text.0, details, metadata: Vec::new(), body: Bytes::new(), ..self.clone() }
    }
}

/// One caller's connection.
#[derive(Clone)]
pub(super) struct Line(Heard);

impl Line {
    pub(super) fn new(url: &str, token: &str) -> Self {
        Self(Heard::new(url, token))
    }

    /// Calls `Service/Method` with a message; of a stream the first answer counts.
    pub(super) async fn call(&self, rpc: &str, message: Bytes) -> Answer {
        let path = PathAndQuery::try_from(format!("/{PACKAGE}.{rpc}")).expect("a path");
        let mut grpc = Grpc::new(self.0.clone());
        grpc.ready().await.expect("a connection");
        // To the wire a call with one message is a stream of one message; one that stays open tells streams nothing.
        let request = Request::new(tokio_stream::iter([message]));
        let outcome = match grpc.streaming(request, path, Raw).await {
            Ok(response) => response.into_inner().message().await,
            Err(status) => Err(status),
        };
        match outcome {
            Ok(body) => Answer::ok(body.unwrap_or_default()),
            Err(status) => Answer::refused(&status),
        }
    }
}

/// Messages as the bytes that they are.
#[derive(Clone, Copy)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        let remaining = buffer.remaining();
        Ok(Some(buffer.copy_to_bytes(remaining)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_equal_that_differ_in_what_they_repeat_alone() {
        let of = |status: Status| Answer::refused(&status);
        let (first, second) =
            (of(Status::not_found("a/one is away")), of(Status::not_found("a/two is away")));
        assert_ne!(first, second);
        assert_eq!(first.without(&[("one", "X")]), second.without(&[("two", "X")]));
        let other = of(Status::not_found("a/two is hidden"));
        assert_ne!(first.without(&[("one", "X")]), other.without(&[("two", "X")]));
        assert_ne!(first.without(&[]), of(Status::permission_denied("a/one is away")).without(&[]));
    }
}
