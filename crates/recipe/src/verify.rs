//! Verification: is this request from the holder of one of the source's secrets?

use std::borrow::Cow;

use portero_types::limits::{ACTIVE_SECRETS_MAX, EVENTS_PER_REQUEST_MAX, JSON_DEPTH_MAX};
use portero_types::{SecretNo, Timestamp};

use subtle::ConstantTimeEq as _;

use crate::algorithm::{Key, sha256};
use crate::context::{Context, Problem};
use crate::form::{self, Field};
use crate::json::{BatchError, Document, Item};
use crate::path::Path;
use crate::scheme::{Check, Place, Proof, Scheme};
use crate::signature_list::{Candidate, Parsed};
use crate::template::{Filter, Part, Source, Template, Value};
use crate::url_form::urls;
use crate::verifier::Input;
use crate::{Anomaly, Fetch, Reason, Recipe, Rejection, Request, Secret};

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
    settled(recipe, request)?;
    let input = || active(scheme_no, secrets, now);
    match &scheme.check {
        Check::Nothing => Ok(Verified { secret: None, scheme: scheme_no, items: Vec::new() }),
        Check::Code(verifier, forms) => {
            let active = if forms.is_empty() { Vec::new() } else { input()? };
            let input = Input { request, secrets: &active, scheme: scheme_no, now };
            let secret = verifier.verify(&input)?;
            Ok(Verified { secret, scheme: scheme_no, items: Vec::new() })
        }
        Check::Proof(proof) => {
            let active = input()?;
            let attempt = Attempt { proof, active: &active, scheme_no, request, now };
            match &proof.place {
                Place::Headers(names) => attempt.headers(names),
                Place::Numbered(prefix) => attempt.numbered(prefix),
                Place::Query(name) => attempt.query(name),
                Place::Form(name) => attempt.form(name),
                Place::Json(path) => attempt.json(path),
                Place::Item(path) => attempt.items(scheme, path),
            }
        }
    }
}

/// What must be fetched before a request can be verified, such as the certificate that it names; `None`: nothing.
///
/// Only looks at the request; nothing in it is verified yet, so the recipe's code pins where may be fetched from.
///
/// # Errors
/// A [`Rejection`] when the request can be refused without fetching anything.
pub fn fetch_needed(
    recipe: &Recipe,
    request: &Request<'_>,
    secrets: &[Secret],
    now: Timestamp,
) -> Result<Option<Fetch>, Rejection> {
    let Some((scheme_no, scheme)) = recipe.scheme_for(request) else { return Ok(None) };
    let Check::Code(verifier, forms) = &scheme.check else { return Ok(None) };
    if request.method != "POST" {
        return Ok(None);
    }
    settled(recipe, request)?;
    let active = if forms.is_empty() { Vec::new() } else { active(scheme_no, secrets, now)? };
    verifier.fetch(&Input { request, secrets: &active, scheme: scheme_no, now })
}

/// What must be fetched because of a verified request before it is accepted, such as the URL that confirms a topic's
/// subscription; `None`: nothing.
#[must_use]
pub fn follow_up(recipe: &Recipe, request: &Request<'_>, verified: &Verified) -> Option<Fetch> {
    match &recipe.schemes.get(verified.scheme)?.check {
        Check::Code(verifier, _) => verifier.follow_up(request),
        Check::Nothing | Check::Proof(_) => None,
    }
}

/// Refuses everything while the source lacks a setting that its recipe needs.
fn settled(recipe: &Recipe, request: &Request<'_>) -> Result<(), Rejection> {
    match recipe.missing_settings(request.settings)[..] {
        [] => Ok(()),
        [missing, ..] => Err(Rejection::new(
            Reason::SettingMissing,
            format!("the source's setting '{missing}' is not configured"),
        )),
    }
}

/// The secrets that may verify now.
fn active(scheme_no: usize, secrets: &[Secret], now: Timestamp) -> Result<Vec<&Secret>, Rejection> {
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
    Ok(active)
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
    fn headers(&self, names: &[String]) -> Result<Verified, Rejection> {
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

    fn query(&self, name: &str) -> Result<Verified, Rejection> {
        self.field(form::field(self.request.query.as_bytes(), name), &format!("the query field '{name}'"))
    }

    fn form(&self, name: &str) -> Result<Verified, Rejection> {
        self.field(form::field(self.request.body, name), &format!("the form field '{name}'"))
    }

    fn field(&self, field: Field<'_>, place: &str) -> Result<Verified, Rejection> {
        match field {
            Field::Missing => {
                Err(Rejection::new(Reason::SignatureMissing, format!("{place} is missing")))
            }
            Field::Duplicate => {
                Err(Rejection::new(Reason::SignatureDuplicated, format!("{place} came more than once")))
            }
            Field::Found(text) => self.whole(&self.proof.reader.read(&text)?, self.context()),
        }
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
        self.whole(&Parsed { candidates, ts: None }, self.context())
    }

    fn json(&self, path: &Path) -> Result<Verified, Rejection> {
        let document = self.document()?;
        let context = Context { document: Some(&document), ..self.context() };
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

    /// Whether the digest that the signature covers is the body's. The signature is checked after it, in any case.
    fn body_digest(&self, context: Context<'_>) -> Result<(), Rejection> {
        let Some((of, encoding)) = &self.proof.body_digest else { return Ok(()) };
        let text = context.fill(of).map_err(|problem| problem.of_signed_part())?;
        let claimed = encoding.decode(&text).unwrap_or_default();
        if bool::from(claimed.ct_eq(&sha256(self.request.body))) {
            return Ok(());
        }
        Err(Rejection::new(Reason::BodyDigestMismatch, "the digest that is signed is not that of the body received"))
    }

    /// The first active secret under which one of the signatures is good, for any form of the URL.
    fn matching(
        &self,
        candidates: &[Candidate],
        context: Context<'_>,
    ) -> Result<Option<SecretNo>, Rejection> {
        let Some(template) = &self.proof.message else {
            return Ok(self.matching_message(candidates, |_| Ok(Cow::Borrowed(&[])))?);
        };
        let urls = if template.uses(&Source::Url) {
            let urls = urls(self.request, &self.proof.urls);
            if urls.is_empty() {
                return Err(Problem::Missing(&Source::Url).of_signed_part());
            }
            urls
        } else {
            vec![Vec::new()]
        };
        let holds_secret = template.uses(&Source::Secret);
        for url in &urls {
            let context = Context { url: Some(url), ..context };
            let fill = |context: Context<'_>| {
                context.fill(template).map(Cow::into_owned).map_err(|problem| problem.of_signed_part())
            };
            let found = if holds_secret {
                self.matching_message(candidates, |key| {
                    fill(Context { secret: key.shared(), ..context }).map(Cow::Owned)
                })?
            } else {
                let message = context.fill(template).map_err(|problem| problem.of_signed_part())?;
                self.matching_message(candidates, |_| Ok(Cow::Borrowed(&*message)))?
            };
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// The first active secret under which one of the signatures of the message is good.
    fn matching_message<'m>(
        &self,
        candidates: &[Candidate],
        message: impl Fn(&Key) -> Result<Cow<'m, [u8]>, Rejection>,
    ) -> Result<Option<SecretNo>, Rejection> {
        for secret in self.active {
            let name = secret.name().map(str::as_bytes);
            let algorithms = &self.proof.reader.algorithms;
            let fits = |key: &&Key| algorithms.iter().any(|(_, algorithm)| key.fits(*algorithm));
            for key in secret.keys(self.scheme_no).iter().filter(fits) {
                let message = message(key)?;
                let proves = algorithms.iter().any(|(_, algorithm)| {
                    // Where signatures name their keys, only those for this key count.
                    let mut claimed = (candidates.iter())
                        .filter(|claimed| claimed.algorithm == *algorithm)
                        .filter(|claimed| claimed.name.as_deref().is_none_or(|have| Some(have) == name))
                        .peekable();
                    claimed.peek().is_some()
                        && key
                            .judge(*algorithm, &message)
                            .is_some_and(|judge| claimed.any(|claimed| judge.accepts(&claimed.signature)))
                });
                if proves {
                    return Ok(Some(secret.no()));
                }
            }
        }
        Ok(None)
    }

    /// Every item must verify before any counts.
    fn items(&self, scheme: &Scheme, path: &Path) -> Result<Verified, Rejection> {
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
