//! What consumers saw and did, line by line in a file: it outlives a consumer that is killed.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use portero_client::Delivery;
use serde::{Deserialize, Serialize};

use super::webhook::now;

/// One line.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    /// When, microseconds of this machine's clock.
    pub(crate) at: i64,
    /// The consumer's name.
    pub(crate) consumer: String,
    /// Which start of it: the number of its process.
    pub(crate) run: u32,
    pub(crate) what: What,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum What {
    /// The process runs, and would notice SIGTERM.
    Begun,
    /// A stream is open.
    Connected { generation: i64 },
    /// So much of what the former stream had goes on in this one, and so much does not.
    Resumed { kept: usize, stopped: usize },
    /// It is not any more.
    Disconnected { why: String },
    /// A delivery arrived.
    Delivered(Offer),
    /// The handler was called.
    Started(Offer),
    /// The gateway took a delivery back while the handler ran.
    Revoked { token: String },
    /// The handler ended with an outcome, which is not sent yet.
    Handled { token: String, receipt: String, outcome: String },
    /// The gateway's final word.
    Settled { receipt: String, outcome: String, status: String },
    /// The process ends here without warning: by itself, or killed.
    Ended,
}

/// One delivery.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Offer {
    pub(crate) token: String,
    pub(crate) receipt: String,
    pub(crate) event: String,
    pub(crate) entity: String,
    /// Generation, shard and position.
    pub(crate) place: (i64, u32, u64),
    pub(crate) attempt: u32,
}

impl Offer {
    pub(crate) fn new(delivery: &Delivery) -> Self {
        Self {
            token: hex(delivery.token()),
            receipt: delivery.receipt_id().to_owned(),
            event: delivery.event_id().to_owned(),
            entity: format!("{}/{}", delivery.tenant(), delivery.ordering_key()),
            place: (delivery.generation(), delivery.shard(), delivery.position()),
            attempt: delivery.attempt(),
        }
    }
}

/// A token as text.
pub(crate) fn hex(token: &[u8]) -> String {
    token.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Writes one consumer's history.
pub(crate) struct Pen {
    file: Mutex<File>,
    consumer: String,
    run: u32,
}

impl Pen {
    /// Goes on with a file, which need not exist.
    pub(crate) fn new(path: &Path, consumer: &str, run: u32) -> Self {
        let file = OpenOptions::new().create(true).append(true).open(path).expect("a history file");
        Self { file: Mutex::new(file), consumer: consumer.to_owned(), run }
    }

    /// Writes a line, which is in the file when this returns.
    pub(crate) fn write(&self, what: What) {
        // Under the lock, so that a file's lines stand in the order of their times.
        let mut file = self.file.lock().expect("not poisoned");
        let record = Record { at: now().as_micros(), consumer: self.consumer.clone(), run: self.run, what };
        let mut line = serde_json::to_vec(&record).expect("plain values");
        line.push(b'\n');
        file.write_all(&line).expect("written");
    }
}

/// The histories of several consumers as one, in the order of time.
#[derive(Clone, Debug, Default)]
pub(crate) struct History(pub(crate) Vec<Record>);

impl History {
    /// Reads files; those that are not there yet are empty.
    pub(crate) fn read(paths: &[PathBuf]) -> Self {
        let mut records: Vec<Record> = Vec::new();
        for path in paths {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            // A killed process may have left half a line.
            records.extend(text.lines().filter_map(|line| serde_json::from_str(line).ok()));
        }
        records.sort_by_key(|record| record.at);
        Self(records)
    }

    /// Every call of a handler, in order.
    pub(crate) fn started(&self) -> impl Iterator<Item = (&Record, &Offer)> {
        self.0.iter().filter_map(|record| {
            let What::Started(offer) = &record.what else { return None };
            Some((record, offer))
        })
    }
}

/// Reads histories while they are written.
pub(crate) struct Follower(Vec<(PathBuf, u64)>);

impl Follower {
    /// From the beginning.
    pub(crate) fn new(paths: Vec<PathBuf>) -> Self {
        Self(paths.into_iter().map(|path| (path, 0)).collect())
    }

    /// What was written since the last call; in order for each consumer.
    pub(crate) fn news(&mut self) -> Vec<Record> {
        let mut news = Vec::new();
        for (path, read) in &mut self.0 {
            let Ok(mut file) = File::open(path) else { continue };
            let mut fresh = Vec::new();
            file.seek(SeekFrom::Start(*read)).expect("a file can be read from anywhere");
            file.read_to_end(&mut fresh).expect("readable");
            let whole = fresh.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
            *read += u64::try_from(whole).expect("fits");
            let lines = fresh[..whole].split(|byte| *byte == b'\n');
            news.extend(lines.filter_map(|line| serde_json::from_slice::<Record>(line).ok()));
        }
        news
    }
}
