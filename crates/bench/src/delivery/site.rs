//! What the gateways of one measurement share: a database, a keyring, an issuer's key; all gone at the end.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, ensure};
use portero_client::{Client, ClientConfig, Token};
use portero_store_postgres::{PostgresConfig, PostgresStore};
use tempfile::TempDir;
use tokio::process::Command;

use super::Place;
use crate::database::{Database, Server, Settings};
use crate::progress::say;

/// A database, a keyring and an issuer's key.
pub(super) struct Site {
    pub(super) database: Database,
    pub(super) settings: Settings,
    program: PathBuf,
    folder: TempDir,
}

impl Site {
    /// Makes one, measures, and removes it, whatever came of it.
    pub(super) async fn with<T>(
        place: &Place,
        purpose: &str,
        measure: impl AsyncFnOnce(&Self) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let program = program(place)?;
        let server = Server::new(&place.postgres_url)?;
        let folder = TempDir::new().context("making a folder")?;
        let database = server.create(purpose).await?;
        let settings = database.settings().await;
        let site = match settings {
            Ok(settings) => Self { database, settings, program, folder },
            Err(error) => {
                remove(&server, &database).await;
                return Err(error);
            }
        };
        let outcome = async {
            site.settings.ensure_durable()?;
            say(&site.settings.to_string());
            let (keyring, key) = (site.path("keyring.json"), site.path("issuer.pem"));
            site.run(&["keyring", "generate", &keyring]).await?;
            site.run(&["token", "jwks", "--create-key", "--key", &key]).await?;
            measure(&site).await
        };
        let outcome = outcome.await;
        remove(&server, &site.database).await;
        outcome
    }

    /// A file of this site.
    pub(super) fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The program without settings of this process's environment.
    pub(super) fn program(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.env_clear().current_dir(self.folder()).stdin(Stdio::null()).kill_on_drop(true);
        command
    }

    /// A token of an administrator of everything.
    pub(super) async fn admin_token(&self) -> anyhow::Result<String> {
        self.run(&[
            "token",
            "mint",
            "--key",
            &self.path("issuer.pem"),
            "--ttl",
            "6h",
            "--role",
            "platform-admin",
        ])
        .await
    }

    /// A token of a consumer of these subscriptions.
    pub(super) async fn consumer_token(&self, subscriptions: &[String]) -> anyhow::Result<String> {
        let key = self.path("issuer.pem");
        let mut arguments = vec!["token", "mint", "--key", &key, "--ttl", "6h", "--role", "consumer"];
        for subscription in subscriptions {
            arguments.extend(["--subscription", subscription]);
        }
        self.run(&arguments).await
    }

    /// The store itself, for a backlog that would take long through the edge.
    pub(super) async fn store(&self) -> anyhow::Result<PostgresStore> {
        Ok(PostgresStore::connect(PostgresConfig::new(self.database.url.as_str())).await?)
    }

    async fn run(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let output =
            self.program().args(arguments).output().await.context("starting the gateway's program")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{:?} ended with {}: {said}", arguments.first(), output.status);
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    }
}

/// A client of a gateway or a balancer.
pub(super) async fn client(endpoint: &str, token: &str, instance: &str) -> anyhow::Result<Client> {
    let mut config = ClientConfig::new(endpoint);
    config.token = Token::fixed(token);
    config.instance_id = Some(instance.to_owned());
    Ok(Client::connect(config).await?)
}

async fn remove(server: &Server, database: &Database) {
    if let Err(error) = server.drop(database).await {
        say(&format!("the database {} is still there: {error:#}", database.name));
    }
}

fn program(place: &Place) -> anyhow::Result<PathBuf> {
    let program = match &place.gateway {
        Some(program) => program.clone(),
        None => std::env::current_exe().context("finding this program")?.with_file_name("portero"),
    };
    let program = std::path::absolute(program)?;
    ensure!(
        program.is_file(),
        "there is no gateway at {}: build it (cargo build --release -p portero) or name it by --gateway",
        program.display()
    );
    Ok(program)
}
