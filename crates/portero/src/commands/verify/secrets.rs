//! Secrets from files, for one recipe.

use std::path::PathBuf;

use portero_recipe::{Recipe, Secret};
use portero_types::limits::ACTIVE_SECRETS_MAX;
use portero_types::{SecretNo, Timestamp};

use crate::commands::exit::Failure;
use crate::commands::input;

/// Reads them, numbered from 1 in the order given. All are active.
pub(super) fn read(recipe: &Recipe, files: &[PathBuf]) -> Result<Vec<Secret>, Failure> {
    let mut secrets = Vec::new();
    for file in files {
        for text in input::secrets(file)? {
            let no = SecretNo(i64::try_from(secrets.len() + 1).unwrap_or(i64::MAX));
            let secret = Secret::new(recipe, no, text.expose_secret(), Timestamp::EPOCH, None);
            secrets.push(secret.map_err(|error| {
                Failure::usage(format!("a secret in {} does not fit the recipe: {error}", file.display()))
            })?);
        }
    }
    if secrets.len() > ACTIVE_SECRETS_MAX {
        return Err(Failure::usage(format!("at most {ACTIVE_SECRETS_MAX} secrets are tried")));
    }
    Ok(secrets)
}
