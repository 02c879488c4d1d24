//! A child process: signalled, killed, waited for, and gone with the test.

use std::process::{Child, Command, ExitStatus};

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

    /// Sends a signal by name.
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.0.id().to_string();
        let status = Command::new("kill").args(["-s", name, &pid]).status().expect("kill can be started");
        assert!(status.success(), "no such process");
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
