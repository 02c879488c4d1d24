//! Whole recipes and whole requests.

use std::collections::BTreeMap;

use portero_types::{SecretNo, Timestamp};

use crate::{
    Outcome, Recipe, Request, Secret, SignOptions, SignedRequest, Verdict, explain, extract, fetch_needed,
    follow_up, generate_secret, handshake, sign, verify,
};

const NOW: Timestamp = Timestamp::from_secs(1_750_000_000);
const URLS_MAX: usize = 4;

/// Reads a recipe, and puts one that is valid to use.
pub fn recipes(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(recipe) = Recipe::from_json(text) else { return };
    let body: &[u8] = br#"{"id":"1","type":"t","data":{"id":"2"},"items":[{"id":"3"},{"id":"4"}]}"#;
    let bare = Parts { body: body.to_vec(), ..Parts::default() };
    bare.judge(&recipe);
    for scheme in [None, Some(0), Some(1)] {
        if let Some(signed) = bare.signed(&recipe, scheme) {
            signed.judge(&recipe);
        }
    }
}

/// Judges a request by a preset.
///
/// The first line is `PRESET HOW METHOD QUERY`: with `s` or a digit for HOW it is signed before, by that scheme. Then come
/// lines `name: value` for headers, `!name: value` for settings, `@url` for public URLs and `~text` for what was fetched,
/// then an empty line and the body.
pub fn requests(data: &[u8]) {
    let at = data.windows(2).position(|pair| pair == b"\n\n");
    let (head, body) = at.map_or((data, &[][..]), |at| (&data[..at], &data[at + 2..]));
    let mut lines = head.split(|byte| *byte == b'\n');
    let first = String::from_utf8_lossy(lines.next().unwrap_or_default()).into_owned();
    let mut words = first.splitn(4, ' ');
    let mut word = || words.next().unwrap_or_default().to_owned();
    let (name, how) = (word(), word());
    let by_number = || Recipe::presets().nth(usize::from(*data.first()?) % Recipe::presets().count());
    let Some(preset) = Recipe::presets().find(|preset| preset.name == name).or_else(by_number) else {
        return;
    };
    let mut parts = Parts { method: word(), query: word(), body: body.to_vec(), ..Parts::default() };
    for line in lines {
        parts.line(line);
    }
    let parts = match how.as_bytes() {
        [b's'] => parts.signed(&preset.recipe, None),
        [no @ b'0'..=b'7'] => parts.signed(&preset.recipe, Some(usize::from(no - b'0'))),
        _ => Some(parts),
    };
    if let Some(parts) = parts {
        parts.judge(&preset.recipe);
    }
}

/// A request's parts.
#[derive(Default)]
struct Parts {
    method: String,
    query: String,
    headers: Vec<(String, Vec<u8>)>,
    settings: BTreeMap<String, String>,
    urls: Vec<String>,
    fetched: Option<Vec<u8>>,
    body: Vec<u8>,
}

impl Parts {
    fn line(&mut self, line: &[u8]) {
        let pair = |line: &[u8]| {
            let at = line.windows(2).position(|pair| pair == b": ")?;
            Some((String::from_utf8_lossy(&line[..at]).to_ascii_lowercase(), line[at + 2..].to_vec()))
        };
        match line {
            [b'!', rest @ ..] => {
                if let Some((name, value)) = pair(rest) {
                    self.settings.insert(name, String::from_utf8_lossy(&value).into_owned());
                }
            }
            [b'@', rest @ ..] if self.urls.len() < URLS_MAX => {
                self.urls.push(String::from_utf8_lossy(rest).into_owned());
            }
            [b'~', rest @ ..] => {
                let fetched = self.fetched.get_or_insert_default();
                fetched.extend_from_slice(rest);
                fetched.push(b'\n');
            }
            line => self.headers.extend(pair(line)),
        }
    }

    /// The same, signed as far as it can be.
    fn signed(&self, recipe: &Recipe, scheme: Option<usize>) -> Option<Self> {
        let text =
            |value: &'static str| move |found: Option<String>| found.unwrap_or_else(|| value.to_owned());
        let of = |name: &str| self.settings.get(name).cloned();
        let headers: Vec<(String, String)> = (self.headers.iter())
            .map(|(name, value)| (name.clone(), String::from_utf8_lossy(value).into_owned()))
            .collect();
        let headers: Vec<(&str, &str)> =
            headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let (id, event_type) = (text("id-1")(of("id")), text("a.b")(of("type")));
        let options = SignOptions {
            id: Some(&id),
            event_type: &event_type,
            now: NOW,
            url: self.urls.first().map(String::as_str),
            headers: &headers,
            settings: &self.settings,
            scheme,
            ..SignOptions::default()
        };
        let SignedRequest { headers, body, .. } =
            sign(recipe, &generate_secret(recipe, [7; 32])?, &self.body, options).ok()?;
        let headers = headers.into_iter().map(|(name, value)| (name, value.into_bytes())).collect();
        Some(Self {
            method: "POST".to_owned(),
            query: self.query.clone(),
            headers,
            settings: self.settings.clone(),
            urls: self.urls.clone(),
            fetched: self.fetched.clone(),
            body,
        })
    }

    /// Whether a text is in the parts that may be shown.
    fn holds(&self, text: &str) -> bool {
        let names = self.headers.iter().map(|(name, _)| name).chain(self.settings.keys());
        let mut shown = [&self.method, &self.query]
            .into_iter()
            .chain(&self.urls)
            .chain(self.settings.values())
            .chain(names);
        shown.any(|shown| shown.contains(text))
    }

    /// Everything that the edge and the command line ask of a request.
    fn judge(&self, recipe: &Recipe) {
        let headers: Vec<(&str, &[u8])> =
            self.headers.iter().map(|(name, value)| (name.as_str(), value.as_slice())).collect();
        let request = Request {
            method: &self.method,
            query: &self.query,
            headers: &headers,
            body: &self.body,
            public_urls: &self.urls,
            settings: &self.settings,
            fetched: self.fetched.as_deref(),
        };
        let text = generate_secret(recipe, [7; 32]).unwrap_or_else(|| "name|a private key".to_owned());
        let secret = Secret::new(recipe, SecretNo(1), &text, Timestamp::EPOCH, None);
        let secrets: Vec<Secret> = secret.into_iter().collect();
        let _ = fetch_needed(recipe, &request, &secrets, NOW);
        let _ = handshake(recipe, &request, &secrets, NOW);
        let explanation = explain(recipe, &request, &secrets, NOW);
        let shown = explanation.steps.iter().any(|step| step.detail.contains(&text));
        assert!(!shown || self.holds(&text), "a secret is shown");
        let failed = explanation.steps.iter().any(|step| step.outcome == Outcome::Failed);
        assert_eq!(failed, matches!(explanation.verdict, Verdict::Refused(_)));
        if let Ok(verified) = verify(recipe, &request, &secrets, NOW) {
            let _ = follow_up(recipe, &request, &verified);
            for event in extract(recipe, &request, &verified).unwrap_or_default() {
                assert!(!event.event_id.is_empty() && event.body.end <= self.body.len());
            }
        }
    }
}
