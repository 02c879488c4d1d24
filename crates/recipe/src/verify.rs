//! Verification: is this request from the holder of one of the source's secrets?

use portero_types::limits::{ACTIVE_SECRETS_MAX, EVENTS_PER_REQUEST_MAX, JSON_DEPTH_MAX};
use portero_types::{SecretNo, Timestamp};

use crate::algorithm::Key;
use crate::context::{Context, Problem};
use crate::json::{BatchError, Document, Item};
use crate::path::Path;
use crate::scheme::{Place, Proof, Scheme};
use crate::signature_list::{Candidate, Parsed};
use crate::template::{Part, Source, Template, Value};
use crate::{Anomaly, Reason, Recipe, Rejection, Request, Secret};

/// Proof that a request was verified. Only [`verify`] makes one.
#[derive(Clone, Debug)]
pub struct Verified {
    secret: Option<SecretNo>,
    scheme: usize,
    items: Vec<(Item, SecretNo)>,
}

impl Verified {
    /// The secret that matched; `None` where the recipe needs none. When the items of a batch were signed under
    /// different secrets this is the first item's, and [`crate::Extracted::secret`] tells each item's.
    #[must_use]
    pub const fn secret(&self) -> Option<SecretNo> {
        self.secret
    }

    /// The number of the scheme by which it was verified.
    pub(crate) const fn scheme(&self) -> usize {
        self.scheme
    }

    /// The items of a batch whose items are signed one by one; else empty.
    pub(crate) fn items(&self) -> &[(Item, SecretNo)] {
        &self.items
    }
}

/// Verifies a request over its bytes as received, against every secret active at `now`.
///
/// At most [`ACTIVE_SECRETS_MAX`] active secrets are tried, in the order given.
///
/// # Errors
/// A [`Rejection`] with its reason. [`Reason::TimestampTooOld`] and [`Reason::TimestampInFuture`] are only given when the
/// signature itself is good, so a source may choose to hold such a request rather than to refuse it.
pub fn verify(
    recipe: &Recipe,
    request: &Request<'_>,
    secrets: &[Secret],
    now: Timestamp,
) -> Result<Verified, Rejection> {
    let Some((scheme_no, scheme)) = recipe.scheme_for(request) else {
        return Err(Rejection::new(
            Reason::SignatureMissing,
            "the request carries none of the headers by which the provider's requests are known",
        ));
    };
    let Some(proof) = &scheme.proof else {
        return Ok(Verified { secret: None, scheme: scheme_no, items: Vec::new() });
    };
    let active: Vec<&Secret> = (secrets.iter())
        .filter(|secret| secret.is_active(now) && !secret.keys(scheme_no).is_empty())
        .take(ACTIVE_SECRETS_MAX)
        .collect();
    if active.is_empty() {
        return Err(Rejection::new(
            Reason::NoActiveSecret,
            "the source has no active secret for this request",
        ));
    }
    let attempt = Attempt { proof, active: &active, scheme_no, request, now };
    match &proof.place {
        Place::Header(name) => attempt.header(name),
        Place::Numbered(prefix) => attempt.numbered(prefix),
        Place::Json(path) => attempt.json(path),
        Place::Item(path) => attempt.items(scheme, path),
    }
}

/// One request against one scheme.
struct Attempt<'a> {
    proof: &'a Proof,
    active: &'a [&'a Secret],
    scheme_no: usize,
    request: &'a Request<'a>,
    now: Timestamp,
}

impl Attempt<'_> {
    fn header(&self, name: &str) -> Result<Verified, Rejection> {
        let mut values = self.request.header_values(name);
        let Some(value) = values.next() else {
            return Err(Rejection::new(Reason::SignatureMissing, format!("the header '{name}' is missing")));
        };
        if values.next().is_some() {
            return Err(Rejection::new(
                Reason::SignatureDuplicated,
                format!("the header '{name}' came more than once"),
            ));
        }
        let parsed = self.proof.reader.read(value)?;
        self.whole(&parsed, Context::unverified(self.request))
    }

    fn numbered(&self, prefix: &str) -> Result<Verified, Rejection> {
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
        self.whole(&Parsed { candidates, ts: None }, Context::unverified(self.request))
    }

    fn json(&self, path: &Path) -> Result<Verified, Rejection> {
        let document = self.document()?;
        let context = Context { document: Some(&document), ..Context::unverified(self.request) };
        let place = Template::of(Source::Json(path.clone()));
        let text = context.fill(&place).map_err(|problem| signature_problem(&problem))?;
        let parsed = self.proof.reader.read(&text)?;
        self.whole(&parsed, context)
    }

    /// Checks one set of signatures over one message, and the time.
    fn whole(&self, parsed: &Parsed<'_>, context: Context<'_>) -> Result<Verified, Rejection> {
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
        let secret = self.matching(&parsed.candidates, context)?.ok_or_else(|| {
            Rejection::new(
                Reason::SignatureMismatch,
                "no signature matches the bytes received under any active secret",
            )
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

    /// The first active secret under which one of the signatures is good.
    fn matching(
        &self,
        candidates: &[Candidate],
        context: Context<'_>,
    ) -> Result<Option<SecretNo>, Rejection> {
        let message = match &self.proof.message {
            Some(template) => context.fill(template).map_err(|problem| problem.of_signed_part())?,
            None => (&[][..]).into(),
        };
        let proves = |key: &Key| {
            self.proof.reader.algorithms.iter().any(|(_, algorithm)| {
                let mut claimed =
                    candidates.iter().filter(|candidate| candidate.algorithm == *algorithm).peekable();
                claimed.peek().is_some()
                    && key
                        .judge(*algorithm, &message)
                        .is_some_and(|judge| claimed.any(|candidate| judge.accepts(&candidate.signature)))
            })
        };
        let secret = self.active.iter().find(|secret| secret.keys(self.scheme_no).iter().any(proves));
        Ok(secret.map(|secret| secret.no()))
    }

    /// Every item must verify before any counts.
    fn items(&self, scheme: &Scheme, path: &Path) -> Result<Verified, Rejection> {
        let document = self.document()?;
        let list = scheme.items.first().expect("a scheme with signatures in items has a path to them");
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
        Self { parts: vec![Part::Value(Value { source, optional: false, lower: false })] }
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
