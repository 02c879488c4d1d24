//! Why a request is accepted or refused, step by step, for people who look for the cause.
//!
//! The verdict is the gateway's: of method and content encoding, then of [`crate::fetch_needed()`], [`crate::handshake()`],
//! [`crate::verify()`] and [`crate::extract()`] in this order; the steps only describe. No step ever holds a secret, a signature or a part of the body: names, lengths, counts, digests and
//! the signed time, no more.

mod admission;
mod body;
mod body_variants;
mod hints;
mod proof;
mod secrets;
mod signature;
mod steps;
mod time;

use portero_types::{SecretNo, Timestamp};

use self::admission::Admission;
use self::steps::{Steps, count};
use crate::scheme::{Check, Scheme};
use crate::{
    Extracted, Fetch, Reason, Recipe, Rejection, Request, Secret, Verified, extract, fetch_needed, handshake,
    verify,
};

/// What became of a request, and why.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// The outcome, as the gateway gives it.
    pub verdict: Verdict,
    /// What would have to be fetched first: without it nothing is decided, whatever the verdict says.
    pub unfetched: Option<String>,
    /// What was looked at, in order.
    pub steps: Vec<Step>,
    /// The events of a verified request.
    pub events: Vec<Extracted>,
}

/// The outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is verified, and its events can be read.
    Verified {
        /// The secret that matched; `None` where the recipe needs none.
        secret: Option<SecretNo>,
    },
    /// It is a handshake and is answered at once.
    Handshake {
        /// The answer's status.
        status: u16,
        /// Whether it brings the source's secret, which is stored while the source waits for one.
        stores_secret: bool,
    },
    /// It is refused.
    Refused(Rejection),
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// What it is about, such as `signature`.
    pub name: &'static str,
    /// How it came out. A request that is accepted has no [`Outcome::Failed`]; one that is refused has at least one.
    pub outcome: Outcome,
    /// What was found, for people; safe to show to whoever manages the source.
    pub detail: String,
    /// The secret that it is about.
    pub secret: Option<SecretNo>,
}

/// How a step came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// As it should be.
    Passed,
    /// A reason for the refusal.
    Failed,
    /// Worth knowing.
    Noted,
}

/// Explains what becomes of a request.
///
/// Far slower than [`crate::verify()`] where nothing matches: it then tries what would have, to give hints. These never
/// change the verdict.
#[must_use]
pub fn explain(recipe: &Recipe, request: &Request<'_>, secrets: &[Secret], now: Timestamp) -> Explanation {
    let mut head = Steps::default();
    body::describe(request, &mut head);
    match admission::judge(recipe, request, &mut head) {
        Admission::Probe => at_once(Verdict::Handshake { status: 200, stores_secret: false }, head),
        Admission::Refused(rejection) => at_once(Verdict::Refused(rejection), head),
        // The gateway reads no body of other methods.
        Admission::Open if request.method != "POST" => {
            in_full(recipe, &Request { body: &[], ..*request }, secrets, now, head)
        }
        Admission::Open => in_full(recipe, request, secrets, now, head),
    }
}

/// An explanation of what is decided by the head alone.
fn at_once(verdict: Verdict, steps: Steps) -> Explanation {
    Explanation { verdict, unfetched: None, steps: steps.finish(), events: Vec::new() }
}

/// Explains a request whose method and encoding are taken.
fn in_full(
    recipe: &Recipe,
    request: &Request<'_>,
    secrets: &[Secret],
    now: Timestamp,
    mut steps: Steps,
) -> Explanation {
    let needed = fetch_needed(recipe, request, secrets, now);
    let answered = handshake(recipe, request, secrets, now);
    if request.method != "POST" && matches!(answered, Ok(None)) {
        let rejection = admission::wrong_method(&mut steps);
        return at_once(Verdict::Refused(rejection), steps);
    }
    let verified = verify(recipe, request, secrets, now);
    let (verdict, events) = match &needed {
        Err(rejection) => (Verdict::Refused(rejection.clone()), Vec::new()),
        Ok(_) => judge(recipe, request, &answered, &verified),
    };
    steps.of_verdict(matches!(verdict, Verdict::Refused(_)));
    let is_plain_handshake = matches!(verdict, Verdict::Handshake { .. }) && verified.is_err();
    if !is_plain_handshake {
        settings(recipe, request, &mut steps);
        fetched(&needed, request, &mut steps);
        match recipe.scheme_for(request) {
            None => steps.failed("scheme", no_scheme(recipe)),
            Some((no, scheme)) => {
                let explained = Explained { recipe, request, secrets, now, no, scheme, verified: &verified };
                explained.scheme(&mut steps);
            }
        }
    }
    handshakes(&answered, &verified, &verdict, &mut steps);
    match &verdict {
        Verdict::Verified { .. } => steps.passed("events", described(&events)),
        Verdict::Refused(rejection) if !steps.has_failed() => steps.failed("verdict", rejection.detail()),
        Verdict::Refused(_) | Verdict::Handshake { .. } => {}
    }
    let unfetched = needed.ok().flatten().filter(|_| request.fetched.is_none());
    let unfetched = unfetched.filter(|_| matches!(verdict, Verdict::Refused(_))).map(|fetch| fetch.url);
    Explanation { verdict, unfetched, steps: steps.finish(), events }
}

type Answered = Result<Option<crate::HandshakeAnswer>, Rejection>;

/// What the gateway does.
fn judge(
    recipe: &Recipe,
    request: &Request<'_>,
    answered: &Answered,
    verified: &Result<Verified, Rejection>,
) -> (Verdict, Vec<Extracted>) {
    match (answered, verified) {
        (Err(rejection), _) | (Ok(None), Err(rejection)) => (Verdict::Refused(rejection.clone()), Vec::new()),
        (Ok(Some(answer)), _) => {
            let verdict = Verdict::Handshake {
                status: answer.reply.status,
                stores_secret: answer.store_secret.is_some(),
            };
            (verdict, Vec::new())
        }
        (Ok(None), Ok(verified)) => match extract(recipe, request, verified) {
            Ok(events) => (Verdict::Verified { secret: verified.secret() }, events),
            Err(rejection) => (Verdict::Refused(rejection), Vec::new()),
        },
    }
}

/// Whether the signature itself was found good.
fn is_good(verified: &Result<Verified, Rejection>) -> bool {
    match verified {
        Ok(_) => true,
        Err(rejection) => matches!(rejection.reason(), Reason::TimestampTooOld | Reason::TimestampInFuture),
    }
}

fn settings(recipe: &Recipe, request: &Request<'_>, steps: &mut Steps) {
    for (name, setting) in recipe.settings() {
        match request.settings.get(name) {
            Some(_) => steps.passed("setting", format!("'{name}' is configured")),
            None if setting.required => {
                steps.failed("setting", format!("'{name}' is not configured: {}", setting.about));
            }
            None => steps.noted("setting", format!("'{name}' is not configured: {}", setting.about)),
        }
    }
}

fn fetched(needed: &Result<Option<Fetch>, Rejection>, request: &Request<'_>, steps: &mut Steps) {
    match (needed, request.fetched) {
        (Ok(None), _) => {}
        (Ok(Some(Fetch { url, .. })), None) => {
            steps.failed("fetch", format!("{} is needed and was not fetched", host_of(url)));
        }
        (Ok(Some(Fetch { url, .. })), Some(bytes)) => {
            steps.passed("fetch", format!("{} from {}", count(bytes.len(), "byte"), host_of(url)));
        }
        // Told by steps of their own.
        (Err(rejection), _)
            if matches!(
                rejection.reason(),
                Reason::SettingMissing | Reason::NoActiveSecret | Reason::SecretUnreadable
            ) => {}
        (Err(rejection), _) => steps.failed("fetch", rejection.detail()),
    }
}

/// A URL's scheme and host: the rest comes from the request.
fn host_of(url: &str) -> &str {
    url.match_indices('/').nth(2).map_or(url, |(at, _)| &url[..at])
}

fn no_scheme(recipe: &Recipe) -> String {
    let marks: Vec<String> = recipe.schemes.iter().filter_map(mark).collect();
    format!("the request has none of what tells the provider's ways of signing apart: {}", marks.join(", "))
}

/// By what a scheme is recognised.
fn mark(scheme: &Scheme) -> Option<String> {
    let header = scheme.when_header.as_ref().map(|name| format!("the header '{name}'"));
    let query = scheme.when_query.as_ref().map(|name| format!("the query field '{name}'"));
    match (header, query) {
        (Some(header), Some(query)) => Some(format!("{header} with {query}")),
        (header, query) => header.or(query),
    }
}

fn handshakes(
    answered: &Answered,
    verified: &Result<Verified, Rejection>,
    verdict: &Verdict,
    steps: &mut Steps,
) {
    match (answered, verdict) {
        (Ok(Some(answer)), Verdict::Handshake { status, stores_secret }) => {
            let body = count(answer.reply.body.len(), "byte");
            let text = if *stores_secret {
                format!(
                    "it brings the source's secret: while the source waits for one, answered with {status} and {body}"
                )
            } else {
                format!("answered at once with {status} and {body}, not stored")
            };
            steps.passed("handshake", text);
        }
        (Err(rejection), _) if verified.as_ref().err() != Some(rejection) => {
            steps.failed("handshake", rejection.detail());
        }
        _ => {}
    }
}

fn described(events: &[Extracted]) -> String {
    let derived = events.iter().filter(|event| event.id_derived).count();
    let text = match events.len() {
        0 => "an empty batch: answered, nothing is stored".to_owned(),
        n => count(n, "event"),
    };
    if derived == 0 { text } else { format!("{text}, {derived} with an id derived from its bytes") }
}

/// One request against the scheme that applies.
struct Explained<'a> {
    recipe: &'a Recipe,
    request: &'a Request<'a>,
    secrets: &'a [Secret],
    now: Timestamp,
    no: usize,
    scheme: &'a Scheme,
    verified: &'a Result<Verified, Rejection>,
}

impl Explained<'_> {
    fn scheme(&self, steps: &mut Steps) {
        let all = self.recipe.schemes.len();
        let chosen = match mark(self.scheme) {
            Some(mark) => format!("{} of {all}, because {mark} is there", self.no + 1),
            None if all == 1 => "the recipe has only one".to_owned(),
            None => format!("the last of {all}, because nothing marks another"),
        };
        let strength = self.scheme.strength.meaning();
        match &self.scheme.check {
            Check::Nothing => steps.noted("scheme", format!("{chosen}; {strength}")),
            Check::Code(..) => {
                steps.passed("scheme", format!("{chosen}; checked by code of its own; {strength}"));
                self.secrets(steps);
            }
            Check::Proof(proof) => {
                steps.passed("scheme", format!("{chosen}; {strength}"));
                proof::describe(self, proof, steps);
                self.secrets(steps);
            }
        }
        let mismatch =
            self.verified.as_ref().is_err_and(|rejection| rejection.reason() == Reason::SignatureMismatch);
        if mismatch {
            hints::give(self.recipe, self.no, self.request, self.secrets, self.now, steps);
        }
    }

    fn secrets(&self, steps: &mut Steps) {
        if self.scheme.key_forms().is_empty() {
            return;
        }
        secrets::describe(self.no, self.secrets, self.now, steps);
        secrets::compare(self.recipe, self.no, self.request, self.secrets, self.now, steps);
    }
}
