//! `portero provider`: what the built-in recipes say, for people and programs. Needs no gateway.

mod facts;
mod list;
mod show;

use portero_recipe::{Preset, Recipe};

use super::exit::{Failure, Kind};
use crate::cli::ProviderCommand;

/// Runs one of its commands.
pub(crate) async fn run(command: ProviderCommand) -> anyhow::Result<()> {
    match command {
        ProviderCommand::List { category, output } => list::run(category.as_deref(), output.output),
        ProviderCommand::Show { preset: name, recipe, output } => {
            let preset = preset(&name)?;
            if recipe { crate::print::raw(preset.json.as_bytes()) } else { show::run(preset, output.output) }
        }
    }
}

/// The preset of that name.
///
/// # Errors
/// When there is none; then with the names that are like it.
pub(super) fn preset(name: &str) -> Result<&'static Preset, Failure> {
    if let Some(preset) = Recipe::presets().find(|preset| preset.name == name) {
        return Ok(preset);
    }
    let wanted = bare(name);
    let is_like = |preset: &&Preset| {
        let (name, title) = (bare(preset.name), bare(&preset.recipe.info().title));
        let pairs = [(&name, &wanted), (&wanted, &name), (&title, &wanted), (&wanted, &title)];
        !wanted.is_empty() && pairs.iter().any(|(text, part)| text.contains(part.as_str()))
    };
    let alike: Vec<&str> = Recipe::presets().filter(is_like).map(|preset| preset.name).take(5).collect();
    let hint = if alike.is_empty() {
        "`portero provider list` shows all; a recipe of your own is a file".to_owned()
    } else {
        format!("is it {}?", alike.join(" or "))
    };
    Err(Failure::new(Kind::NotFound, format!("there is no preset {name:?}; {hint}")))
}

/// Letters and digits in lower case: `Standard Webhooks` and `standard-webhooks` are alike.
fn bare(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_is_told_with_names_that_are_like_it() {
        let error = preset("Standard Webhook").map(|preset| preset.name).expect_err("unknown");
        assert_eq!(error.kind, Kind::NotFound);
        assert!(error.to_string().contains("is it standard-webhooks"), "{error}");
        let error = preset("nobody").map(|preset| preset.name).expect_err("unknown").to_string();
        assert!(error.contains("portero provider list"), "{error}");
        assert!(preset("").is_err());
    }
}
