//! Takes settings out of a table one by one, collecting every problem instead of stopping at the first.

use std::cell::RefCell;
use std::fmt;
use std::path::PathBuf;
use std::rc::Rc;

use toml::{Table, Value};

use super::value::Setting;

/// One thing that is wrong with the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    place: String,
    reason: String,
}

impl Problem {
    /// `reason` continues the sentence that begins with `place`. It must not repeat a value that may be secret.
    pub(crate) fn new(place: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { place: place.into(), reason: reason.into() }
    }
}

/// Everything that is wrong with the configuration.
#[derive(Debug)]
pub(crate) struct Problems(Vec<Problem>);

impl Problems {
    pub(super) fn new(mut problems: Vec<Problem>) -> Self {
        problems.sort_by(|a, b| a.place.cmp(&b.place));
        Self(problems)
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.0.len();
        write!(f, "the configuration has {count} problem{}:", if count == 1 { "" } else { "s" })?;
        self.0.iter().try_for_each(|problem| write!(f, "\n  {} {}", problem.place, problem.reason))
    }
}

impl std::error::Error for Problems {}

/// A table from which settings are taken. What is left at the end is unknown.
pub(crate) struct Reader {
    prefix: String,
    table: Table,
    problems: Rc<RefCell<Vec<Problem>>>,
}

impl Reader {
    pub(super) fn new(table: Table) -> Self {
        Self { prefix: String::new(), table, problems: Rc::default() }
    }

    /// The section of this name; an absent one is empty.
    pub(crate) fn section(&mut self, name: &str) -> Self {
        let prefix = format!("{}{name}.", self.prefix);
        let table = match self.table.remove(name) {
            None => Table::new(),
            Some(Value::Table(table)) => table,
            Some(_) => {
                self.problem(name, "must be a section");
                Table::new()
            }
        };
        Self { prefix, table, problems: Rc::clone(&self.problems) }
    }

    /// The sections of an array of this name.
    pub(crate) fn sections(&mut self, name: &str) -> Vec<Self> {
        let items = match self.table.remove(name) {
            None => return Vec::new(),
            Some(Value::Array(items)) => items,
            Some(_) => {
                self.problem(name, "must be a list of tables");
                return Vec::new();
            }
        };
        let mut sections = Vec::new();
        for (index, item) in items.into_iter().enumerate() {
            if let Value::Table(table) = item {
                let prefix = format!("{}{name}[{index}].", self.prefix);
                sections.push(Self { prefix, table, problems: Rc::clone(&self.problems) });
            } else {
                self.problem(name, "must be a list of tables");
            }
        }
        sections
    }

    /// A setting that may be absent.
    pub(crate) fn optional<T: Setting>(&mut self, name: &str) -> Option<T> {
        let value = self.table.remove(name)?;
        match T::read(&value) {
            Ok(setting) => Some(setting),
            Err(rule) => {
                self.problem(name, format!("must be {rule}"));
                None
            }
        }
    }

    /// A setting with a default.
    pub(crate) fn or<T: Setting>(&mut self, name: &str, default: T) -> T {
        self.optional(name).unwrap_or(default)
    }

    /// A setting with a default and bounds.
    pub(crate) fn within<T: Setting + PartialOrd + fmt::Debug>(
        &mut self,
        name: &str,
        default: T,
        min: T,
        max: T,
    ) -> T {
        let value = self.or(name, default);
        if value < min || value > max {
            self.problem(name, format!("must be from {min:?} to {max:?}"));
        }
        value
    }

    /// A text with a default.
    pub(crate) fn text(&mut self, name: &str, default: &str) -> String {
        self.optional(name).unwrap_or_else(|| default.to_owned())
    }

    /// A path that may be absent.
    pub(crate) fn optional_path(&mut self, name: &str) -> Option<PathBuf> {
        self.optional::<String>(name).map(PathBuf::from)
    }

    /// A list of texts with a default. The environment writes it with commas.
    pub(crate) fn list(&mut self, name: &str, default: &[&str]) -> Vec<String> {
        let items = match self.table.remove(name) {
            None => return default.iter().map(|item| (*item).to_owned()).collect(),
            Some(Value::String(text)) => {
                return text
                    .split(',')
                    .map(|item| item.trim().to_owned())
                    .filter(|item| !item.is_empty())
                    .collect();
            }
            Some(Value::Array(items)) => items,
            Some(_) => Vec::new(),
        };
        let texts: Option<Vec<String>> = items.iter().map(|item| item.as_str().map(str::to_owned)).collect();
        texts.unwrap_or_else(|| {
            self.problem(name, "must be a list of texts");
            Vec::new()
        })
    }

    /// Records a problem with a setting of this section.
    pub(crate) fn problem(&self, name: &str, reason: impl Into<String>) {
        self.problems.borrow_mut().push(Problem::new(format!("{}{name}", self.prefix), reason));
    }

    /// Closes the root after all sections are closed: what is left is unknown.
    pub(super) fn finish(self) -> Vec<Problem> {
        let problems = Rc::clone(&self.problems);
        drop(self);
        problems.take()
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        for name in self.table.keys() {
            self.problem(name, "is not a known setting");
        }
    }
}
