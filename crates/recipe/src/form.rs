//! Form-encoded text (`a=1&b=2`): bodies and queries.

use std::borrow::Cow;

use crate::Anomaly;

/// Most fields of a form that is signed as a whole.
const FIELDS_MAX: usize = 2_048;

/// What a look-up found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Field<'a> {
    /// No such field.
    Missing,
    /// Its decoded value.
    Found(Cow<'a, [u8]>),
    /// More than one field of that name.
    Duplicate,
}

/// The field `name` of a form. Byte order marks in front of the first name are skipped.
pub(crate) fn field<'a>(form: &'a [u8], name: &str) -> Field<'a> {
    let mut values =
        pairs(form).filter_map(|(key, value)| (decode(key).as_ref() == name.as_bytes()).then_some(value));
    match (values.next(), values.next()) {
        (None, _) => Field::Missing,
        (Some(value), None) => Field::Found(decode(value)),
        (Some(_), Some(_)) => Field::Duplicate,
    }
}

/// Every field's decoded name and value, one after the other, in the order of names and then values, each pair once.
///
/// That is what Twilio signs behind the URL (<https://www.twilio.com/docs/usage/security>); its SDKs drop repeats.
pub(crate) fn sorted(form: &[u8]) -> Result<Vec<u8>, Anomaly> {
    let mut fields = std::collections::BTreeSet::new();
    for (n, (key, value)) in
        pairs(form).filter(|(key, value)| !key.is_empty() || !value.is_empty()).enumerate()
    {
        if n == FIELDS_MAX {
            return Err(Anomaly::TooLong);
        }
        fields.insert((decode(key), decode(value)));
    }
    Ok(fields.iter().flat_map(|(key, value)| key.iter().chain(value.iter())).copied().collect())
}

/// A name or value as it stands in a form.
pub(crate) fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'*' => {
                encoded.push(char::from(byte));
            }
            b' ' => encoded.push('+'),
            other => encoded.push_str(&format!("%{other:02X}")),
        }
    }
    encoded
}

/// Names and values as sent.
fn pairs(mut form: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    while let Some(rest) = form.strip_prefix(b"\xEF\xBB\xBF") {
        form = rest;
    }
    form.split(|byte| *byte == b'&').map(|pair| {
        (pair.iter().position(|byte| *byte == b'='))
            .map_or((pair, &[][..]), |at| (&pair[..at], &pair[at + 1..]))
    })
}

/// Undoes `+` and percent-encoding (WHATWG URL standard, application/x-www-form-urlencoded); a `%` that no two
/// hexadecimal digits follow stands for itself.
pub(crate) fn decode(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.iter().any(|byte| matches!(byte, b'+' | b'%')) {
        return Cow::Borrowed(text);
    }
    let digit = |at: usize| text.get(at).and_then(|byte| char::from(*byte).to_digit(16));
    let mut bytes = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        match (text[at], digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                bytes.push(u8::try_from(high * 16 + low).expect("two hexadecimal digits are a byte"));
                at += 3;
            }
            (b'+', ..) => {
                bytes.push(b' ');
                at += 1;
            }
            (byte, ..) => {
                bytes.push(byte);
                at += 1;
            }
        }
    }
    Cow::Owned(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(form: &[u8], name: &str) -> Option<String> {
        match field(form, name) {
            Field::Found(value) => Some(String::from_utf8_lossy(&value).into_owned()),
            Field::Missing | Field::Duplicate => None,
        }
    }

    #[test]
    fn fields_are_decoded() {
        let form = b"token=x&command=%2Fweather&text=94070+caf%C3%A9&odd=%zz%4&flag";
        assert_eq!(text(form, "command").as_deref(), Some("/weather"));
        assert_eq!(text(form, "text").as_deref(), Some("94070 café"));
        assert_eq!(text(form, "odd").as_deref(), Some("%zz%4"));
        assert_eq!(text(form, "flag").as_deref(), Some(""));
        assert_eq!(text(form, "absent"), None);
    }

    #[test]
    fn a_byte_order_mark_does_not_hide_the_first_field() {
        assert_eq!(text(b"\xEF\xBB\xBFa=1", "a").as_deref(), Some("1"));
    }

    #[test]
    fn a_sorted_form_holds_each_pair_once() {
        let form = b"b=2&a=z&a=%62&a=z&empty=";
        assert_eq!(sorted(form).as_deref(), Ok(&b"abazb2empty"[..]));
        assert!(sorted("a=1&".repeat(FIELDS_MAX + 1).as_bytes()).is_err());
    }

    #[test]
    fn a_repeated_field_is_not_chosen_from() {
        assert_eq!(field(b"a=1&b=2&%61=3", "a"), Field::Duplicate);
    }

    proptest! {
        #[test]
        fn no_input_makes_the_reader_panic(form in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = (field(&form, "a"), sorted(&form));
        }

        #[test]
        fn what_was_encoded_comes_back(value in proptest::collection::vec(any::<u8>(), 0..40)) {
            let mut form = b"a=".to_vec();
            for byte in &value {
                form.extend_from_slice(format!("%{byte:02X}").as_bytes());
            }
            prop_assert_eq!(field(&form, "a"), Field::Found(value.into()));
        }
    }
}
