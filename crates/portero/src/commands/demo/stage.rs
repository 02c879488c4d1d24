//! A gateway of its own in a temporary folder, on free ports of this machine.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use portero_auth::{Grant, Issuer, NewToken};
use portero_keyring::{KeyId, Keyring};
use portero_types::{Clock as _, SubscriptionId};

use super::setup::SUBSCRIPTION;
use crate::clock::SystemClock;
use crate::config::{Config, Sources};
use crate::gateway::{Gateway, Opened};
use crate::{entropy, local_issuer, telemetry};

/// Tokens live through the three days by which the clock is moved.
const TOKEN_LIFETIME: Duration = Duration::from_secs(30 * 86_400);

/// A running gateway and the tokens for it.
pub(super) struct Stage {
    pub(super) gateway: Gateway,
    pub(super) edge_url: String,
    pub(super) grpc_url: String,
    pub(super) admin_token: String,
    pub(super) consumer_token: String,
}

impl Stage {
    /// Makes keys and database in `folder` and starts the gateway; `clock` is the one that it lives by.
    pub(super) async fn build(folder: &Path, clock: &SystemClock, verbose: bool) -> anyhow::Result<Self> {
        let issuer = Issuer::generate(local_issuer::NAME, local_issuer::AUDIENCE, entropy::random());
        issuer.create(&folder.join("issuer.pem")).context("the local issuer's key cannot be written")?;
        let key = KeyId::new("demo").expect("a valid key id");
        let ring = Keyring::generate(key, entropy::random()).context("a keyring cannot be made")?;
        ring.create(&folder.join("keyring.json")).context("the keyring cannot be written")?;
        let config = config(folder, verbose)?;
        let _guard = telemetry::start(&config.telemetry, &config.instance_id)?;
        let opened = Opened::open(&config.database).await?;
        opened.store().migrate().await.context("the schema cannot be made")?;
        let gateway = Gateway::start(config, opened, clock.clone()).await?;
        let edge = gateway.addresses.edge.context("the edge is not running")?;
        let grpc = gateway.addresses.grpc.context("gRPC is not served")?;
        let subscription = SubscriptionId::new(SUBSCRIPTION).expect("a valid subscription id");
        Ok(Self {
            gateway,
            edge_url: format!("http://{edge}"),
            grpc_url: format!("http://{grpc}"),
            admin_token: token(&issuer, clock, "demo-admin", Grant::platform_admin())?,
            consumer_token: token(&issuer, clock, "demo-ledger", Grant::consumer(vec![subscription]))?,
        })
    }
}

fn token(issuer: &Issuer, clock: &SystemClock, subject: &str, grant: Grant) -> anyhow::Result<String> {
    let new = NewToken { subject: subject.to_owned(), grant: Some(grant), lifetime: TOKEN_LIFETIME };
    let minted =
        issuer.mint(&new, clock.now(), entropy::random_u128()).context("a token cannot be minted")?;
    Ok(minted.token.expose_secret().clone())
}

/// The settings. Neither files nor the environment change them.
fn config(folder: &Path, verbose: bool) -> anyhow::Result<Config> {
    let mut sources = Sources::default();
    let data = folder.display();
    for setting in [
        format!("database.url=sqlite:{data}"),
        format!("keyring.path={data}/keyring.json"),
        format!("auth.local_issuer_key_file={data}/issuer.pem"),
        "edge.listen=127.0.0.1:0".to_owned(),
        "grpc.listen=127.0.0.1:0".to_owned(),
        "management.listen=127.0.0.1:0".to_owned(),
        format!("telemetry.log_level={}", if verbose { "info" } else { "error" }),
        "telemetry.log_format=text".to_owned(),
        "instance_id=demo".to_owned(),
        "shutdown.drain_delay=0s".to_owned(),
        "shutdown.drain_timeout=2s".to_owned(),
    ] {
        sources.set(&setting);
    }
    Ok(Config::load(&sources)?)
}
