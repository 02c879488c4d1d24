//! Settings of sources that are secrets. Stores see them sealed.

use std::collections::BTreeMap;

use crate::{Error, ErrorKind, SETTING_NAME_BYTES_MAX, SETTING_VALUE_BYTES_MAX, SETTINGS_MAX, Sealed};

/// Longest sealed value of a setting, bytes: the longest value, and what sealing adds.
pub const SEALED_SETTING_BYTES_MAX: usize = SETTING_VALUE_BYTES_MAX + 128;

/// A source's secret settings by name, each sealed with its tenant's data key. Debug shows names and lengths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SealedSettings(pub BTreeMap<String, Sealed>);

/// What becomes of secret settings: a value replaces, `None` takes away, and what is not named stays.
pub type SealedSettingsChange = BTreeMap<String, Option<Sealed>>;

impl SealedSettings {
    /// As databases hold them: a JSON object of hexadecimal texts, with its names in order.
    ///
    /// # Panics
    /// Never: texts can be written as JSON.
    #[must_use]
    pub fn to_text(&self) -> String {
        let texts: BTreeMap<&str, String> =
            self.0.iter().map(|(name, sealed)| (name.as_str(), hex::encode(&sealed.0))).collect();
        serde_json::to_string(&texts).expect("texts can be written as JSON")
    }

    /// From what databases hold; `None` for what is no object of texts. A text that is not hexadecimal is taken as it is: it
    /// cannot be opened, which concerns its source and no other.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        let texts: BTreeMap<String, String> = serde_json::from_str(text).ok()?;
        let sealed = |text: String| Sealed(hex::decode(&text).unwrap_or_else(|_| text.into_bytes()));
        Some(Self(texts.into_iter().map(|(name, text)| (name, sealed(text))).collect()))
    }

    /// What they are after a change.
    #[must_use]
    pub fn changed(&self, change: &SealedSettingsChange) -> Self {
        let mut after = self.0.clone();
        for (name, sealed) in change {
            match sealed {
                Some(sealed) => after.insert(name.clone(), sealed.clone()),
                None => after.remove(name),
            };
        }
        Self(after)
    }

    /// Whether every store keeps them beside a source's other settings.
    pub(crate) fn check(&self, others: &BTreeMap<String, String>) -> crate::Result<()> {
        let fits = |(name, sealed): (&String, &Sealed)| {
            (1..=SETTING_NAME_BYTES_MAX).contains(&name.len())
                && !name.contains('\0')
                && (1..=SEALED_SETTING_BYTES_MAX).contains(&sealed.0.len())
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

#[cfg(test)]
mod tests {
    use super::*;

    fn sealed(pairs: &[(&str, &[u8])]) -> SealedSettings {
        let pairs = pairs.iter().map(|(name, bytes)| ((*name).to_owned(), Sealed(bytes.to_vec())));
        SealedSettings(pairs.collect())
    }

    #[test]
    fn they_read_back_from_their_text() {
        let settings = sealed(&[("b", &[0, 255]), ("a\"", &[1])]);
        assert_eq!(settings.to_text(), r#"{"a\"":"01","b":"00ff"}"#);
        assert_eq!(SealedSettings::from_text(&settings.to_text()), Some(settings));
        assert_eq!(SealedSettings::from_text("{}"), Some(SealedSettings::default()));
    }

    #[test]
    fn a_damaged_text_is_a_value_that_nothing_opens_and_no_object_is_none() {
        assert_eq!(SealedSettings::from_text(r#"{"a":"0g"}"#), Some(sealed(&[("a", b"0g")])));
        for broken in ["", "[]", r#"{"a":1}"#] {
            assert_eq!(SealedSettings::from_text(broken), None);
        }
    }

    #[test]
    fn a_change_sets_takes_away_and_leaves() {
        let before = sealed(&[("a", &[1]), ("b", &[2]), ("c", &[3])]);
        let change =
            [("a".to_owned(), Some(Sealed(vec![9]))), ("b".to_owned(), None), ("d".to_owned(), None)];
        assert_eq!(before.changed(&change.into()), sealed(&[("a", &[9]), ("c", &[3])]));
    }

    #[test]
    fn debug_shows_lengths() {
        let shown = format!("{:?}", sealed(&[("word", b"value")]));
        assert_eq!(shown, r#"SealedSettings({"word": Sealed(5 bytes)})"#);
    }
}
