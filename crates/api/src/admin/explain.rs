//! What a source makes of a request, step by step. Nothing is stored, answered or fetched.

use std::sync::Arc;

use portero_auth::Action;
use portero_directory::{Source, Verification};
use portero_keyring::rejection_aad;
use portero_proto::v1;
use portero_proto::v1::explain_request_request::Request as Which;
use portero_recipe::{Explanation, Extracted, Outcome, Reason, Rejection, Step, Verdict, explain};
use portero_store::CapturedRequest;
use portero_types::limits::BODY_BYTES_MAX;
use portero_types::{Header, RequestId, SecretNo, Timestamp};
use tonic::{Request, Response, Status};

use super::{Admin, Answer, split};
use crate::error::{from_store, invalid, not_found};
use crate::{name, time};

const HEADERS_MAX: usize = 100;
const HEADERS_BYTES_MAX: usize = 64 * 1024;
const QUERY_BYTES_MAX: usize = 8 * 1024;
const METHOD_BYTES_MAX: usize = 16;
/// Most events that an answer shows.
const EVENTS_SHOWN_MAX: usize = 100;
/// Longest text of a step that is shown, bytes.
const DETAIL_BYTES_MAX: usize = 2 * 1024;

impl Admin {
    pub(super) async fn do_explain_request(
        &self,
        request: Request<v1::ExplainRequestRequest>,
    ) -> Answer<v1::Explanation> {
        let (metadata, message) = split(request);
        let (tenant, id) = name::source(&message.parent, "parent")?;
        self.check(&metadata, Action::ExplainRequest(&tenant)).await?;
        let at = message.at.as_ref().map(|at| time::from_proto(at, "at")).transpose()?;
        let row = self.store.source(&tenant, &id).await.map_err(|error| from_store(&error))?;
        let row = row.ok_or_else(|| not_found(&message.parent))?;
        let (captured, received_at) = match message.request {
            Some(Which::Uploaded(uploaded)) => (from_upload(uploaded)?, self.now()),
            Some(Which::RequestId(text)) => self.captured(&row, name::id(&text, "request_id")?).await?,
            None => return Err(invalid("request", "must be given: a request id, or an uploaded request")),
        };
        // The same recipe and secrets as at the edge.
        self.directory.refresh_now().await.map_err(|_| Status::unavailable("the store is away; retry"))?;
        let source = self.directory.snapshot().source_by_no(row.no).cloned();
        let source = source.ok_or_else(|| not_found(&message.parent))?;
        if let Err(fault) = &source.verification {
            return Err(Status::failed_precondition(format!("the source is disabled: {fault}")));
        }
        let permit = Arc::clone(&self.explaining).acquire_owned().await;
        let permit = permit.map_err(|_| Status::unavailable("shutting down"))?;
        let at = at.unwrap_or(received_at);
        // Hints may try many variants of a large body, which is no work for a thread that serves others.
        // It goes on when the caller leaves, and keeps its place until it is done.
        let work = move || {
            let _permit = permit;
            judge(&source, &captured, at)
        };
        let explained = tokio::task::spawn_blocking(work).await;
        let explained = explained.map_err(|_| Status::internal("the request could not be explained"))?;
        explained.map(Response::new)
    }

    /// A refused request that is kept, opened, and when it was received.
    async fn captured(
        &self,
        row: &portero_store::Source,
        id: RequestId,
    ) -> Result<(CapturedRequest, Timestamp), Status> {
        let stored = self.stored_rejection(row, id, "the rejection").await?;
        let sealed = stored.capture.ok_or_else(|| {
            Status::failed_precondition(
                "the refused request itself is not kept: it was not read to its end, or it was too large",
            )
        })?;
        let aad = rejection_aad(&row.tenant, &row.id, id);
        let opened = self.keys_of(&row.tenant).await?.open(&aad, &sealed.0);
        let captured = opened.ok().and_then(|bytes| CapturedRequest::decode(&bytes).ok());
        let captured = captured.ok_or_else(|| {
            Status::failed_precondition("the refused request cannot be opened with its tenant's data key")
        })?;
        Ok((captured, stored.rejection.received_at))
    }
}

fn from_upload(uploaded: v1::UploadedRequest) -> Result<CapturedRequest, Status> {
    let v1::UploadedRequest { method, query, headers, body } = uploaded;
    if method.len() > METHOD_BYTES_MAX || !method.bytes().all(|byte| byte.is_ascii_alphabetic()) {
        return Err(invalid("uploaded.method", "must be an HTTP method"));
    }
    if query.len() > QUERY_BYTES_MAX || query.contains(char::is_control) {
        return Err(invalid("uploaded.query", "must be at most 8 KiB, without control characters"));
    }
    let header_bytes: usize = headers.iter().map(|header| header.name.len() + header.value.len()).sum();
    if headers.len() > HEADERS_MAX || header_bytes > HEADERS_BYTES_MAX {
        return Err(invalid("uploaded.headers", "must be at most 100, together at most 64 KiB"));
    }
    for (n, header) in headers.iter().enumerate() {
        if !is_token(&header.name) {
            return Err(invalid(&format!("uploaded.headers[{n}].name"), "must be a header's name"));
        }
    }
    if body.len() > BODY_BYTES_MAX {
        return Err(invalid("uploaded.body", "must be at most 1 MiB"));
    }
    let method = if method.is_empty() { "POST".to_owned() } else { method.to_ascii_uppercase() };
    let header =
        |header: v1::RequestHeader| Header { name: header.name.to_ascii_lowercase(), value: header.value };
    Ok(CapturedRequest {
        method,
        query,
        headers: headers.into_iter().map(header).collect(),
        body: body.into(),
    })
}

/// RFC 9110 section 5.6.2.
fn is_token(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

fn judge(source: &Arc<Source>, captured: &CapturedRequest, at: Timestamp) -> Result<v1::Explanation, Status> {
    let Ok(Verification { recipe, secrets, .. }) = &source.verification else {
        return Err(Status::failed_precondition("the source is disabled"));
    };
    let headers: Vec<(&str, &[u8])> =
        captured.headers.iter().map(|header| (header.name.as_str(), header.value.as_slice())).collect();
    let request = portero_recipe::Request {
        method: &captured.method,
        query: &captured.query,
        headers: &headers,
        body: &captured.body,
        public_urls: &source.public_urls,
        settings: source.settings.as_map(),
        fetched: None,
    };
    let mut explanation = explain(recipe, &request, secrets, at);
    if let Verdict::Handshake { stores_secret: true, .. } = explanation.verdict {
        expect_secret(source, &mut explanation, at);
    }
    Ok(to_proto(source, explanation, at))
}

/// Refuses a handshake that brings a secret when the source waited for none, as the edge does.
fn expect_secret(source: &Source, explanation: &mut Explanation, at: Timestamp) {
    let until = source.secret_expected_until;
    let waits = until.is_some_and(|until| until > at);
    let detail = match until {
        _ if waits => "the source waits for a secret",
        Some(_) => "the source no longer waited for a secret: its window for one had ended",
        None => "the source waits for no secret: no window for one is open",
    };
    let outcome = if waits { Outcome::Passed } else { Outcome::Failed };
    if !waits {
        let rejection = Rejection::new(
            Reason::HandshakeNotExpected,
            "the source waits for no secret: let it wait for one and register the URL again",
        );
        explanation.verdict = Verdict::Refused(rejection);
        for step in explanation.steps.iter_mut().filter(|step| step.name == "handshake") {
            step.outcome = Outcome::Noted;
        }
    }
    explanation.steps.push(Step { name: "secret window", outcome, detail: detail.to_owned(), secret: None });
}

fn to_proto(source: &Source, explanation: Explanation, at: Timestamp) -> v1::Explanation {
    let unfetched = explanation.unfetched;
    let secret = |no: Option<SecretNo>| {
        no.and_then(|no| source.secret_id(no)).map(ToString::to_string).unwrap_or_default()
    };
    let mut shown = v1::Explanation {
        judge_time: Some(time::to_proto(at)),
        event_count: u32::try_from(explanation.events.len()).unwrap_or(u32::MAX),
        events: explanation.events.iter().take(EVENTS_SHOWN_MAX).map(event).collect(),
        ..v1::Explanation::default()
    };
    match explanation.verdict {
        Verdict::Verified { secret: matched } => {
            shown.set_verdict(v1::Verdict::Verified);
            shown.secret = secret(matched);
        }
        Verdict::Handshake { status, stores_secret } => {
            shown.set_verdict(v1::Verdict::Handshake);
            (shown.handshake_status, shown.stores_secret) = (u32::from(status), stores_secret);
        }
        Verdict::Refused(_) if unfetched.is_some() => shown.set_verdict(v1::Verdict::Undecided),
        Verdict::Refused(rejection) => {
            shown.set_verdict(v1::Verdict::Refused);
            rejection.reason().code().clone_into(&mut shown.reason);
            rejection.detail().clone_into(&mut shown.detail);
        }
    }
    shown.unfetched_url = unfetched.unwrap_or_default();
    shown.steps = explanation.steps.into_iter().map(|found| step(found, secret)).collect();
    shown
}

fn step(found: Step, secret: impl Fn(Option<SecretNo>) -> String) -> v1::ExplanationStep {
    let outcome = match found.outcome {
        Outcome::Passed => v1::StepOutcome::Passed,
        Outcome::Failed => v1::StepOutcome::Failed,
        Outcome::Noted => v1::StepOutcome::Noted,
    };
    let mut detail = found.detail;
    detail.truncate(detail.floor_char_boundary(DETAIL_BYTES_MAX));
    v1::ExplanationStep {
        name: found.name.to_owned(),
        outcome: outcome.into(),
        detail,
        secret: secret(found.secret),
    }
}

fn event(event: &Extracted) -> v1::ExplainedEvent {
    v1::ExplainedEvent {
        event_id: event.event_id.clone(),
        event_id_derived: event.id_derived,
        event_id_anomaly: event.id_anomaly.map(|anomaly| anomaly.code().to_owned()).unwrap_or_default(),
        event_type: event.event_type.clone(),
        ordering_key: event.entity.clone().unwrap_or_default(),
        account: event.account.clone().unwrap_or_default(),
        body_bytes: u64::try_from(event.body.len()).unwrap_or(u64::MAX),
    }
}
