//! The components that an HTTP signature covers, and the text that is signed (RFC 9421, sections 2 and 2.5).

use portero_types::limits::SIGNATURE_HEADER_BYTES_MAX;
use sfv::{BareItem, FieldType as _, InnerList, Item, ListEntry};

use crate::verifier::url::{PublicUrl, encode, query_pairs};
use crate::{Reason, Rejection, Request};

/// Most components that one signature may cover.
pub(super) const COMPONENTS_MAX: usize = 64;
/// Most bytes that may be signed: names and values of all components.
const BASE_BYTES_MAX: usize = 64 * 1024;

/// An identifier as it is written in a recipe: a bare name, or a quoted one with parameters.
pub(super) fn identifier(text: &str) -> Option<Item> {
    let text = if text.starts_with('"') { text.to_owned() } else { format!("\"{text}\"") };
    let item: Item = sfv::Parser::new(&text).parse().ok()?;
    let name = name(&item)?;
    let is_lower = !name.is_empty() && !name.bytes().any(|byte| byte.is_ascii_uppercase() || byte == b' ');
    (is_lower && (!name.starts_with('@') || derived(name).is_some())).then_some(item)
}

/// Whether a component is taken from the public URL.
pub(super) fn needs_url(item: &Item) -> bool {
    name(item)
        .and_then(derived)
        .is_some_and(|derived| !matches!(derived, Derived::Method | Derived::Query | Derived::QueryParam))
}

/// The text that is signed: a line for each component, and the parameters.
pub(super) fn base(
    request: &Request<'_>,
    url: Option<PublicUrl<'_>>,
    covered: &InnerList,
) -> Result<String, Rejection> {
    if covered.items.len() > COMPONENTS_MAX {
        return Err(malformed(format!("the signature covers more than {COMPONENTS_MAX} components")));
    }
    let mut text = String::new();
    let mut seen = std::collections::BTreeSet::new();
    for item in &covered.items {
        let id = item.serialize();
        let value = value(request, url, item)?;
        text.push_str(&format!("{id}: {value}\n"));
        if !seen.insert(id) {
            return Err(malformed("the signature covers a component twice"));
        }
        if text.len() > BASE_BYTES_MAX {
            return Err(malformed(format!("the signature covers more than {BASE_BYTES_MAX} bytes")));
        }
    }
    text.push_str(&format!("\"@signature-params\": {}", params(covered)));
    Ok(text)
}

/// The covered components and their parameters, as they are written in `Signature-Input`.
pub(super) fn params(covered: &InnerList) -> String {
    vec![ListEntry::InnerList(covered.clone())].serialize().unwrap_or_default()
}

/// A field's values in order, joined by a comma and a space.
pub(super) fn joined(request: &Request<'_>, name: &str) -> Result<String, Rejection> {
    let mut values = Vec::new();
    let mut length = 0;
    for value in request.header_values(name) {
        length += value.len();
        let value = std::str::from_utf8(value)
            .ok()
            .filter(|value| value.is_ascii() && length <= SIGNATURE_HEADER_BYTES_MAX);
        values.push(value.map(str::trim).ok_or_else(|| {
            malformed(format!(
                "the header '{}' is not ASCII of at most {SIGNATURE_HEADER_BYTES_MAX} bytes",
                shown(name)
            ))
        })?);
    }
    if values.is_empty() {
        return Err(Rejection::new(
            Reason::SignedPartMissing,
            format!("the header '{}' is missing", shown(name)),
        ));
    }
    Ok(values.join(", "))
}

/// What is taken from the request itself (RFC 9421, 2.2).
#[derive(Clone, Copy)]
enum Derived {
    Method,
    TargetUri,
    Authority,
    Scheme,
    RequestTarget,
    Path,
    Query,
    QueryParam,
}

fn derived(name: &str) -> Option<Derived> {
    Some(match name {
        "@method" => Derived::Method,
        "@target-uri" => Derived::TargetUri,
        "@authority" => Derived::Authority,
        "@scheme" => Derived::Scheme,
        "@request-target" => Derived::RequestTarget,
        "@path" => Derived::Path,
        "@query" => Derived::Query,
        "@query-param" => Derived::QueryParam,
        _ => return None,
    })
}

fn name(item: &Item) -> Option<&str> {
    item.bare_item.as_string().map(|name| name.as_str())
}

fn value(request: &Request<'_>, url: Option<PublicUrl<'_>>, item: &Item) -> Result<String, Rejection> {
    let name = name(item).ok_or_else(|| malformed("a covered component has no name"))?;
    if !name.starts_with('@') {
        return field(request, name, item);
    }
    let derived =
        derived(name).ok_or_else(|| malformed("the signature covers a component that is not known"))?;
    let parameters = item.params.len();
    if let Derived::QueryParam = derived {
        return query_param(request, item);
    }
    if parameters > 0 {
        return Err(malformed("a covered component has a parameter that is not supported"));
    }
    let url = || url.ok_or_else(crate::verifier::no_public_url);
    Ok(match derived {
        Derived::Method => request.method.to_owned(),
        Derived::TargetUri => {
            let url = url()?;
            format!("{}://{}{}", url.scheme, url.authority, url.target(request.query))
        }
        Derived::Authority => url()?.normal_authority(),
        Derived::Scheme => url()?.scheme.to_owned(),
        Derived::RequestTarget => url()?.target(request.query),
        Derived::Path => url()?.path.to_owned(),
        Derived::Query | Derived::QueryParam => format!("?{}", request.query),
    })
}

/// A query field of that encoded name, encoded anew; it must be there once (RFC 9421, 2.2.8).
fn query_param(request: &Request<'_>, item: &Item) -> Result<String, Rejection> {
    let wanted = match item.params.get("name") {
        Some(BareItem::String(name)) if item.params.len() == 1 => name.as_str(),
        _ => return Err(malformed("a covered query parameter has no name, or an unsupported parameter")),
    };
    let pairs = query_pairs(request.query);
    let mut values = pairs.iter().filter(|(name, _)| encode(name) == wanted);
    match (values.next(), values.next()) {
        (Some((_, value)), None) => Ok(encode(value)),
        (None, _) => Err(Rejection::new(Reason::SignedPartMissing, "a covered query parameter is missing")),
        (Some(_), Some(_)) => {
            Err(Rejection::new(Reason::SignatureDuplicated, "a covered query parameter came more than once"))
        }
    }
}

/// A field, whole or one member of it (`key`), or its values as bytes (`bs`).
fn field(request: &Request<'_>, name: &str, item: &Item) -> Result<String, Rejection> {
    let mut parameters = item.params.iter();
    match (parameters.next().map(|(key, value)| (key.as_str(), value)), parameters.next()) {
        (None, _) => joined(request, name),
        (Some(("key", BareItem::String(key))), None) => {
            let value = joined(request, name)?;
            let members: sfv::Dictionary = (sfv::Parser::new(&value).parse())
                .map_err(|_| malformed("a field of which a member is covered is not a dictionary"))?;
            let member = members.get(key.as_str()).ok_or_else(|| {
                Rejection::new(Reason::SignedPartMissing, "a covered member of a field is missing")
            })?;
            Ok(vec![member.clone()].serialize().unwrap_or_default())
        }
        (Some(("bs", BareItem::Boolean(true))), None) => {
            joined(request, name)?;
            let values: Vec<String> = request
                .header_values(name)
                .map(|value| format!(":{}:", crate::encoding::Encoding::Base64.encode(value.trim_ascii())))
                .collect();
            Ok(values.join(", "))
        }
        _ => Err(malformed("a covered field has a parameter that is not supported")),
    }
}

/// A name that the sender chose, if it is harmless to show.
fn shown(name: &str) -> &str {
    let is_token = name.len() <= 64
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    if is_token { name } else { "…" }
}

fn malformed(detail: impl Into<String>) -> Rejection {
    Rejection::new(Reason::SignatureMalformed, detail)
}
