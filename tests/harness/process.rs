//! A child process: signalled, killed, waited for, and gone with the test.

use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

/// How long a signal that stops it may take.
const STOPS_WITHIN: Duration = Duration::from_secs(10);

/// A running process. Dropping it kills it.
pub(crate) struct Process(Child);

impl Process {
    /// Starts it.
    pub(crate) fn spawn(command: &mut Command) -> Self {
        Self(command.spawn().expect("the program starts"))
    }

    /// Its number.
    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    /// Ends it without warning (SIGKILL).
    pub(crate) fn kill(mut self) {
        self.0.kill().expect("killed");
        self.0.wait().expect("ended");
    }

    /// Sends a signal by name. `STOP` is in effect when this returns: on a busy machine its threads may go on for a while after
    /// the signal was sent.
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.0.id().to_string();
        let status = Command::new("kill").args(["-s", name, &pid]).status().expect("kill can be started");
        assert!(status.success(), "no such process");
        let deadline = Instant::now() + STOPS_WITHIN;
        while name == "STOP" && !self.is_stopped() {
            assert!(Instant::now() < deadline, "it goes on after SIGSTOP");
            std::thread::yield_now();
        }
    }

    /// Whether none of its threads runs. A thread that ends meanwhile has no state any more.
    fn is_stopped(&self) -> bool {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.0.id())).expect("it runs");
        threads.filter_map(Result::ok).all(|thread| {
            let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
            // The name before it is in brackets and may hold anything.
            stat.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with('T'))
        })
    }

    /// Its exit status, once it has ended.
    pub(crate) fn exited(&mut self) -> Option<ExitStatus> {
        self.0.try_wait().expect("a child")
    }

    /// How much memory it has in use now, bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id())).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a resident size");
        let kib: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
        kib * 1024
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
