//! Where settings come from: one file, environment variables, flags.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use toml::{Table, Value};

use super::reader::Problem;

const PREFIX: &str = "PORTERO__";

/// The texts that settings are read from. They may hold passwords, so there is no way to print them.
#[derive(Clone, Default)]
pub(crate) struct Sources {
    file: Option<(PathBuf, Result<String, String>)>,
    environment: BTreeMap<String, String>,
    flags: Vec<(String, String)>,
    malformed: Vec<Problem>,
}

impl Sources {
    /// The process's environment and, when named, a file.
    #[expect(clippy::disallowed_methods, reason = "this is the configuration loader")]
    pub(crate) fn from_process(file: Option<&Path>) -> Self {
        let file = file.map(|path| {
            let text = std::fs::read_to_string(path).map_err(|error| crate::file_error::words(&error));
            (path.to_owned(), text)
        });
        let mut sources = Self { file, ..Self::default() };
        for (name, value) in std::env::vars_os() {
            sources.add_variable(&name, value);
        }
        sources
    }

    /// Adds an environment variable, if it is one of ours.
    fn add_variable(&mut self, name: &OsStr, value: OsString) {
        let Some(name) = name.to_str().filter(|name| *name == "HOSTNAME" || name.starts_with(PREFIX)) else {
            return;
        };
        match value.into_string() {
            Ok(value) => drop(self.environment.insert(name.to_owned(), value)),
            Err(_) => self.malformed.push(Problem::new(name, "is not UTF-8")),
        }
    }

    /// Adds a flag of the form `section.key=value`. One of another form is a problem of the configuration.
    pub(crate) fn set(&mut self, flag: &str) {
        match flag.split_once('=') {
            Some((key, value)) => self.flags.push((key.trim().to_owned(), value.to_owned())),
            None => self.malformed.push(Problem::new("--set", "wants the form section.key=value")),
        }
    }

    /// The name of this host, as far as the environment tells.
    pub(super) fn host_name(&self) -> String {
        self.environment
            .get("HOSTNAME")
            .filter(|name| !name.is_empty())
            .map_or("portero", String::as_str)
            .to_owned()
    }

    /// All settings in one table, the later source winning.
    pub(super) fn merge(&self) -> (Table, Vec<Problem>) {
        let mut problems = self.malformed.clone();
        let mut table = self.read_file(&mut problems);
        for (name, value) in &self.environment {
            if let Some(key) = name.strip_prefix(PREFIX) {
                let path: Vec<String> = key.split("__").map(str::to_ascii_lowercase).collect();
                insert(&mut table, &path, value, name, &mut problems);
            }
        }
        for (key, value) in &self.flags {
            let path: Vec<String> = key.split('.').map(str::to_owned).collect();
            insert(&mut table, &path, value, key, &mut problems);
        }
        (table, problems)
    }

    fn read_file(&self, problems: &mut Vec<Problem>) -> Table {
        let Some((path, text)) = &self.file else { return Table::new() };
        let place = path.display().to_string();
        match text {
            Err(reason) => problems.push(Problem::new(place, format!("cannot be read: {reason}"))),
            Ok(text) => match text.parse::<Table>() {
                Ok(table) => return table,
                Err(error) => {
                    let line = error.span().map_or(1, |span| text[..span.start].matches('\n').count() + 1);
                    let reason = format!("line {line} is not TOML: {}", error.message());
                    problems.push(Problem::new(place, reason));
                }
            },
        }
        Table::new()
    }

    #[cfg(test)]
    pub(crate) fn for_test(file: &str, environment: &[(&str, &str)]) -> Self {
        Self {
            file: Some((PathBuf::from("portero.toml"), Ok(file.to_owned()))),
            environment: environment.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
            ..Self::default()
        }
    }
}

fn insert(table: &mut Table, path: &[String], value: &str, place: &str, problems: &mut Vec<Problem>) {
    match path {
        [] => {}
        [key] => {
            table.insert(key.clone(), Value::String(value.to_owned()));
        }
        [section, rest @ ..] => {
            let entry = table.entry(section.clone()).or_insert_with(|| Value::Table(Table::new()));
            match entry.as_table_mut() {
                Some(inner) => insert(inner, rest, value, place, problems),
                None => {
                    problems.push(Problem::new(place, "names a key below something that is not a section"));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt as _;

    use super::*;

    #[test]
    fn a_variable_that_is_no_text_is_named_and_not_repeated() {
        let mut sources = Sources::default();
        let value = || OsString::from_vec(b"postgres://u:hunter2\xff@h/d".to_vec());
        sources.add_variable(OsStr::new("PORTERO__DATABASE__URL"), value());
        sources.add_variable(OsStr::new("SOMEBODY_ELSES"), value());
        let (_, problems) = sources.merge();
        assert_eq!(problems, [Problem::new("PORTERO__DATABASE__URL", "is not UTF-8")]);
    }
}
