//! From a recipe's data to a checked recipe: the rules that keep recipes safe are enforced here.

use std::time::Duration;

use portero_types::limits::HEADERS_KEPT_MAX;

use crate::compile_handshake::handshake;
use crate::path::Path;
use crate::recipe::{InvalidRecipe, Recipe};
use crate::schema::{self, KeyForm, ListForm, Strength};
use crate::scheme::{Place, Proof, Scheme};
use crate::signature_list::{List, Reader};
use crate::template::{Source, Template, header_name};
use crate::window::Window;
use crate::{Reply, algorithm::Algorithm, encoding::Encoding};

/// Most schemes, handshakes, and templates of one field.
const ENTRIES_MAX: usize = 8;
/// Longest window, seconds.
const WINDOW_S_MAX: u32 = 7 * 24 * 3600;

/// A result whose error names the field.
pub(crate) type Checked<T> = Result<T, InvalidRecipe>;

/// An error at a field.
pub(crate) fn invalid<T>(path: impl Into<String>, reason: impl Into<String>) -> Checked<T> {
    Err(InvalidRecipe { path: path.into(), reason: reason.into() })
}

/// Gives meaning to a recipe's data.
pub(crate) fn compile(data: schema::Document) -> Checked<Recipe> {
    if data.version != 1 {
        return invalid("version", "this release knows version 1");
    }
    bounded("schemes", data.schemes.len(), ENTRIES_MAX)?;
    bounded("handshakes", data.handshakes.len(), ENTRIES_MAX)?;
    bounded("keep_headers", data.keep_headers.len(), HEADERS_KEPT_MAX)?;
    if data.schemes.is_empty() {
        return invalid("schemes", "at least one is needed");
    }
    let last = data.schemes.len() - 1;
    let mut schemes = Vec::new();
    for (n, scheme_data) in data.schemes.iter().enumerate() {
        let at = format!("schemes[{n}]");
        if n < last && scheme_data.when.is_none() {
            return invalid(format!("{at}.when"), "only the last scheme may apply always");
        }
        let scheme = scheme(&at, scheme_data)?;
        if scheme.strength < data.weakest {
            return invalid(
                at,
                format!(
                    "it proves less than 'weakest' demands: {}; accept that by \"weakest\": \"{}\"",
                    meaning(scheme.strength),
                    name(scheme.strength)
                ),
            );
        }
        if data.form_json.is_some() && !scheme.items.is_empty() {
            return invalid(format!("{at}.items"), "batches inside a form field are not supported");
        }
        schemes.push(scheme);
    }
    let handshakes = data
        .handshakes
        .iter()
        .enumerate()
        .map(|(n, data)| handshake(&format!("handshakes[{n}]"), data))
        .collect::<Checked<_>>()?;
    Ok(Recipe {
        title: data.title,
        about: data.about,
        links: data.links,
        id_scope: data.id_scope,
        accepted: data.accepted.map(|data| static_reply("accepted", data, 200..300)).transpose()?,
        rejected: data.rejected.map(|data| static_reply("rejected", data, 400..500)).transpose()?,
        kept_headers: kept_headers(&data.keep_headers, &schemes)?,
        form_json: data.form_json,
        secret_prefix: data.secret_prefix,
        unproven: data.unproven,
        schemes,
        handshakes,
    })
}

const fn name(strength: Strength) -> &'static str {
    match strength {
        Strength::None => "none",
        Strength::Token => "token",
        Strength::Fields => "fields",
        Strength::Body => "body",
    }
}

const fn meaning(strength: Strength) -> &'static str {
    match strength {
        Strength::None => "nothing is verified",
        Strength::Token => "a token does not cover the body",
        Strength::Fields => "the signature covers only parts of the body",
        Strength::Body => "the signature covers the body",
    }
}

/// Refuses lists that are too long.
pub(crate) fn bounded(path: &str, have: usize, max: usize) -> Checked<()> {
    if have <= max { Ok(()) } else { invalid(path, format!("at most {max} entries")) }
}

fn scheme(at: &str, data: &schema::Scheme) -> Checked<Scheme> {
    let (when_header, when_query) = match &data.when {
        None => (None, None),
        Some(when) if when.header.is_none() && when.query.is_none() => {
            return invalid(format!("{at}.when"), "give 'header' or 'query'");
        }
        Some(when) => {
            let header = when.header.as_deref().map(|name| header(&format!("{at}.when.header"), name));
            (header.transpose()?, when.query.clone())
        }
    };
    bounded(&format!("{at}.items"), data.items.len(), ENTRIES_MAX)?;
    let items = (data.items.iter().enumerate())
        .map(|(n, text)| path(&format!("{at}.items[{n}]"), text))
        .collect::<Checked<Vec<_>>>()?;
    if let Some(n) = items.iter().position(|path| path.stars() == 0) {
        return invalid(format!("{at}.items[{n}]"), "the path to the elements of a batch needs a '*'");
    }
    let proof = proof(at, data, items.len())?;
    let has_items = !items.is_empty();
    let fields = |name: &str, texts: &[String]| extraction(&format!("{at}.{name}"), texts, has_items);
    Ok(Scheme {
        when_header,
        when_query,
        strength: proof.as_ref().map_or(Strength::None, strength),
        proof,
        id: fields("id", &data.id)?,
        event_type: fields("type", &data.event_type)?,
        entity: fields("entity", &data.entity)?,
        account: fields("account", &data.account)?,
        items,
    })
}

fn strength(proof: &Proof) -> Strength {
    let covers_body = proof.message.as_ref().is_some_and(|message| message.requires(&Source::Body));
    match proof.place {
        _ if proof.uses(Algorithm::Equal) => Strength::Token,
        Place::Header(_) | Place::Numbered(_) if covers_body => Strength::Body,
        Place::Header(_) | Place::Numbered(_) | Place::Json(_) | Place::Item(_) => Strength::Fields,
    }
}

fn proof(at: &str, data: &schema::Scheme, items: usize) -> Checked<Option<Proof>> {
    let algorithms = match (data.algorithm, data.algorithms.is_empty()) {
        (Some(algorithm), true) => vec![(String::new(), algorithm)],
        (None, false) => data.algorithms.clone().into_iter().collect(),
        _ => return invalid(format!("{at}.algorithm"), "give either 'algorithm' or 'algorithms'"),
    };
    let uses = |algorithm| algorithms.iter().any(|(_, have)| *have == algorithm);
    if uses(Algorithm::None) {
        let bare = data.signature.is_none() && data.message.is_none() && data.time.is_none();
        return if bare && algorithms.len() == 1 {
            Ok(None)
        } else {
            invalid(format!("{at}.algorithm"), "'none' goes with no signature, message or time")
        };
    }
    let Some(signature) = &data.signature else {
        return invalid(format!("{at}.signature"), "say where the signature is");
    };
    let place = place(&format!("{at}.signature"), signature, items)?;
    let list = list(&format!("{at}.signature"), signature)?;
    if matches!(list, List::Standard) == data.algorithms.is_empty() {
        return invalid(
            format!("{at}.algorithms"),
            "the 'standard' list, and only it, has algorithms by tag",
        );
    }
    let message = match &data.message {
        None if uses(Algorithm::Equal) && algorithms.len() == 1 => None,
        None => return invalid(format!("{at}.message"), "say what is signed"),
        Some(_) if uses(Algorithm::Equal) => {
            return invalid(format!("{at}.message"), "a token that is compared signs no message");
        }
        Some(text) => Some(message(&format!("{at}.message"), text, &place)?),
    };
    let keys = match (&data.keys[..], uses(Algorithm::Equal)) {
        ([], true) => vec![KeyForm::Text],
        ([], false) => return invalid(format!("{at}.keys"), "say how secrets become keys"),
        (forms, _) => forms.to_vec(),
    };
    bounded(&format!("{at}.keys"), keys.len(), 4)?;
    if uses(Algorithm::Ed25519) && keys.contains(&KeyForm::Text) {
        return invalid(format!("{at}.keys"), "a public key is written in hexadecimal, base64 or as 'whsec'");
    }
    let window = window(at, data, &list, message.as_ref())?;
    let encoding = data.encoding.unwrap_or(Encoding::Hex);
    Ok(Some(Proof { place, reader: Reader { list, algorithms, encoding }, keys, message, window }))
}

fn place(at: &str, data: &schema::Signature, items: usize) -> Checked<Place> {
    match (&data.header, &data.numbered, &data.item, &data.json) {
        (Some(name), None, None, None) => Ok(Place::Header(header(&format!("{at}.header"), name)?)),
        (None, Some(name), None, None) => Ok(Place::Numbered(header(&format!("{at}.numbered"), name)?)),
        (None, None, Some(text), None) if items == 1 => Ok(Place::Item(path(&format!("{at}.item"), text)?)),
        (None, None, Some(_), None) => {
            invalid(format!("{at}.item"), "signatures in items need exactly one path in 'items'")
        }
        (None, None, None, Some(text)) => Ok(Place::Json(path(&format!("{at}.json"), text)?)),
        _ => invalid(at, "give exactly one of 'header', 'numbered', 'item', 'json'"),
    }
}

fn list(at: &str, data: &schema::Signature) -> Checked<List> {
    if data.separator.is_some_and(|separator| !matches!(separator, ',' | ';' | ' ' | '&' | '|')) {
        return invalid(format!("{at}.separator"), "a separator is one of , ; space & |");
    }
    let pairs_only = data.tag.is_some() || data.time.is_some();
    match data.list {
        ListForm::Plain if !pairs_only => {
            Ok(List::Plain { prefix: data.prefix.clone(), separator: data.separator })
        }
        ListForm::Standard if !pairs_only && data.prefix.is_empty() && data.separator.is_none() => {
            Ok(List::Standard)
        }
        ListForm::Pairs if data.prefix.is_empty() => match (data.separator, &data.tag) {
            (Some(separator), Some(tag)) => {
                Ok(List::Pairs { separator, tag: tag.clone(), time: data.time.clone() })
            }
            _ => invalid(at, "a list of pairs needs 'separator' and 'tag'"),
        },
        ListForm::Plain | ListForm::Pairs | ListForm::Standard => {
            invalid(at, "this form of list does not go with 'prefix', 'separator', 'tag' or 'time'")
        }
    }
}

/// What is signed. JSON may be looked into before verification only where the signature itself is in the JSON.
fn message(at: &str, text: &str, place: &Place) -> Checked<Template> {
    let message = template(at, text)?;
    for value in message.values() {
        let allowed = match value.source {
            Source::Ts | Source::Body | Source::Method | Source::Url => true,
            Source::Header(_) | Source::Query(_) => true,
            Source::Json(_) => matches!(place, Place::Json(_) | Place::Item(_)),
            Source::Item(_) | Source::Outer(_) => matches!(place, Place::Item(_)),
            Source::Form(_) | Source::Computed => false,
        };
        if !allowed {
            return invalid(at, format!("{} cannot be read before verification", value.source.describe()));
        }
    }
    if message.values().is_empty() {
        return invalid(at, "a constant text proves nothing");
    }
    Ok(message)
}

fn window(
    at: &str,
    data: &schema::Scheme,
    list: &List,
    message: Option<&Template>,
) -> Checked<Option<Window>> {
    let signs_ts = message.is_some_and(|message| message.requires(&Source::Ts));
    let Some(time) = &data.time else {
        return if signs_ts { invalid(format!("{at}.time"), "say what '{ts}' is") } else { Ok(None) };
    };
    let at = format!("{at}.time");
    let source = match (&time.source, list) {
        (None, List::Pairs { time: Some(_), .. }) => None,
        (None, _) => return invalid(format!("{at}.source"), "say where the time is"),
        (Some(text), _) => Some(template(&format!("{at}.source"), text)?),
    };
    let in_body = source
        .as_ref()
        .is_some_and(|source| source.values().iter().any(|value| matches!(value.source, Source::Json(_))));
    let only = |source: &Template| {
        source.values().iter().all(|value| matches!(value.source, Source::Header(_) | Source::Json(_)))
    };
    if !source.as_ref().is_none_or(only) {
        return invalid(format!("{at}.source"), "a time is in a header or in the JSON body");
    }
    let signed = signs_ts || (in_body && message.is_some_and(|message| message.requires(&Source::Body)));
    if !signed {
        return invalid(at, "a time that is not signed gives no protection; leave it out");
    }
    if in_body && signs_ts && data.signature.as_ref().is_none_or(|place| place.json.is_none()) {
        return invalid(format!("{at}.source"), "the body cannot be read before verification");
    }
    let future_s = time.future_s.unwrap_or(time.past_s);
    if !(1..=WINDOW_S_MAX).contains(&time.past_s) || future_s > WINDOW_S_MAX {
        return invalid(at, format!("the window is at least 1 and at most {WINDOW_S_MAX} seconds"));
    }
    let seconds = |s: u32| Duration::from_secs(s.into());
    Ok(Some(Window { source, unit: time.unit, past: seconds(time.past_s), future: seconds(future_s) }))
}

fn extraction(at: &str, texts: &[String], has_items: bool) -> Checked<Vec<Template>> {
    bounded(at, texts.len(), ENTRIES_MAX)?;
    (texts.iter().enumerate())
        .map(|(n, text)| {
            let at = format!("{at}[{n}]");
            let template = template(&at, text)?;
            for value in template.values() {
                let allowed = match value.source {
                    Source::Header(_) | Source::Query(_) | Source::Form(_) | Source::Json(_) => true,
                    Source::Item(_) | Source::Outer(_) => has_items,
                    Source::Ts | Source::Body | Source::Method | Source::Url | Source::Computed => false,
                };
                if !allowed {
                    return invalid(at, format!("{} is of no use here", value.source.describe()));
                }
            }
            Ok(template)
        })
        .collect()
}

fn kept_headers(names: &[String], schemes: &[Scheme]) -> Checked<Vec<String>> {
    (names.iter().enumerate())
        .map(|(n, text)| {
            let at = format!("keep_headers[{n}]");
            let name = header(&at, text)?;
            let is_secret = matches!(name.as_str(), "authorization" | "cookie" | "proxy-authorization")
                || schemes.iter().filter_map(|scheme| scheme.proof.as_ref()).any(|proof| {
                    match &proof.place {
                        Place::Header(header) => *header == name,
                        Place::Numbered(prefix) => name.starts_with(prefix),
                        Place::Json(_) | Place::Item(_) => false,
                    }
                });
            if is_secret { invalid(at, "credentials and signatures are never kept") } else { Ok(name) }
        })
        .collect()
}

fn static_reply(at: &str, data: schema::StaticReply, statuses: std::ops::Range<u16>) -> Checked<Reply> {
    if !statuses.contains(&data.status) {
        let range = format!("{} to {}", statuses.start, statuses.end - 1);
        return invalid(format!("{at}.status"), format!("the status is {range}"));
    }
    let content_type = data.content_type.or_else(|| (!data.body.is_empty()).then(|| "text/plain".to_owned()));
    if content_type.as_ref().is_some_and(|text| !is_header_value(text)) {
        return invalid(format!("{at}.content_type"), "this is not a header value");
    }
    Ok(Reply { status: data.status, content_type, headers: Vec::new(), body: data.body.into_bytes() })
}

/// Printable ASCII, so that nothing can end a header early.
pub(crate) fn is_header_value(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
}

pub(crate) fn template(at: &str, text: &str) -> Checked<Template> {
    Template::parse(text).or_else(|reason| invalid(at, reason))
}

pub(crate) fn path(at: &str, text: &str) -> Checked<Path> {
    Path::parse(text).or_else(|reason| invalid(at, reason))
}

pub(crate) fn header(at: &str, name: &str) -> Checked<String> {
    header_name(name).or_else(|reason| invalid(at, reason))
}
