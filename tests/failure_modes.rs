//! Reads `docs/failure-modes.md`: every promise and failure mode stands there, with tests that exist or the sentence why it
//! cannot occur, which `ARCHITECTURE.md` says too.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Where the sources of each crate's tests are.
const ROOTS: [&str; 3] = ["crates", "tests", "examples"];

/// What begins the sentence why something cannot occur, or not by Portero's fault.
const REASONS: [&str; 2] = ["Cannot occur: ", "Outside of Portero: "];

/// One entry of the page.
struct Entry {
    proofs: Vec<String>,
    /// Why it cannot occur.
    reason: Option<String>,
}

#[test]
fn every_promise_and_every_failure_mode_is_on_the_page() {
    let entries = entries();
    let expected =
        (1..=7).map(|number| format!("S{number}")).chain((1..=45).map(|number| format!("F{number}")));
    let missing: Vec<String> = expected.filter(|number| !entries.contains_key(number)).collect();
    assert!(missing.is_empty(), "not on the page: {missing:?}");
}

#[test]
fn every_entry_names_tests_or_says_why_it_cannot_occur() {
    let mut entries = entries();
    entries.retain(|_, entry| entry.proofs.is_empty() && entry.reason.is_none());
    assert!(entries.is_empty(), "neither tests nor a reason: {:?}", entries.keys());
}

#[test]
fn every_test_that_the_page_names_exists() {
    let sources = sources();
    let mut missing = Vec::new();
    for (number, entry) in entries() {
        let unknown = entry.proofs.into_iter().filter(|proof| !exists(proof, &sources));
        missing.extend(unknown.map(|proof| format!("{number}: {proof}")));
    }
    assert!(missing.is_empty(), "no such tests:\n{}", missing.join("\n"));
}

#[test]
fn what_cannot_occur_is_said_in_the_architecture_too() {
    let architecture = read("ARCHITECTURE.md");
    let (_, said) = architecture.split_once("## Failure modes that cannot occur").expect("the section");
    let said = one_line(said.split("\n## ").next().unwrap_or_default());
    for (number, entry) in entries() {
        if let Some(reason) = entry.reason {
            assert!(said.contains(&reason), "{number} is not said in ARCHITECTURE.md: {reason}");
        }
    }
}

#[test]
fn a_test_that_does_not_exist_is_noticed() {
    let sources = sources();
    assert!(exists("tests::failure_modes::a_test_that_does_not_exist_is_noticed", &sources));
    for missing in [
        "tests::failure_modes::there_is_no_such_test",
        "tests::soak::a_test_that_does_not_exist_is_noticed",
        "engine::a_test_that_does_not_exist_is_noticed",
        "a_test_that_does_not_exist_is_noticed",
    ] {
        assert!(!exists(missing, &sources), "{missing}");
    }
}

/// The page's entries by their numbers: `- **F1. Words.** …`.
fn entries() -> BTreeMap<String, Entry> {
    let page = read("docs/failure-modes.md");
    let entry = |item: &str| {
        let item = item.split("\n\n").next().unwrap_or_default();
        let (text, proof) = item.split_once("\n  Proof: ").unwrap_or((item, ""));
        let proofs = proof.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        let reason =
            REASONS.iter().find_map(|word| text.split_once(word).map(|(_, reason)| one_line(reason)));
        (item.split('.').next().unwrap_or_default().to_owned(), Entry { proofs, reason })
    };
    page.split("\n- **").skip(1).map(entry).collect()
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Whether a test of this name stands in its crate and module: `engine::engine::order::name` is in `tests/engine/order.rs` of the
/// crate `engine`, `store::balance::tests::name` in its `src/balance.rs`, `tests::soak::name` in `tests/soak.rs`.
fn exists(proof: &str, sources: &[(PathBuf, String)]) -> bool {
    let path: Vec<&str> = proof.split("::").collect();
    let [package, modules @ .., name] = path.as_slice() else { return false };
    let folder = match *package {
        "tests" => "tests".to_owned(),
        "ledger" => "examples/ledger".to_owned(),
        package => format!("crates/{package}"),
    };
    let modules = modules.strip_suffix(&["tests"][..]).unwrap_or(modules).join("/");
    let places = [modules.clone(), format!("{modules}/tests")];
    let is_there = |path: &Path| {
        let Ok(place) = path.strip_prefix(&folder) else { return false };
        let place = if ["mod.rs", "main.rs"].iter().any(|file| place.ends_with(file)) {
            place.with_file_name("")
        } else {
            place.with_extension("")
        };
        places.iter().any(|known| place.ends_with(known))
    };
    let functions = [format!("fn {name}("), format!("fn {name}<")];
    let is_named = |text: &String| functions.iter().any(|function| text.contains(function));
    sources.iter().any(|(path, text)| is_named(text) && is_there(path))
}

/// All Rust sources, by their path in the repository.
fn sources() -> Vec<(PathBuf, String)> {
    let mut sources = Vec::new();
    for root in ROOTS {
        collect(&repository().join(root), &mut sources);
    }
    sources
}

fn collect(folder: &Path, sources: &mut Vec<(PathBuf, String)>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            collect(&path, sources);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).expect("text");
            sources.push((path.strip_prefix(repository()).expect("below").to_owned(), text));
        }
    }
}

fn read(path: &str) -> String {
    std::fs::read_to_string(repository().join(path)).expect("a file of the repository")
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
}
