//! Compiled schemes and handshakes: a recipe's data with its meaning checked.

use crate::Strength;
use crate::algorithm::Algorithm;
use crate::certificate::PublicKey;
use crate::encoding::Encoding;
use crate::path::Path;
use crate::schema::{KeyForm, NoId, TimeCheck, UrlForm};
use crate::signature_list::Reader;
use crate::template::{Source, Template, Value};
use crate::verifier::Verifier;
use crate::window::Window;

/// One way of signing, and where its events are read from.
#[derive(Clone, Debug)]
pub(crate) struct Scheme {
    /// The header that must be present.
    pub(crate) when_header: Option<String>,
    /// The query field that must be present.
    pub(crate) when_query: Option<String>,
    /// How it is verified.
    pub(crate) check: Check,
    /// How much that proves.
    pub(crate) strength: Strength,
    /// Where events are read from, by the body's shape; at least one.
    pub(crate) readings: Vec<Reading>,
}

/// How a scheme is verified.
#[derive(Clone, Debug)]
pub(crate) enum Check {
    /// Not at all: the operator chose so.
    Nothing,
    /// As the recipe's data says.
    Proof(Box<Proof>),
    /// By code, with keys of these forms.
    Code(Box<Verifier>, Vec<KeyForm>),
}

impl Scheme {
    /// Its proof, where data says it.
    pub(crate) fn proof(&self) -> Option<&Proof> {
        match &self.check {
            Check::Proof(proof) => Some(proof),
            Check::Nothing | Check::Code(..) => None,
        }
    }

    /// Whether what a signature covers may come again under another id: one that is in a header or query field which is not
    /// signed, while no time is either.
    pub(crate) fn is_replayable(&self) -> bool {
        let Some(proof) = self.proof() else { return false };
        let is_timed = proof.window.as_ref().is_some_and(|window| window.check == TimeCheck::Reject);
        let signs = |source: &Source| proof.message.as_ref().is_some_and(|message| message.requires(source));
        let loose = |value: &&Value| {
            let source = &value.source;
            let by_url = matches!(source, Source::Query(_)) && signs(&Source::Url);
            matches!(source, Source::Header(_) | Source::Query(_)) && !signs(source) && !by_url
        };
        let ids = self.readings.iter().flat_map(|reading| &reading.id);
        !is_timed && ids.flat_map(Template::values).any(|value| loose(&value))
    }

    /// How secrets become keys.
    pub(crate) fn key_forms(&self) -> &[KeyForm] {
        match &self.check {
            Check::Nothing => &[],
            Check::Proof(proof) => &proof.keys,
            Check::Code(_, forms) => forms,
        }
    }

    /// Whether what is signed is a form's fields, as which the body must be read then and as nothing else.
    pub(crate) fn signs_form(&self) -> bool {
        self.proof().is_some_and(|proof| {
            let is_sorted = |message: &Template| message.uses(&Source::FormSorted);
            matches!(proof.place, Place::Form(_)) || proof.message.as_ref().is_some_and(is_sorted)
        })
    }

    /// Whether a public key is of a kind that it can use.
    pub(crate) fn takes(&self, key: &PublicKey) -> bool {
        match &self.check {
            Check::Nothing => false,
            Check::Proof(proof) => {
                let mut pairs =
                    proof.reader.algorithms.iter().filter_map(|(_, algorithm)| algorithm.key_pair());
                pairs.any(|pair| key.fits(pair))
            }
            Check::Code(verifier, _) => verifier.takes(key),
        }
    }

    /// Whether all its keys are public ones, so that key bytes in any form are those of a public key.
    pub(crate) fn only_public(&self) -> bool {
        match &self.check {
            Check::Nothing => false,
            Check::Proof(proof) => proof.reader.algorithms.iter().all(|(_, algorithm)| algorithm.is_public()),
            Check::Code(_, forms) => forms.iter().all(|form| matches!(form, KeyForm::Pem | KeyForm::Spki)),
        }
    }
}

/// Where the events of bodies of one shape are read from.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    /// What must be in the JSON.
    pub(crate) when: Option<Path>,
    /// Paths to a batch's elements.
    pub(crate) items: Vec<Path>,
    /// Event id.
    pub(crate) id: Vec<Template>,
    /// Event type.
    pub(crate) event_type: Vec<Template>,
    /// Entity.
    pub(crate) entity: Vec<Template>,
    /// Account.
    pub(crate) account: Vec<Template>,
    /// What an event without an id gets.
    pub(crate) no_id: NoId,
}

impl Reading {
    /// All its templates.
    pub(crate) fn templates(&self) -> impl Iterator<Item = &Template> {
        self.id.iter().chain(&self.event_type).chain(&self.entity).chain(&self.account)
    }
}

/// How a scheme is verified by what its data says.
#[derive(Clone, Debug)]
pub(crate) struct Proof {
    /// Where signatures are.
    pub(crate) place: Place,
    /// How they are read.
    pub(crate) reader: Reader,
    /// How secrets become keys.
    pub(crate) keys: Vec<KeyForm>,
    /// What is signed; `None` when the secret itself is sent.
    pub(crate) message: Option<Template>,
    /// The message as written, for explanations.
    pub(crate) message_text: String,
    /// The forms of the public URL that are tried; at least one.
    pub(crate) urls: Vec<UrlForm>,
    /// Where the digest of the body is that is signed instead of the body.
    pub(crate) body_digest: Option<(Template, Encoding)>,
    /// The signed time.
    pub(crate) window: Option<Window>,
    /// Texts that handshakes answer with a MAC for anybody, so no event may be signed by them.
    pub(crate) answered: Vec<Guard>,
}

/// Where signatures are.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// In those of these headers that are there; none may repeat.
    Headers(Vec<String>),
    /// In headers of this name followed by a number.
    Numbered(String),
    /// In a query field.
    Query(String),
    /// In a field of a form-encoded body.
    Form(String),
    /// In the JSON body.
    Json(Path),
    /// In each item of the batch.
    Item(Path),
}

impl Proof {
    /// Whether one of its algorithms is `algorithm`.
    pub(crate) fn uses(&self, algorithm: Algorithm) -> bool {
        self.reader.algorithms.iter().any(|(_, have)| *have == algorithm)
    }

    /// Whether the secret itself is sent.
    pub(crate) fn is_token(&self) -> bool {
        self.reader.algorithms.iter().any(|(_, algorithm)| algorithm.is_token())
    }
}

/// A request answered at once.
#[derive(Clone, Debug)]
pub(crate) struct Handshake {
    /// The method.
    pub(crate) method: String,
    /// Headers that are present, perhaps with a value.
    pub(crate) headers: Vec<(String, Option<String>)>,
    /// Whether the body must be empty.
    pub(crate) body_empty: bool,
    /// Query fields that are present.
    pub(crate) queries: Vec<String>,
    /// Headers that are absent.
    pub(crate) headers_absent: Vec<String>,
    /// What the JSON body must hold.
    pub(crate) json: Vec<(Path, Wanted)>,
    /// Whether it must verify first.
    pub(crate) verify: bool,
    /// The value that must equal a setting or the secret.
    pub(crate) token: Option<(Template, Option<String>)>,
    /// The value that must be harmless.
    pub(crate) guard: Option<Guard>,
    /// The MAC to compute of it.
    pub(crate) compute: Option<(Algorithm, Encoding)>,
    /// What becomes the source's secret.
    pub(crate) store_secret: Option<Template>,
    /// The answer.
    pub(crate) reply: Answer,
}

/// What a JSON body must hold at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// This value, as text.
    Equal(String),
    /// Anything.
    Present,
    /// Nothing.
    Absent,
}

/// The shape of a harmless value.
#[derive(Clone, Debug)]
pub(crate) struct Guard {
    /// The value.
    pub(crate) value: Template,
    /// The bytes that it may hold.
    pub(crate) allowed: Vec<u8>,
    /// Least and greatest length, bytes.
    pub(crate) length: std::ops::RangeInclusive<usize>,
}

impl Guard {
    /// Whether a value has this shape.
    pub(crate) fn fits(&self, value: &[u8]) -> bool {
        self.length.contains(&value.len()) && value.iter().all(|byte| self.allowed.contains(byte))
    }
}

/// An answer made from the request.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    /// Status code.
    pub(crate) status: u16,
    /// Headers.
    pub(crate) headers: Vec<(String, Template)>,
    /// The body.
    pub(crate) body: AnswerBody,
}

/// The body of an answer.
#[derive(Clone, Debug)]
pub(crate) enum AnswerBody {
    /// None.
    Empty,
    /// Plain text.
    Text(Template),
    /// JSON.
    Json(JsonTemplate),
}

/// JSON whose strings are templates.
#[derive(Clone, Debug)]
pub(crate) enum JsonTemplate {
    /// A value that stays.
    Fixed(serde_json::Value),
    /// A string made from the request.
    Text(Template),
    /// An object.
    Object(Vec<(String, Self)>),
}
