//! `portero keyring`: the keys that wrap tenants' data keys, in their file and in the database.

mod data_keys;
mod file;
mod rewrap;
mod sealed_settings;
mod status;

use crate::cli::{ConfigArgs, KeyringCommand};
use crate::clock::SystemClock;
use crate::gateway::{self, Opened, require_current};
use crate::print;
use portero_keyring::Keyring;
use portero_store::{Actor, Change, DynStore};
use portero_types::{Clock as _, RequestId};

/// Runs one of its commands.
pub(crate) async fn run(command: KeyringCommand) -> anyhow::Result<()> {
    match command {
        KeyringCommand::Generate { path, id } => {
            let id = file::generate(&path, id.id)?;
            print::line(&format!("made {} with the key {id}", path.display()))?;
            print::note(
                "Keep a copy apart from the database: without it, stored secrets and events cannot be read.",
            );
        }
        KeyringCommand::Add { path, id } => {
            let id = file::add(&path, id.id)?;
            print::line(&format!("{} has the new key {id}, which is not active yet", path.display()))?;
            print::note(
                "Renew the copy, bring the keyring to every gateway and restart them, then activate the key.",
            );
        }
        KeyringCommand::Activate { path, id } => {
            let id = file::activate(&path, &id)?;
            print::line(&format!("{id} is the active key of {}", path.display()))?;
            print::note(
                "Restart the gateways: they read the keyring when they start. Then `portero keyring rewrap`.",
            );
        }
        KeyringCommand::Rotate { path, id } => {
            let id = file::rotate(&path, id.id)?;
            print::line(&format!("{} has the new key {id}, which is active", path.display()))?;
            print::note(
                "Renew the copy, and restart the gateway: it reads the keyring when it starts. Then `portero keyring rewrap`.",
            );
        }
        KeyringCommand::Remove { path, id, force, config } => {
            let id = file::key_id(&id)?;
            if !force {
                status::require_unused(&config, &id).await?;
            }
            file::remove(&path, &id)?;
            print::line(&format!("{id} is removed from {}", path.display()))?;
        }
        KeyringCommand::Status { config, output } => status::run(&config, output.output).await?,
        KeyringCommand::Rewrap { config, batch, output } => {
            rewrap::run(&config, batch.batch, output.output).await?;
        }
        KeyringCommand::RotateDataKeys { before, config, batch, output } => {
            data_keys::run(before.as_deref(), &config, batch.batch, output.output).await?;
        }
    }
    Ok(())
}

/// The settings' keyring and database.
struct Site {
    keyring: Keyring,
    opened: Opened,
    store: DynStore,
}

impl Site {
    async fn open(args: &ConfigArgs) -> anyhow::Result<Self> {
        let config = super::load(args)?;
        let keyring = gateway::keyring(&config.keyring)?;
        let opened = Opened::open(&config.database).await?;
        let store = opened.store();
        require_current(&store).await?;
        Ok(Self { keyring, opened, store })
    }

    async fn close(self) {
        self.opened.close().await;
    }
}

/// A change that is made on this machine, past the API.
fn change() -> Change {
    let now = SystemClock::default().now();
    let request = RequestId::new(now, crate::entropy::random_u128());
    Change::new(Actor::local("cli"), &request.to_string(), now)
}
