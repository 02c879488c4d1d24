//! Behaviour of `portero verify`, from files to words.

use std::path::{Path, PathBuf};

use clap::Parser as _;
use serde_json::{Value, json};

use super::*;
use crate::cli::{Cli, Command};

const SECRET: &str = "whsec_offlineSampleNotBase64Decoded";

fn sample(case: &str) -> String {
    let lines = include_str!("../../../../../tests/cases/signed-samples.jsonl").lines();
    let mark = format!("\"provider\": \"stripe\", \"case\": \"{case}\"");
    lines.filter(|line| line.contains(&mark)).collect()
}

struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("folder"))
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, content).expect("written");
        path
    }
}

fn args(line: &str, secret: &Path, request: &Path) -> VerifyArgs {
    let words = line.split_whitespace().map(str::to_owned);
    let files = ["--secret-file", &secret.display().to_string(), "--request", &request.display().to_string()]
        .map(str::to_owned);
    let all = ["portero".to_owned(), "verify".to_owned()].into_iter().chain(words).chain(files);
    let Command::Verify(args) = Cli::try_parse_from(all).expect("understood").command else {
        panic!("verify")
    };
    args
}

fn judged(line: &str, secret: &str, request: &str) -> Result<View, String> {
    let files = Files::new();
    let (secret, request) = (files.write("secret", secret), files.write("request", request));
    judge(&args(line, &secret, &request)).map(|(view, _)| view).map_err(|error| error.to_string())
}

#[test]
fn a_sample_is_verified_and_its_event_told() {
    let view = judged("--preset stripe --at 1750000000", SECRET, &sample("snapshot")).expect("judged");
    let text = view.text();
    assert!(text.contains("evt_1OracleA") && text.ends_with("✓ verified by secret 1\n"), "{text}");
    assert!(!text.contains('✗') && !text.contains(SECRET), "{text}");
}

#[test]
fn several_secrets_in_a_file_are_each_told() {
    let secrets = format!("another secret, long enough\n{SECRET}\n");
    let view = judged("--preset stripe --at 1750000000", &secrets, &sample("snapshot")).expect("judged");
    let json = serde_json::to_value(view).expect("serialises");
    let steps = json["steps"].as_array().expect("steps").iter();
    let told: Vec<(&Value, &Value)> = steps
        .filter(|step| !step["secret"].is_null())
        .map(|step| (&step["secret"], &step["outcome"]))
        .collect();
    // The newest is tried first.
    assert_eq!(told, [(&json!("2"), &json!("passed")), (&json!("1"), &json!("noted"))]);
}

#[test]
fn a_stale_request_is_refused_with_its_skew() {
    let view = judged("--preset stripe --at 1750001000", SECRET, &sample("snapshot")).expect("judged");
    let text = view.text();
    assert!(text.contains("✗ time") && text.contains("1000 s before now"), "{text}");
    assert!(text.contains("✗ refused, TIMESTAMP_TOO_OLD"), "{text}");
}

#[test]
fn the_lines_up_to_the_details_are_aligned() {
    let view = judged("--preset stripe --at 1750000000", "not this one, surely", &sample("snapshot"));
    let text = view.expect("judged").text();
    let names = ["request", "body", "scheme", "signature", "secret 1"];
    let column = |name: &str| {
        let is_its = |line: &&str| line.trim_start_matches(['✓', '✗', '·']).starts_with(&format!(" {name} "));
        let line = text.lines().find(is_its);
        let line: Vec<char> = line.unwrap_or_else(|| panic!("{name}: {text}")).chars().collect();
        let gap = 2 + name.len();
        gap + line[gap..].iter().take_while(|c| **c == ' ').count()
    };
    let columns = names.map(column);
    assert!(columns.iter().all(|column| *column == columns[0]), "{columns:?}\n{text}");
}

#[test]
fn whether_the_source_waits_for_a_secret_is_not_pretended_to_be_known() {
    let files = Files::new();
    let request = "POST /in/1 HTTP/1.1\nX-Hook-Secret: a secret of the provider's own\n\n";
    let (secret, request) = (files.write("secret", SECRET), files.write("request", request));
    let (view, doubts) = judge(&args("--preset asana", &secret, &request)).expect("judged");
    assert!(
        view.text().ends_with("answered with 200 while the source waits for its secret\n"),
        "{}",
        view.text()
    );
    assert!(doubts.iter().any(|doubt| doubt.contains("HANDSHAKE_NOT_EXPECTED")), "{doubts:?}");
}

#[test]
fn without_a_recipe_both_ways_to_name_one_are_told() {
    for line in ["portero verify --request r", "portero source create acme pay"] {
        let error =
            Cli::try_parse_from(line.split_whitespace()).map(drop).expect_err("no recipe").to_string();
        assert!(error.contains("--preset <NAME>") && error.contains("--recipe-file <FILE>"), "{error}");
    }
}

#[test]
fn what_was_given_wrongly_is_told_before_anything_is_judged() {
    let request = "POST /x HTTP/1.1\n\n{}";
    for (line, secret, word) in [
        ("--preset nobody", SECRET, "no preset"),
        ("--preset stripe --setting a=b", SECRET, "no settings"),
        ("--preset stripe --url ftp://x", SECRET, "--url"),
        ("--preset stripe", "\n", "no secret"),
        ("--preset standard-webhooks", "whsec_*", "does not fit the recipe"),
        ("--recipe /nonexistent/recipe", SECRET, "/nonexistent/recipe"),
    ] {
        let error = judged(line, secret, request).map(|_| ()).expect_err(line);
        assert!(error.contains(word) && !error.contains(SECRET), "{line}: {error}");
    }
}
