//! Compiled schemes and handshakes: a recipe's data with its meaning checked.

use crate::Strength;
use crate::algorithm::Algorithm;
use crate::encoding::Encoding;
use crate::path::Path;
use crate::schema::KeyForm;
use crate::signature_list::Reader;
use crate::template::Template;
use crate::window::Window;

/// One way of signing, and where its events are read from.
#[derive(Clone, Debug)]
pub(crate) struct Scheme {
    /// The header that must be present.
    pub(crate) when_header: Option<String>,
    /// The query field that must be present.
    pub(crate) when_query: Option<String>,
    /// How it is verified; `None` only where the operator chose to verify nothing.
    pub(crate) proof: Option<Proof>,
    /// How much that proves.
    pub(crate) strength: Strength,
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
}

/// How a scheme is verified.
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
    /// The signed time.
    pub(crate) window: Option<Window>,
}

/// Where signatures are.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// In one header, which must not repeat.
    Header(String),
    /// In headers of this name followed by a number.
    Numbered(String),
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
}

/// A request answered at once.
#[derive(Clone, Debug)]
pub(crate) struct Handshake {
    /// The method.
    pub(crate) method: String,
    /// Headers that are present, perhaps with a value.
    pub(crate) headers: Vec<(String, Option<String>)>,
    /// Query fields that are present.
    pub(crate) queries: Vec<String>,
    /// JSON values as text; `None`: absent.
    pub(crate) json: Vec<(Path, Option<String>)>,
    /// Whether it must verify first.
    pub(crate) verify: bool,
    /// The value that must be harmless.
    pub(crate) guard: Option<Guard>,
    /// The MAC to compute of it.
    pub(crate) compute: Option<(Algorithm, Encoding)>,
    /// The answer.
    pub(crate) reply: Answer,
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
