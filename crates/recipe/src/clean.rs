//! Cleaning a secret that a person pasted: what would never verify, and what anybody could guess, is refused here.

use crate::algorithm::Key;
use crate::schema::KeyForm;
use crate::secret::{is_basic, is_named, keys};
use crate::{InvalidSecret, Recipe};

/// Cleans a secret that a person pasted: trims white space around it and checks that it decodes and is strong enough.
///
/// # Errors
/// [`InvalidSecret`] when it is empty, too long, not in the recipe's form, holds white space or control characters that do
/// not belong there, holds less key material than [`Recipe::secret_bytes_min`], or is one character over and over.
pub fn clean_secret(recipe: &Recipe, text: &str) -> Result<String, InvalidSecret> {
    let text = text.trim();
    characters(recipe, text)?;
    if is_basic(recipe) && !text.contains(':') {
        return Err(InvalidSecret::Undecodable { expected: "'user:password'" });
    }
    for material in keys(recipe, text)?.iter().flatten().filter_map(Key::shared) {
        strong(recipe, material.strip_prefix(recipe.secret_prefix.as_bytes()).unwrap_or(material))?;
    }
    if is_named(recipe)
        && let Some((_, key)) = text.split_once('|')
    {
        // Its digest is long whatever the key is.
        strong(recipe, key.as_bytes())?;
    }
    Ok(text.to_owned())
}

/// PEM is made of lines. Elsewhere a line break is a mistake of copying, and so is a blank: but where people choose the text
/// themselves, which may be words.
fn characters(recipe: &Recipe, text: &str) -> Result<(), InvalidSecret> {
    let takes = |wanted: KeyForm| recipe.schemes.iter().any(|scheme| scheme.key_forms().contains(&wanted));
    if takes(KeyForm::Pem) {
        return Ok(());
    }
    if text.contains(['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}']) {
        return Err(InvalidSecret::LineBreak);
    }
    if text.chars().any(|c| c.is_control() && c != '\t') {
        return Err(InvalidSecret::Control);
    }
    let by_people = takes(KeyForm::Text) && recipe.secret_prefix.is_empty();
    if text.chars().any(|c| c.is_whitespace() && !(by_people && c == ' ')) {
        return Err(InvalidSecret::Space);
    }
    Ok(())
}

fn strong(recipe: &Recipe, material: &[u8]) -> Result<(), InvalidSecret> {
    let bytes_min = recipe.secret_bytes_min();
    if material.len() < bytes_min {
        return Err(InvalidSecret::TooShort { bytes_min });
    }
    if material.iter().all(|byte| Some(byte) == material.first()) {
        return Err(InvalidSecret::Repetitive);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate_secret;

    fn preset(name: &str) -> std::sync::Arc<Recipe> {
        Recipe::preset(name).expect("a preset")
    }

    const TOO_SHORT: InvalidSecret = InvalidSecret::TooShort { bytes_min: 16 };

    #[test]
    fn white_space_around_a_pasted_secret_is_not_part_of_it() {
        assert_eq!(
            clean_secret(&preset("github"), " It's a Secret to Everybody\r\n").as_deref(),
            Ok("It's a Secret to Everybody")
        );
    }

    #[test]
    fn a_line_break_or_blank_inside_is_a_mistake_of_copying() {
        let stripe = preset("stripe");
        for broken in
            ["whsec_0123456789abc\ndef0123456789", "whsec_0123456789abcdef\r\nwhsec_0123456789abcdef"]
        {
            assert_eq!(clean_secret(&stripe, broken), Err(InvalidSecret::LineBreak));
            assert_eq!(clean_secret(&preset("github"), broken), Err(InvalidSecret::LineBreak));
        }
        for blank in ["whsec_0123456789 abcdef0123456789", "whsec_0123456789\tabcdef0123456789"] {
            assert_eq!(clean_secret(&stripe, blank), Err(InvalidSecret::Space));
        }
        assert_eq!(clean_secret(&preset("github"), "a secret with\ta tab inside"), Err(InvalidSecret::Space));
    }

    #[test]
    fn weak_and_wrong_secrets_are_told_apart() {
        let (github, adyen, standard) = (preset("github"), preset("adyen"), preset("standard-webhooks"));
        assert_eq!(clean_secret(&github, " \n"), Err(InvalidSecret::Empty));
        assert_eq!(clean_secret(&github, "short"), Err(TOO_SHORT));
        assert_eq!(clean_secret(&github, "a secret with\u{1b}[31m colour"), Err(InvalidSecret::Control));
        let postmark = preset("postmark");
        assert!(matches!(
            clean_secret(&postmark, "a password alone"),
            Err(InvalidSecret::Undecodable { .. })
        ));
        let rsa = include_str!("../tests/it/keys/rsa.public.pem");
        let wrong_kind = clean_secret(&preset("http-signatures"), rsa);
        assert!(matches!(wrong_kind, Err(InvalidSecret::Undecodable { .. })), "it signs with Ed25519");
        assert_eq!(clean_secret(&github, &"a".repeat(20)), Err(InvalidSecret::Repetitive));
        assert_eq!(clean_secret(&github, &"ab".repeat(5000)), Err(InvalidSecret::TooLong));
        assert_eq!(clean_secret(&preset("stripe"), "whsec_0123456789"), Err(TOO_SHORT));
        assert!(matches!(clean_secret(&adyen, &"xy".repeat(20)), Err(InvalidSecret::Undecodable { .. })));
        assert_eq!(clean_secret(&standard, "whsk_AAAA"), Err(InvalidSecret::PrivateKey));
        assert!(matches!(clean_secret(&standard, "whpk_AAAA"), Err(InvalidSecret::Undecodable { .. })));
    }

    #[test]
    fn a_recipe_may_take_shorter_secrets_and_no_refusal_repeats_one() {
        let text = r#"{"version":1,"secret_bytes_min":8,"schemes":[{"signature":{"header":"X-Sig"},
            "algorithm":"hmac-sha256","keys":["text"],"message":"{body}"}]}"#;
        let recipe = Recipe::from_json(text).expect("a recipe");
        assert_eq!(clean_secret(&recipe, "8bytes!!").as_deref(), Ok("8bytes!!"));
        let refused = clean_secret(&recipe, "7bytes!").expect_err("too short");
        assert_eq!(refused, InvalidSecret::TooShort { bytes_min: 8 });
        assert!(!refused.to_string().contains("7bytes!"));
    }

    #[test]
    fn a_generated_secret_is_clean_in_every_preset() {
        for preset in Recipe::presets() {
            let random = std::array::from_fn(|n| u8::try_from(n).expect("small"));
            let Some(secret) = generate_secret(&preset.recipe, random) else { continue };
            assert_eq!(
                clean_secret(&preset.recipe, &secret).as_deref(),
                Ok(secret.as_str()),
                "{}",
                preset.name
            );
        }
    }
}
