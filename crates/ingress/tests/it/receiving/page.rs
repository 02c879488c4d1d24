//! `docs/receiving.md`: every failure there has what is done about it, and tests that exist.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

const PAGE: &str = include_str!("../../../../../docs/receiving.md");

/// One failure: its own words, and what is named as proof.
struct Entry {
    text: String,
    proofs: Vec<String>,
}

fn entries() -> Vec<Entry> {
    let body = PAGE.split_once("\n## ").expect("sections").1;
    let items = body.split("\n- **").skip(1).map(|item| item.split("\n\n").next().unwrap_or_default());
    let entry = |item: &str| {
        let (text, proof) = item.split_once("\n  Proof: ").unwrap_or((item, ""));
        let quoted = proof.split('`').skip(1).step_by(2);
        Entry { text: text.to_owned(), proofs: quoted.map(str::to_owned).collect() }
    };
    items.map(entry).collect()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Where a test of this name may be: beside the code, or among the tests of its crate.
fn places(modules: &[&str]) -> Vec<PathBuf> {
    let (first, rest) = modules.split_first().expect("a crate");
    if *first == "tests" {
        return vec![root().join("tests").join(format!("{}.rs", rest.join("/")))];
    }
    let of = |folder: &str, modules: &[&str]| {
        let path = root().join("crates").join(first).join(folder).join(modules.join("/"));
        [path.with_extension("rs"), path.join("mod.rs")]
    };
    let mut places = [of("src", rest), of("tests", rest)].concat();
    if let Some((&"tests", module)) = rest.split_last() {
        places.extend(of("src", module));
    }
    places
}

/// The names of the tests in a source file; one that runs on each store is named in its macro.
fn tests_in(source: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut is_test = false;
    let mut lines = source.lines().map(str::trim);
    while let Some(line) = lines.next() {
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            is_test = true;
        } else if let Some(name) = line.strip_prefix("on_each_store!(") {
            let name = if name.is_empty() { lines.next().unwrap_or_default() } else { name };
            names.insert(name.trim_end_matches(");").to_owned());
        } else if let Some((_, rest)) = line.split_once("fn ").filter(|_| is_test) {
            names.insert(rest.split(['(', '<']).next().unwrap_or_default().to_owned());
            is_test = false;
        }
    }
    names
}

fn exists(proof: &str) -> bool {
    let path: Vec<&str> = proof.split("::").collect();
    let Some((name, modules @ [_, ..])) = path.split_last() else { return false };
    let sources = places(modules).into_iter().filter_map(|place| fs::read_to_string(place).ok());
    sources.into_iter().any(|source| tests_in(&source).contains(*name))
}

#[test]
fn every_failure_on_the_page_has_a_test_that_exists_or_a_reason_why_it_cannot_occur() {
    let entries = entries();
    assert!(entries.len() >= 60, "{}", entries.len());
    for Entry { text, proofs } in &entries {
        let reason = text.split_once("Cannot occur: ").map(|(_, reason)| reason.len());
        assert!(!proofs.is_empty() || reason.is_some_and(|length| length > 20), "nothing proves: {text}");
        assert!(text.contains("**"), "no failure is named: {text}");
        for proof in proofs {
            assert!(exists(proof), "there is no test {proof}");
        }
    }
}

#[test]
fn every_test_of_receiving_is_named_on_the_page() {
    let folder = root().join("crates/ingress/tests/it/receiving");
    let named: BTreeSet<String> = entries().into_iter().flat_map(|entry| entry.proofs).collect();
    let mut count = 0;
    for file in fs::read_dir(folder).expect("a folder") {
        let path = file.expect("readable").path();
        let module = path.file_stem().and_then(|stem| stem.to_str()).expect("a name").to_owned();
        if module == "page" {
            continue;
        }
        for name in tests_in(&fs::read_to_string(&path).expect("readable")) {
            let proof = format!("ingress::it::receiving::{module}::{name}");
            assert!(named.contains(&proof), "the page does not name {proof}");
            count += 1;
        }
    }
    assert!(count >= 50, "{count}");
}

#[test]
fn a_name_without_a_test_is_found_out() {
    for missing in [
        "ingress::it::receiving::bytes::there_is_no_such_test",
        "ingress::it::receiving::nowhere::a_pretty_printed_body_needs_no_minifying",
        "ingress::it::receiving::bytes::spellings",
        "tests::bad_input::bom",
        "tests::there_is_no_such_file::a",
        "a_pretty_printed_body_needs_no_minifying",
    ] {
        assert!(!exists(missing), "{missing}");
    }
}
