//! A Redis of one test's own, on a socket in a temporary folder.

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use portero_prefilter::{Hit, Key, Layered, Local, LocalConfig, Prefilter, Redis, RedisConfig};
use portero_types::{ManualClock, ProviderName, ReceiptId, TenantNo, Timestamp};
use tempfile::TempDir;
use tokio::time::Instant;

/// Longest time that a test waits for something that must happen.
const DEADLINE: Duration = Duration::from_secs(20);

pub(crate) struct Server {
    dir: TempDir,
    child: Child,
}

impl Server {
    pub(crate) async fn start() -> Self {
        let dir = TempDir::new().unwrap();
        let child = spawn(&dir);
        let server = Self { dir, child };
        server.wait().await;
        server
    }

    pub(crate) fn url(&self) -> String {
        format!("unix://{}/redis.sock", self.dir.path().display())
    }

    /// A connection that is not the one under test.
    pub(crate) async fn connection(&self) -> redis::aio::MultiplexedConnection {
        let client = redis::Client::open(self.url()).unwrap();
        client.get_multiplexed_async_connection().await.unwrap()
    }

    async fn wait(&self) {
        let client = redis::Client::open(self.url()).unwrap();
        until("Redis has started", async || {
            let Ok(mut connection) = client.get_multiplexed_async_connection().await else { return false };
            redis::cmd("PING").exec_async(&mut connection).await.is_ok()
        })
        .await;
    }

    /// Sends a signal by name, such as `STOP`.
    pub(crate) fn signal(&self, name: &str) {
        // The shell's own `kill`: the program of that name is missing on small systems.
        let command = format!("kill -{name} {}", self.child.id());
        let status = Command::new("sh").arg("-c").arg(command).status();
        assert!(status.unwrap().success());
    }

    /// Ends it as a power failure would.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts it again at the same place, with nothing in it.
    pub(crate) async fn restart(&mut self) {
        self.child = spawn(&self.dir);
        self.wait().await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(dir: &TempDir) -> Child {
    Command::new("redis-server")
        .args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"])
        .arg(dir.path().join("redis.sock"))
        .arg("--dir")
        .arg(dir.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("these tests need the program redis-server: apt-get install redis-server")
}

/// The server that tests may share.
#[expect(clippy::disallowed_methods, reason = "tests are told their services by the environment")]
pub(crate) fn shared_url() -> String {
    std::env::var("PORTERO_TEST_REDIS_URL")
        .expect("set PORTERO_TEST_REDIS_URL to a Redis for tests, as scripts/test does")
}

/// Polls until something holds.
pub(crate) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !holds().await {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A pre-filter over Redis alone, patient enough for a busy machine.
pub(crate) fn over_redis(url: &str) -> Layered {
    over_redis_within(url, Duration::from_millis(500))
}

pub(crate) fn over_redis_within(url: &str, call_timeout: Duration) -> Layered {
    let config = RedisConfig { call_timeout, ..RedisConfig::new(url) };
    Layered::new(None, Some(Redis::new(config).unwrap()))
}

pub(crate) fn local() -> Local {
    Local::new(LocalConfig::default(), Arc::new(ManualClock::at(Timestamp::EPOCH)))
}

pub(crate) fn key(n: usize) -> Key {
    Key {
        tenant_no: TenantNo(1),
        provider: ProviderName::new("stripe").unwrap(),
        event_id: format!("evt_{n}"),
    }
}

pub(crate) fn hit(n: usize) -> Hit {
    Hit { receipt_id: ReceiptId::new(Timestamp::EPOCH, n as u128), body_digest: [7; 32] }
}

pub(crate) async fn lookup(layered: &Layered, identity: &str, n: usize) -> Option<Hit> {
    layered.confirm(identity, Instant::now());
    layered.lookup(&[key(n)]).await[0]
}

pub(crate) async fn remember(layered: &Layered, identity: &str, n: usize) {
    layered.confirm(identity, Instant::now());
    layered.remember(&[(key(n), hit(n))]).await;
}
