//! From a recipe's data to a checked recipe: the rules that keep recipes safe are enforced here.

mod characters;
mod credentials;
mod handshake;
mod proof;
mod reading;

use std::collections::BTreeMap;
use std::time::Duration;

use portero_types::limits::HEADERS_KEPT_MAX;

use crate::info::{Info, Setting};
use crate::path::Path;
use crate::recipe::{InvalidRecipe, Recipe};
use crate::schema::{self, Strength};
use crate::scheme::{Check, Guard, Handshake, Reading, Scheme};
use crate::template::{Source, Template, header_name};
use crate::{Reply, SECRET_BYTES_MIN, sample};

/// Most schemes, handshakes, and templates of one field.
const ENTRIES_MAX: usize = 12;
/// Most settings.
const SETTINGS_MAX: usize = 16;

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
    let settings = settings(&data.settings)?;
    let mut schemes = Vec::new();
    for (n, scheme_data) in data.schemes.iter().enumerate() {
        let at = format!("schemes[{n}]");
        if n + 1 < data.schemes.len() && scheme_data.when.is_none() {
            return invalid(format!("{at}.when"), "only the last scheme may apply always");
        }
        let scheme = scheme(&at, scheme_data, data.document.as_ref())?;
        strong_enough(&at, scheme.strength, data.weakest)?;
        for template in scheme.proof().iter().flat_map(|proof| &proof.message) {
            known_settings(&format!("{at}.message"), template, &settings)?;
        }
        for template in scheme.readings.iter().flat_map(Reading::templates) {
            known_settings(&at, template, &settings)?;
            unread_secrets(&at, template, &settings)?;
        }
        if data.document.is_some() && scheme.readings.iter().any(|reading| !reading.items.is_empty()) {
            return invalid(format!("{at}.items"), "batches inside another document are not supported");
        }
        schemes.push(scheme);
    }
    let handshakes: Vec<Handshake> = (data.handshakes.iter().enumerate())
        .map(|(n, data)| handshake::handshake(&format!("handshakes[{n}]"), data, &settings))
        .collect::<Checked<_>>()?;
    keep_apart(&mut schemes, &handshakes);
    credentials::unread(&schemes)?;
    if let Some(sample) = &data.sample {
        sample::check(sample).or_else(|reason| invalid("sample", reason))?;
    }
    Ok(Recipe {
        id_scope: data.id_scope,
        accepted: data.accepted.map(|data| static_reply("accepted", data, 200..300)).transpose()?,
        rejected: data.rejected.map(|data| static_reply("rejected", data, 400..500)).transpose()?,
        kept_headers: kept_headers(&data.keep_headers, &schemes)?,
        document: data.document,
        compressed: data.compressed,
        secret_prefix: data.secret_prefix,
        secret_bytes_min: secret_bytes_min(data.secret_bytes_min)?,
        entity_texts: schema::entity_texts(&data.schemes),
        info: Info {
            title: data.title,
            about: data.about,
            links: data.links,
            category: data.category,
            evidence: data.evidence,
            unproven: data.unproven,
            setup: data.setup,
            secret_about: data.secret_about,
            redelivery: data.redelivery_s.map(|s| Duration::from_secs(s.into())),
            answer_within: data.answer_within_ms.map(|ms| Duration::from_millis(ms.into())),
        },
        sample: data.sample,
        settings,
        schemes,
        handshakes,
    })
}

fn secret_bytes_min(given: Option<u32>) -> Checked<usize> {
    match given.map(usize::try_from) {
        None => Ok(SECRET_BYTES_MIN),
        Some(Ok(min)) if (8..=64).contains(&min) => Ok(min),
        Some(_) => invalid("secret_bytes_min", "it is 8 to 64: what is shorter can be guessed"),
    }
}

/// Lets no event be signed by what a handshake computes for anybody.
fn keep_apart(schemes: &mut [Scheme], handshakes: &[Handshake]) {
    let answered: Vec<Guard> = (handshakes.iter())
        .filter(|handshake| handshake.compute.is_some())
        .filter_map(|handshake| handshake.guard.clone())
        .collect();
    for scheme in schemes {
        if let Check::Proof(proof) = &mut scheme.check {
            proof.answered.clone_from(&answered);
        }
    }
}

fn strong_enough(at: &str, have: Strength, weakest: Strength) -> Checked<()> {
    if have >= weakest {
        return Ok(());
    }
    invalid(
        at,
        format!(
            "it proves less than 'weakest' demands: {}; accept that by \"weakest\": \"{}\"",
            have.meaning(),
            have.name()
        ),
    )
}

fn settings(data: &BTreeMap<String, schema::Setting>) -> Checked<BTreeMap<String, Setting>> {
    bounded("settings", data.len(), SETTINGS_MAX)?;
    data.iter()
        .map(|(name, data)| {
            let at = format!("settings.{name}");
            let is_name = (1..=64).contains(&name.len())
                && name
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
            if !is_name {
                return invalid(at, "a setting's name is 1 to 64 of a-z, 0-9 and _");
            }
            let characters = match &data.characters {
                None => (b' '..=b'~').collect(),
                Some(text) => match characters::set(text) {
                    Some(set) => set,
                    None => return invalid(format!("{at}.characters"), characters::MISTAKE),
                },
            };
            bounded(&format!("{at}.one_of"), data.one_of.len(), ENTRIES_MAX)?;
            if data.secret && !data.one_of.is_empty() {
                return invalid(format!("{at}.one_of"), "what is one of a few known values is no secret");
            }
            let setting = Setting {
                about: data.about.clone(),
                required: data.required,
                one_of: data.one_of.clone(),
                secret: data.secret,
                prefix: data.prefix.clone(),
                characters,
            };
            Ok((name.clone(), setting))
        })
        .collect()
}

/// Every setting that a template names must be one of the recipe's.
fn known_settings(at: &str, template: &Template, settings: &BTreeMap<String, Setting>) -> Checked<()> {
    for value in template.values() {
        if let Source::Setting(name) = &value.source
            && !settings.contains_key(name)
        {
            return invalid(at, format!("'settings' has no '{name}'"));
        }
    }
    Ok(())
}

/// What is read from an event is stored, delivered and logged, so no secret setting may be in it, not even by its digest: short
/// ones are found by trying.
fn unread_secrets(at: &str, template: &Template, settings: &BTreeMap<String, Setting>) -> Checked<()> {
    let is_secret = |name: &String| settings.get(name).is_some_and(|setting| setting.secret);
    for value in template.values() {
        if let Source::Setting(name) = &value.source
            && is_secret(name)
        {
            return invalid(at, format!("the setting '{name}' is a secret: nothing of an event may hold it"));
        }
    }
    Ok(())
}

/// Refuses lists that are too long.
pub(crate) fn bounded(path: &str, have: usize, max: usize) -> Checked<()> {
    if have <= max { Ok(()) } else { invalid(path, format!("at most {max} entries")) }
}

fn scheme(at: &str, data: &schema::Scheme, document: Option<&schema::Wrapped>) -> Checked<Scheme> {
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
    let readings = reading::readings(at, data)?;
    let check = proof::check(at, data, &readings)?;
    let strength = proof::strength(&check, document);
    Ok(Scheme { when_header, when_query, check, strength, readings })
}

fn kept_headers(names: &[String], schemes: &[Scheme]) -> Checked<Vec<String>> {
    (names.iter().enumerate())
        .map(|(n, text)| {
            let at = format!("keep_headers[{n}]");
            let name = header(&at, text)?;
            if credentials::is_header(&name, schemes) {
                invalid(at, "credentials and signatures are never kept")
            } else {
                Ok(name)
            }
        })
        .collect()
}

fn static_reply(at: &str, data: schema::StaticReply, statuses: std::ops::Range<u16>) -> Checked<Reply> {
    if !statuses.contains(&data.status) {
        let range = format!("{} to {}", statuses.start, statuses.end - 1);
        return invalid(format!("{at}.status"), format!("the status is {range}"));
    }
    let content_type = data.content_type.or_else(|| (!data.body.is_empty()).then(|| "text/plain".to_owned()));
    let known = ["text/plain", "application/json", "text/xml", "application/xml"];
    let is_known = |text: &String| {
        let kind = text.split_once(';').map_or(text.as_str(), |(kind, _)| kind).trim();
        is_header_value(text) && known.contains(&kind.to_ascii_lowercase().as_str())
    };
    if !content_type.as_ref().is_none_or(is_known) {
        return invalid(format!("{at}.content_type"), format!("it is one of {}", known.join(", ")));
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
