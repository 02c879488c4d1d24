//! Settings of sources that are secrets. Stores see them sealed.

use std::collections::BTreeMap;

use portero_types::Timestamp;

use crate::{Error, ErrorKind, SETTING_NAME_BYTES_MAX, SETTING_VALUE_BYTES_MAX, SETTINGS_MAX, Sealed};

/// Longest sealed value of a setting, bytes: the longest value, and what sealing adds.
pub const SEALED_SETTING_BYTES_MAX: usize = SETTING_VALUE_BYTES_MAX + 128;

/// A setting that is a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedSetting {
    /// When it was given, which sealing it again does not change: so the audit log tells that it was given anew.
    pub given_at: Timestamp,
    /// Its value.
    pub sealed: Sealed,
}

/// A source's secret settings by name, each sealed with its tenant's data key. Debug shows names and lengths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SealedSettings(pub BTreeMap<String, SealedSetting>);

/// What becomes of secret settings: a value replaces, `None` takes away, and what is not named stays.
pub type SealedSettingsChange = BTreeMap<String, Option<SealedSetting>>;

impl SealedSettings {
    /// As databases hold them: a JSON object with its names in order. Of each its text is when it was given, in microseconds since
    /// 1970, a dot, and its sealed value in hexadecimal.
    ///
    /// # Panics
    /// Never: texts can be written as JSON.
    #[must_use]
    pub fn to_text(&self) -> String {
        let texts: BTreeMap<&str, String> =
            self.0.iter().map(|(name, setting)| (name.as_str(), setting.to_text())).collect();
        serde_json::to_string(&texts).expect("texts can be written as JSON")
    }

    /// From what databases hold; `None` for what is no object of texts. A text of another form is taken as a sealed value: it
    /// cannot be opened, which concerns its source and no other.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        let texts: BTreeMap<String, String> = serde_json::from_str(text).ok()?;
        Some(Self(texts.into_iter().map(|(name, text)| (name, SealedSetting::from_text(text))).collect()))
    }

    /// What they are after a change.
    #[must_use]
    pub fn changed(&self, change: &SealedSettingsChange) -> Self {
        let mut after = self.0.clone();
        for (name, setting) in change {
            match setting {
                Some(setting) => after.insert(name.clone(), setting.clone()),
                None => after.remove(name),
            };
        }
        Self(after)
    }

    /// Whether every store keeps them beside a source's other settings.
    pub(crate) fn check(&self, others: &BTreeMap<String, String>) -> crate::Result<()> {
        let fits = |(name, setting): (&String, &SealedSetting)| {
            (1..=SETTING_NAME_BYTES_MAX).contains(&name.len())
                && !name.contains('\0')
                && (1..=SEALED_SETTING_BYTES_MAX).contains(&setting.sealed.0.len())
                && !others.contains_key(name)
        };
        if self.0.len() + others.len() <= SETTINGS_MAX && self.0.iter().all(fits) {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Refused,
            "a source has at most 16 settings, secret ones included, each either secret or not, names of at most 64 \
             and sealed values of at most 1,152 bytes",
        ))
    }
}

impl SealedSetting {
    fn to_text(&self) -> String {
        format!("{}.{}", self.given_at.as_micros(), hex::encode(&self.sealed.0))
    }

    fn from_text(text: String) -> Self {
        let parts =
            text.split_once('.').and_then(|(at, value)| Some((at.parse().ok()?, hex::decode(value).ok()?)));
        match parts {
            Some((at, sealed)) => Self { given_at: Timestamp::from_micros(at), sealed: Sealed(sealed) },
            None => Self { given_at: Timestamp::EPOCH, sealed: Sealed(text.into_bytes()) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(given_at: i64, bytes: &[u8]) -> SealedSetting {
        SealedSetting { given_at: Timestamp::from_micros(given_at), sealed: Sealed(bytes.to_vec()) }
    }

    fn sealed(pairs: &[(&str, i64, &[u8])]) -> SealedSettings {
        let pairs = pairs.iter().map(|(name, at, bytes)| ((*name).to_owned(), setting(*at, bytes)));
        SealedSettings(pairs.collect())
    }

    #[test]
    fn they_read_back_from_their_text() {
        let settings = sealed(&[("b", 7, &[0, 255]), ("a\"", -1, &[1])]);
        assert_eq!(settings.to_text(), r#"{"a\"":"-1.01","b":"7.00ff"}"#);
        assert_eq!(SealedSettings::from_text(&settings.to_text()), Some(settings));
        assert_eq!(SealedSettings::from_text("{}"), Some(SealedSettings::default()));
    }

    #[test]
    fn a_damaged_text_is_a_value_that_nothing_opens_and_no_object_is_none() {
        for damaged in ["7.0g", "0.x", "00ff", ".01", ""] {
            let text = format!(r#"{{"a":"{damaged}"}}"#);
            assert_eq!(SealedSettings::from_text(&text), Some(sealed(&[("a", 0, damaged.as_bytes())])));
        }
        for broken in ["", "[]", r#"{"a":1}"#] {
            assert_eq!(SealedSettings::from_text(broken), None);
        }
    }

    #[test]
    fn a_change_sets_takes_away_and_leaves() {
        let before = sealed(&[("a", 1, &[1]), ("b", 1, &[2]), ("c", 1, &[3])]);
        let change =
            [("a".to_owned(), Some(setting(2, &[9]))), ("b".to_owned(), None), ("d".to_owned(), None)];
        assert_eq!(before.changed(&change.into()), sealed(&[("a", 2, &[9]), ("c", 1, &[3])]));
    }

    #[test]
    fn debug_shows_lengths() {
        let shown = format!("{:?}", sealed(&[("word", 0, b"value")]));
        assert!(
            shown.contains("word") && shown.contains("Sealed(5 bytes)") && !shown.contains("value"),
            "{shown}"
        );
    }
}
