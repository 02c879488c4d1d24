//! `portero dev`: everything on this machine, with an embedded database and a demo tenant.

mod banner;
mod setup;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use portero_auth::{Grant, Issuer, NewToken};
use portero_keyring::{KeyId, Keyring};
use portero_types::{Clock as _, SubscriptionId};

use crate::cli::DevArgs;
use crate::clock::SystemClock;
use crate::commands::serve::until_signal;
use crate::config::{Config, Sources};
use crate::entropy;
use crate::gateway::{Gateway, Opened};
use crate::{local_issuer, telemetry};

const TENANT: &str = "demo";
const SUBSCRIPTION: &str = "demo";
const TOKEN_LIFETIME: Duration = Duration::from_secs(30 * 86_400);

/// Runs until a signal. A second start on the same folder continues where the first ended.
pub(crate) async fn run(args: DevArgs) -> anyhow::Result<()> {
    prepare_folder(&args.data)?;
    let clock = SystemClock::default();
    let issuer = issuer(&args.data)?;
    keyring(&args.data)?;
    write_tokens(&args.data, &issuer, &clock)?;
    let config = config(&args)?;
    let guard = telemetry::start(&config.telemetry, &config.instance_id)?;
    let opened = Opened::open(&config.database).await?;
    opened.store().migrate().await.context("the schema cannot be migrated")?;
    let gateway = Gateway::start(config, opened, clock).await?;
    let file = match setup::demo_tenant(&gateway.addresses, &args.data).await {
        Ok(file) => file,
        Err(error) => {
            gateway.stop().await;
            return Err(error.context("the demo tenant cannot be set up"));
        }
    };
    file.write(&args.data)?;
    banner::print(&file, &gateway.addresses, &args.data)?;
    let result = until_signal(&gateway).await;
    gateway.stop().await;
    guard.shutdown();
    result
}

fn prepare_folder(folder: &Path) -> anyhow::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .with_context(|| format!("the folder {} cannot be made", folder.display()))
}

fn issuer(folder: &Path) -> anyhow::Result<Issuer> {
    let path = folder.join("issuer.pem");
    if !path.exists() {
        let issuer = Issuer::generate(local_issuer::NAME, local_issuer::AUDIENCE, entropy::random());
        issuer.create(&path).context("the local issuer's key cannot be written")?;
    }
    Issuer::load(&path, local_issuer::NAME, local_issuer::AUDIENCE)
        .context("the local issuer's key cannot be used")
}

fn keyring(folder: &Path) -> anyhow::Result<()> {
    let path = folder.join("keyring.json");
    if path.exists() {
        return Ok(());
    }
    let id = KeyId::new("dev").context("the key's name is not valid")?;
    let ring = Keyring::generate(id, entropy::random()).context("a keyring cannot be made")?;
    ring.create(&path).context("the keyring cannot be written")
}

fn write_tokens(folder: &Path, issuer: &Issuer, clock: &SystemClock) -> anyhow::Result<()> {
    let subscription =
        SubscriptionId::new(SUBSCRIPTION).context("the demo subscription's id is not valid")?;
    let grants = [("admin", Grant::platform_admin()), ("consumer", Grant::consumer(vec![subscription]))];
    for (name, grant) in grants {
        let new = NewToken { subject: format!("dev-{name}"), grant: Some(grant), lifetime: TOKEN_LIFETIME };
        let minted =
            issuer.mint(&new, clock.now(), entropy::random_u128()).context("a token cannot be minted")?;
        let path = folder.join(format!("{name}.token"));
        crate::private_file::write(&path, minted.token.expose_secret().as_bytes())
            .with_context(|| format!("{} cannot be written", path.display()))?;
    }
    Ok(())
}

/// The settings of a gateway on this machine alone. The environment does not change them.
fn config(args: &DevArgs) -> anyhow::Result<Config> {
    let mut sources = Sources::default();
    let listen = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let data = args.data.display();
    let mut settings = vec![
        format!("database.url=sqlite:{data}"),
        format!("keyring.path={data}/keyring.json"),
        format!("auth.local_issuer_key_file={data}/issuer.pem"),
        format!("edge.listen={}", listen(args.edge_port)),
        format!("grpc.listen={}", listen(args.grpc_port)),
        format!("management.listen={}", listen(args.management_port)),
        format!("telemetry.log_level={}", args.log_level),
        "telemetry.log_format=text".to_owned(),
        "instance_id=dev".to_owned(),
        "shutdown.drain_delay=0s".to_owned(),
        "shutdown.drain_timeout=3s".to_owned(),
    ];
    settings.extend(args.otlp_endpoint.iter().map(|url| format!("telemetry.otlp_endpoint={url}")));
    for setting in &settings {
        sources.set(setting);
    }
    Ok(Config::load(&sources)?)
}

/// What the demo tenant is made of: source, preset, and what it shows.
const SOURCES: [(&str, &str); 4] =
    [("stripe", "stripe"), ("github", "github"), ("slack", "slack"), ("custom", "custom")];
