//! `recipe.schema.json`, made from the types of this module. `UPDATE=1 cargo test -p portero-recipe json_schema` writes it
//! anew.

#[path = "../../tests/it/kept_file.rs"]
mod kept_file;

use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

use super::Document;
use crate::Recipe;

const ABOUT: &str = "A recipe of Portero: how a provider's requests are verified and read. LANGUAGE.md beside this file explains \
                     the language, and which fields go together.";

fn schema() -> Value {
    let generator = SchemaSettings::draft2020_12().into_generator();
    let mut schema = generator.into_root_schema_for::<Document>().to_value();
    schema["title"] = "Recipe".into();
    schema["description"] = ABOUT.into();
    schema["properties"]["version"]["const"] = 1.into();
    schema
}

fn validator() -> jsonschema::Validator {
    jsonschema::validator_for(&schema()).expect("the schema is one")
}

fn preset(name: &str) -> Value {
    let preset = Recipe::presets().find(|preset| preset.name == name).expect("a preset");
    serde_json::from_str(preset.json).expect("a preset is JSON")
}

#[test]
fn the_schema_is_made_from_the_types() {
    let text = serde_json::to_string_pretty(&schema()).expect("a schema is JSON");
    kept_file::kept_file("recipe.schema.json", &format!("{text}\n"));
}

#[test]
fn every_preset_is_valid_by_the_schema() {
    let validator = validator();
    for preset in Recipe::presets() {
        let recipe = serde_json::from_str(preset.json).expect("a preset is JSON");
        let mistakes: Vec<String> = validator
            .iter_errors(&recipe)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert!(mistakes.is_empty(), "{}: {mistakes:?}", preset.name);
    }
}

#[test]
fn what_the_language_does_not_know_is_invalid_by_the_schema_too() {
    let validator = validator();
    let bends: [(&str, &str, Value); 12] = [
        ("stripe", "", json!(1)),
        ("stripe", "/schemes/0", json!("x")),
        ("stripe", "/schemes/0/signature", json!("x")),
        ("stripe", "/schemes/0/time", json!(5)),
        ("slack", "/handshakes/0", json!(true)),
        ("slack", "/handshakes/0/when", json!("x")),
        ("slack", "/handshakes/0/reply", json!("x")),
        ("adyen", "/accepted", json!("x")),
        ("paypal", "/schemes/0/verifier", json!("x")),
        ("paypal", "/settings/webhook_id", json!("x")),
        ("http-signatures", "/schemes/0/verifier", json!("x")),
        ("stripe", "/sample", json!("x")),
    ];
    for (name, at, value) in bends {
        let mut recipe = preset(name);
        assert!(validator.is_valid(&recipe), "{name}");
        let object =
            recipe.pointer_mut(at).and_then(Value::as_object_mut).unwrap_or_else(|| panic!("{name} {at}"));
        object.insert("a_field_that_nobody_knows".to_owned(), value);
        assert!(!validator.is_valid(&recipe), "{name} {at}");
    }
    for (at, value) in [
        ("/version", json!(2)),
        ("/id_scope", json!("galaxy")),
        ("/weakest", json!("strong")),
        ("/schemes/0/algorithm", json!("hmac-md5")),
        ("/schemes/0/encoding", json!("base32")),
        ("/schemes/0/keys", json!(["guess"])),
        ("/schemes/0/signature/list", json!("tree")),
        ("/schemes/0/signature/separator", json!(", ")),
        ("/schemes/0/time/unit", json!("minutes")),
        ("/schemes/0/time/past_s", json!(-1)),
        ("/schemes", json!({})),
    ] {
        let mut recipe = preset("stripe");
        let (parent, name) = at.rsplit_once('/').expect("a pointer");
        let object =
            recipe.pointer_mut(parent).and_then(Value::as_object_mut).unwrap_or_else(|| panic!("{at}"));
        object.insert(name.to_owned(), value);
        assert!(!validator.is_valid(&recipe), "{at}");
        assert!(Recipe::from_json(&recipe.to_string()).is_err(), "{at}");
    }
}

#[test]
fn every_part_of_the_schema_says_what_it_is() {
    let schema = schema();
    let mut silent = Vec::new();
    let parts = schema["$defs"].as_object().expect("parts").iter().map(|(name, part)| (name.as_str(), part));
    for (name, part) in parts.chain([("Recipe", &schema)]) {
        for (field, value) in part["properties"].as_object().into_iter().flatten() {
            if value["description"].as_str().is_none_or(str::is_empty) {
                silent.push(format!("{name}.{field}"));
            }
        }
    }
    assert!(silent.is_empty(), "{silent:?}");
}
