//! `portero dev`, by the commands that it prints itself.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::harness::{Site, canaries, eventually, output};

const PATIENCE: Duration = Duration::from_secs(60);

/// A running `portero dev` and what it printed.
struct Dev {
    folder: PathBuf,
    child: Child,
    printed: String,
}

impl Dev {
    /// Starts it on the folder's data and free ports, and waits for its last line.
    async fn start(folder: &TempDir, run: &str) -> Self {
        let folder = folder.path().to_owned();
        let output = folder.join(format!("{run}.out"));
        let file = |name: &str| File::create(folder.join(name)).expect("a file");
        let mut command = Site::program();
        command.current_dir(&folder).args(["dev", "--data", "data"]);
        command.args(["--edge-port", "0", "--grpc-port", "0", "--management-port", "0"]);
        command.stdout(file(&format!("{run}.out"))).stderr(file(&format!("{run}.log")));
        let mut child = command.spawn().expect("the program starts");
        let log = folder.join(format!("{run}.log"));
        let printed = eventually("it prints what to do", PATIENCE, async || {
            if let Some(status) = child.try_wait().expect("a child") {
                panic!("it ended with {status}: {}", std::fs::read_to_string(&log).unwrap_or_default());
            }
            let text = std::fs::read_to_string(&output).unwrap_or_default();
            text.contains("Ctrl-C stops it").then_some(text)
        })
        .await;
        Self { folder, child, printed }
    }

    /// The printed command that contains `words`, with further arguments.
    fn command(&self, words: &str, more: &[&str]) -> Command {
        let program = env!("CARGO_BIN_EXE_portero");
        let line = self.printed.lines().find(|line| line.contains(program) && line.contains(words));
        let line = line.unwrap_or_else(|| panic!("no command with {words:?} in:\n{}", self.printed));
        let line = line.split(" # ").next().unwrap_or_default();
        let mut command = Site::program();
        command.current_dir(&self.folder).args(line.split_whitespace().skip(1)).args(more);
        command
    }

    fn run(&self, words: &str, more: &[&str]) -> Output {
        output(&mut self.command(words, more))
    }

    /// The answers of `send`, as `status outcome`.
    fn send(&self, words: &str, more: &[&str]) -> (ExitStatus, Vec<String>) {
        let output = self.run(words, &[more, &["--output", "json"]].concat());
        let answers = json_lines(&output)
            .iter()
            .map(|answer| format!("{} {}", answer["status"], answer["outcome"].as_str().unwrap_or_default()))
            .collect();
        (output.status, answers)
    }

    /// The next `count` events that `tail` shows.
    async fn tail(&self, count: usize) -> Vec<Value> {
        let count = count.to_string();
        let mut command = self.command(" tail demo", &["-n", &count, "--output", "json"]);
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program runs");
        eventually("tail has seen enough", PATIENCE, async || child.try_wait().expect("a child")).await;
        let output = child.wait_with_output().expect("its output");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        json_lines(&output)
    }

    /// Stops it as Ctrl-C does.
    async fn stop(mut self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", "INT", &pid]).status().expect("kill runs").success());
        let status = eventually("it stops", PATIENCE, async || self.child.try_wait().expect("a child")).await;
        assert_eq!(status.code(), Some(0), "{status}");
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            return;
        }
        // What it prints for its user holds secrets; its log never does.
        canaries::plant_files(&self.folder.join("data"));
        for secret in self.printed.split(|letter: char| !letter.is_ascii_graphic()) {
            if secret.starts_with("whsec_") {
                canaries::plant_secret(secret);
            }
        }
        for entry in std::fs::read_dir(&self.folder).expect("a folder").flatten() {
            if entry.file_name().to_string_lossy().ends_with(".log") {
                canaries::assert_none("the log", std::fs::read(entry.path()).expect("a log"));
            }
        }
    }
}

fn json_lines(output: &Output) -> Vec<Value> {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("not JSON: {line}")))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_printed_commands_do_what_they_say_and_a_restart_keeps_everything() {
    let folder = TempDir::new().expect("a folder");
    let dev = Dev::start(&folder, "first").await;
    for words in ["http://127.0.0.1:", "/in/", "whsec_", "/metrics"] {
        assert!(dev.printed.contains(words), "{words} is missing in:\n{}", dev.printed);
    }

    for preset in [" send stripe", " send github"] {
        let (status, answers) = dev.send(preset, &[]);
        assert!(status.success());
        assert_eq!(answers, ["200 accepted"]);
    }
    let mut providers: Vec<String> = dev
        .tail(2)
        .await
        .iter()
        .map(|event| event["provider"].as_str().unwrap_or_default().to_owned())
        .collect();
    providers.sort();
    assert_eq!(providers, ["github", "stripe"]);

    let (status, mut answers) = dev.send(" send stripe -n 5", &[]);
    assert!(status.success());
    answers.sort();
    assert_eq!(answers, ["200 accepted", "200 duplicate", "200 duplicate", "200 duplicate", "200 duplicate"]);
    assert_eq!(dev.tail(1).await.len(), 1);

    let stale = dev.run(" send stripe --ago 10m", &["--output", "json"]);
    assert!(!stale.status.success());
    let answer = &json_lines(&stale)[0];
    assert_eq!(
        (answer["status"].as_u64(), answer["reason"].as_str()),
        (Some(401), Some("TIMESTAMP_TOO_OLD"))
    );

    // An event that nobody took, and one that was taken.
    assert_eq!(dev.send(" send stripe", &["--id", "evt_taken"]).1, ["200 accepted"]);
    assert_eq!(dev.tail(1).await[0]["event_id"], "evt_taken");
    assert_eq!(dev.send(" send stripe", &["--id", "evt_kept"]).1, ["200 accepted"]);
    dev.stop().await;

    let dev = Dev::start(&folder, "second").await;
    for id in ["evt_taken", "evt_kept"] {
        assert_eq!(dev.send(" send stripe", &["--id", id]).1, ["200 duplicate"], "{id} is still known");
    }
    assert_eq!(dev.send(" send stripe", &["--id", "evt_new"]).1, ["200 accepted"]);
    let events = dev.tail(2).await;
    let ids: Vec<&str> = events.iter().filter_map(|event| event["event_id"].as_str()).collect();
    assert_eq!(ids, ["evt_kept", "evt_new"], "what was taken does not come again");
    dev.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_signed_request_printed_as_a_curl_command_is_accepted() {
    let folder = TempDir::new().expect("a folder");
    let dev = Dev::start(&folder, "curl").await;
    let printed = dev.run(" send github", &["--curl"]);
    assert!(printed.status.success());
    let script = folder.path().join("request.sh");
    std::fs::write(&script, &printed.stdout).expect("written");
    let Ok(output) = Command::new("sh").arg(&script).output() else { panic!("a shell runs") };
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let missing = String::from_utf8_lossy(&output.stderr).contains("curl: not found");
    assert!(missing || said.contains("\"status\":\"accepted\""), "{said}");
    dev.stop().await;
}
