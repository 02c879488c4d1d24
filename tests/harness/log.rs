//! A gateway's log: JSON lines in a file, read while they are written.

use std::path::PathBuf;

use serde_json::Value;

/// How much of it a failed test shows, lines.
const TAIL: usize = 60;

/// A gateway's log.
pub(crate) struct Log {
    pub(crate) path: PathBuf,
}

impl Log {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes()).into_owned()
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        std::fs::read(&self.path).unwrap_or_default()
    }

    /// How often a message was logged.
    pub(crate) fn count(&self, message: &str) -> usize {
        self.lines().iter().filter(|line| line["message"] == message).count()
    }

    fn lines(&self) -> Vec<Value> {
        self.text().lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// Lines that no gateway writes, whatever happens around it: of level ERROR, and not JSON at all (such as a panic's).
    pub(crate) fn complaints(&self) -> Vec<String> {
        self.text()
            .lines()
            .filter(|line| {
                serde_json::from_str::<Value>(line)
                    .map_or(!line.trim().is_empty(), |line| line["level"] == "ERROR")
            })
            .map(str::to_owned)
            .collect()
    }

    /// Its last lines.
    pub(crate) fn tail(&self) -> String {
        let text = self.text();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(TAIL)..].join("\n")
    }
}
