//! `portero serve` as a child process.

use std::fs::OpenOptions;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use portero_client::Admin;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

use super::site::{Site, client};
use crate::connection::Connection;
use crate::process::Process;

/// How long a gateway may take to start or to stop.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes of its log that are shown when it fails.
const LOG_SHOWN: usize = 2_000;

/// A gateway process. Killed when dropped.
pub(super) struct Gateway {
    name: String,
    log: String,
    ports: [u16; 3],
    /// How long it stays reachable after it was asked to stop.
    drain_delay: Duration,
    /// Further settings, by their names in the environment without `PORTERO__`.
    settings: Vec<(String, String)>,
    child: Option<Child>,
}

impl Gateway {
    /// Starts one and waits until it is ready.
    pub(super) async fn start(site: &Site, name: &str) -> anyhow::Result<Self> {
        Self::with_drain_delay(site, name, Duration::ZERO).await
    }

    /// One that stays reachable for so long after it was asked to stop.
    pub(super) async fn with_drain_delay(
        site: &Site,
        name: &str,
        drain_delay: Duration,
    ) -> anyhow::Result<Self> {
        let mut gateway = Self::new(site, name)?;
        gateway.drain_delay = drain_delay;
        gateway.launch(site).await?;
        Ok(gateway)
    }

    /// One with these settings, too.
    pub(super) async fn with_settings(
        site: &Site,
        name: &str,
        settings: &[(&str, &str)],
    ) -> anyhow::Result<Self> {
        let mut gateway = Self::new(site, name)?;
        let owned = settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        gateway.settings.extend(owned);
        gateway.launch(site).await?;
        Ok(gateway)
    }

    /// What is measured is how much can be done, not how much may be: tenants and sources have no limits unless they are
    /// given some.
    fn new(site: &Site, name: &str) -> anyhow::Result<Self> {
        let unlimited = [
            ("LIMITS__TENANT_EVENTS_PER_SECOND", "0"),
            ("LIMITS__TENANT_BYTES_PER_SECOND", "0B"),
            ("LIMITS__SOURCE_EVENTS_PER_SECOND", "0"),
            ("LIMITS__SOURCE_BYTES_PER_SECOND", "0B"),
        ];
        Ok(Self {
            name: name.to_owned(),
            log: site.path(&format!("{name}.log")),
            ports: free_ports()?,
            drain_delay: Duration::ZERO,
            settings: unlimited.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
            child: None,
        })
    }

    /// Starts it again as it was, or for the first time.
    pub(super) async fn launch(&mut self, site: &Site) -> anyhow::Result<()> {
        let log = OpenOptions::new().create(true).append(true).open(&self.log)?;
        let [edge, grpc, management] = self.ports.map(|port| format!("127.0.0.1:{port}"));
        let mut command = site.program();
        command.args(["serve", "--migrate"]).stdout(log.try_clone()?).stderr(log);
        for (key, value) in [
            ("EDGE__LISTEN", edge),
            ("GRPC__LISTEN", grpc),
            ("MANAGEMENT__LISTEN", management),
            ("DATABASE__URL", site.database.url.clone()),
            ("KEYRING__PATH", site.path("keyring.json")),
            ("AUTH__LOCAL_ISSUER_KEY_FILE", site.path("issuer.pem")),
            ("INSTANCE_ID", self.name.clone()),
            ("SHUTDOWN__DRAIN_DELAY", format!("{}ms", self.drain_delay.as_millis())),
            ("SHUTDOWN__DRAIN_TIMEOUT", "20s".to_owned()),
        ] {
            command.env(format!("PORTERO__{key}"), value);
        }
        for (key, value) in &self.settings {
            command.env(format!("PORTERO__{key}"), value);
        }
        self.child = Some(command.spawn().context("starting a gateway")?);
        let deadline = Instant::now() + PATIENCE;
        while !is_ready(self.management()).await {
            let ended = self.child.as_mut().and_then(|child| child.try_wait().ok().flatten());
            if ended.is_some() || Instant::now() > deadline {
                bail!("the gateway {} does not start; the end of its log:\n{}", self.name, self.log_end());
            }
            sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// Asks it to stop (SIGTERM) and waits for its end.
    pub(super) async fn stop(&mut self) -> anyhow::Result<()> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        let id = child.id().context("a gateway that runs")?.to_string();
        let asked = Command::new("kill").args(["-s", "TERM", &id]).status().await?;
        ensure!(asked.success(), "the gateway {} cannot be asked to stop", self.name);
        let status = timeout(PATIENCE, child.wait()).await.context("a gateway does not stop")??;
        ensure!(status.success(), "the gateway {} ended with {status}:\n{}", self.name, self.log_end());
        Ok(())
    }

    /// Processor time that it has used; `None` where /proc does not tell.
    pub(super) fn cpu(&self) -> Option<Duration> {
        Process::read(self.id()?).map(|process| process.own)
    }

    /// Memory that it has in use.
    pub(super) fn resident_bytes(&self) -> anyhow::Result<u64> {
        self.id().and_then(Process::resident_bytes).context("/proc does not tell how large a process is")
    }

    pub(super) fn edge(&self) -> SocketAddr {
        self.address(0)
    }

    pub(super) fn grpc(&self) -> SocketAddr {
        self.address(1)
    }

    pub(super) fn management(&self) -> SocketAddr {
        self.address(2)
    }

    pub(super) fn grpc_url(&self) -> String {
        format!("http://{}", self.grpc())
    }

    /// The admin service, as an administrator of everything.
    pub(super) async fn admin(&self, site: &Site) -> anyhow::Result<Admin> {
        Ok(client(&self.grpc_url(), &site.admin_token().await?, "admin").await?.admin())
    }

    fn address(&self, which: usize) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.ports[which]))
    }

    fn id(&self) -> Option<u32> {
        self.child.as_ref()?.id()
    }

    fn log_end(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let from = text.ceil_char_boundary(text.len().saturating_sub(LOG_SHOWN));
        text.get(from..).unwrap_or_default().to_owned()
    }
}

/// Whether a gateway takes traffic.
pub(super) async fn is_ready(management: SocketAddr) -> bool {
    let Ok(mut connection) = Connection::open(management).await else { return false };
    let request = b"GET /readyz HTTP/1.1\r\nhost: gateway\r\n\r\n";
    matches!(timeout(Duration::from_secs(1), connection.exchange(request)).await, Ok(Ok(200)))
}

/// Three ports that nobody listens on.
fn free_ports() -> anyhow::Result<[u16; 3]> {
    let listeners = [
        TcpListener::bind("127.0.0.1:0")?,
        TcpListener::bind("127.0.0.1:0")?,
        TcpListener::bind("127.0.0.1:0")?,
    ];
    let mut ports = [0; 3];
    for (port, listener) in ports.iter_mut().zip(&listeners) {
        *port = listener.local_addr()?.port();
    }
    Ok(ports)
}
