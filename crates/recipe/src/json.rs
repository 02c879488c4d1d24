//! A strict JSON reader that finds single values in bytes and keeps their source text.
//!
//! It never recurses with the input, needs one byte of memory per open bracket and a bounded list of long containers, and
//! copies nothing but strings with escapes. Strings that nobody asks for may hold anything (bytes that are not UTF-8, lone surrogates, raw control
//! characters): only the grammar around them is checked. Numbers are never turned into machine numbers.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use crate::path::{Path, Segment};

/// The bytes are not JSON (RFC 8259), or nest deeper than allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// A whole JSON text, checked once, so that look-ups within it cannot fail.
pub(crate) struct Document<'a> {
    bytes: Cow<'a, [u8]>,
    root: Range<usize>,
    long: Long,
    /// What was found from places in long values, by the path: the items of a batch ask for the same.
    found: RefCell<HashMap<usize, BTreeMap<String, Lookup>>>,
}

impl std::fmt::Debug for Document<'_> {
    /// Shows the size only: the text is a payload.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Document").field("bytes", &self.bytes.len()).finish_non_exhaustive()
    }
}

/// Where long containers end, so that look-ups pass over them in one step. Each is at least a 64th of the text and at
/// most [`LONG_DEPTH_MAX`] deep, so there are at most a thousand of them whatever the text is.
#[derive(Default)]
struct Long {
    bytes_min: usize,
    /// Start and end, in the order of starts once the text was read.
    found: Vec<(usize, usize)>,
}

/// Deepest container whose end is kept: as deep as paths lead.
const LONG_DEPTH_MAX: usize = 16;
/// Values from which look-ups are remembered, bytes.
const REMEMBERED_BYTES_MIN: usize = 4 * 1024;
/// Shorter containers are read again faster than they are looked up.
const LONG_BYTES_MIN: usize = 64;

/// What a look-up found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Lookup {
    /// Nothing there.
    Missing,
    /// One value, at this place.
    Found(Range<usize>),
    /// An object on the way repeats the name that the path takes.
    Duplicate,
}

/// A value as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Scalar<'a> {
    /// The value is null, an object or an array.
    None,
    /// A string's content, or the source text of a number, `true` or `false`.
    Text(Cow<'a, str>),
    /// A string that is not valid Unicode.
    NotUnicode,
}

/// One element of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    /// The element.
    pub(crate) at: Range<usize>,
    /// The element of the list around its list, or the whole text where lists are not nested.
    pub(crate) outer: Range<usize>,
}

/// A place on the way to the elements of a batch.
struct Step {
    at: Range<usize>,
    /// What the last `*` took.
    element: Range<usize>,
    /// What the `*` before that took.
    outer: Range<usize>,
}

/// Why a batch could not be taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BatchError {
    /// The path does not lead to a list, or not in each element.
    Shape,
    /// A name on the path is repeated.
    Duplicate,
    /// More elements than allowed.
    TooMany,
}

impl<'a> Document<'a> {
    /// Checks a JSON text. Leading byte order marks and white space around it are skipped.
    pub(crate) fn parse(bytes: Cow<'a, [u8]>, depth_max: usize) -> Result<Self, Malformed> {
        let mut start = 0;
        while bytes[start..].starts_with(b"\xEF\xBB\xBF") {
            start += 3;
        }
        let start = skip_space(&bytes, start);
        let mut long = Long { bytes_min: LONG_BYTES_MIN.max(bytes.len() / 64), found: Vec::new() };
        let end = skip_value(&bytes, start, depth_max, Some(&mut long))?;
        if skip_space(&bytes, end) != bytes.len() {
            return Err(Malformed);
        }
        long.found.sort_unstable();
        Ok(Self { bytes, root: start..end, long, found: RefCell::default() })
    }

    /// The place of the outermost value.
    pub(crate) fn root(&self) -> Range<usize> {
        self.root.clone()
    }

    /// Follows a path from the value at `from`. `*` takes the first element that leads to the end of the path.
    pub(crate) fn lookup(&self, from: Range<usize>, path: &Path) -> Lookup {
        self.follow(from, path.segments())
    }

    /// The same, remembered where looking costs much.
    pub(crate) fn look_once(&self, from: Range<usize>, path: &Path) -> Lookup {
        if from.len() < REMEMBERED_BYTES_MIN {
            return self.lookup(from, path);
        }
        let start = from.start;
        if let Some(known) = self.found.borrow().get(&start).and_then(|paths| paths.get(path.as_str())) {
            return known.clone();
        }
        let found = self.lookup(from, path);
        self.found.borrow_mut().entry(start).or_default().insert(path.as_str().to_owned(), found.clone());
        found
    }

    /// Whether a value is none of null, an object and an array.
    pub(crate) fn is_text(&self, at: Range<usize>) -> bool {
        !matches!(self.bytes[at.start], b'{' | b'[' | b'n')
    }

    fn follow(&self, from: Range<usize>, path: &[Segment]) -> Lookup {
        let Some((first, rest)) = path.split_first() else {
            return Lookup::Found(from);
        };
        match first {
            Segment::Name { name, index } => match self.child(from, name, *index) {
                Lookup::Found(at) => self.follow(at, rest),
                other @ (Lookup::Missing | Lookup::Duplicate) => other,
            },
            Segment::Each => self
                .children(from)
                .map(|(_, at)| self.follow(at, rest))
                .find(|found| *found != Lookup::Missing)
                .unwrap_or(Lookup::Missing),
        }
    }

    fn child(&self, parent: Range<usize>, name: &str, index: Option<usize>) -> Lookup {
        if self.bytes[parent.start] == b'[' {
            return index
                .and_then(|n| self.children(parent).nth(n))
                .map_or(Lookup::Missing, |(_, at)| Lookup::Found(at));
        }
        let mut matches = self
            .children(parent)
            .filter(|(key, _)| key.as_ref().is_some_and(|key| is_name(&self.bytes[key.clone()], name)));
        match (matches.next(), matches.next()) {
            (None, _) => Lookup::Missing,
            (Some((_, at)), None) => Lookup::Found(at),
            (Some(_), Some(_)) => Lookup::Duplicate,
        }
    }

    fn children(&self, parent: Range<usize>) -> Children<'_> {
        let is_object = self.bytes[parent.start] == b'{';
        let is_container = is_object || self.bytes[parent.start] == b'[';
        Children {
            bytes: &self.bytes,
            long: &self.long,
            at: parent.start + 1,
            is_object,
            done: !is_container,
        }
    }

    /// The elements of a batch, at most `max`.
    pub(crate) fn items(&self, path: &Path, max: usize) -> Result<Vec<Item>, BatchError> {
        let root = Step { at: self.root(), element: self.root(), outer: self.root() };
        let mut found = vec![root];
        for segment in path.segments() {
            let mut next = Vec::new();
            for step in found {
                match segment {
                    Segment::Name { name, index } => match self.child(step.at.clone(), name, *index) {
                        Lookup::Found(at) => next.push(Step { at, ..step }),
                        Lookup::Missing => return Err(BatchError::Shape),
                        Lookup::Duplicate => return Err(BatchError::Duplicate),
                    },
                    Segment::Each if self.bytes[step.at.start] == b'[' => {
                        for (_, at) in self.children(step.at) {
                            if next.len() == max {
                                return Err(BatchError::TooMany);
                            }
                            let outer = step.element.clone();
                            next.push(Step { element: at.clone(), at, outer });
                        }
                    }
                    Segment::Each => return Err(BatchError::Shape),
                }
            }
            found = next;
        }
        Ok(found.into_iter().map(|step| Item { at: step.at, outer: step.outer }).collect())
    }

    /// The keys of the outermost object, in order; `None` for one that is not valid Unicode. Empty when it is no object.
    pub(crate) fn keys(&self) -> impl Iterator<Item = Option<Cow<'_, str>>> {
        self.children(self.root()).filter_map(|(key, _)| key).map(|key| unescape(&self.bytes[key]))
    }

    /// How many bytes of the text before `at` do not start a character.
    pub(crate) fn continuations(&self, within: Range<usize>) -> usize {
        self.bytes[within].iter().filter(|byte| matches!(byte, 0x80..=0xBF)).count()
    }

    /// A value as text.
    pub(crate) fn scalar(&self, at: Range<usize>) -> Scalar<'_> {
        let raw = &self.bytes[at];
        match raw[0] {
            b'{' | b'[' | b'n' => Scalar::None,
            b'"' => match unescape(&raw[1..raw.len() - 1]) {
                Some(text) => Scalar::Text(text),
                None => Scalar::NotUnicode,
            },
            _ => std::str::from_utf8(raw).map_or(Scalar::NotUnicode, |text| Scalar::Text(text.into())),
        }
    }
}

/// The children of a container in a checked document: the key's bytes between its quotes, and the value.
struct Children<'d> {
    bytes: &'d [u8],
    long: &'d Long,
    at: usize,
    is_object: bool,
    done: bool,
}

impl Iterator for Children<'_> {
    type Item = (Option<Range<usize>>, Range<usize>);

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let mut at = skip_space(self.bytes, self.at);
        if matches!(self.bytes.get(at), Some(b'}' | b']')) {
            self.done = true;
            return None;
        }
        let mut key = None;
        if self.is_object {
            let end = skip_string(self.bytes, at).ok()?;
            key = Some(at + 1..end - 1);
            at = skip_space(self.bytes, skip_space(self.bytes, end) + 1);
        }
        let end = match self.bytes.get(at) {
            Some(b'{' | b'[') => self.long.end_of(at),
            _ => None,
        };
        let end = end.or_else(|| skip_value(self.bytes, at, usize::MAX, None).ok())?;
        let after = skip_space(self.bytes, end);
        self.done = self.bytes.get(after) != Some(&b',');
        self.at = after + 1;
        Some((key, at..end))
    }
}

impl Long {
    fn end_of(&self, start: usize) -> Option<usize> {
        let place = self.found.binary_search_by_key(&start, |(start, _)| *start).ok()?;
        Some(self.found[place].1)
    }

    fn note(&mut self, start: usize, end: usize) {
        if end - start >= self.bytes_min {
            self.found.push((start, end));
        }
    }
}

fn is_name(raw: &[u8], name: &str) -> bool {
    raw == name.as_bytes() || (raw.contains(&b'\\') && unescape(raw).is_some_and(|key| key == name))
}

fn skip_space(bytes: &[u8], mut at: usize) -> usize {
    while matches!(bytes.get(at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
        at += 1;
    }
    at
}

/// The end of the value that starts at `at`. Notes the long containers in it.
fn skip_value(
    bytes: &[u8],
    mut at: usize,
    depth_max: usize,
    mut long: Option<&mut Long>,
) -> Result<usize, Malformed> {
    let mut open = Vec::new();
    let mut starts = [0; LONG_DEPTH_MAX];
    loop {
        at = skip_space(bytes, at);
        match bytes.get(at).ok_or(Malformed)? {
            kind @ (b'{' | b'[') => {
                if open.len() >= depth_max {
                    return Err(Malformed);
                }
                if let Some(start) = starts.get_mut(open.len()) {
                    *start = at;
                }
                open.push(*kind);
                at = skip_space(bytes, at + 1);
                match (kind, bytes.get(at).ok_or(Malformed)?) {
                    (b'{', b'}') | (b'[', b']') => {
                        open.pop();
                        at += 1;
                    }
                    (b'{', _) => {
                        at = skip_key(bytes, at)?;
                        continue;
                    }
                    _ => continue,
                }
            }
            b'"' => at = skip_string(bytes, at)?,
            _ => at = skip_plain(bytes, at)?,
        }
        loop {
            let Some(kind) = open.last() else { return Ok(at) };
            at = skip_space(bytes, at);
            match (kind, bytes.get(at).ok_or(Malformed)?) {
                (b'{', b',') => {
                    at = skip_key(bytes, skip_space(bytes, at + 1))?;
                    break;
                }
                (b'[', b',') => {
                    at += 1;
                    break;
                }
                (b'{', b'}') | (b'[', b']') => {
                    open.pop();
                    at += 1;
                    if let (Some(long), Some(start)) = (long.as_deref_mut(), starts.get(open.len())) {
                        long.note(*start, at);
                    }
                }
                _ => return Err(Malformed),
            }
        }
    }
}

fn skip_key(bytes: &[u8], at: usize) -> Result<usize, Malformed> {
    let end = skip_space(bytes, skip_string(bytes, at)?);
    if bytes.get(end) == Some(&b':') { Ok(end + 1) } else { Err(Malformed) }
}

/// The place after the closing quote.
fn skip_string(bytes: &[u8], at: usize) -> Result<usize, Malformed> {
    if bytes.get(at) != Some(&b'"') {
        return Err(Malformed);
    }
    let mut at = at + 1;
    loop {
        at = skip_ordinary(bytes, at);
        match bytes.get(at).ok_or(Malformed)? {
            b'"' => return Ok(at + 1),
            b'\\' => match bytes.get(at + 1).ok_or(Malformed)? {
                b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => at += 2,
                b'u' => {
                    let digits = bytes.get(at + 2..at + 6).ok_or(Malformed)?;
                    if !digits.iter().all(u8::is_ascii_hexdigit) {
                        return Err(Malformed);
                    }
                    at += 6;
                }
                _ => return Err(Malformed),
            },
            _ => at += 1,
        }
    }
}

/// The first quote or backslash from `at` on, or a place before it that is not before `at`.
fn skip_ordinary(bytes: &[u8], mut at: usize) -> usize {
    const ONES: u64 = u64::from_ne_bytes([0x01; 8]);
    const HIGHS: u64 = u64::from_ne_bytes([0x80; 8]);
    // The lowest set high bit of the result belongs to the first byte that is zero.
    let zeros = |word: u64| word.wrapping_sub(ONES) & !word & HIGHS;
    while let Some(eight) = bytes.get(at..).and_then(|rest| rest.first_chunk()) {
        let word = u64::from_le_bytes(*eight);
        let hits = zeros(word ^ (ONES * u64::from(b'"'))) | zeros(word ^ (ONES * u64::from(b'\\')));
        if hits != 0 {
            return at + (hits.trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
    at
}

/// A number or one of the three words.
fn skip_plain(bytes: &[u8], at: usize) -> Result<usize, Malformed> {
    for word in [&b"true"[..], b"false", b"null"] {
        if bytes[at..].starts_with(word) {
            return Ok(at + word.len());
        }
    }
    let digits = |mut at: usize| {
        let start = at;
        while bytes.get(at).is_some_and(u8::is_ascii_digit) {
            at += 1;
        }
        if at > start { Ok(at) } else { Err(Malformed) }
    };
    let start = at + usize::from(bytes[at] == b'-');
    let mut at = digits(start)?;
    if at > start + 1 && bytes[start] == b'0' {
        return Err(Malformed);
    }
    if bytes.get(at) == Some(&b'.') {
        at = digits(at + 1)?;
    }
    if matches!(bytes.get(at), Some(b'e' | b'E')) {
        at += 1;
        at = digits(at + usize::from(matches!(bytes.get(at), Some(b'+' | b'-'))))?;
    }
    Ok(at)
}

/// A string's content; `None` when it is not valid Unicode. The escapes were checked before.
fn unescape(raw: &[u8]) -> Option<Cow<'_, str>> {
    if !raw.contains(&b'\\') {
        return std::str::from_utf8(raw).ok().map(Cow::Borrowed);
    }
    let mut text = Vec::with_capacity(raw.len());
    let mut at = 0;
    while at < raw.len() {
        if raw[at] != b'\\' {
            text.push(raw[at]);
            at += 1;
            continue;
        }
        let escape = *raw.get(at + 1)?;
        at += 2;
        let plain = match escape {
            b'b' => 0x08,
            b'f' => 0x0C,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                let (character, used) = unicode(&raw[at..])?;
                text.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                at += used;
                continue;
            }
            other => other,
        };
        text.push(plain);
    }
    String::from_utf8(text).ok().map(Cow::Owned)
}

/// The character of one `\u` escape or of a surrogate pair of two, and how many bytes it took after the first `\u`.
fn unicode(raw: &[u8]) -> Option<(char, usize)> {
    let unit = |raw: &[u8]| u32::from_str_radix(std::str::from_utf8(raw.get(..4)?).ok()?, 16).ok();
    let first = unit(raw)?;
    if !(0xD800..0xDC00).contains(&first) {
        return char::from_u32(first).map(|character| (character, 4));
    }
    let second = unit(raw.get(4..)?.strip_prefix(b"\\u")?)?;
    if !(0xDC00..0xE000).contains(&second) {
        return None;
    }
    char::from_u32(0x1_0000 + ((first - 0xD800) << 10) + (second - 0xDC00)).map(|character| (character, 10))
}

#[cfg(test)]
mod tests;
