//! The chain, computed again on this side.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _};
use std::path::Path;

use portero_client::v1;
use portero_store::AuditHash;
use portero_store::audit::{Broken, Chain};
use serde::Serialize;

use super::entry::Entry;
use crate::cli::{ConnectArgs, Output};
use crate::commands::connection::AdminApi;
use crate::commands::exit::Failure;
use crate::commands::present;
use crate::print;

/// Longest line of an export, bytes: two views, each of its characters escaped, and the rest.
const LINE_BYTES_MAX: u64 = 4 << 20;
/// After so many entries a line says how far it is.
const PROGRESS_EVERY: u64 = 10_000;

/// An entry that was noted down elsewhere.
type Expected = Option<(u64, AuditHash)>;

/// What the flags say of it.
pub(super) fn expected(seq: Option<u64>, hash: Option<&str>) -> Result<Expected, Failure> {
    match (seq, hash) {
        (Some(0), _) => Err(Failure::usage("--expect-seq must be the number of an entry: they begin with 1")),
        (Some(seq), Some(hash)) => match hash.parse() {
            Ok(hash) => Ok(Some((seq, hash))),
            Err(error) => Err(Failure::usage(format!("--expect-hash cannot be read: {error}"))),
        },
        _ => Ok(None),
    }
}

/// Verifies an exported file; `-` is standard input.
pub(super) fn file(path: &Path, expected: Expected, output: Output) -> anyhow::Result<()> {
    let place = path.display().to_string();
    let outcome = if path.as_os_str() == "-" {
        lines(io::stdin().lock(), expected, "standard input")
    } else {
        let unreadable = |error: io::Error| {
            Failure::usage(format!("{place} cannot be read: {}", crate::file_error::words(&error)))
        };
        lines(BufReader::new(File::open(path).map_err(unreadable)?), expected, &place)
    };
    tell(outcome, output)
}

/// Verifies the log of a gateway.
pub(super) async fn gateway(connect: &ConnectArgs, expected: Expected, output: Output) -> anyhow::Result<()> {
    let api = AdminApi::open(connect).await?;
    let mut following = Following::new(expected);
    let mut wanted =
        v1::ListAuditEntriesRequest { page_size: super::PAGE, ..v1::ListAuditEntriesRequest::default() };
    loop {
        let page = api.ask(api.calls().list_audit_entries(wanted.clone())).await?;
        let followed =
            page.audit_entries.into_iter().try_for_each(|entry| following.take(Entry::from(entry)));
        if let Err(problem) = followed {
            return tell(Err(problem), output);
        }
        if page.next_page_token.is_empty() {
            // Read before the page, so the page reaches at least as far.
            let head = page.head_hash.parse().ok().map(|hash| (page.head_seq, hash));
            return tell(following.finish(head.filter(|(seq, _)| *seq > 0)), output);
        }
        if page.next_page_token == wanted.page_token {
            return Err(Failure::failed("the gateway sent the same page twice; nothing is proved").into());
        }
        wanted.page_token = page.next_page_token;
    }
}

/// Why a log does not hold.
#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error("{0}")]
    Broken(#[from] Broken),
    #[error("entry {seq} was altered: its {field} cannot be what was written")]
    Unreadable { seq: u64, field: &'static str },
    #[error("{place}, line {line}: it is no entry of an audit log ({why})")]
    NoEntry { place: String, line: u64, why: String },
    #[error(transparent)]
    Failed(#[from] Failure),
}

impl Problem {
    /// The first entry that is wrong.
    const fn seq(&self) -> Option<u64> {
        match self {
            Self::Broken(broken) => Some(match *broken {
                Broken::Missing { from, .. } => from,
                Broken::CutOff { last, .. } => last + 1,
                Broken::Repeated { expected, .. } => expected,
                Broken::Altered { seq } | Broken::Unlinked { seq, .. } | Broken::Rewritten { seq } => seq,
            }),
            Self::Unreadable { seq, .. } => Some(*seq),
            Self::NoEntry { .. } | Self::Failed(_) => None,
        }
    }
}

/// Follows the chain and says how far it is.
struct Following {
    chain: Chain,
}

impl Following {
    const fn new(expected: Expected) -> Self {
        Self { chain: Chain::new(expected) }
    }

    fn take(&mut self, entry: Entry) -> Result<(), Problem> {
        let seq = entry.seq;
        let entry = entry.read().map_err(|field| Problem::Unreadable { seq, field })?;
        self.chain.follow(&entry)?;
        if seq.is_multiple_of(PROGRESS_EVERY) {
            print::note(&format!("{seq} entries hold so far"));
        }
        Ok(())
    }

    /// `head` is what a gateway says its last entry is.
    fn finish(self, head: Expected) -> Result<(u64, AuditHash), Problem> {
        let last = self.chain.finish()?;
        match head {
            Some((seq, _)) if seq > last.0 => Err(Broken::CutOff { last: last.0, expected: seq }.into()),
            Some((seq, hash)) if seq == last.0 && hash != last.1 => Err(Broken::Rewritten { seq }.into()),
            Some(_) | None => Ok(last),
        }
    }
}

fn lines(mut input: impl BufRead, expected: Expected, place: &str) -> Result<(u64, AuditHash), Problem> {
    let mut following = Following::new(expected);
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let read = input.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
        let unreadable = |error: io::Error| {
            Failure::usage(format!("{place} cannot be read: {}", crate::file_error::words(&error)))
        };
        if read.map_err(unreadable)? == 0 {
            break;
        }
        let why = if line.ends_with(b"\n") || (line.len() as u64) < LINE_BYTES_MAX {
            match serde_json::from_slice(&line) {
                Ok(entry) => {
                    following.take(entry)?;
                    continue;
                }
                Err(error) => present::clean(&error.to_string()).into_owned(),
            }
        } else {
            format!("longer than {LINE_BYTES_MAX} bytes")
        };
        return Err(Problem::NoEntry { place: place.to_owned(), line: number, why });
    }
    following.finish(None)
}

fn tell(outcome: Result<(u64, AuditHash), Problem>, output: Output) -> anyhow::Result<()> {
    #[derive(Serialize)]
    struct Verdict {
        holds: bool,
        last_seq: Option<u64>,
        last_hash: Option<String>,
        first_bad_seq: Option<u64>,
        problem: Option<String>,
    }
    match outcome {
        Ok((seq, hash)) => match output {
            Output::Json => print::json(&Verdict {
                holds: true,
                last_seq: Some(seq),
                last_hash: Some(hash.to_string()),
                first_bad_seq: None,
                problem: None,
            }),
            Output::Text if seq == 0 => print::line("the log is empty"),
            Output::Text => {
                print::line(&format!("the log holds: entries 1 to {seq}; the last one's hash is {hash}"))
            }
        },
        Err(Problem::Failed(failure)) => Err(failure.into()),
        Err(problem) => {
            if output == Output::Json {
                print::json(&Verdict {
                    holds: false,
                    last_seq: None,
                    last_hash: None,
                    first_bad_seq: problem.seq(),
                    problem: Some(problem.to_string()),
                })?;
            }
            Err(Failure::failed(format!("the log does not hold: {problem}")).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::entry::tests::exported;
    use super::*;

    fn verdict(text: &str, expected: Expected) -> Result<u64, String> {
        lines(text.as_bytes(), expected, "the file")
            .map(|(seq, _)| seq)
            .map_err(|problem| problem.to_string())
    }

    fn text(entries: &[Entry]) -> String {
        entries.iter().map(|entry| serde_json::to_string(entry).expect("serialises") + "\n").collect()
    }

    #[test]
    fn an_export_as_it_was_written_holds() {
        let entries = exported(4);
        assert_eq!(verdict(&text(&entries), None), Ok(4));
        assert_eq!(verdict(text(&entries).trim_end(), None), Ok(4));
        assert_eq!(verdict("", None), Ok(0));
        let noted = Some((4, entries[3].hash.parse().expect("a hash")));
        assert_eq!(verdict(&text(&entries), noted), Ok(4));
    }

    #[test]
    fn a_removed_or_altered_line_is_named() {
        let entries = exported(4);
        let removed = text(&[entries[0].clone(), entries[2].clone(), entries[3].clone()]);
        assert_eq!(verdict(&removed, None), Err("entries 2 to 2 are missing".to_owned()));
        let altered = text(&entries).replacen("sources/s2", "sources/s9", 1);
        let problem = verdict(&altered, None).expect_err("altered");
        assert!(problem.starts_with("entry 3 was altered"), "{problem}");
        let noted = Some((4, entries[3].hash.parse().expect("a hash")));
        let problem = verdict(&text(&entries[..3]), noted).expect_err("cut off");
        assert!(problem.contains("ends with entry 3") && problem.contains("entry 4"), "{problem}");
    }

    #[test]
    fn what_is_no_entry_is_named_by_its_line() {
        let entries = exported(2);
        for odd in ["no JSON", "{}", "{\"seq\":2,\"more\":true}", "\u{0}", "[]"] {
            let problem = verdict(&format!("{}{odd}\n", text(&entries[..1])), None).expect_err("odd");
            assert!(problem.starts_with("the file, line 2: it is no entry"), "{problem}");
        }
        let more = text(&entries[..1]).replacen('{', "{\"more\":1,", 1);
        let problem = verdict(&more, None).expect_err("a field that no hash covers");
        assert!(problem.contains("line 1"), "{problem}");
        let long = "x".repeat(5 << 20);
        assert!(verdict(&long, None).expect_err("too long").contains("longer than"));
    }

    #[test]
    fn what_is_expected_is_given_whole() {
        let hash = "0".repeat(64);
        assert_eq!(expected(None, None), Ok(None));
        assert_eq!(expected(Some(1), Some(&hash)), Ok(Some((1, AuditHash::GENESIS))));
        assert!(expected(Some(0), Some(&hash)).is_err());
        let error = expected(Some(1), Some("5f")).expect_err("too short");
        assert!(error.to_string().contains("64 hexadecimal digits"), "{error}");
    }

    #[test]
    fn a_gateway_that_hides_the_end_of_its_log_is_noticed() {
        let entries = exported(3);
        let mut following = Following::new(None);
        for entry in &entries[..2] {
            following.take(entry.clone()).expect("holds");
        }
        let head = Some((3, entries[2].hash.parse().expect("a hash")));
        let problem = following.finish(head).expect_err("cut off");
        assert_eq!(problem.seq(), Some(3));
    }
}
