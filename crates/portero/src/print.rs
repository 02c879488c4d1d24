//! Standard output and standard error: the one place that writes to them.

use std::io::{self, ErrorKind, Write as _};

use serde::Serialize;

/// Prints a line to standard output. When its reader is gone (`portero … | head`), the process ends quietly.
///
/// # Errors
/// When standard output cannot be written for another reason, such as a full disk.
pub(crate) fn line(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    written(writeln!(out, "{text}").and_then(|()| out.flush()))
}

/// Prints a text that brings its own line ends.
///
/// # Errors
/// As [`line()`].
pub(crate) fn raw(text: &[u8]) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    written(out.write_all(text).and_then(|()| out.flush()))
}

/// Prints one JSON value as one line.
///
/// # Errors
/// As [`line()`].
pub(crate) fn json(value: &impl Serialize) -> anyhow::Result<()> {
    line(&serde_json::to_string(value)?)
}

/// Prints a line for people to standard error. Nobody depends on it: when it cannot be written, that is no failure.
pub(crate) fn note(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Prints what went wrong to standard error.
pub(crate) fn error(text: &str) {
    note(text);
}

fn written(result: io::Result<()>) -> anyhow::Result<()> {
    match result {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => Err(anyhow::anyhow!("standard output cannot be written: {}", error.kind())),
    }
}
