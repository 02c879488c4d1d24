//! What the gateways of one test share: a database, a keyring, an issuer's key.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use tempfile::TempDir;

use super::services::{postgres_url, psql};
use super::{canaries, unique};

/// Which store a test runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Sqlite,
    Postgres,
}

/// A database, a keyring and an issuer's key, all gone at the end.
pub(crate) struct Site {
    pub(crate) kind: Kind,
    folder: TempDir,
    database: String,
}

impl Site {
    /// With an empty database.
    pub(crate) fn new(kind: Kind) -> Arc<Self> {
        let folder = TempDir::new().expect("a folder");
        let database = unique("portero_e2e");
        if kind == Kind::Postgres {
            psql(&postgres_url(), &format!("CREATE DATABASE {database}"));
        }
        let site = Self { kind, folder, database };
        let keyring = site.path("keyring.json");
        site.succeed(&["keyring", "generate", &keyring]);
        site.succeed(&["token", "jwks", "--create-key", "--key", &site.path("issuer.pem")]);
        canaries::plant_files(&site.folder_path());
        Arc::new(site)
    }

    /// A file of this site.
    pub(crate) fn path(&self, name: &str) -> String {
        self.folder_path().join(name).display().to_string()
    }

    /// Copies files to where they outlive the test, for a person who looks for the cause of a failure; the folder's path.
    pub(crate) fn keep(&self, files: &[PathBuf]) -> String {
        let folder = std::env::temp_dir().join(&self.database);
        std::fs::create_dir_all(&folder).expect("a folder");
        for file in files {
            std::fs::copy(file, folder.join(file.file_name().expect("a name"))).expect("copied");
        }
        folder.display().to_string()
    }

    pub(crate) fn folder_path(&self) -> PathBuf {
        self.folder.path().to_owned()
    }

    /// The database's URL, as the gateway is told it.
    pub(crate) fn database_url(&self) -> String {
        match self.kind {
            Kind::Sqlite => format!("sqlite:{}", self.path("data")),
            Kind::Postgres => self.postgres_url_at(None),
        }
    }

    /// The Postgres database's URL, by way of another port of this machine.
    pub(crate) fn postgres_url_at(&self, port: Option<u16>) -> String {
        let server = postgres_url();
        let (before, _) = server.rsplit_once('/').expect("a URL with a database");
        let (user, host) = before.rsplit_once('@').expect("a URL with a user");
        let host = port.map_or(host.to_owned(), |port| format!("127.0.0.1:{port}"));
        format!("{user}:{}@{host}/{}", canaries::DATABASE_PASSWORD, self.database)
    }

    /// Where Postgres listens, `host:port`.
    pub(crate) fn postgres_address() -> String {
        let server = postgres_url();
        let (_, rest) = server.rsplit_once('@').expect("a URL with a user");
        rest.split('/').next().expect("a host").to_owned()
    }

    /// Asks the database directly: for what a test must know about rows while the gateway cannot answer.
    pub(crate) fn query(&self, statement: &str) -> String {
        assert_eq!(self.kind, Kind::Postgres, "only Postgres can be asked beside the gateway");
        psql(&self.database_url(), statement)
    }

    /// The program, without any settings from this process's environment.
    pub(crate) fn program() -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_portero"));
        command.env_clear().stdin(Stdio::null());
        command
    }

    /// Runs a command to its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Self::program();
        command.current_dir(self.folder.path()).args(arguments);
        output(&mut command)
    }

    /// Runs a command that must succeed; gives its standard output.
    pub(crate) fn succeed(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?} ended with {}: {said}", output.status);
        String::from_utf8(output.stdout).expect("text").trim().to_owned()
    }

    /// A token, by `portero token mint` with these arguments.
    pub(crate) fn token(&self, arguments: &[&str]) -> String {
        let key = self.path("issuer.pem");
        let token = self.succeed(&[&["token", "mint", "--key", &key], arguments].concat());
        canaries::plant_token(&token);
        token
    }

    /// A token of an administrator of everything.
    pub(crate) fn admin_token(&self) -> String {
        self.token(&["--role", "platform-admin"])
    }

    /// A token of a consumer of one subscription.
    pub(crate) fn consumer_token(&self, subscription: &str) -> String {
        self.token(&["--role", "consumer", "--subscription", subscription])
    }
}

/// Runs the program to its end. What it complains of is searched; what it answers may be a secret, when it succeeds.
pub(crate) fn output(command: &mut Command) -> Output {
    let output = command.output().expect("the program runs");
    if let Some(folder) = command.get_current_dir() {
        canaries::plant_files(folder);
    }
    canaries::plant_answer(&output.stdout);
    canaries::assert_none("the standard error of a command", &output.stderr);
    if !output.status.success() {
        canaries::assert_none("the standard output of a command that failed", &output.stdout);
    }
    output
}

impl Drop for Site {
    fn drop(&mut self) {
        if self.kind == Kind::Postgres && !std::thread::panicking() {
            psql(&postgres_url(), &format!("DROP DATABASE {} WITH (FORCE)", self.database));
        }
    }
}

/// A port of 127.0.0.1 that nobody listens on, below the range of outgoing connections; no other test of this process gets
/// the same.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let begin = u16::try_from(std::process::id() % 9_000).expect("below 9,000");
    loop {
        let port = 10_000 + (begin + NEXT.fetch_add(1, Ordering::Relaxed)) % 9_000;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
