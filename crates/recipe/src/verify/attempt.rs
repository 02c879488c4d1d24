//! One request against one scheme: finding its signatures and its time, then judging both.

use portero_types::limits::{EVENTS_PER_REQUEST_MAX, JSON_DEPTH_MAX};
use portero_types::{SecretNo, Timestamp};

use super::Verified;
use crate::context::{Context, Problem};
use crate::form::{self, Field};
use crate::json::{BatchError, Document};
use crate::path::Path;
use crate::scheme::{Place, Proof, Scheme};
use crate::signature_list::{Parsed, few_public};
use crate::template::{Filter, Part, Source, Template, Value};
use crate::{Anomaly, Reason, Rejection, Request, Secret};

/// One request against one scheme.
pub(super) struct Attempt<'a> {
    pub(super) proof: &'a Proof,
    pub(super) active: &'a [&'a Secret],
    pub(super) scheme_no: usize,
    pub(super) request: &'a Request<'a>,
    pub(super) now: Timestamp,
}

impl Attempt<'_> {
    pub(super) fn headers(&self, names: &[String]) -> Result<Verified, Rejection> {
        let mut candidates = Vec::new();
        let mut ts = None;
        for name in names {
            let mut values = self.request.header_values(name);
            let Some(value) = values.next() else { continue };
            if values.next().is_some() {
                return Err(Rejection::new(
                    Reason::SignatureDuplicated,
                    format!("the header '{name}' came more than once"),
                ));
            }
            let parsed = self.proof.reader.read(value)?;
            candidates.extend(parsed.candidates);
            ts = ts.or(parsed.ts);
        }
        if candidates.is_empty() {
            let names = names.join("' or '");
            return Err(Rejection::new(Reason::SignatureMissing, format!("the header '{names}' is missing")));
        }
        self.whole(&Parsed { candidates, ts }, self.context())
    }

    /// What may be looked at before verification: the form only where the signature is in it or covers all of it.
    fn context(&self) -> Context<'_> {
        let reads_form = matches!(self.proof.place, Place::Form(_))
            || self.proof.message.as_ref().is_some_and(|message| message.uses(&Source::FormSorted));
        let form = reads_form.then_some(self.request.body);
        Context { form, ..Context::unverified(self.request) }
    }

    pub(super) fn query(&self, name: &str) -> Result<Verified, Rejection> {
        self.field(form::field(self.request.query.as_bytes(), name), &format!("the query field '{name}'"))
    }

    pub(super) fn form(&self, name: &str) -> Result<Verified, Rejection> {
        self.field(form::field(self.request.body, name), &format!("the form field '{name}'"))
    }

    fn field(&self, field: Field<'_>, place: &str) -> Result<Verified, Rejection> {
        match field {
            Field::Missing => Err(Rejection::new(Reason::SignatureMissing, format!("{place} is missing"))),
            Field::Duplicate => {
                Err(Rejection::new(Reason::SignatureDuplicated, format!("{place} came more than once")))
            }
            Field::Found(text) => self.whole(&self.proof.reader.read(&text)?, self.context()),
        }
    }

    pub(super) fn numbered(&self, prefix: &str) -> Result<Verified, Rejection> {
        let is_one = |name: &str| {
            name.strip_prefix(prefix)
                .is_some_and(|n| (1..=3).contains(&n.len()) && n.bytes().all(|byte| byte.is_ascii_digit()))
        };
        let limit = portero_types::limits::SIGNATURES_PER_REQUEST_MAX;
        let mut candidates = Vec::new();
        for (_, value) in self.request.headers.iter().filter(|(name, _)| is_one(name)) {
            candidates.extend(self.proof.reader.read(value)?.candidates);
            if candidates.len() > limit {
                return Err(Rejection::new(
                    Reason::TooManySignatures,
                    format!("more than {limit} signatures"),
                ));
            }
        }
        if candidates.is_empty() {
            return Err(Rejection::new(Reason::SignatureMissing, format!("no header '{prefix}…' is there")));
        }
        self.whole(&Parsed { candidates, ts: None }, self.context())
    }

    pub(super) fn json(&self, path: &Path) -> Result<Verified, Rejection> {
        let document = self.document()?;
        let context = Context { document: Some(&document), ..self.context() };
        let place = Template::of(Source::Json(path.clone()));
        let text = context.fill(&place).map_err(|problem| signature_problem(&problem))?;
        let parsed = self.proof.reader.read(&text)?;
        self.whole(&parsed, context)
    }

    /// Checks one set of signatures over one message, and the time.
    fn whole(&self, parsed: &Parsed<'_>, context: Context<'_>) -> Result<Verified, Rejection> {
        few_public(parsed.candidates.iter().map(|candidate| candidate.algorithm))?;
        let window = self.proof.window.as_ref();
        let in_body = |source: &Template| {
            context.document.is_none()
                && source.values().iter().any(|value| matches!(value.source, Source::Json(_)))
        };
        // A time in the signed body is read only after the signature was found good.
        let source = window.and_then(|window| window.source.as_ref());
        let late = source.filter(|source| in_body(source));
        let early = match source.filter(|source| !in_body(source)) {
            Some(source) => Some(context.fill(source).map_err(|problem| time_problem(&problem))?),
            None => None,
        };
        let ts = early.as_deref().or(parsed.ts);
        let time = match (window, late, ts) {
            (Some(window), None, Some(ts)) => Some(window.read(ts)?),
            (Some(_), None, None) => return Err(time_missing()),
            (None, ..) | (_, Some(_), _) => None,
        };
        let context = Context { ts, ..context };
        self.body_digest(context)?;
        let secret = self.matching(&parsed.candidates, context)?.ok_or_else(|| {
            let of = if self.proof.is_token() {
                "the token is that of no active secret"
            } else {
                "no signature matches the bytes received under any active secret"
            };
            Rejection::new(Reason::SignatureMismatch, of)
        })?;
        let time = match (window, late) {
            (Some(window), Some(source)) => Some(self.late_time(window, source)?),
            _ => time,
        };
        if let (Some(window), Some(time)) = (window, time) {
            window.judge(time, self.now)?;
        }
        Ok(Verified { secret: Some(secret), scheme: self.scheme_no, items: Vec::new() })
    }

    fn late_time(&self, window: &crate::window::Window, source: &Template) -> Result<Timestamp, Rejection> {
        let document = self.document()?;
        let context = Context { document: Some(&document), ..Context::unverified(self.request) };
        window.read(&context.fill(source).map_err(|problem| time_problem(&problem))?)
    }

    /// Every item must verify before any counts.
    pub(super) fn items(&self, scheme: &Scheme, path: &Path) -> Result<Verified, Rejection> {
        let document = self.document()?;
        let list = (scheme.readings.first().and_then(|reading| reading.items.first()))
            .expect("a scheme with signatures in items has a path to them");
        let items = document.items(list, EVENTS_PER_REQUEST_MAX).map_err(batch_problem)?;
        if items.is_empty() {
            return Err(Rejection::new(Reason::SignatureMissing, "the batch is empty, so nothing is signed"));
        }
        let place = Template::of(Source::Item(path.clone()));
        let count = items.len();
        let mut verified = Vec::with_capacity(count);
        for (n, item) in items.into_iter().enumerate() {
            let context = Context {
                document: Some(&document),
                item: Some(&item.at),
                outer: Some(&item.outer),
                ..Context::unverified(self.request)
            };
            let secret = self.item(&place, context).map_err(|rejection| {
                Rejection::new(
                    rejection.reason(),
                    format!("item {} of {count}: {}", n + 1, rejection.detail()),
                )
            })?;
            verified.push((item, secret));
        }
        Ok(Verified {
            secret: verified.first().map(|(_, secret)| *secret),
            scheme: self.scheme_no,
            items: verified,
        })
    }

    fn item(&self, place: &Template, context: Context<'_>) -> Result<SecretNo, Rejection> {
        let text = context.fill(place).map_err(|problem| signature_problem(&problem))?;
        let parsed = self.proof.reader.read(&text)?;
        self.matching(&parsed.candidates, context)?.ok_or_else(|| {
            Rejection::new(
                Reason::SignatureMismatch,
                "its signature does not match its fields under any active secret",
            )
        })
    }

    /// The body as JSON, for schemes whose signature lives in it.
    fn document(&self) -> Result<Document<'_>, Rejection> {
        Document::parse(self.request.body.into(), JSON_DEPTH_MAX).map_err(|_| {
            Rejection::new(
                Reason::BodyMalformed,
                format!("the body is not JSON of at most {JSON_DEPTH_MAX} levels"),
            )
        })
    }
}

impl Template {
    /// A template that is one value.
    fn of(source: Source) -> Self {
        Self { parts: vec![Part::Value(Value { source, optional: false, filter: Filter::None })] }
    }
}

fn time_missing() -> Rejection {
    Rejection::new(Reason::TimestampMissing, "the signed time is missing")
}

fn time_problem(problem: &Problem<'_>) -> Rejection {
    match problem {
        Problem::Missing(_) => time_missing(),
        Problem::Anomaly(Source::Header(_), Anomaly::DuplicateKey) => problem.of_signed_part(),
        Problem::Anomaly(..) => Rejection::new(Reason::TimestampMalformed, "the signed time is ambiguous"),
    }
}

fn signature_problem(problem: &Problem<'_>) -> Rejection {
    match problem {
        Problem::Missing(_) => Rejection::new(Reason::SignatureMissing, "the signature is missing"),
        Problem::Anomaly(_, Anomaly::DuplicateKey) => {
            Rejection::new(Reason::SignatureDuplicated, "the signature is there more than once")
        }
        Problem::Anomaly(..) => Rejection::new(Reason::SignatureMalformed, "the signature is not a text"),
    }
}

fn batch_problem(error: BatchError) -> Rejection {
    match error {
        BatchError::Shape | BatchError::Duplicate => Rejection::new(
            Reason::BodyMalformed,
            "the body does not hold the list of items that the recipe names",
        ),
        BatchError::TooMany => too_many_events(),
    }
}

pub(crate) fn too_many_events() -> Rejection {
    Rejection::new(Reason::TooManyEvents, format!("more than {EVENTS_PER_REQUEST_MAX} events in one request"))
}
