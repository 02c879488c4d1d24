//! The forms of a public URL under which a provider may have signed it.

use crate::Request;
use crate::schema::UrlForm;

/// Every form of every public URL of the source, with the received query, each once and in the order given.
pub(crate) fn urls(request: &Request<'_>, forms: &[UrlForm]) -> Vec<Vec<u8>> {
    let mut urls: Vec<Vec<u8>> = Vec::new();
    for url in request.public_urls {
        let url = with_query(url, request.query);
        for form in forms {
            let text = in_form(&url, *form).into_bytes();
            if !urls.contains(&text) {
                urls.push(text);
            }
        }
    }
    urls
}

fn with_query(url: &str, query: &str) -> String {
    if query.is_empty() {
        return url.to_owned();
    }
    let base = url.split_once('?').map_or(url, |(base, _)| base);
    format!("{base}?{query}")
}

fn in_form(url: &str, form: UrlForm) -> String {
    match form {
        UrlForm::AsConfigured => url.to_owned(),
        UrlForm::WithPort => with_port(url).unwrap_or_else(|| url.to_owned()),
        UrlForm::WithoutPort => without_port(url).unwrap_or_else(|| url.to_owned()),
        UrlForm::Hubspot => decoded(url),
    }
}

/// Scheme, authority, the rest, and the scheme's own port.
fn split(url: &str) -> Option<(&str, &str, &str, &str)> {
    let (scheme, rest) = url.split_once("://")?;
    let port = match scheme {
        "https" => "443",
        "http" => "80",
        _ => return None,
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    Some((scheme, &rest[..end], &rest[end..], port))
}

fn has_port(authority: &str) -> bool {
    // The colons of an IPv6 address stand in brackets.
    authority.rsplit_once(']').map_or(authority, |(_, after)| after).contains(':')
}

fn with_port(url: &str) -> Option<String> {
    let (scheme, authority, rest, port) = split(url)?;
    (!has_port(authority)).then(|| format!("{scheme}://{authority}:{port}{rest}"))
}

fn without_port(url: &str) -> Option<String> {
    let (scheme, authority, rest, port) = split(url)?;
    let authority = authority.strip_suffix(port)?.strip_suffix(':')?;
    Some(format!("{scheme}://{authority}{rest}"))
}

/// Undoes those percent-encodings that `HubSpot` undoes before it signs
/// (<https://developers.hubspot.com/docs/apps/legacy-apps/authentication/validating-requests>).
fn decoded(url: &str) -> String {
    const DECODED: [(&str, char); 12] = [
        ("%3A", ':'),
        ("%2F", '/'),
        ("%3F", '?'),
        ("%40", '@'),
        ("%21", '!'),
        ("%24", '$'),
        ("%27", '\''),
        ("%28", '('),
        ("%29", ')'),
        ("%2A", '*'),
        ("%2C", ','),
        ("%3B", ';'),
    ];
    let mut text = String::with_capacity(url.len());
    let mut rest = url;
    while let Some(at) = rest.find('%') {
        text.push_str(&rest[..at]);
        let escape = rest.get(at..at + 3);
        let plain = escape.and_then(|escape| {
            DECODED.iter().find(|(code, _)| code.eq_ignore_ascii_case(escape)).map(|(_, plain)| *plain)
        });
        text.push(plain.unwrap_or('%'));
        rest = &rest[if plain.is_some() { at + 3 } else { at + 1 }..];
    }
    text.push_str(rest);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn forms(url: &str, query: &str, forms: &[UrlForm]) -> Vec<String> {
        let public_urls = [url.to_owned()];
        let request = Request { public_urls: &public_urls, ..Request::new("POST", query, &[], b"") };
        urls(&request, forms).into_iter().map(|url| String::from_utf8(url).expect("text")).collect()
    }

    #[test]
    fn ports_are_added_and_removed_only_when_they_are_the_schemes_own() {
        let all = [UrlForm::AsConfigured, UrlForm::WithPort, UrlForm::WithoutPort];
        assert_eq!(
            forms("https://h.example/in/1", "a=1", &all),
            ["https://h.example/in/1?a=1", "https://h.example:443/in/1?a=1"]
        );
        assert_eq!(
            forms("https://h.example:443/in", "", &all),
            ["https://h.example:443/in", "https://h.example/in"]
        );
        assert_eq!(forms("https://h.example:8443/in", "", &all), ["https://h.example:8443/in"]);
        assert_eq!(forms("http://[::1]/in", "", &all), ["http://[::1]/in", "http://[::1]:80/in"]);
    }

    #[test]
    fn the_received_query_stands_in_place_of_the_configured_one() {
        assert_eq!(forms("https://h/in?old=1", "new=2", &[UrlForm::AsConfigured]), ["https://h/in?new=2"]);
        assert_eq!(forms("https://h/in?old=1", "", &[UrlForm::AsConfigured]), ["https://h/in?old=1"]);
    }

    #[test]
    fn hubspot_decodes_some_escapes_and_leaves_the_others() {
        assert_eq!(decoded("https://h/in?x=a%20b%2fc%3D%2C%"), "https://h/in?x=a%20b/c%3D,%");
    }

    proptest! {
        #[test]
        fn no_url_makes_it_panic(url in "\\PC{0,40}") {
            let all = [UrlForm::AsConfigured, UrlForm::WithPort, UrlForm::WithoutPort, UrlForm::Hubspot];
            let _ = forms(&url, "%é", &all);
        }
    }
}
