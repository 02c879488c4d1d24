//! Taking signatures (and a time) out of the text that carries them.

use portero_types::limits::{SIGNATURE_HEADER_BYTES_MAX, SIGNATURES_PER_REQUEST_MAX};

use crate::algorithm::{Algorithm, SignatureBytes};
use crate::encoding::Encoding;
use crate::{Reason, Rejection};

/// Most public-key signatures of one request. Each costs a pass over the body for each key, where all MACs together cost
/// one; a rotation needs two.
const PUBLIC_MAX: usize = 4;

/// The form of the text.
#[derive(Clone, Debug)]
pub(crate) enum List {
    /// One signature, or several between separators, each with a literal prefix.
    Plain {
        /// The prefix; may be empty.
        prefix: String,
        /// What separates several.
        separator: Option<char>,
    },
    /// `key=value` pairs: signatures under one key, perhaps the time under another; other keys are ignored.
    Pairs {
        /// What separates pairs; spaces around it are ignored.
        separator: char,
        /// The key of signatures.
        tag: String,
        /// The key of the time.
        time: Option<String>,
    },
    /// Standard Webhooks: `tag,signature` between spaces; unknown tags are ignored.
    Standard,
    /// `name|signature` between `&`: a signature for each of several keys, known by their names.
    Named,
    /// The time first, then signatures.
    Positional {
        /// What separates them.
        separator: char,
    },
}

/// A signature and how it is said to be made.
#[derive(Debug)]
pub(crate) struct Candidate {
    /// How.
    pub(crate) algorithm: Algorithm,
    /// The name of the key that it is for, where the list names keys.
    pub(crate) name: Option<Vec<u8>>,
    /// The signature.
    pub(crate) signature: SignatureBytes,
}

/// What was read.
#[derive(Debug)]
pub(crate) struct Parsed<'a> {
    /// At least one.
    pub(crate) candidates: Vec<Candidate>,
    /// The time, where the list carries it.
    pub(crate) ts: Option<&'a [u8]>,
}

/// How to read signatures.
#[derive(Clone, Debug)]
pub(crate) struct Reader {
    /// The form of the text.
    pub(crate) list: List,
    /// Algorithm by tag; one entry with an empty tag where the form has no tags.
    pub(crate) algorithms: Vec<(String, Algorithm)>,
    /// How each signature is written.
    pub(crate) encoding: Encoding,
}

impl Reader {
    /// Reads the signatures in `text`.
    pub(crate) fn read<'a>(&self, text: &'a [u8]) -> Result<Parsed<'a>, Rejection> {
        if text.len() > SIGNATURE_HEADER_BYTES_MAX {
            return Err(malformed("the signature is longer than any that counts"));
        }
        if text.is_empty() {
            return Err(Rejection::new(Reason::SignatureMissing, "the signature is empty"));
        }
        let mut texts: Vec<Text<'_>> = Vec::new();
        let mut ts = None;
        let plain = |text| Text { algorithm: self.untagged(), name: None, text };
        match &self.list {
            List::Plain { prefix, separator } => {
                for part in split(text, *separator) {
                    if let Some(rest) = part.strip_prefix(prefix.as_bytes()) {
                        texts.push(plain(rest));
                    }
                }
            }
            List::Pairs { separator, tag, time } => {
                for pair in split(text, Some(*separator)) {
                    let Some(at) = pair.iter().position(|byte| *byte == b'=') else {
                        return Err(malformed("the signature is not a list of key=value pairs"));
                    };
                    let (key, value) = (&pair[..at], &pair[at + 1..]);
                    if key == tag.as_bytes() {
                        texts.push(plain(value));
                    } else if time.as_ref().is_some_and(|time| key == time.as_bytes())
                        && ts.replace(value).is_some()
                    {
                        return Err(Rejection::new(
                            Reason::SignatureDuplicated,
                            "the signature carries more than one time",
                        ));
                    }
                }
            }
            List::Standard => {
                for part in text.split(|byte| *byte == b' ').filter(|part| !part.is_empty()) {
                    let Some(at) = part.iter().position(|byte| *byte == b',') else {
                        return Err(malformed("the signature is not a list of tag,signature"));
                    };
                    let tag = &part[..at];
                    if let Some((_, algorithm)) =
                        self.algorithms.iter().find(|(have, _)| have.as_bytes() == tag)
                    {
                        texts.push(Text { algorithm: *algorithm, name: None, text: &part[at + 1..] });
                    }
                }
            }
            List::Named => {
                for part in split(text, Some('&')) {
                    let Some(at) = part.iter().position(|byte| *byte == b'|') else {
                        return Err(malformed("the signature is not a list of name|signature"));
                    };
                    texts.push(Text { name: Some(&part[..at]), ..plain(&part[at + 1..]) });
                }
            }
            List::Positional { separator } => {
                let mut parts = split(text, Some(*separator));
                ts = parts.next();
                texts.extend(parts.map(plain));
            }
        }
        Ok(Parsed { candidates: self.decode(&texts)?, ts })
    }

    /// Each algorithm once, whatever the number of its tags.
    pub(crate) fn distinct(&self) -> impl Iterator<Item = Algorithm> {
        let of = |(_, algorithm): &(String, Algorithm)| *algorithm;
        let is_first =
            move |n: usize| self.algorithms[..n].iter().all(|have| of(have) != of(&self.algorithms[n]));
        (0..self.algorithms.len()).filter(move |n| is_first(*n)).map(move |n| of(&self.algorithms[n]))
    }

    fn untagged(&self) -> Algorithm {
        self.algorithms.first().map_or(Algorithm::None, |(_, algorithm)| *algorithm)
    }

    fn decode(&self, texts: &[Text<'_>]) -> Result<Vec<Candidate>, Rejection> {
        if texts.is_empty() {
            return Err(Rejection::new(
                Reason::SignatureMissing,
                "no signature of the version that the recipe accepts",
            ));
        }
        if texts.len() > SIGNATURES_PER_REQUEST_MAX {
            return Err(Rejection::new(
                Reason::TooManySignatures,
                format!("more than {SIGNATURES_PER_REQUEST_MAX} signatures"),
            ));
        }
        few_public(texts.iter().map(|text| text.algorithm))?;
        let candidates: Vec<Candidate> = texts
            .iter()
            .filter_map(|Text { algorithm, name, text }| {
                let is_sent = *algorithm == Algorithm::Equal;
                let bytes = if is_sent { Some(text.to_vec()) } else { self.encoding.decode(text) };
                let signature = SignatureBytes::new(bytes.filter(|bytes| !bytes.is_empty())?);
                Some(Candidate { algorithm: *algorithm, name: name.map(<[u8]>::to_vec), signature })
            })
            .collect();
        if candidates.is_empty() {
            let form = match self.encoding {
                Encoding::Hex => "hexadecimal",
                Encoding::Base64 => "base64",
            };
            return Err(malformed(&format!("the signature is not {form}")));
        }
        Ok(candidates)
    }

    /// Writes one signature, the inverse of [`Reader::read`]. `name` is the key's, for lists that name keys.
    pub(crate) fn write(&self, algorithm: Algorithm, name: &str, signature: &[u8], ts: &str) -> String {
        let text = if algorithm == Algorithm::Equal {
            String::from_utf8_lossy(signature).into_owned()
        } else {
            self.encoding.encode(signature)
        };
        match &self.list {
            List::Plain { prefix, .. } => format!("{prefix}{text}"),
            List::Pairs { separator, tag, time: Some(time) } => format!("{time}={ts}{separator}{tag}={text}"),
            List::Pairs { tag, time: None, .. } => format!("{tag}={text}"),
            List::Standard => {
                let tag = self.algorithms.iter().find(|(_, have)| *have == algorithm);
                format!("{},{text}", tag.map_or("", |(tag, _)| tag.as_str()))
            }
            List::Named => format!("{name}|{text}"),
            List::Positional { separator } => format!("{ts}{separator}{text}"),
        }
    }
}

/// Refuses more signatures of public keys, wherever they are, than a request may carry.
pub(crate) fn few_public(algorithms: impl Iterator<Item = Algorithm>) -> Result<(), Rejection> {
    if algorithms.filter(|algorithm| algorithm.is_public()).count() > PUBLIC_MAX {
        return Err(Rejection::new(
            Reason::TooManySignatures,
            format!("more than {PUBLIC_MAX} public-key signatures"),
        ));
    }
    Ok(())
}

/// One signature as written.
struct Text<'a> {
    algorithm: Algorithm,
    name: Option<&'a [u8]>,
    text: &'a [u8],
}

fn malformed(detail: &str) -> Rejection {
    Rejection::new(Reason::SignatureMalformed, detail)
}

fn split(text: &[u8], separator: Option<char>) -> impl Iterator<Item = &[u8]> {
    text.split(move |byte| separator.is_some_and(|separator| char::from(*byte) == separator))
        .map(move |part| if separator.is_some() { part.trim_ascii() } else { part })
        .filter(|part| !part.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn reader(list: List) -> Reader {
        let tags = match list {
            List::Standard => {
                vec![("v1".into(), Algorithm::HmacSha256), ("v1a".into(), Algorithm::Ed25519)]
            }
            List::Plain { .. } | List::Pairs { .. } | List::Named | List::Positional { .. } => {
                vec![(String::new(), Algorithm::HmacSha256)]
            }
        };
        Reader { list, algorithms: tags, encoding: Encoding::Hex }
    }

    fn pairs(separator: char) -> Reader {
        reader(List::Pairs { separator, tag: "v1".into(), time: Some("t".into()) })
    }

    #[test]
    fn all_signatures_of_a_tag_are_collected_and_unknown_keys_ignored() {
        let parsed = pairs(',').read(b"t=5, v1=aa,v0=bb,v1=cc,zz=1").map(|p| (p.candidates.len(), p.ts));
        assert_eq!(parsed, Ok((2, Some(&b"5"[..]))));
        let parsed = pairs(';').read(b"t=5;h2=AA;v1=AA;v1=zz").map(|parsed| parsed.candidates.len());
        assert_eq!(parsed, Ok(1), "one of them is not hexadecimal");
    }

    #[test]
    fn the_tag_is_not_part_of_a_standard_signature() {
        let parsed = reader(List::Standard).read(b"v1,aa v2,bb  v1a,cc").expect("readable");
        let algorithms: Vec<_> = parsed.candidates.iter().map(|candidate| candidate.algorithm).collect();
        assert_eq!(algorithms, [Algorithm::HmacSha256, Algorithm::Ed25519]);
    }

    #[test]
    fn named_signatures_keep_their_names() {
        let parsed = reader(List::Named).read(b"other|00&mine|aa").expect("readable");
        let names: Vec<_> = parsed.candidates.iter().map(|candidate| candidate.name.as_deref()).collect();
        assert_eq!(names, [Some(&b"other"[..]), Some(b"mine")]);
    }

    #[test]
    fn a_positional_list_begins_with_the_time() {
        let list = reader(List::Positional { separator: ',' });
        let parsed = list.read(b"5,aa,bb").map(|parsed| (parsed.candidates.len(), parsed.ts));
        assert_eq!(parsed, Ok((2, Some(&b"5"[..]))));
        assert_eq!(list.read(b"5").expect_err("refused").reason(), Reason::SignatureMissing);
    }

    #[test]
    fn each_mistake_has_its_own_reason() {
        let plain = reader(List::Plain { prefix: "sha256=".into(), separator: None });
        let reason = |reader: &Reader, text: &[u8]| reader.read(text).expect_err("refused").reason();
        assert_eq!(reason(&plain, b""), Reason::SignatureMissing);
        assert_eq!(reason(&plain, b"sha1=aa"), Reason::SignatureMissing);
        assert_eq!(reason(&plain, b"sha256="), Reason::SignatureMalformed);
        assert_eq!(reason(&plain, b"sha256= aa"), Reason::SignatureMalformed);
        assert_eq!(reason(&plain, b"sha256=qqqq"), Reason::SignatureMalformed);
        assert_eq!(reason(&plain, &[b'a'; 9000]), Reason::SignatureMalformed);
        assert_eq!(reason(&pairs(','), b"t=1,v0=aa"), Reason::SignatureMissing);
        assert_eq!(reason(&pairs(','), b"t=1,t=2,v1=aa"), Reason::SignatureDuplicated);
        assert_eq!(reason(&pairs(','), b"nonsense"), Reason::SignatureMalformed);
        assert_eq!(reason(&pairs(','), "v1=aa,".repeat(17).as_bytes()), Reason::TooManySignatures);
    }

    proptest! {
        #[test]
        fn no_input_makes_the_reader_panic(text in proptest::collection::vec(any::<u8>(), 0..80)) {
            for reader in [
                pairs(','),
                reader(List::Standard),
                reader(List::Named),
                reader(List::Positional { separator: ';' }),
                reader(List::Plain { prefix: "v0=".into(), separator: Some(',') }),
            ] {
                let _ = reader.read(&text);
            }
        }

        #[test]
        fn no_listlike_input_makes_the_reader_panic(text in "[tv01a=, ;]{0,60}") {
            for reader in [pairs(','), pairs(';'), reader(List::Standard)] {
                let _ = reader.read(text.as_bytes());
            }
        }
    }
}
