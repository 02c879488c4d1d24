//! How results look: aligned text for people, one JSON object a line for programs.

use std::borrow::Cow;
use std::marker::PhantomData;
use std::time::{Duration, UNIX_EPOCH};

use portero_types::Timestamp;
use serde::Serialize;

use crate::cli::Output;
use crate::print;

/// The last moment that RFC 3339 can write.
const LAST: Timestamp = Timestamp::from_micros(253_402_300_799_999_999);

/// Something that a command shows. Its serialised form is what `--output json` promises.
pub(crate) trait Record: Serialize {
    /// Heads of its columns in a list.
    const COLUMNS: &'static [&'static str];
    /// Its cells in a list, one for each column.
    fn row(&self) -> Vec<String>;
    /// Everything about it, line by line.
    fn details(&self) -> Vec<(&'static str, String)>;
}

/// Shows one record.
pub(crate) fn one(output: Output, record: &impl Record) -> anyhow::Result<()> {
    match output {
        Output::Json => print::json(record),
        Output::Text => print::raw(pairs(&record.details()).as_bytes()),
    }
}

/// Says that something is gone.
pub(crate) fn deleted(output: Output, name: &str) -> anyhow::Result<()> {
    #[derive(Serialize)]
    struct Deleted<'a> {
        name: &'a str,
        deleted: bool,
    }
    match output {
        Output::Json => print::json(&Deleted { name, deleted: true }),
        Output::Text => print::line(&format!("deleted {name}")),
    }
}

/// Says that what a tenant had is gone for good.
pub(crate) fn erased(output: Output, name: &str) -> anyhow::Result<()> {
    #[derive(Serialize)]
    struct Erased<'a> {
        name: &'a str,
        erased: bool,
    }
    match output {
        Output::Json => print::json(&Erased { name, erased: true }),
        Output::Text => print::line(&format!("erased {name}: its data keys are destroyed")),
    }
}

/// A list that is shown as its pages come: JSON at once, a table at the end, when its widths are known.
pub(crate) struct Listing<R> {
    output: Output,
    rows: Vec<Vec<String>>,
    record: PhantomData<R>,
}

impl<R: Record> Listing<R> {
    /// An empty list.
    pub(crate) fn new(output: Output) -> Self {
        Self { output, rows: Vec::new(), record: PhantomData }
    }

    /// Adds a record.
    pub(crate) fn push(&mut self, record: &R) -> anyhow::Result<()> {
        match self.output {
            Output::Json => print::json(record),
            Output::Text => {
                self.rows.push(record.row());
                Ok(())
            }
        }
    }

    /// Shows what is not yet shown.
    pub(crate) fn finish(self) -> anyhow::Result<()> {
        match (self.output, self.rows.is_empty()) {
            (Output::Json, _) => Ok(()),
            (Output::Text, true) => {
                print::note("there are none");
                Ok(())
            }
            (Output::Text, false) => print::raw(table(R::COLUMNS, &self.rows).as_bytes()),
        }
    }
}

/// Aligned columns with two spaces between them.
pub(crate) fn table(columns: &[&str], rows: &[Vec<String>]) -> String {
    let heads = columns.iter().map(|head| (*head).to_owned()).collect();
    let lines: Vec<Vec<String>> = std::iter::once(heads)
        .chain(rows.iter().map(|row| row.iter().map(|cell| shown(cell)).collect()))
        .collect();
    let widths: Vec<usize> = (0..columns.len())
        .map(|column| {
            lines.iter().filter_map(|line| line.get(column)).map(|cell| width(cell)).max().unwrap_or(0)
        })
        .collect();
    let mut text = String::new();
    for line in &lines {
        let mut written = String::new();
        for (cell, width_max) in line.iter().zip(&widths) {
            written.push_str(cell);
            written.extend(std::iter::repeat_n(' ', width_max - width(cell) + 2));
        }
        text.push_str(written.trim_end());
        text.push('\n');
    }
    text
}

/// Aligned `name:  value` lines.
pub(crate) fn pairs(pairs: &[(&str, String)]) -> String {
    let width_max = pairs.iter().map(|(name, _)| width(name)).max().unwrap_or(0);
    pairs
        .iter()
        .map(|(name, value)| {
            let gap = " ".repeat(width_max - width(name));
            format!("{name}:{gap}  {}\n", shown(value))
        })
        .collect()
}

fn width(text: &str) -> usize {
    text.chars().count()
}

fn shown(text: &str) -> String {
    if text.is_empty() { "-".to_owned() } else { clean(text).into_owned() }
}

/// A text that cannot command a terminal: control characters and those that turn the direction of writing are escaped.
pub(crate) fn clean(text: &str) -> Cow<'_, str> {
    let is_odd = |c: char| c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    if !text.contains(is_odd) {
        return Cow::Borrowed(text);
    }
    let mut cleaned = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if is_odd(c) { cleaned.extend(c.escape_default()) } else { cleaned.push(c) }
    }
    Cow::Owned(cleaned)
}

/// A moment in RFC 3339, UTC, to the microsecond.
pub(crate) fn moment(at: Timestamp) -> String {
    let micros = at.clamp(Timestamp::EPOCH, LAST).since(Timestamp::EPOCH);
    humantime::format_rfc3339_micros(UNIX_EPOCH + micros).to_string()
}

/// The protocol's moment in RFC 3339; `None` stays so.
pub(crate) fn time(at: Option<&prost_types::Timestamp>) -> Option<String> {
    at.map(|at| {
        let micros = at.seconds.saturating_mul(1_000_000).saturating_add(i64::from(at.nanos) / 1_000);
        moment(Timestamp::from_micros(micros))
    })
}

/// The protocol's duration in whole seconds; negative ones are zero.
pub(crate) fn seconds(duration: Option<&prost_types::Duration>) -> Option<u64> {
    duration.map(|duration| u64::try_from(duration.seconds).unwrap_or(0))
}

/// Seconds for people, such as `3 days`.
pub(crate) fn for_people(seconds: Option<u64>) -> String {
    seconds.map(portero_recipe::told::span_s).unwrap_or_default()
}

/// Our duration as the protocol writes it; one beyond its range is its longest.
pub(crate) fn duration(duration: Duration) -> prost_types::Duration {
    duration.try_into().unwrap_or(prost_types::Duration { seconds: 315_576_000_000, nanos: 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_nothing_is_empty() {
        let rows = vec![vec!["acme".to_owned(), String::new()], vec!["b".to_owned(), "Bäcker".to_owned()]];
        assert_eq!(table(&["TENANT", "NAME"], &rows), "TENANT  NAME\nacme    -\nb       Bäcker\n");
        let lines = pairs(&[("name", "x".to_owned()), ("created", String::new())]);
        assert_eq!(lines, "name:     x\ncreated:  -\n");
    }

    #[test]
    fn what_others_wrote_cannot_command_the_terminal() {
        assert_eq!(clean("order-1 ü"), "order-1 ü");
        assert_eq!(clean("a\u{1b}[2J\nb\u{202e}"), "a\\u{1b}[2J\\nb\\u{202e}");
        assert!(!table(&["A"], &[vec!["x\ry".to_owned()]]).contains('\r'));
    }

    #[test]
    fn moments_are_rfc_3339_and_odd_ones_do_no_harm() {
        assert_eq!(moment(Timestamp::from_micros(1_750_000_000_123_456)), "2025-06-15T15:06:40.123456Z");
        assert_eq!(moment(Timestamp::from_micros(i64::MAX)), "9999-12-31T23:59:59.999999Z");
        let early = prost_types::Timestamp { seconds: -5, nanos: -1 };
        assert_eq!(time(Some(&early)).as_deref(), Some("1970-01-01T00:00:00.000000Z"));
        assert_eq!(time(None), None);
    }

    #[test]
    fn durations_read_well() {
        assert_eq!(for_people(Some(259_200)), "3 days");
        assert_eq!(for_people(None), "");
        assert_eq!(
            duration(Duration::from_millis(1_500)),
            prost_types::Duration { seconds: 1, nanos: 500_000_000 }
        );
        assert_eq!(duration(Duration::MAX).seconds, 315_576_000_000);
    }
}
