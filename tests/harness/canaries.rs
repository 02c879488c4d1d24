//! Canaries: every secret, token, key, password, payload and signature that the harness makes or gets back. What the program
//! prints, counts or answers is searched for all of them, in each form in which a careless line could hold them.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::{LazyLock, Mutex, MutexGuard};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};

/// Shorter texts are found by accident.
pub(crate) const BYTES_MIN: usize = 12;
/// Of a body so many bytes of its beginning and of its end count.
const EDGE_BYTES: usize = 64;
/// Of so many requests the signatures are known; then of one in [`SIGNATURES_SAMPLED`], so that load tests measure the gateway.
const SIGNATURES_MAX: usize = 1_000;
const SIGNATURES_SAMPLED: usize = 64;
/// Stands in each event that the harness makes.
pub(crate) const PAYLOAD_MARKER: &str = "payload-marker-7f3a91c4d2e85b60";
/// The password in each database URL. The servers of the tests trust every local user, so any will do.
pub(crate) const DATABASE_PASSWORD: &str = "database-password-5b1e0c7a94f2";
/// Headers whose values are nobody's business have names with one of these.
const SENSITIVE: [&str; 7] = ["sign", "sig", "hmac", "token", "auth", "secret", "key"];
/// Letters before the key in a provider's secret.
const SECRET_PREFIXES: [&str; 3] = ["whsec_", "whsk_", "secret_"];

/// What is known in this process, by the first bytes of each form.
#[derive(Default)]
struct Known {
    forms: HashMap<[u8; BYTES_MIN], Vec<Form>>,
    /// Which hashes of four bytes some form begins with, so that most places are passed over at once.
    begins: Vec<bool>,
    values: HashSet<Vec<u8>>,
    signatures: usize,
}

struct Form {
    bytes: Vec<u8>,
    what: &'static str,
    form: &'static str,
}

/// A canary that was found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Find {
    /// What kind of canary.
    pub(crate) what: &'static str,
    /// How it was written.
    pub(crate) form: &'static str,
    /// The line that holds it.
    pub(crate) line: String,
}

static KNOWN: LazyLock<Mutex<Known>> = LazyLock::new(|| {
    let mut known = Known { begins: vec![false; 1 << 18], ..Known::default() };
    known.add("payload", PAYLOAD_MARKER.as_bytes());
    known.add("database password", DATABASE_PASSWORD.as_bytes());
    Mutex::new(known)
});

fn known() -> MutexGuard<'static, Known> {
    // A test that failed while it held the lock did not leave half an entry behind that matters to others.
    KNOWN.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Registers a value. One that is too short to be told from others is left out.
pub(crate) fn plant(what: &'static str, value: impl AsRef<[u8]>) {
    known().add(what, value.as_ref());
}

/// Registers a provider's secret, and the key that it stands for.
pub(crate) fn plant_secret(value: &str) {
    let mut known = known();
    known.add("secret", value.as_bytes());
    let bare = SECRET_PREFIXES.iter().find_map(|prefix| value.strip_prefix(prefix)).unwrap_or(value);
    known.add("secret", bare.as_bytes());
    if let Ok(key) = STANDARD.decode(bare) {
        known.add("secret's key", &key);
    }
}

/// Registers a token: whole, and the part that only its issuer can make.
pub(crate) fn plant_token(token: &str) {
    let mut known = known();
    known.add("token", token.as_bytes());
    if let Some((_, signature)) = token.rsplit_once('.') {
        known.add("token's signature", signature.as_bytes());
    }
}

/// Registers a request's body, and of its headers those that prove who sent it.
pub(crate) fn plant_request(headers: &[(String, String)], body: &[u8]) {
    let mut known = known();
    let marked = body.windows(PAYLOAD_MARKER.len()).any(|part| part == PAYLOAD_MARKER.as_bytes());
    if !marked {
        let (first, last) = (body.len().min(EDGE_BYTES), body.len().saturating_sub(EDGE_BYTES));
        known.add("payload", &body[..first]);
        known.add("payload", &body[last..]);
    }
    known.signatures += 1;
    if known.signatures > SIGNATURES_MAX && !known.signatures.is_multiple_of(SIGNATURES_SAMPLED) {
        return;
    }
    for (name, value) in headers {
        let name = name.to_ascii_lowercase();
        if SENSITIVE.iter().any(|part| name.contains(part)) {
            known.add("signature", value.as_bytes());
            for part in value.split([',', ' ', ';', '=']).filter(|part| part.len() >= 20) {
                known.add("signature", part.as_bytes());
            }
        }
    }
}

/// Registers what lies in the files of a folder that hold keys: keyrings, private keys, tokens, secrets.
pub(crate) fn plant_files(folder: &Path) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        if path.is_dir() {
            if name.contains("keyring") {
                plant_files(&path);
            }
            continue;
        }
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        let text = text.trim();
        if text.contains("PRIVATE KEY-----") {
            plant_private_key(text);
        } else if name.contains("keyring") || path.parent().is_some_and(|folder| folder.ends_with("keyring"))
        {
            plant_keyring(text);
        } else if name.ends_with("token") {
            plant_token(text);
        } else if name.contains("secret") && !text.contains('\n') {
            plant_secret(text);
        }
    }
}

/// All keys of a keyring file, or the one of a file in a keyring folder.
fn plant_keyring(text: &str) {
    let keyring: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
    let keys = keyring["keys"].as_object().into_iter().flat_map(|keys| keys.values());
    for key in keys.filter_map(|key| key.as_str()).chain([text]) {
        if let Ok(bytes) = STANDARD.decode(key.trim()) {
            plant("keyring's key", &bytes);
        }
    }
}

fn plant_private_key(pem: &str) {
    let body: String = pem.lines().filter(|line| !line.starts_with("-----")).map(str::trim).collect();
    let Ok(der) = STANDARD.decode(&body) else { return };
    plant("private key", body);
    // The last 32 bytes of an Ed25519 key are its seed.
    plant("private key", &der[der.len().saturating_sub(32)..]);
}

/// Registers what a command of the program answered in JSON and shows once: secrets' values and tokens.
pub(crate) fn plant_answer(stdout: &[u8]) {
    for line in String::from_utf8_lossy(stdout).lines() {
        if let Ok(answer) = serde_json::from_str(line) {
            plant_values(&answer);
        }
    }
}

fn plant_values(answer: &serde_json::Value) {
    match answer {
        serde_json::Value::Array(items) => items.iter().for_each(plant_values),
        serde_json::Value::Object(fields) => {
            for (name, field) in fields {
                match field.as_str() {
                    Some(text) if name == "value" => plant_secret(text),
                    Some(text) if name == "token" => plant_token(text),
                    _ => plant_values(field),
                }
            }
        }
        serde_json::Value::Null
        | serde_json::Value::Bool(_)
        | serde_json::Value::Number(_)
        | serde_json::Value::String(_) => {}
    }
}

/// The canaries in a text.
pub(crate) fn search(text: &[u8]) -> Vec<Find> {
    known().search(text)
}

/// Fails the test when a canary stands in a text that came from the program.
pub(crate) fn assert_none(place: &str, text: impl AsRef<[u8]>) {
    let finds = search(text.as_ref());
    assert!(finds.is_empty(), "{place} holds what nobody may see there: {finds:#?}");
}

impl Known {
    fn add(&mut self, what: &'static str, value: &[u8]) {
        if value.len() < BYTES_MIN || !self.values.insert(value.to_vec()) {
            return;
        }
        for (form, bytes) in forms(value) {
            let Some(first) = bytes.first_chunk::<BYTES_MIN>().copied() else { continue };
            let bucket = self.forms.entry(first).or_default();
            if !bucket.iter().any(|known| known.bytes == bytes) {
                self.begins[begin(&bytes)] = true;
                bucket.push(Form { bytes, what, form });
            }
        }
    }

    fn search(&self, text: &[u8]) -> Vec<Find> {
        let mut finds = Vec::new();
        for (at, window) in text.windows(BYTES_MIN).enumerate() {
            if !self.begins[begin(window)] {
                continue;
            }
            let first = window.first_chunk::<BYTES_MIN>().expect("as long as the window");
            let candidates = self.forms.get(first).map_or(&[][..], Vec::as_slice);
            for Form { what, form, .. } in
                candidates.iter().filter(|form| text[at..].starts_with(&form.bytes))
            {
                let find = Find { what, form, line: line_at(text, at) };
                if !finds.contains(&find) {
                    finds.push(find);
                }
            }
        }
        finds
    }
}

/// A place in the table of beginnings.
fn begin(bytes: &[u8]) -> usize {
    let four = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    (four.wrapping_mul(0x9e37_79b1) >> 14) as usize
}

fn line_at(text: &[u8], at: usize) -> String {
    let from = text[..at].iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let to = text[at..].iter().position(|byte| *byte == b'\n').map_or(text.len(), |end| at + end);
    String::from_utf8_lossy(&text[from..to]).into_owned()
}

/// How a value may be written.
fn forms(value: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let mut forms = vec![("raw", value.to_vec())];
    if let Ok(text) = std::str::from_utf8(value) {
        forms.push(("JSON", unquoted(&serde_json::Value::from(text).to_string())));
        forms.push(("Debug", unquoted(&format!("{text:?}"))));
    }
    forms.push(("numbers", list(value, |byte| byte.to_string())));
    forms.push(("hex", value.iter().flat_map(|byte| format!("{byte:02x}").into_bytes()).collect()));
    forms.push(("upper hex", value.iter().flat_map(|byte| format!("{byte:02X}").into_bytes()).collect()));
    forms.push(("URL", percent(value, |byte| format!("%{byte:02X}"))));
    forms.push(("lower URL", percent(value, |byte| format!("%{byte:02x}"))));
    // Within longer text it stands at any of three places of a group.
    for skip in 0..3 {
        let rest = value.get(skip..).unwrap_or_default();
        let groups = &rest[..rest.len() / 3 * 3];
        forms.push(("base64", STANDARD.encode(groups).into_bytes()));
        forms.push(("base64url", URL_SAFE_NO_PAD.encode(groups).into_bytes()));
    }
    forms
}

fn unquoted(text: &str) -> Vec<u8> {
    text.as_bytes()[1..text.len() - 1].to_vec()
}

fn list(value: &[u8], write: impl Fn(u8) -> String) -> Vec<u8> {
    value.iter().map(|byte| write(*byte)).collect::<Vec<_>>().join(", ").into_bytes()
}

fn percent(value: &[u8], write: impl Fn(u8) -> String) -> Vec<u8> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    value
        .iter()
        .flat_map(|byte| if is_plain(*byte) { vec![*byte] } else { write(*byte).into_bytes() })
        .collect()
}
