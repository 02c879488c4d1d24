//! The servers that `scripts/test` starts: one Postgres and one Redis.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use super::{Process, canaries, eventually, free_port};

/// What a private Redis asks for.
const REDIS_PASSWORD: &str = "redis-password-c0f4e2b8d617";

/// The superuser's URL of the Postgres server.
pub(crate) fn postgres_url() -> String {
    variable("PORTERO_TEST_POSTGRES_URL")
}

/// The URL of the Redis server.
pub(crate) fn redis_url() -> String {
    variable("PORTERO_TEST_REDIS_URL")
}

#[expect(clippy::disallowed_methods, reason = "the environment is where scripts/test says what it started")]
fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| {
        panic!("{name} is not set: run the tests by scripts/test, which starts the servers that they need")
    })
}

/// Runs a statement and gives its answer: a line per row, `|` between columns.
pub(crate) fn psql(url: &str, statement: &str) -> String {
    let output = Command::new("psql")
        .args([
            "--no-psqlrc",
            "--quiet",
            "--tuples-only",
            "--no-align",
            "--set=ON_ERROR_STOP=1",
            "--command",
            statement,
        ])
        .arg(url)
        .stdin(Stdio::null())
        .output()
        .expect("psql can be started; scripts/test installs it");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "psql failed on {statement:?}: {complaint}");
    String::from_utf8(output.stdout).expect("text").trim().to_owned()
}

/// Runs statements one after the other in a session that lasts until it is dropped.
pub(crate) fn psql_for_long(url: &str, statements: &[&str]) -> Process {
    let mut command = Command::new("psql");
    command.args(["--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1"]).arg(url);
    for statement in statements {
        command.args(["--command", statement]);
    }
    Process::spawn(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()))
}

/// A Redis of one test's own, to be killed.
pub(crate) struct PrivateRedis {
    port: u16,
    child: Option<Child>,
    folder: TempDir,
}

impl PrivateRedis {
    /// Starts one on a free port.
    pub(crate) async fn start() -> Self {
        let folder = TempDir::new().expect("a folder");
        let mut redis = Self { port: free_port(), child: None, folder };
        redis.restart().await;
        redis
    }

    /// Starts it again, empty, on the same port.
    pub(crate) async fn restart(&mut self) {
        let child = Command::new("redis-server")
            .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .args(["--requirepass", REDIS_PASSWORD, "--port"])
            .arg(self.port.to_string())
            .arg("--dir")
            .arg(AsRef::<Path>::as_ref(self.folder.path()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("redis-server can be started; scripts/test installs it");
        self.child = Some(child);
        eventually("Redis listens", Duration::from_secs(10), async || {
            tokio::net::TcpStream::connect(("127.0.0.1", self.port)).await.ok()
        })
        .await;
    }

    /// Its URL.
    pub(crate) fn url(&self) -> String {
        canaries::plant("Redis' password", REDIS_PASSWORD);
        format!("redis://:{REDIS_PASSWORD}@127.0.0.1:{}", self.port)
    }

    /// Where it listens, `host:port`.
    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Its URL by TLS, by way of another port of this machine.
    pub(crate) fn secure_url_at(&self, port: u16) -> String {
        self.url().replace("redis://", "rediss://").replace(&self.address(), &format!("127.0.0.1:{port}"))
    }

    /// Forgets everything.
    pub(crate) fn flush(&self) {
        let port = self.port.to_string();
        let output = Command::new("redis-cli")
            .args(["-a", REDIS_PASSWORD, "-p", &port, "FLUSHALL"])
            .output()
            .expect("redis-cli can be started");
        assert!(output.status.success(), "FLUSHALL failed");
    }

    /// How many keys it has.
    pub(crate) fn keys(&self) -> u64 {
        let port = self.port.to_string();
        let output = Command::new("redis-cli")
            .args(["-a", REDIS_PASSWORD, "-p", &port, "DBSIZE"])
            .output()
            .expect("redis-cli can be started");
        String::from_utf8_lossy(&output.stdout).trim().parse().expect("a number")
    }

    /// Ends it without warning.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("killed");
            child.wait().expect("ended");
        }
    }
}

impl Drop for PrivateRedis {
    fn drop(&mut self) {
        self.kill();
    }
}
