//! The file that holds the values of a bulk rotation: one line of JSON for each source, on the disk before its source is told.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{BufRead as _, BufReader, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use portero_types::Redacted;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::commands::exit::Failure;

/// Longest line that is read, bytes: a secret and two names.
const LINE_BYTES_MAX: usize = 16 * 1024;

/// A line.
#[derive(Serialize, Deserialize)]
struct Line<'a> {
    source: std::borrow::Cow<'a, str>,
    secret: std::borrow::Cow<'a, str>,
    value: std::borrow::Cow<'a, str>,
}

/// The open file with what it holds for one id.
pub(super) struct ValuesFile {
    file: File,
    place: String,
    secret_id: String,
    values: BTreeMap<String, Redacted<String>>,
}

impl ValuesFile {
    /// Opens it, or makes it for its owner alone. A last line without its end is what an interruption left: nobody was told its
    /// value, and it is cut off.
    pub(super) fn open(path: &Path, secret_id: &str) -> Result<Self, Failure> {
        let place = path.display().to_string();
        let failed = |error: std::io::Error| {
            Failure::usage(format!(
                "the values cannot be kept in {place}: {}",
                crate::file_error::words(&error)
            ))
        };
        let mut file =
            OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path).map_err(failed)?;
        // The name, too, is on the disk before anybody is told a value.
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if !metadata.is_file() {
            return Err(Failure::usage(format!(
                "{place} is not a regular file: the values must be on a disk"
            )));
        }
        if metadata.permissions().mode() & 0o077 != 0 {
            return Err(Failure::usage(format!("others may read {place}: take that away (chmod 600) first")));
        }
        // Held until the file is closed. Of two runs each would write a value for a source, which takes one of them.
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => Failure::usage(format!(
                "another rotation is writing to {place}: wait until it has ended, then run this again"
            )),
            TryLockError::Error(error) => failed(error),
        })?;
        file.seek(SeekFrom::Start(0)).map_err(failed)?;
        let mut reader = BufReader::new(&file);
        let (mut values, mut whole, mut number) = (BTreeMap::new(), 0_u64, 0_u32);
        loop {
            let mut line = Zeroizing::new(Vec::new());
            let read = reader.read_until(b'\n', &mut line).map_err(failed)?;
            if !line.ends_with(b"\n") {
                break;
            }
            (whole, number) = (whole + u64::try_from(read).unwrap_or(0), number + 1);
            let parsed =
                (line.len() <= LINE_BYTES_MAX).then(|| serde_json::from_slice::<Line<'_>>(&line).ok());
            let Some(Some(line)) = parsed else {
                return Err(Failure::usage(format!(
                    "line {number} of {place} is not one that this command wrote"
                )));
            };
            if line.secret == secret_id {
                values.insert(line.source.into_owned(), Redacted::new(line.value.into_owned()));
            }
        }
        file.set_len(whole).map_err(failed)?;
        Ok(Self { file, place, secret_id: secret_id.to_owned(), values })
    }

    /// The value that it holds for a source.
    pub(super) fn get(&self, source: &str) -> Option<&Redacted<String>> {
        self.values.get(source)
    }

    /// Adds a value. When this returns, it is on the disk.
    pub(super) fn add(&mut self, source: &str, value: Redacted<String>) -> Result<(), Failure> {
        let line = Line {
            source: source.into(),
            secret: self.secret_id.as_str().into(),
            value: value.expose_secret().as_str().into(),
        };
        let failed = |kind: std::io::ErrorKind| {
            Failure::failed(format!(
                "a value cannot be written to {}, so nobody was told it: {kind}",
                self.place
            ))
        };
        let mut text =
            Zeroizing::new(serde_json::to_vec(&line).map_err(|_| failed(std::io::ErrorKind::InvalidData))?);
        text.push(b'\n');
        self.file
            .write_all(&text)
            .and_then(|()| self.file.sync_all())
            .map_err(|error| failed(error.kind()))?;
        self.values.insert(source.to_owned(), value);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(text: &str) -> Redacted<String> {
        Redacted::new(text.to_owned())
    }

    #[test]
    fn what_was_added_is_there_when_the_file_is_opened_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("values.jsonl");
        let mut file = ValuesFile::open(&path, "march").expect("made");
        file.add("tenants/a/sources/x", secret("whsec_1")).expect("added");
        assert_eq!(std::fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
        drop(file);
        let value = |id: &str| {
            let file = ValuesFile::open(&path, id).expect("opened");
            file.get("tenants/a/sources/x").map(|value| value.expose_secret().clone())
        };
        assert_eq!(value("march").as_deref(), Some("whsec_1"));
        assert_eq!(value("april"), None, "another rotation");
    }

    #[test]
    fn two_runs_do_not_write_to_one_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("values.jsonl");
        let mut first = ValuesFile::open(&path, "march").expect("made");
        first.add("x", secret("whsec_1")).expect("added");
        let refused = ValuesFile::open(&path, "march").err().expect("it is in use").to_string();
        assert!(
            refused.contains("another rotation is writing to") && !refused.contains("whsec"),
            "{refused}"
        );
        drop(first);
        let second = ValuesFile::open(&path, "march").expect("it is free");
        assert_eq!(second.get("x").map(|value| value.expose_secret().as_str()), Some("whsec_1"));
    }

    #[test]
    fn a_line_that_was_cut_short_is_taken_off_and_a_strange_one_is_not_touched() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("values.jsonl");
        let mut file = ValuesFile::open(&path, "march").expect("made");
        file.add("x", secret("whsec_1")).expect("added");
        drop(file);
        let whole = std::fs::read(&path).expect("read");
        std::fs::write(&path, [&whole[..], br#"{"source":"y","sec"#].concat()).expect("cut short");
        let mut file = ValuesFile::open(&path, "march").expect("opened");
        assert!(file.get("y").is_none());
        file.add("y", secret("whsec_2")).expect("added");
        assert_eq!(std::fs::read_to_string(&path).expect("read").lines().count(), 2);
        drop(file);
        std::fs::write(&path, "hush, not JSON\n").expect("written");
        let refused = ValuesFile::open(&path, "march").err().expect("refused").to_string();
        assert!(refused.starts_with("line 1 of ") && !refused.contains("hush"), "{refused}");
    }

    #[test]
    fn a_file_that_others_may_read_takes_no_values() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(0o640)).expect("set");
        assert!(
            ValuesFile::open(file.path(), "march").err().expect("refused").to_string().contains("chmod 600")
        );
    }
}
