//! Filling templates from a request.

use std::borrow::Cow;
use std::ops::Range;

use crate::algorithm::sha256;
use crate::form::{self, Field};
use crate::json::{Document, Lookup, Scalar};
use crate::template::{Filter, Part, Source, Template, Value};
use crate::{Anomaly, Reason, Rejection, Request};

/// What may be signed beside the body, bytes: headers, the URL, fields twice. More than a request has of them.
const MESSAGE_BYTES_BESIDE: usize = 256 * 1024;

/// What values are taken from.
#[derive(Clone, Copy)]
pub(crate) struct Context<'c> {
    /// The request.
    pub(crate) request: &'c Request<'c>,
    /// The signed time as sent.
    pub(crate) ts: Option<&'c [u8]>,
    /// The public URL in the form that is tried.
    pub(crate) url: Option<&'c [u8]>,
    /// The secret's key material, for schemes that sign it along.
    pub(crate) secret: Option<&'c [u8]>,
    /// The JSON body, once it may be read and if it is JSON.
    pub(crate) document: Option<&'c Document<'c>>,
    /// The body as a form, once it may be read and if it is not JSON: text inside JSON must never pass for a field.
    pub(crate) form: Option<&'c [u8]>,
    /// The batch's element.
    pub(crate) item: Option<&'c Range<usize>>,
    /// What is around the element's list.
    pub(crate) outer: Option<&'c Range<usize>>,
    /// What a handshake computed.
    pub(crate) computed: Option<&'c str>,
    /// The name by which the key is known.
    pub(crate) key_name: Option<&'c str>,
    /// Longest text that is put together, and longest value of the JSON that is taken, bytes.
    pub(crate) text_bytes_max: usize,
}

/// Why a template could not be filled.
#[derive(Debug)]
pub(crate) enum Problem<'t> {
    /// A value is missing.
    Missing(&'t Source),
    /// A value is there but cannot be trusted.
    Anomaly(&'t Source, Anomaly),
}

impl Problem<'_> {
    /// The rejection that this means when the template is part of what is signed.
    pub(crate) fn of_signed_part(&self) -> Rejection {
        match self {
            Self::Missing(Source::Url) => Rejection::new(
                Reason::PublicUrlUnknown,
                "the provider signs the public URL, and the source has none configured",
            ),
            Self::Missing(Source::Ts) => {
                Rejection::new(Reason::TimestampMissing, "the signed time is missing")
            }
            Self::Missing(source @ Source::Setting(_)) => Rejection::new(
                Reason::SettingMissing,
                format!("{} takes part in the signed text and is not configured", source.describe()),
            ),
            Self::Missing(source) => Rejection::new(
                Reason::SignedPartMissing,
                format!("{} takes part in the signed text and is missing", source.describe()),
            ),
            Self::Anomaly(source @ Source::Header(_), Anomaly::DuplicateKey) => Rejection::new(
                Reason::SignatureDuplicated,
                format!("{} takes part in the signed text and came more than once", source.describe()),
            ),
            Self::Anomaly(source, anomaly) => Rejection::new(
                Reason::BodyMalformed,
                format!(
                    "{} takes part in the signed text and is ambiguous ({})",
                    source.describe(),
                    anomaly.code()
                ),
            ),
        }
    }
}

impl<'c> Context<'c> {
    /// Only the request: what may be looked at before verification.
    pub(crate) const fn unverified(request: &'c Request<'c>) -> Self {
        Self {
            request,
            ts: None,
            url: None,
            secret: None,
            document: None,
            form: None,
            item: None,
            outer: None,
            computed: None,
            key_name: None,
            text_bytes_max: request.body.len().saturating_mul(2).saturating_add(MESSAGE_BYTES_BESIDE),
        }
    }

    /// Fills a template. A template that is one value borrows it.
    pub(crate) fn fill<'t>(&self, template: &'t Template) -> Result<Cow<'c, [u8]>, Problem<'t>> {
        if let [Part::Value(value)] = template.parts.as_slice() {
            return self.value(value);
        }
        let mut bytes = Vec::new();
        self.fill_parts(&template.parts, &mut bytes)?;
        Ok(Cow::Owned(bytes))
    }

    fn fill_parts<'t>(&self, parts: &'t [Part], into: &mut Vec<u8>) -> Result<(), Problem<'t>> {
        for part in parts {
            match part {
                Part::Literal(text) => into.extend_from_slice(text.as_bytes()),
                Part::Value(value) => {
                    let bytes = self.value(value)?;
                    if into.len() + bytes.len() > self.text_bytes_max {
                        return Err(Problem::Anomaly(&value.source, Anomaly::TooLong));
                    }
                    into.extend_from_slice(&bytes);
                }
                Part::Group(parts) => {
                    let start = into.len();
                    match self.fill_parts(parts, into) {
                        Ok(()) => {}
                        Err(Problem::Missing(_)) => into.truncate(start),
                        Err(anomaly @ Problem::Anomaly(..)) => return Err(anomaly),
                    }
                }
            }
        }
        Ok(())
    }

    /// The first template of a list that gives a text that is not empty.
    pub(crate) fn first_text(&self, templates: &[Template]) -> Result<Option<String>, Anomaly> {
        Ok(self.first(templates)?.map(|(text, _)| text))
    }

    /// The same, and which template that was.
    pub(crate) fn first<'t>(
        &self,
        templates: &'t [Template],
    ) -> Result<Option<(String, &'t Template)>, Anomaly> {
        for template in templates {
            let bytes = match self.fill(template) {
                Ok(bytes) => bytes,
                Err(Problem::Missing(_)) => continue,
                Err(Problem::Anomaly(_, anomaly)) => return Err(anomaly),
            };
            let text = std::str::from_utf8(&bytes).map_err(|_| Anomaly::NotUnicode)?;
            if text.contains('\0') {
                return Err(Anomaly::Nul);
            }
            if !text.is_empty() {
                return Ok(Some((text.to_owned(), template)));
            }
        }
        Ok(None)
    }

    fn value<'t>(&self, value: &'t Value) -> Result<Cow<'c, [u8]>, Problem<'t>> {
        let found = match self.source(&value.source) {
            Ok(Some(bytes)) => bytes,
            Ok(None) if value.optional => Cow::Borrowed(&[][..]),
            Ok(None) => return Err(Problem::Missing(&value.source)),
            Err(anomaly) => return Err(Problem::Anomaly(&value.source, anomaly)),
        };
        Ok(match value.filter {
            Filter::Untrue if *found == *b"true" => return Err(Problem::Missing(&value.source)),
            Filter::None | Filter::Untrue => found,
            Filter::Lower => Cow::Owned(found.to_ascii_lowercase()),
            Filter::Sha256 => Cow::Owned(hex::encode(sha256(&found)).into_bytes()),
        })
    }

    fn source(&self, source: &Source) -> Result<Option<Cow<'c, [u8]>>, Anomaly> {
        match source {
            Source::Ts => Ok(self.ts.map(Cow::Borrowed)),
            Source::Body => Ok(Some(Cow::Borrowed(self.request.body))),
            Source::Method => Ok(Some(Cow::Borrowed(self.request.method.as_bytes()))),
            Source::Url => Ok(self.url.map(Cow::Borrowed)),
            Source::Secret => Ok(self.secret.map(Cow::Borrowed)),
            Source::KeyName => Ok(self.key_name.map(|text| Cow::Borrowed(text.as_bytes()))),
            Source::Setting(name) => {
                Ok(self.request.settings.get(name).map(|text| Cow::Borrowed(text.as_bytes())))
            }
            Source::FormSorted => Ok(self.form.map(|body| form::sorted(body).map(Cow::Owned)).transpose()?),
            Source::JsonKeyExcept(names) => match self.document {
                Some(document) => other_key(document, names),
                None => Ok(None),
            },
            Source::Computed => Ok(self.computed.map(|text| Cow::Borrowed(text.as_bytes()))),
            Source::Header(name) => {
                let mut values = self.request.header_values(name);
                match (values.next(), values.next()) {
                    (value, None) => Ok(value.map(Cow::Borrowed)),
                    (_, Some(_)) => Err(Anomaly::DuplicateKey),
                }
            }
            Source::Query(name) => from_form(form::field(self.request.query.as_bytes(), name)),
            Source::Form(name) => self.form.map_or(Ok(None), |body| from_form(form::field(body, name))),
            Source::Json(path) => match self.document {
                Some(document) => self.scalar(document, document.look_once(document.root(), path)),
                None => Ok(None),
            },
            Source::Item(path) => self.relative(self.item, path),
            Source::Outer(path) => self.relative(self.outer, path),
        }
    }

    fn relative(
        &self,
        from: Option<&Range<usize>>,
        path: &crate::path::Path,
    ) -> Result<Option<Cow<'c, [u8]>>, Anomaly> {
        match (self.document, from) {
            (Some(document), Some(from)) => self.scalar(document, document.look_once(from.clone(), path)),
            _ => Ok(None),
        }
    }

    fn scalar(&self, document: &'c Document<'_>, found: Lookup) -> Result<Option<Cow<'c, [u8]>>, Anomaly> {
        match found {
            Lookup::Found(at) if at.len() > self.text_bytes_max => match document.is_text(at) {
                true => Err(Anomaly::TooLong),
                false => Ok(None),
            },
            found @ (Lookup::Missing | Lookup::Found(_) | Lookup::Duplicate) => from_json(document, found),
        }
    }
}

/// The one key of the body's object that is none of `names`.
fn other_key<'c>(document: &'c Document<'_>, names: &[String]) -> Result<Option<Cow<'c, [u8]>>, Anomaly> {
    let mut other = None;
    for key in document.keys() {
        let key = key.ok_or(Anomaly::NotUnicode)?;
        if names.iter().all(|name| *name != key) && other.replace(key).is_some() {
            return Ok(None);
        }
    }
    Ok(other.map(|key| Cow::Owned(key.into_owned().into_bytes())))
}

fn from_form(field: Field<'_>) -> Result<Option<Cow<'_, [u8]>>, Anomaly> {
    match field {
        Field::Missing => Ok(None),
        Field::Found(value) => Ok(Some(value)),
        Field::Duplicate => Err(Anomaly::DuplicateKey),
    }
}

fn from_json<'c>(document: &'c Document<'_>, found: Lookup) -> Result<Option<Cow<'c, [u8]>>, Anomaly> {
    match found {
        Lookup::Missing => Ok(None),
        Lookup::Duplicate => Err(Anomaly::DuplicateKey),
        Lookup::Found(at) => match document.scalar(at) {
            Scalar::None => Ok(None),
            Scalar::NotUnicode => Err(Anomaly::NotUnicode),
            Scalar::Text(Cow::Borrowed(text)) => Ok(Some(Cow::Borrowed(text.as_bytes()))),
            Scalar::Text(Cow::Owned(text)) => Ok(Some(Cow::Owned(text.into_bytes()))),
        },
    }
}
