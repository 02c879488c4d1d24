//! Sets of characters, written as `A-Za-z0-9_-`.

/// What to say about a text that is none.
pub(crate) const MISTAKE: &str = "give characters and ranges such as 'A-Za-z0-9_-'";

/// A set as a sorted list of bytes; a `-` at either end is itself. `None` when the text is no set of printable ASCII.
pub(crate) fn set(text: &str) -> Option<Vec<u8>> {
    let mut set = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        if !first.is_ascii_graphic() {
            return None;
        }
        if let [b'-', last, after @ ..] = after {
            if last < first || !last.is_ascii_graphic() {
                return None;
            }
            set.extend(*first..=*last);
            rest = after;
        } else {
            set.push(*first);
            rest = after;
        }
    }
    set.sort_unstable();
    set.dedup();
    (!set.is_empty()).then_some(set)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn character_sets_are_ranges_and_single_characters() {
        assert_eq!(set("a-c_-").as_deref(), Some(&b"-_abc"[..]));
        assert_eq!(set(&"!-~".repeat(9_000)).map(|set| set.len()), Some(94), "each once");
        assert_eq!(set("c-a"), None);
        assert_eq!(set(""), None);
        assert_eq!(set("a b"), None);
        assert_eq!(set("é"), None);
    }
}
