//! A recipe of one's own in a file, and what is wrong with one that is none, in words for people.

use std::path::Path;

use portero_recipe::{InvalidRecipe, RECIPE_BYTES_MAX, Recipe};

use super::exit::Failure;
use super::input;

/// Reads and checks a recipe. Its text and what it means.
///
/// # Errors
/// When the file cannot be read or holds no recipe; says where and why.
pub(crate) fn read(path: &Path) -> Result<(String, Recipe), Failure> {
    let text = input::text(path, RECIPE_BYTES_MAX, "the recipe")?;
    match Recipe::from_json(&text) {
        Ok(recipe) => Ok((text, recipe)),
        Err(error) => Err(Failure::usage(format!("{} is not a recipe: {}", path.display(), words(&error)))),
    }
}

/// The place, the reason, and what a recipe is where the text is nothing like one.
fn words(error: &InvalidRecipe) -> String {
    let (reason, place) = match error.reason.rsplit_once(" at line ") {
        Some((reason, place)) => (reason, Some(format!("line {}", place.replace(" column ", ", column ")))),
        None => (error.reason.as_str(), None),
    };
    // A path that names no field says nothing.
    let field = Some(error.path.as_str()).filter(|path| !matches!(*path, "." | "?" | ""));
    let at = match (field, place) {
        (Some(field), Some(place)) => format!("{field} ({place}): "),
        (Some(field), None) => format!("{field}: "),
        (None, Some(place)) => format!("{place}: "),
        (None, None) => String::new(),
    };
    let hint = if field.is_none() {
        "; a recipe is one JSON object, such as `portero provider show stripe --recipe` prints"
    } else {
        ""
    };
    format!("{at}{}{hint}", plain(reason))
}

/// The reader's words without the names of our types.
fn plain(reason: &str) -> String {
    let mut text = reason.replace("expected u32", "expected a whole number");
    if let Some((before, after)) = text.split_once("struct ") {
        let rest = after.trim_start_matches(|c: char| c.is_ascii_alphanumeric());
        let rest = rest.strip_prefix(" with ").map_or(rest, |rest| {
            rest.split_once(" elements")
                .or_else(|| rest.split_once(" element"))
                .map_or(rest, |(_, rest)| rest)
        });
        text = format!("{before}a JSON object{rest}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        let file = tempfile::NamedTempFile::new().expect("file");
        std::fs::write(file.path(), text).expect("written");
        let refusal = read(file.path()).map(drop).expect_err("no recipe").to_string();
        assert!(refusal.starts_with(&file.path().display().to_string()), "{refusal}");
        refusal.split_once(" is not a recipe: ").expect("says so").1.to_owned()
    }

    #[test]
    fn broken_json_is_told_by_line_and_column() {
        for (text, place) in [
            ("{", "line 1, column 1: "),
            ("", "line 1, column 0: "),
            ("{\n \"version\": 1,\n}", "line 3, column 1: "),
            ("[]", "this is an array, not an object; "),
            (r#"{"version": 1}"#, "line 1, column 14: missing field `schemes`"),
        ] {
            let told = refusal(text);
            assert!(told.starts_with(place) && told.contains("one JSON object"), "{text}: {told}");
            assert!(!told.contains("Document") && !told.contains("struct"), "{told}");
        }
    }

    #[test]
    fn a_wrong_field_is_told_by_its_name() {
        let told = refusal("{\"version\": 1,\n\"colour\": 1}");
        assert!(told.starts_with("colour (line 2, column 8): unknown field"), "{told}");
        assert_eq!(
            refusal(r#"{"version": "1"}"#),
            r#"version (line 1, column 15): invalid type: string "1", expected a whole number"#
        );
        let told = refusal(r#"{"version": 1, "schemes": ["x"]}"#);
        assert!(told.contains("expected a JSON object") && !told.contains("struct"), "{told}");
    }
}
