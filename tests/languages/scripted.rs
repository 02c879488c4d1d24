//! A consumer of examples/ as a process in its test mode: the body of each event says what becomes of it, standard input gives
//! orders, standard output tells what happens.

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use clap::Parser as _;
use serde_json::Value;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Child;

use super::ON_RECORD;
use crate::harness::{Site, eventually, unique};

/// How long a start may take on a busy machine.
const START: Duration = Duration::from_secs(60);
/// How long a gentle end may take.
const END: Duration = Duration::from_secs(60);
/// Where a consumer in Rust finds its arguments.
const ARGUMENTS: &str = "PORTERO_TEST_RUST_CONSUMER";
/// The test that a consumer in Rust runs.
const ENTRY: &str = "languages::scripted::a_consumer_in_rust_runs_in_this_program";

/// What a consumer is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Language {
    Rust,
    Python,
    Node,
}

/// A settlement's final word.
#[derive(Clone, Debug)]
pub(super) struct Settled {
    pub(super) event_id: String,
    pub(super) outcome: String,
    pub(super) status: String,
}

/// A running consumer. It ends with the test.
pub(super) struct Scripted {
    child: Child,
    out: PathBuf,
    errors: PathBuf,
}

impl Scripted {
    /// Starts one with a token for the subscription that the arguments name first, and waits until its stream is open.
    pub(super) async fn start(language: Language, site: &Site, url: &str, arguments: &[&str]) -> Self {
        let consumer = Self::launch(language, site, url, arguments[1], arguments);
        consumer.count("connected", 1, START).await;
        consumer
    }

    /// Starts one with a token for a subscription.
    pub(super) fn launch(
        language: Language,
        site: &Site,
        url: &str,
        subscription: &str,
        arguments: &[&str],
    ) -> Self {
        let name = unique("consumer");
        let token = site.path(&format!("{name}.token"));
        std::fs::write(&token, site.consumer_token(subscription)).expect("written");
        let all = [&["--scripted", "--endpoint", url, "--instance", &name], arguments].concat();
        let mut command = language.command(site, &all);
        let (out, errors) = (site.path(&format!("{name}.out")), site.path(&format!("{name}.errors")));
        command.env("PORTERO_TOKEN_FILE", token).env_remove("PORTERO_TOKEN").stdin(Stdio::piped());
        command.stdout(File::create(&out).expect("a file")).stderr(File::create(&errors).expect("a file"));
        let mut command = tokio::process::Command::from(command);
        let child = command.kill_on_drop(true).spawn().expect("the consumer starts");
        Self { child, out: out.into(), errors: errors.into() }
    }

    /// Everything that it told so far.
    pub(super) fn lines(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(&self.out).unwrap_or_default();
        // The last line may be half written, and a program that runs as a test writes lines of another kind, too.
        text.lines().filter_map(|line| serde_json::from_str(&line[line.find('{')?..]).ok()).collect()
    }

    fn of(&self, what: &str) -> Vec<Value> {
        self.lines().into_iter().filter(|line| line["what"] == what).collect()
    }

    /// How often something happened to an event.
    pub(super) fn count_of(&self, what: &str, event_id: &str) -> usize {
        self.of(what).iter().filter(|line| line["event_id"] == event_id).count()
    }

    /// Waits until something has happened so often.
    pub(super) async fn count(&self, what: &str, count: usize, within: Duration) {
        let enough = async || (self.of(what).len() >= count).then_some(());
        eventually(&format!("{count} × {what}"), within, enough).await;
    }

    /// Waits until something has happened to an event so often.
    pub(super) async fn has(&self, what: &str, event_id: &str, count: usize, within: Duration) {
        let enough = async || (self.count_of(what, event_id) >= count).then_some(());
        eventually(&format!("{count} × {what} {event_id}"), within, enough).await;
    }

    /// Waits until the acks of so many different events are on record.
    pub(super) async fn acked(&self, count: usize, within: Duration) {
        eventually(&format!("{count} events are acked"), within, async || {
            let mut events: Vec<_> =
                self.settled().into_iter().filter(Settled::is_ack).map(|settled| settled.event_id).collect();
            events.sort_unstable();
            events.dedup();
            (events.len() >= count).then_some(())
        })
        .await;
    }

    /// The deliveries of an entity, each with its attempt.
    pub(super) fn offers_of(&self, ordering_key: &str) -> Vec<(String, u64)> {
        let lines = self.of("delivered").into_iter();
        lines.filter(|line| line["ordering_key"] == ordering_key).map(|line| offer(&line)).collect()
    }

    /// All deliveries, each with its attempt.
    pub(super) fn delivered(&self) -> Vec<(String, u64)> {
        self.of("delivered").iter().map(offer).collect()
    }

    /// All settlements that have their final word.
    pub(super) fn settled(&self) -> Vec<Settled> {
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        let settled = |line: &Value| Settled {
            event_id: text(&line["event_id"]),
            outcome: text(&line["outcome"]),
            status: text(&line["status"]),
        };
        self.of("settled").iter().map(settled).collect()
    }

    /// The time between the outcome before an event's `n`th delivery and that delivery.
    pub(super) fn between(&self, event_id: &str, n: usize) -> Duration {
        let at = |what: &str, n: usize| {
            let mut lines = self.of(what).into_iter().filter(|line| line["event_id"] == event_id);
            lines.nth(n - 1).expect("it happened")["ms"].as_u64().expect("a time")
        };
        Duration::from_millis(at("delivered", n) - at("handled", n - 1))
    }

    /// The most deliveries that had no status at a time, as the consumer saw it.
    pub(super) fn most_unsettled(&self) -> usize {
        let (mut now, mut most) = (0_usize, 0);
        for line in self.lines() {
            match line["what"].as_str() {
                Some("delivered") => now += 1,
                // The gateway may know of an outcome before we know that it knows.
                Some("handled") => now -= 1,
                _ => {}
            }
            most = most.max(now);
        }
        most
    }

    /// Fails when an event came after its ack was on record, or when an outcome was lost.
    pub(super) fn check_promises(&self) {
        let mut recorded: HashMap<String, bool> = HashMap::new();
        for line in self.lines() {
            let event_id = line["event_id"].as_str().unwrap_or_default().to_owned();
            match line["what"].as_str() {
                Some("settled") if line["outcome"] == "ack" => {
                    let status = line["status"].as_str().expect("a status");
                    if ON_RECORD.contains(&status) {
                        // When another delivery had begun, that one may still arrive.
                        recorded.entry(event_id).or_insert(status == "DURABLE_LATE");
                    }
                }
                Some("delivered") => {
                    if let Some(owes_one) = recorded.get_mut(&event_id) {
                        assert!(std::mem::take(owes_one), "it came again after its ack: {line}");
                    }
                }
                Some("lost") => panic!("an outcome was lost: {line}"),
                _ => {}
            }
        }
    }

    /// Gives an order: what becomes of an event that waits to be told.
    pub(super) async fn tell(&mut self, event_id: &str, step: &str) {
        let orders = self.child.stdin.as_mut().expect("its input is open");
        orders.write_all(format!("{event_id} {step}\n").as_bytes()).await.expect("it listens");
        orders.flush().await.expect("it listens");
    }

    /// Sends a signal by name.
    pub(super) fn signal(&self, name: &str) {
        let pid = self.child.id().expect("it runs").to_string();
        let status = Command::new("kill").args(["-s", name, &pid]).status().expect("kill can be started");
        assert!(status.success(), "no such process");
    }

    /// Waits for its end.
    pub(super) async fn ended(&mut self, within: Duration) -> ExitStatus {
        tokio::time::timeout(within, self.child.wait()).await.expect("it ends in time").expect("a status")
    }

    /// Asks it to stop, and waits for its end.
    pub(super) async fn terminate(mut self) -> ExitStatus {
        self.signal("TERM");
        self.ended(END).await
    }
}

impl Settled {
    fn is_ack(&self) -> bool {
        self.outcome == "ack" && ON_RECORD.contains(&self.status.as_str())
    }
}

impl Drop for Scripted {
    #[expect(clippy::print_stderr, reason = "what a failed test's consumer said is what its reader needs")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            for file in [&self.out, &self.errors] {
                let text = std::fs::read_to_string(file).unwrap_or_default();
                let lines: Vec<_> = text.lines().collect();
                eprintln!("--- the end of {}:", file.display());
                eprintln!("{}", lines[lines.len().saturating_sub(60)..].join("\n"));
            }
        }
    }
}

fn offer(line: &Value) -> (String, u64) {
    let event_id = line["event_id"].as_str().expect("an event").to_owned();
    (event_id, line["attempt"].as_u64().expect("an attempt"))
}

impl Language {
    fn command(self, site: &Site, arguments: &[&str]) -> Command {
        match self {
            Self::Rust => rust(arguments),
            Self::Python => python(site, arguments),
            Self::Node => node(site, arguments),
        }
    }
}

/// A path in the repository.
fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// This very test program, started again as one of its tests, so that it is built with it.
fn rust(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
    command.args(["--exact", ENTRY, "--nocapture", "--quiet"]);
    command.env(ARGUMENTS, serde_json::to_string(arguments).expect("plain values"));
    command
}

/// The example in Python with stubs that are generated from the protocol as it is now.
fn python(site: &Site, arguments: &[&str]) -> Command {
    let python = tool("PORTERO_TEST_PYTHON");
    let stubs = site.path("python-stubs");
    if !Path::new(&stubs).exists() {
        std::fs::create_dir(&stubs).expect("a folder");
        let mut generate = Command::new(&python);
        generate.args(["-m", "grpc_tools.protoc", "--proto_path=proto"]).current_dir(repository(""));
        generate.args([format!("--python_out={stubs}"), format!("--grpc_python_out={stubs}")]);
        run(generate.arg("portero/v1/subscriber_service.proto"));
    }
    let mut command = Command::new(python);
    command.arg(repository("examples/python-consumer/main.py")).args(arguments);
    command.env("PYTHONPATH", stubs).env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

/// A copy of the example in Node beside its packages: that is where Node looks for them.
fn node(site: &Site, arguments: &[&str]) -> Command {
    let folder = site.path("node-consumer");
    if !Path::new(&folder).exists() {
        std::fs::create_dir(&folder).expect("a folder");
        let mut copy = Command::new("cp");
        let parts = ["main.js", "scripted.js", "package.json", "src"];
        copy.arg("-R").args(parts.map(|part| repository("examples/node-consumer").join(part)));
        run(copy.arg(&folder));
        let packages = tool("PORTERO_TEST_NODE_MODULES");
        std::os::unix::fs::symlink(packages, Path::new(&folder).join("node_modules")).expect("a link");
    }
    let mut command = Command::new("node");
    command.arg(format!("{folder}/main.js")).arg("--proto").arg(repository("proto")).args(arguments);
    command
}

fn run(command: &mut Command) {
    let output = command.output().expect("it can be started");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?} ended with {}: {said}", output.status);
}

#[expect(clippy::disallowed_methods, reason = "the environment is where scripts/test says what it installed")]
fn tool(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| {
        panic!("{name} is not set: run the tests by scripts/test, which installs what they need")
    })
}

/// The main function of a consumer in Rust. In a test run, where nobody gave it arguments, it does nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_in_rust_runs_in_this_program() {
    #[expect(clippy::disallowed_methods, reason = "the parent process says through it what to do")]
    let Ok(arguments) = std::env::var(ARGUMENTS) else { return };
    let arguments: Vec<String> = serde_json::from_str(&arguments).expect("a list");
    let arguments =
        portero_example_consumer::Arguments::parse_from(std::iter::once(String::new()).chain(arguments));
    portero_example_consumer::run(arguments).await.expect("it is not refused");
}
