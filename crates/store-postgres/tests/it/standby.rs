//! A standby takes no part: it lags behind, and what it shows may never have happened.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use portero_store::testing::assert_fails;
use portero_store::{ErrorKind, LaneStore, SchemaStore};
use portero_store_postgres::{PostgresConfig, PostgresStore};
use portero_types::Generation;
use sqlx::{Connection, Executor, PgConnection, Row};
use tempfile::TempDir;
use tokio::process::Command;

use super::harness::TestDatabase;

/// A server of this test's own, which begins as a standby without a primary. It is stopped when this value is dropped.
struct Server {
    bin: PathBuf,
    folder: TempDir,
    port: u16,
}

impl Server {
    async fn start_as_standby() -> Self {
        let database = TestDatabase::create().await;
        let bin = database.run("SELECT setting FROM pg_config WHERE name = 'BINDIR'").await;
        let bin = PathBuf::from(bin[0].get::<String, _>("setting"));
        let folder = tempfile::tempdir().expect("a folder");
        if is_root().await {
            run(Command::new("chown").arg("postgres:").arg(folder.path())).await;
        }
        let port = free_port().await;
        let server = Self { bin, folder, port };
        let data = server.data();
        let mut initdb = server.command("initdb").await;
        run(initdb.args(["--auth=trust", "--username=postgres", "--no-sync", "--pgdata"]).arg(&data)).await;
        let mut signal = server.as_its_user("touch").await;
        run(signal.arg(data.join("standby.signal"))).await;
        let options = format!("-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories=''");
        let mut start = server.command("pg_ctl").await;
        start
            .args(["start", "--wait", "--pgdata"])
            .arg(&data)
            .arg("--log")
            .arg(server.folder.path().join("log"));
        run(start.arg("--options").arg(options)).await;
        server
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    async fn command(&self, program: &str) -> Command {
        self.as_its_user(self.bin.join(program)).await
    }

    /// PostgreSQL refuses to run as root.
    async fn as_its_user(&self, program: impl AsRef<Path>) -> Command {
        let program = program.as_ref();
        let mut command = if is_root().await {
            let mut command = Command::new("setpriv");
            command.args(["--reuid=postgres", "--regid=postgres", "--init-groups", "--"]).arg(program);
            command
        } else {
            Command::new(program)
        };
        command
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let data = self.data();
        // The first line is the process; at this signal it ends without waiting for anybody.
        let pid = std::fs::read_to_string(data.join("postmaster.pid")).unwrap_or_default();
        if let Some(pid) = pid.lines().next() {
            let _ = std::process::Command::new("kill").args(["-QUIT", pid]).status();
        }
    }
}

async fn run(command: &mut Command) {
    let status = command.status().await.expect("it can be run");
    assert!(status.success(), "{command:?}: {status}");
}

async fn is_root() -> bool {
    let answer = Command::new("id").arg("-u").output().await.expect("id runs");
    answer.stdout.starts_with(b"0\n")
}

async fn free_port() -> u16 {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    listener.local_addr().expect("bound").port()
}

/// F12, and F9's other half: a promoted standby is another incarnation.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_is_refused_until_it_is_promoted() {
    let server = Server::start_as_standby().await;
    let refused = PostgresStore::connect(PostgresConfig::new(server.url())).await;
    let message = refused.as_ref().map_or_else(ToString::to_string, |_| String::new());
    assert!(message.contains("standby"), "{message}");
    assert_fails(refused, ErrorKind::FailedPrecondition);

    let mut admin = PgConnection::connect(&server.url()).await.expect("connected");
    admin.execute("SELECT pg_promote()").await.expect("promoted");
    let store = PostgresStore::connect(PostgresConfig::new(server.url())).await.expect("a primary");
    store.migrate().await.expect("migrated");
    assert_eq!(store.incarnation().await.expect("looked"), Generation(1));
    admin.execute("UPDATE installation SET incarnation = 'before the failover'").await.expect("changed");
    let other = PostgresStore::connect(PostgresConfig::new(server.url())).await.expect("a primary");
    let (one, two) = tokio::join!(store.incarnation(), other.incarnation());
    assert_eq!((one.expect("looked"), two.expect("looked")), (Generation(2), Generation(2)));
    assert_eq!(store.incarnation().await.expect("looked"), Generation(2));
    store.close().await;
    other.close().await;
    admin.close().await.expect("closed");
    drop(server);
}
