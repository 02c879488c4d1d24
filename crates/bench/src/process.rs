//! Processor time and memory of processes, from /proc (proc(5)). Where there is none, nothing is known.

use std::time::Duration;

/// Clock ticks per second in /proc, the same on every Linux that Rust runs on.
const TICKS_PER_SECOND: u64 = 100;

/// A process as it is now.
pub(crate) struct Process {
    pub(crate) id: u32,
    pub(crate) parent: u32,
    pub(crate) name: String,
    /// Used by itself.
    pub(crate) own: Duration,
    /// Used by children that ended and were waited for.
    pub(crate) ended_children: Duration,
}

impl Process {
    pub(crate) fn read(id: u32) -> Option<Self> {
        Self::parse(id, &std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?)
    }

    /// Every process of this machine.
    pub(crate) fn all() -> Option<Vec<Self>> {
        let entries = std::fs::read_dir("/proc").ok()?.flatten();
        let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        Some(ids.filter_map(Self::read).collect())
    }

    /// Memory that a process has in use now (resident set), bytes.
    pub(crate) fn resident_bytes(id: u32) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1024)
    }

    fn parse(id: u32, stat: &str) -> Option<Self> {
        // The name stands in parentheses and may hold anything, parentheses too.
        let (head, tail) = stat.rsplit_once(')')?;
        let name = head.split_once('(')?.1.to_owned();
        let fields: Vec<&str> = tail.split_whitespace().collect();
        let ticks = |field: usize| fields.get(field)?.parse::<u64>().ok();
        let time = |ticks: u64| Duration::from_millis(ticks * (1_000 / TICKS_PER_SECOND));
        Some(Self {
            id,
            parent: fields.get(1)?.parse().ok()?,
            name,
            own: time(ticks(11)? + ticks(12)?),
            ended_children: time(ticks(13)? + ticks(14)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_spaces_and_parentheses_shifts_no_field() {
        let stat = "7 (a b) c) S 3 7 7 0 -1 4194560 1 2 3 4 150 50 20 10 20 0 1 0 99 0 0";
        let process = Process::parse(7, stat).expect("well-formed");
        assert_eq!((process.parent, process.name.as_str()), (3, "a b) c"));
        assert_eq!(
            (process.own, process.ended_children),
            (Duration::from_secs(2), Duration::from_millis(300))
        );
    }
}
