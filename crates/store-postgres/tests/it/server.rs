//! A PostgreSQL of one test's own.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use sqlx::Row;
use tempfile::TempDir;
use tokio::process::Command;

use super::harness::TestDatabase;

/// A server of one test's own. It is stopped when this value is dropped.
pub(crate) struct Server {
    bin: PathBuf,
    folder: TempDir,
    pub(crate) port: u16,
}

impl Server {
    /// One that has its data and does not run yet.
    pub(crate) async fn prepare() -> Self {
        let database = TestDatabase::create().await;
        let bin = database.run("SELECT setting FROM pg_config WHERE name = 'BINDIR'").await;
        let bin = PathBuf::from(bin[0].get::<String, _>("setting"));
        let folder = tempfile::tempdir().expect("a folder");
        if is_root().await {
            run(Command::new("chown").arg("postgres:").arg(folder.path())).await;
        }
        let server = Self { bin, folder, port: free_port().await };
        let mut initdb = server.command("initdb").await;
        initdb.args(["--auth=trust", "--username=postgres", "--no-sync", "--pgdata"]).arg(server.data());
        run(&mut initdb).await;
        server
    }

    /// Starts it, with more options such as `-c ssl=on`.
    pub(crate) async fn start(&self, more: &str) {
        let port = self.port;
        let options = format!("-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories='' {more}");
        let mut start = self.command("pg_ctl").await;
        start.args(["start", "--wait", "--pgdata"]).arg(self.data()).arg("--log");
        start.arg(self.folder.path().join("log")).arg("--options").arg(options);
        run(&mut start).await;
    }

    /// Has it read its settings again.
    pub(crate) async fn reload(&self) {
        let mut reload = self.command("pg_ctl").await;
        run(reload.args(["reload", "--pgdata"]).arg(self.data())).await;
    }

    /// Writes a file that is the server's own and nobody else's.
    pub(crate) async fn write(&self, name: &str, content: &str) -> PathBuf {
        let path = self.data().join(name);
        run(self.as_its_user("touch").await.arg(&path)).await;
        run(self.as_its_user("chmod").await.arg("0600").arg(&path)).await;
        tokio::fs::write(&path, content).await.expect("written");
        path
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// As its superuser.
    pub(crate) fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    async fn command(&self, program: &str) -> Command {
        self.as_its_user(self.bin.join(program)).await
    }

    /// PostgreSQL refuses to run as root.
    pub(crate) async fn as_its_user(&self, program: impl AsRef<Path>) -> Command {
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

pub(crate) async fn run(command: &mut Command) {
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
