//! A source's settings as a command line gives them: as they are, or from files.

use std::collections::BTreeMap;
use std::path::Path;

use super::exit::Failure;
use super::input;
use crate::cli::GivenSettings;

/// All of them, by name. What is read from a file loses the white space around it.
pub(crate) fn read(given: &GivenSettings) -> Result<BTreeMap<String, String>, Failure> {
    let mut settings = BTreeMap::new();
    let from_files = given.files.iter().map(|(name, file)| {
        let value = input::secret(Path::new(file), "the setting")?;
        Ok((name.clone(), value.expose_secret().clone()))
    });
    for pair in given.plain.iter().cloned().map(Ok).chain(from_files) {
        let (name, value) = pair?;
        if settings.contains_key(&name) {
            return Err(Failure::usage(format!("the setting {name:?} is given twice")));
        }
        settings.insert(name, value);
    }
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(plain: &[(&str, &str)], files: &[(&str, &str)]) -> GivenSettings {
        let owned = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        GivenSettings { plain: owned(plain), files: owned(files) }
    }

    #[test]
    fn settings_come_from_the_line_and_from_files_and_each_once() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), " door-word\n").expect("written");
        let path = file.path().to_str().expect("text");
        let settings = read(&given(&[("a", "1")], &[("word", path)])).expect("settings");
        assert_eq!(
            settings,
            [("a".to_owned(), "1".to_owned()), ("word".to_owned(), "door-word".to_owned())].into()
        );
        let twice = read(&given(&[("word", "1")], &[("word", path)])).expect_err("given twice").to_string();
        assert!(twice.contains("\"word\" is given twice") && !twice.contains("door-word"), "{twice}");
        let missing = read(&given(&[], &[("word", "/nonexistent/word")])).expect_err("no file").to_string();
        assert!(missing.contains("the setting") && missing.contains("/nonexistent/word"), "{missing}");
    }
}
