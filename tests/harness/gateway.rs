//! `portero serve` as a child process: started, killed, asked to stop, started again on the same ports and data.

use std::fs::OpenOptions;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::time::Duration;

use super::log::Log;
use super::{Admin, Client, Process, Site, canaries, eventually, free_port};

/// How long a start may take. A debug build on a busy machine is slow.
const START: Duration = Duration::from_secs(60);
/// How long the last page of a process may take.
const LAST_PAGE: Duration = Duration::from_millis(500);
const SERVING: &str = "the gateway is serving";

/// A gateway process.
pub(crate) struct Gateway {
    pub(crate) site: Arc<Site>,
    pub(crate) log: Log,
    settings: Vec<(String, String)>,
    ports: [u16; 3],
    arguments: Vec<String>,
    process: Option<Process>,
    /// A text of log lines that belong to the test although no healthy gateway writes them.
    expected: Option<&'static str>,
    /// The metrics of each of its processes, as they were last.
    pages: String,
}

impl Gateway {
    /// One that is not started yet.
    pub(crate) fn new(site: &Arc<Site>) -> Self {
        let ports = [free_port(), free_port(), free_port()];
        let name = format!("gateway-{}", ports[0]);
        let log = Log { path: site.folder_path().join(format!("{name}.log")) };
        let settings = [
            ("EDGE__LISTEN", format!("127.0.0.1:{}", ports[0])),
            ("GRPC__LISTEN", format!("127.0.0.1:{}", ports[1])),
            ("MANAGEMENT__LISTEN", format!("127.0.0.1:{}", ports[2])),
            ("DATABASE__URL", site.database_url()),
            ("KEYRING__PATH", site.path("keyring.json")),
            ("AUTH__LOCAL_ISSUER_KEY_FILE", site.path("issuer.pem")),
            ("INSTANCE_ID", name),
            ("SHUTDOWN__DRAIN_DELAY", "0s".to_owned()),
            ("SHUTDOWN__DRAIN_TIMEOUT", "5s".to_owned()),
            // All that it has to say, to be searched for what it must not.
            ("TELEMETRY__LOG_LEVEL", "debug".to_owned()),
        ];
        let settings = settings.map(|(key, value)| (key.to_owned(), value)).to_vec();
        let arguments = ["serve", "--migrate"].map(str::to_owned).to_vec();
        Self {
            site: Arc::clone(site),
            log,
            settings,
            ports,
            arguments,
            process: None,
            expected: None,
            pages: String::new(),
        }
    }

    /// Starts one and waits until it serves.
    pub(crate) async fn start(site: &Arc<Site>) -> Self {
        let mut gateway = Self::new(site);
        gateway.launch().await;
        gateway
    }

    /// Another setting, by its name in the environment without `PORTERO__`.
    pub(crate) fn set(mut self, key: &str, value: impl Into<String>) -> Self {
        self.settings.retain(|(known, _)| known != key);
        self.settings.push((key.to_owned(), value.into()));
        self
    }

    /// Lets log lines with this text pass.
    pub(crate) fn expect(mut self, text: &'static str) -> Self {
        self.expected = Some(text);
        self
    }

    /// Without one of the settings.
    pub(crate) fn without(mut self, key: &str) -> Self {
        self.settings.retain(|(known, _)| known != key);
        self
    }

    /// On a database that is migrated already.
    pub(crate) fn without_migrating(mut self) -> Self {
        self.arguments.retain(|argument| argument != "--migrate");
        self
    }

    /// With a settings file, too.
    pub(crate) fn config_file(mut self, content: &str) -> Self {
        let path = self.site.path(&format!("gateway-{}.toml", self.ports[0]));
        std::fs::write(&path, content).expect("written");
        self.arguments.extend(["--config".to_owned(), path]);
        self
    }

    /// The program with this gateway's settings.
    pub(crate) fn command(&self) -> Command {
        let mut command = Site::program();
        command.current_dir(self.site.folder_path());
        command.envs(self.settings.iter().map(|(key, value)| (format!("PORTERO__{key}"), value)));
        command
    }

    /// Starts it, as it was before if it ran before, and waits until it serves.
    pub(crate) async fn launch(&mut self) {
        assert!(self.process.is_none(), "the gateway runs already");
        let served = self.log.count(SERVING);
        let log = OpenOptions::new().create(true).append(true).open(&self.log.path).expect("a log file");
        let mut command = self.command();
        command.args(&self.arguments).stdout(log.try_clone().expect("a handle")).stderr(log);
        self.process = Some(Process::spawn(&mut command));
        eventually("the gateway serves", START, async || {
            if let Some(status) = self.exited() {
                let log = std::fs::read_to_string(&self.log.path).unwrap_or_default();
                let said = log.lines().rev().take(3).collect::<Vec<_>>();
                panic!("the gateway ended with {status} instead of serving: {said:?}");
            }
            (self.log.count(SERVING) > served).then_some(())
        })
        .await;
    }

    /// Ends it without warning (SIGKILL).
    pub(crate) fn kill(&mut self) {
        self.note_metrics();
        self.process.take().expect("the gateway runs").kill();
    }

    /// Asks it to stop (SIGTERM).
    pub(crate) fn terminate(&mut self) {
        self.note_metrics();
        self.signal("TERM");
    }

    /// Sends a signal by name.
    pub(crate) fn signal(&self, name: &str) {
        self.process.as_ref().expect("the gateway runs").signal(name);
    }

    /// Its exit status, once it has ended.
    pub(crate) fn exited(&mut self) -> Option<ExitStatus> {
        self.process.as_mut()?.exited()
    }

    /// Waits for its end.
    pub(crate) async fn ended(&mut self, within: Duration) -> ExitStatus {
        let status = eventually("the gateway ends", within, async || self.exited()).await;
        self.process = None;
        status
    }

    /// Where webhooks go.
    pub(crate) fn edge_url(&self) -> String {
        format!("http://{}", self.edge_address())
    }

    /// Where webhooks go, `host:port`.
    pub(crate) fn edge_address(&self) -> String {
        format!("127.0.0.1:{}", self.ports[0])
    }

    /// Where gRPC is.
    pub(crate) fn grpc_url(&self) -> String {
        format!("http://{}", self.grpc_address())
    }

    /// Where gRPC is, `host:port`.
    pub(crate) fn grpc_address(&self) -> String {
        format!("127.0.0.1:{}", self.ports[1])
    }

    /// Where probes and metrics are.
    pub(crate) fn management_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.ports[2])
    }

    /// How much memory its process has in use now, bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.process.as_ref().expect("the gateway runs").memory_bytes()
    }

    /// A client with this token.
    pub(crate) async fn client(&self, token: &str) -> Client {
        Client::connect(self.grpc_url(), token).await
    }

    /// The admin service, as an administrator of everything.
    pub(crate) async fn admin(&self) -> Admin {
        self.client(&self.site.admin_token()).await.admin()
    }

    /// The value of a metric: the sum over its series whose labels contain all of `labels`.
    pub(crate) async fn metric(&self, name: &str, labels: &[&str]) -> f64 {
        let text = super::webhook::get(&format!("{}/metrics", self.management_url())).await.text;
        text.lines()
            .filter(|line| line.starts_with(name) && labels.iter().all(|label| line.contains(label)))
            .filter(|line| line[name.len()..].starts_with(['{', ' ']))
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum()
    }

    /// Waits until it has applied every change of the configuration that is committed now, wherever it was made.
    pub(crate) async fn is_up_to_date(&self) {
        let committed = self.site.query("SELECT revision FROM config_revision").parse().expect("a revision");
        eventually("the gateway knows what was configured", Duration::from_secs(60), async || {
            let applied = self.metric("portero_config_revision", &[]).await;
            (applied >= committed).then_some(())
        })
        .await;
    }

    /// Keeps the metrics of a process that is about to end.
    fn note_metrics(&mut self) {
        if self.process.is_some() && self.exited().is_none() {
            self.pages.push_str(&blocking_get(self.ports[2], "/metrics").unwrap_or_default());
        }
    }

    /// Fails the test when something that its processes wrote or counted holds a canary.
    fn check_leaks(&self) {
        let folder = self.site.folder_path();
        canaries::plant_files(&folder);
        // What consumers in processes of their own were told.
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().ends_with(".history") {
                let history = std::fs::read(entry.path()).unwrap_or_default();
                canaries::assert_none("a consumer's history", history);
            }
        }
        canaries::assert_none(&format!("the log {}", self.log.path.display()), self.log.bytes());
        canaries::assert_none("a page of metrics", &self.pages);
    }
}

/// A page, within a moment, for where nothing can be awaited; a gateway that is stopped or drowning gives none.
fn blocking_get(port: u16, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect_timeout(&([127, 0, 0, 1], port).into(), LAST_PAGE).ok()?;
    stream.set_read_timeout(Some(LAST_PAGE)).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").ok()?;
    let mut page = Vec::new();
    stream.read_to_end(&mut page).ok()?;
    Some(String::from_utf8_lossy(&page).into_owned())
}

impl Drop for Gateway {
    #[expect(clippy::print_stderr, reason = "the log of a failed test is what its reader needs")]
    fn drop(&mut self) {
        self.note_metrics();
        drop(self.process.take());
        if std::thread::panicking() {
            eprintln!("--- the end of {}:\n{}", self.log.path.display(), self.log.tail());
            return;
        }
        self.check_leaks();
        let mut complaints = self.log.complaints();
        complaints.retain(|line| !self.expected.is_some_and(|text| line.contains(text)));
        assert!(complaints.is_empty(), "unexpected lines in the log:\n{}", complaints.join("\n"));
    }
}
