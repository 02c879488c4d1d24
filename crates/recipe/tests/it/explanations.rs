//! Explanations: they say what verification does, find what went wrong, and give nothing away.

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use portero_recipe::{
    Explanation, Outcome, Reason, Recipe, Rejection, Request, Secret, SignOptions, Verdict, explain, extract,
    fetch_needed, handshake, sign, verify,
};
use portero_types::{SecretNo, Timestamp};
use proptest::prelude::*;
use serde_json::Value;

use super::NOW;

/// A request and what its source has.
#[derive(Clone)]
struct Given {
    name: String,
    recipe: std::sync::Arc<Recipe>,
    method: String,
    query: String,
    headers: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
    urls: Vec<String>,
    settings: BTreeMap<String, String>,
    fetched: Option<Vec<u8>>,
    secret: String,
}

impl Given {
    fn with<T>(&self, use_it: impl FnOnce(&Request<'_>) -> T) -> T {
        let headers: Vec<(&str, &[u8])> =
            self.headers.iter().map(|(name, value)| (name.as_str(), value.as_slice())).collect();
        use_it(&Request {
            method: &self.method,
            query: &self.query,
            headers: &headers,
            body: &self.body,
            public_urls: &self.urls,
            settings: &self.settings,
            fetched: self.fetched.as_deref(),
        })
    }

    fn secrets(&self) -> Vec<Secret> {
        Secret::new(&self.recipe, SecretNo(1), &self.secret, Timestamp::EPOCH, None).into_iter().collect()
    }

    fn explain_at(&self, now: Timestamp) -> Explanation {
        let secrets = self.secrets();
        self.with(|request| explain(&self.recipe, request, &secrets, now))
    }

    /// What the gateway does with it, without explaining.
    fn verdict_at(&self, now: Timestamp) -> Verdict {
        if self.method == "HEAD" {
            return Verdict::Handshake { status: 200, stores_secret: false };
        }
        let refused = |reason| Verdict::Refused(Rejection::new(reason, ""));
        let is_packed = self.headers.iter().any(|(name, _)| name == "content-encoding");
        if self.method == "POST" && is_packed && self.recipe.compressed().is_none() {
            return refused(Reason::EncodingUnsupported);
        }
        self.with(|request| self.judged(request, now)).unwrap_or_else(Verdict::Refused)
    }

    fn judged(&self, request: &Request<'_>, now: Timestamp) -> Result<Verdict, Rejection> {
        let (recipe, secrets) = (&self.recipe, self.secrets());
        let body = if request.method == "POST" { request.body } else { b"" };
        let request = &Request { body, ..*request };
        fetch_needed(recipe, request, &secrets, now)?;
        if let Some(answer) = handshake(recipe, request, &secrets, now)? {
            let stores_secret = answer.store_secret.is_some();
            return Ok(Verdict::Handshake { status: answer.reply.status, stores_secret });
        }
        if request.method != "POST" {
            return Err(Rejection::new(Reason::MethodNotAllowed, ""));
        }
        let verified = verify(recipe, request, &secrets, now)?;
        extract(recipe, request, &verified)?;
        Ok(Verdict::Verified { secret: verified.secret() })
    }

    /// Explains it, and checks what holds for every explanation.
    fn explained_at(&self, now: Timestamp) -> Explanation {
        let explanation = self.explain_at(now);
        let name = &self.name;
        match (&explanation.verdict, &self.verdict_at(now)) {
            (Verdict::Refused(told), Verdict::Refused(given)) => {
                assert_eq!(told.reason(), given.reason(), "{name}: {told}");
            }
            (told, given) => assert_eq!(told, given, "{name}"),
        }
        let is_refused = matches!(explanation.verdict, Verdict::Refused(_));
        let has_failed = explanation.steps.iter().any(|step| step.outcome == Outcome::Failed);
        assert_eq!(is_refused, has_failed, "{name}: {:#?}", explanation.steps);
        assert!(explanation.events.is_empty() || !is_refused, "{name}");
        let told: String = explanation.steps.iter().map(|step| format!("{}\n", step.detail)).collect();
        for hidden in self.hidden() {
            assert!(!told.contains(&hidden), "{name} tells {hidden:?}:\n{told}");
        }
        explanation
    }

    /// What must not be told: the secret, parts of header values, the query's values, and texts of the body.
    fn hidden(&self) -> Vec<String> {
        let mut hidden: Vec<String> = self.secret.lines().map(|line| line.trim().to_owned()).collect();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        for (_, value) in &self.headers {
            hidden.extend(text(value).split([',', ';', ' ', '=', '&', '|']).map(str::to_owned));
        }
        let values = |form: &str| -> Vec<String> {
            form.split('&').filter_map(|field| Some(field.split_once('=')?.1.to_owned())).collect()
        };
        hidden.extend(values(&self.query));
        match serde_json::from_slice::<Value>(&self.body) {
            Ok(json) => texts(&json, &mut hidden),
            Err(_) => hidden.extend(values(&text(&self.body))),
        }
        // What stands where the time does is told on purpose, also with the one byte that was changed in it.
        let is_time = |text: &String| {
            let others = text.bytes().filter(|byte| !byte.is_ascii_digit() && !b"-+:.TZ".contains(byte));
            others.count() <= 1
        };
        // Single words are in our own sentences too, and a query may hold the body's digest, which is told on purpose.
        let is_word =
            |text: &String| text.bytes().all(|byte| byte.is_ascii_alphabetic() || b"-_".contains(&byte));
        let digest = hex::encode(<sha2::Sha256 as sha2::Digest>::digest(&self.body));
        hidden.retain(|text| text.len() >= 10 && !is_time(text) && !is_word(text) && *text != digest);
        hidden
    }
}

fn texts(json: &Value, into: &mut Vec<String>) {
    match json {
        Value::String(text) => into.push(text.clone()),
        Value::Array(list) => list.iter().for_each(|value| texts(value, into)),
        Value::Object(members) => members.values().for_each(|value| texts(value, into)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

const FILES: [&str; 4] = [
    include_str!("../../../../tests/cases/signed-samples.jsonl"),
    include_str!("../../../../tests/cases/samples-payments.jsonl"),
    include_str!("../../../../tests/cases/samples-developer.jsonl"),
    include_str!("../../../../tests/cases/samples-messaging.jsonl"),
];

/// The samples of all providers.
static SAMPLES: LazyLock<Vec<Given>> = LazyLock::new(|| {
    let lines = FILES.iter().flat_map(|file| file.lines()).filter(|line| !line.trim().is_empty());
    lines.map(|line| given(&serde_json::from_str(line).expect("a sample is JSON"))).collect()
});

fn given(sample: &Value) -> Given {
    let text = |name: &str| sample[name].as_str().unwrap_or_default().to_owned();
    let recipe = Recipe::preset(&text("provider")).expect("a preset");
    let url = text("url");
    let (base, query) = url.split_once('?').unwrap_or((&url, ""));
    let pairs = |value: &Value| -> Vec<(String, String)> {
        let members = value.as_object().into_iter().flatten();
        members.map(|(name, value)| (name.clone(), value.as_str().expect("a text").to_owned())).collect()
    };
    let mut settings: BTreeMap<String, String> = pairs(&sample["settings"]).into_iter().collect();
    if let Some(id) = sample["expect"]["webhook_id"].as_str() {
        settings.insert("webhook_id".to_owned(), id.to_owned());
    }
    let is_fetched = !recipe.needs_secret();
    let fetched =
        sample["fetched"].as_str().map(str::to_owned).or_else(|| is_fetched.then(|| text("secret")));
    let header = |(name, value): (String, String)| (name.to_ascii_lowercase(), value.into_bytes());
    Given {
        name: format!("{}/{}", text("provider"), text("case")),
        method: text("method"),
        query: query.to_owned(),
        headers: pairs(&sample["headers"]).into_iter().map(header).collect(),
        body: STANDARD.decode(text("body_base64")).expect("base64"),
        urls: vec![base.to_owned()],
        settings,
        fetched: fetched.map(String::into_bytes),
        secret: text("secret"),
        recipe,
    }
}

/// A request of the GitHub preset, signed.
fn github(secret: &str, body: &str) -> Given {
    let recipe = Recipe::preset("github").expect("a preset");
    let options = SignOptions { event_type: "push", now: NOW, ..SignOptions::default() };
    let signed = sign(&recipe, secret, body.as_bytes(), options).expect("signs");
    Given {
        name: "github".to_owned(),
        recipe,
        method: "POST".to_owned(),
        query: String::new(),
        headers: signed.headers.into_iter().map(|(name, value)| (name, value.into_bytes())).collect(),
        body: signed.body,
        urls: Vec::new(),
        settings: BTreeMap::new(),
        fetched: None,
        secret: secret.to_owned(),
    }
}

fn details(explanation: &Explanation, name: &str) -> String {
    let steps = explanation.steps.iter().filter(|step| step.name == name);
    steps.map(|step| step.detail.as_str()).collect::<Vec<_>>().join("\n")
}

#[test]
fn every_sample_is_explained_as_it_is_judged() {
    assert!(SAMPLES.len() >= 78, "{}", SAMPLES.len());
    let day = Duration::from_secs(24 * 3600);
    for given in SAMPLES.iter() {
        for now in [NOW, NOW.plus(day), NOW.minus(day)] {
            given.explained_at(now);
        }
        Given { urls: Vec::new(), ..given.clone() }.explained_at(NOW);
        Given { settings: BTreeMap::new(), ..given.clone() }.explained_at(NOW);
        Given { secret: String::new(), ..given.clone() }.explained_at(NOW);
        Given { fetched: None, ..given.clone() }.explained_at(NOW);
        for method in ["GET", "HEAD", "OPTIONS", "PUT"] {
            Given { method: method.to_owned(), ..given.clone() }.explained_at(NOW);
        }
        for n in 0..given.headers.len() {
            let mut without = given.clone();
            without.headers.remove(n);
            without.explained_at(NOW);
            let mut twice = given.clone();
            twice.headers.push(given.headers[n].clone());
            twice.explained_at(NOW);
        }
    }
}

#[test]
fn what_spoils_a_request_is_named() {
    let body = r#"{"action":"opened","repository":{"id":7}}"#;
    let secret = "It's a secret to everybody";
    let good = github(secret, body).explained_at(NOW);
    assert!(matches!(good.verdict, Verdict::Verified { secret: Some(SecretNo(1)) }));
    assert_eq!(good.events.len(), 1);
    let mut unsigned = github(secret, body);
    unsigned.headers.retain(|(name, _)| name != "x-hub-signature-256");
    unsigned.headers.push(("x-hub-signature".to_owned(), b"sha1=00".to_vec()));
    let told = details(&unsigned.explained_at(NOW), "signature");
    assert!(told.contains("x-hub-signature-256") && told.contains("there are x-hub-signature"), "{told}");
    let mut bare = github(secret, body);
    for (_, value) in bare.headers.iter_mut().filter(|(name, _)| name == "x-hub-signature-256") {
        *value = value["sha256=".len()..].to_vec();
    }
    let told = details(&bare.explained_at(NOW), "signature");
    assert!(told.contains("does not begin with 'sha256='"), "{told}");
    let mut base64 = github(secret, body);
    for (_, value) in base64.headers.iter_mut().filter(|(name, _)| name == "x-hub-signature-256") {
        *value = format!("sha256={}", STANDARD.encode([7; 32])).into_bytes();
    }
    let told = details(&base64.explained_at(NOW), "signature");
    assert!(told.contains("looks like base64, the recipe says hexadecimal"), "{told}");
}

#[test]
fn what_would_have_matched_is_hinted_at_and_changes_no_verdict() {
    let secret = "It's a secret to everybody";
    let hint = |given: &Given| {
        let explanation = given.explained_at(NOW);
        assert!(matches!(explanation.verdict, Verdict::Refused(_)));
        details(&explanation, "hint")
    };
    let changed = |body: &str| Given { body: body.as_bytes().to_vec(), ..github(secret, BODY) };
    assert!(hint(&changed(&format!("{BODY}\n"))).contains("line end"));
    assert!(hint(&changed(&format!("\u{feff}{BODY}"))).contains("byte order mark"));
    assert!(hint(&changed(&BODY.replace(' ', ""))).contains("re-formats"));
    assert!(hint(&changed(&STANDARD.encode(BODY))).contains("base64"));
    assert_eq!(hint(&changed(&BODY.replace("opened", "closed"))), "");
    let quoted = Given { secret: format!("\"{secret}\""), ..github(secret, BODY) };
    assert!(hint(&quoted).contains("quotation marks"), "{}", hint(&quoted));
    let pasted = Given { secret: format!("GITHUB_SECRET={secret}"), ..github(secret, BODY) };
    assert!(hint(&pasted).contains("'='"), "{}", hint(&pasted));
}

#[test]
fn hints_name_the_cause_and_no_other() {
    let secret = "It's a secret to everybody";
    let longer = Given { body: format!("{BODY}\n").into_bytes(), ..github(secret, BODY) };
    let told = details(&longer.explained_at(NOW), "hint");
    assert!(told.contains("line end") && !told.contains("re-formats"), "{told}");
    let twilio = SAMPLES.iter().find(|given| given.name.starts_with("twilio/")).expect("a sample");
    let moved = Given { urls: vec!["https://elsewhere.example/in/1".to_owned()], ..twilio.clone() };
    assert!(details(&moved.explained_at(NOW), "hint").contains("public URL"));
    let changed = Given { body: b"{}".to_vec(), ..github(secret, BODY) };
    assert_eq!(details(&changed.explained_at(NOW), "hint"), "", "this provider signs no URL");
    for key in
        ["sk_live_51Habcdefghijk", "rk_live_51Habcdefghijk", "xoxb-123-456-abcdef", "xoxp-123-456-abcdef"]
    {
        let confused = Given { secret: key.to_owned(), ..github(secret, BODY) };
        let told = details(&confused.explained_at(NOW), "hint");
        assert!(told.contains("provider's API"), "{key}: {told}");
    }
}

/// The reason of a refusal.
fn reason(explanation: &Explanation) -> Option<Reason> {
    if let Verdict::Refused(rejection) = &explanation.verdict { Some(rejection.reason()) } else { None }
}

#[test]
fn what_the_gateway_refuses_before_it_asks_the_recipe_is_refused_here() {
    let good = github("It's a secret to everybody", BODY);
    let by = |method: &str| Given { method: method.to_owned(), ..good.clone() }.explained_at(NOW);
    for method in ["PUT", "GET", "post"] {
        let told = by(method);
        assert_eq!(reason(&told), Some(Reason::MethodNotAllowed), "{method}");
        assert!(details(&told, "method").contains("POST"), "{method}");
    }
    assert!(matches!(by("HEAD").verdict, Verdict::Handshake { status: 200, .. }), "a probe");
    let packed = |values: &[&str], given: &Given| {
        let mut given = given.clone();
        given
            .headers
            .extend(values.iter().map(|value| ("content-encoding".to_owned(), value.as_bytes().to_vec())));
        given.explain_at(NOW)
    };
    for values in [&["gzip"][..], &["br"], &["gzip, deflate"]] {
        let told = packed(values, &good);
        assert_eq!(reason(&told), Some(Reason::EncodingUnsupported), "{values:?}");
        assert!(!details(&told, "encoding").is_empty());
    }
    assert_eq!(reason(&packed(&["identity", ""], &good)), None);
    let recipe = r#"{"version": 1, "compressed": "as_sent", "schemes": [{"signature": {"header": "x-sig"},
        "algorithm": "hmac-sha256", "keys": ["text"], "message": "{body}"}]}"#;
    let recipe = std::sync::Arc::new(Recipe::from_json(recipe).expect("a recipe"));
    let signed = sign(&recipe, &good.secret, b"{}", SignOptions { now: NOW, ..SignOptions::default() });
    let headers = signed.expect("signs").headers.into_iter().map(|(name, value)| (name, value.into_bytes()));
    let taken = Given { recipe, headers: headers.collect(), body: b"{}".to_vec(), ..good };
    assert_eq!(reason(&packed(&["gzip"], &taken)), None);
    assert_eq!(reason(&packed(&["gzip", "gzip"], &taken)), Some(Reason::EncodingUnsupported));
}

#[test]
fn a_request_that_is_refused_before_anything_is_fetched_is_told_so() {
    let plaid = SAMPLES.iter().find(|given| given.name.starts_with("plaid/")).expect("a sample");
    let old = Given { fetched: None, ..plaid.clone() }.explained_at(NOW.plus(Duration::from_secs(3_600)));
    assert_eq!((reason(&old), &old.unfetched), (Some(Reason::TimestampTooOld), &None));
    let fresh = Given { fetched: None, ..plaid.clone() }.explained_at(NOW);
    assert!(fresh.unfetched.is_some_and(|url| url.contains("plaid.com")));
}

const BODY: &str = "{\"action\": \"opened\", \"list\": [1, 2]}";

#[test]
fn a_secret_in_another_form_is_recognised() {
    let recipe = |keys: &str| {
        let json = format!(
            r#"{{"version": 1, "schemes": [{{"signature": {{"header": "x-sig"}}, "algorithm": "hmac-sha256",
                "keys": ["{keys}"], "message": "{{body}}"}}]}}"#
        );
        std::sync::Arc::new(Recipe::from_json(&json).expect("a recipe"))
    };
    let key = "00112233445566778899aabbccddeeff";
    let signed = |keys: &str| {
        let signed = sign(&recipe(keys), key, b"{}", SignOptions { now: NOW, ..SignOptions::default() });
        let headers = signed.expect("signs").headers;
        headers.into_iter().map(|(name, value)| (name, value.into_bytes())).collect::<Vec<_>>()
    };
    let given = |recipe, headers| Given {
        secret: key.to_owned(),
        recipe,
        headers,
        body: b"{}".to_vec(),
        ..github(key, "")
    };
    let hex_by_text = given(recipe("text"), signed("hex")).explained_at(NOW);
    assert!(details(&hex_by_text, "hint").contains("decoded from hexadecimal"), "{hex_by_text:?}");
    let text_by_hex = given(recipe("hex"), signed("text")).explained_at(NOW);
    assert!(details(&text_by_hex, "hint").contains("taken as text"), "{text_by_hex:?}");
}

#[test]
fn each_secret_is_told_with_its_state() {
    let given = github("the right one, long enough", BODY);
    let secret = |no, text, from, to: Option<i64>| {
        let at = |s| {
            NOW.plus(Duration::from_secs(1_000_000))
                .minus(Duration::from_secs(u64::try_from(1_000_000 - s).expect("small")))
        };
        Secret::new(&given.recipe, SecretNo(no), text, at(from), to.map(at)).expect("valid")
    };
    let secrets = [
        secret(1, "the wrong one, long enough", -100, None),
        secret(2, "the right one, long enough", -100, Some(-50)),
        secret(3, "the right one, long enough", 50, None),
    ];
    let explanation = given.with(|request| explain(&given.recipe, request, &secrets, NOW));
    let told: Vec<(i64, Outcome, &str)> = (explanation.steps.iter())
        .filter_map(|step| {
            Some((step.secret?.0, step.outcome, step.detail.split(':').next().unwrap_or_default()))
        })
        .collect();
    let wanted =
        [(3, Outcome::Failed, "planned"), (2, Outcome::Failed, "ended"), (1, Outcome::Failed, "active")];
    assert_eq!(told, wanted);
    assert!(details(&explanation, "secrets").contains("1 active, 1 planned, 1 ended"));
}

#[test]
fn a_secret_that_cannot_be_read_is_told() {
    let given = github("the right one, long enough", BODY);
    let lost = Secret::unreadable(SecretNo(9), Timestamp::EPOCH, None);
    let explained = |secrets: &[Secret]| given.with(|request| explain(&given.recipe, request, secrets, NOW));
    let alone = explained(std::slice::from_ref(&lost));
    let Verdict::Refused(rejection) = &alone.verdict else { panic!("{alone:?}") };
    assert_eq!(rejection.reason(), Reason::SecretUnreadable);
    assert!(details(&alone, "secrets").contains("1 of the active ones cannot be read"), "{alone:?}");
    let beside = explained(&[lost, given.secrets().remove(0)]);
    assert!(matches!(beside.verdict, Verdict::Verified { secret: Some(SecretNo(1)) }), "{beside:?}");
    let of_lost = beside.steps.iter().find(|step| step.secret == Some(SecretNo(9))).expect("told");
    assert_eq!(of_lost.outcome, Outcome::Noted, "{of_lost:?}");
    assert!(of_lost.detail.contains("cannot be read"), "{of_lost:?}");
}

proptest! {
    #[test]
    fn no_mutation_makes_explanation_and_verdict_differ(
        sample in any::<prop::sample::Index>(),
        kind in 0..6_u8,
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        skew in -100_000_i64..100_000,
    ) {
        let mut given = SAMPLES[sample.index(SAMPLES.len())].clone();
        match kind {
            0 if !given.body.is_empty() => {
                let at = at.index(given.body.len());
                given.body[at] = byte;
            }
            1 => given.body.truncate(at.index(given.body.len() + 1)),
            2 if !given.headers.is_empty() => {
                let n = at.index(given.headers.len());
                let value = &mut given.headers[n].1;
                if !value.is_empty() {
                    let at = at.index(value.len());
                    value[at] = byte;
                }
            }
            3 if !given.secret.is_empty() => {
                let mut bytes = given.secret.clone().into_bytes();
                let at = at.index(bytes.len());
                bytes[at] = byte & 0x7F;
                given.secret = String::from_utf8(bytes).unwrap_or_default();
            }
            4 => given.query.push_str("&a=1"),
            _ => {}
        }
        let now = Timestamp::from_secs(1_750_000_000 + if kind == 5 { skew } else { 0 });
        given.explained_at(now);
    }
}
