//! `portero secret`.

use std::path::Path;

use portero_client::v1;
use serde::Serialize;

use super::{list, name};
use crate::cli::{Output, SecretCommand};
use crate::commands::connection::AdminApi;
use crate::commands::present::{self, Record};
use crate::commands::{exit::Failure, input};
use crate::print;

/// Secrets on a page.
const PAGE: i32 = 1_000;

/// Runs one of its commands.
pub(crate) async fn run(command: SecretCommand) -> anyhow::Result<()> {
    match command {
        SecretCommand::Create { tenant, source, id, value_file, rotate, retire_others_after, common } => {
            let value = given(value_file.as_deref())?;
            let is_generated = value.is_empty();
            let api = AdminApi::open(&common.connect).await?;
            let request = v1::CreateSecretRequest {
                parent: name::source(&tenant, &source),
                secret_id: id,
                value,
                not_before: None,
                retire_others_after: retire_others_after.map(present::duration),
                retire_others: rotate,
            };
            let name = request.parent.clone();
            let created =
                api.ask(api.calls().create_secret(request)).await.map_err(|error| error.about(&name))?;
            created_secret(common.output.output, created, is_generated)
        }
        SecretCommand::Get { tenant, source, secret, common } => {
            let api = AdminApi::open(&common.connect).await?;
            let request = v1::GetSecretRequest { name: name::secret(&tenant, &source, &secret) };
            let found = api.ask(api.calls().get_secret(request)).await?;
            present::one(common.output.output, &Secret::from(found))
        }
        SecretCommand::List { tenant, source, common } => {
            let api = AdminApi::open(&common.connect).await?;
            let parent = name::source(&tenant, &source);
            list::show::<_, Secret>(&api, common.output.output, async |mut calls, page_token| {
                let parent = parent.clone();
                calls.list_secrets(v1::ListSecretsRequest { parent, page_size: PAGE, page_token }).await
            })
            .await
        }
        SecretCommand::Reveal { tenant, source, secret, common } => {
            let api = AdminApi::open(&common.connect).await?;
            let request = v1::RevealSecretRequest { name: name::secret(&tenant, &source, &secret) };
            let revealed = api.ask(api.calls().reveal_secret(request)).await?;
            once(common.output.output, revealed)
        }
        SecretCommand::Delete { tenant, source, secret, common } => {
            let api = AdminApi::open(&common.connect).await?;
            let name = name::secret(&tenant, &source, &secret);
            api.ask(api.calls().delete_secret(v1::DeleteSecretRequest { name: name.clone() })).await?;
            present::deleted(common.output.output, &name)
        }
    }
}

/// The value in the file; empty without a file, which asks for a generated one.
fn given(file: Option<&Path>) -> Result<String, Failure> {
    file.map(|file| input::secret(file).map(|value| value.expose_secret().clone()))
        .transpose()
        .map(Option::unwrap_or_default)
}

/// Shows a generated value, this once. A given one is known to whoever gave it, and is not repeated into logs.
fn created_secret(output: Output, created: v1::Secret, is_generated: bool) -> anyhow::Result<()> {
    if is_generated { once(output, created) } else { present::one(output, &Secret::from(created)) }
}

/// Shows a secret with its value.
fn once(output: Output, answer: v1::Secret) -> anyhow::Result<()> {
    let value = Some(answer.value.clone());
    present::one(output, &Secret { value, ..Secret::from(answer) })?;
    print::note("The value is shown only now: give it to the provider, it cannot be read again.");
    Ok(())
}

/// A secret as it is shown.
#[derive(Serialize)]
struct Secret {
    name: String,
    tenant: String,
    source: String,
    secret: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    state: &'static str,
    unseen: bool,
    not_before: Option<String>,
    not_after: Option<String>,
    create_time: Option<String>,
}

impl From<v1::Secret> for Secret {
    fn from(secret: v1::Secret) -> Self {
        Self {
            tenant: name::id(&secret.name, 0),
            source: name::id(&secret.name, 1),
            secret: name::id(&secret.name, 2),
            value: None,
            state: match secret.state() {
                v1::SecretState::Planned => "planned",
                v1::SecretState::Active => "active",
                v1::SecretState::Retiring => "retiring",
                v1::SecretState::Retired => "retired",
                v1::SecretState::Unspecified => "unknown",
            },
            unseen: secret.unseen,
            not_before: present::time(secret.not_before.as_ref()),
            not_after: present::time(secret.not_after.as_ref()),
            create_time: present::time(secret.create_time.as_ref()),
            name: secret.name,
        }
    }
}

impl Record for Secret {
    const COLUMNS: &'static [&'static str] = &["SECRET", "STATE", "FROM", "UNTIL", "CREATED", "UNSEEN"];

    fn row(&self) -> Vec<String> {
        vec![
            self.secret.clone(),
            self.state.to_owned(),
            self.not_before.clone().unwrap_or_default(),
            self.not_after.clone().unwrap_or_default(),
            self.create_time.clone().unwrap_or_default(),
            if self.unseen { "unseen" } else { "" }.to_owned(),
        ]
    }

    fn details(&self) -> Vec<(&'static str, String)> {
        let mut details = vec![
            ("tenant", self.tenant.clone()),
            ("source", self.source.clone()),
            ("secret", self.secret.clone()),
            ("state", self.state.to_owned()),
            ("verifies from", self.not_before.clone().unwrap_or_default()),
            ("verifies until", self.not_after.clone().unwrap_or_default()),
            ("created", self.create_time.clone().unwrap_or_default()),
        ];
        if self.unseen {
            let how = "`portero secret reveal` shows the value that a handshake brought, once";
            details.push(("unseen", how.to_owned()));
        }
        details.extend(self.value.clone().map(|value| ("value", value)));
        details
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer() -> v1::Secret {
        v1::Secret {
            name: "tenants/acme/sources/pay/secrets/s1".to_owned(),
            value: "whsec_hush".to_owned(),
            state: v1::SecretState::Active.into(),
            ..v1::Secret::default()
        }
    }

    #[test]
    fn the_value_is_shown_only_where_it_was_asked_for() {
        let json = serde_json::to_string(&Secret::from(answer())).expect("serialises");
        assert!(json.contains(r#""state":"active""#) && !json.contains("hush"), "{json}");
        let secret = Secret { value: Some("whsec_hush".to_owned()), ..Secret::from(answer()) };
        assert!(secret.details().iter().any(|(name, value)| *name == "value" && value == "whsec_hush"));
        assert!(!secret.row().join(" ").contains("hush"), "never in a list");
        assert_eq!(secret.row().len(), Secret::COLUMNS.len());
        let unseen = Secret::from(v1::Secret { unseen: true, ..answer() });
        assert_eq!(unseen.row().last().map(String::as_str), Some("unseen"));
        assert!(
            unseen.details().iter().any(|(name, how)| *name == "unseen" && how.contains("secret reveal"))
        );
    }

    #[test]
    fn an_empty_file_does_not_ask_for_a_generated_value() {
        let file = tempfile::NamedTempFile::new().expect("file");
        assert!(given(Some(file.path())).is_err());
        assert_eq!(given(None), Ok(String::new()));
    }
}
