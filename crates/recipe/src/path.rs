//! Paths into JSON: `data.object.id`, `entry.0.id`, `items.*.id`.

/// Longest path, segments.
pub(crate) const SEGMENTS_MAX: usize = 16;

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Segment {
    /// A member's name; when it is a number, also an element's place.
    Name {
        /// The name.
        name: String,
        /// The name as a place in an array.
        index: Option<usize>,
    },
    /// `*`: each element or member.
    Each,
}

/// A path of at least one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Path {
    segments: Vec<Segment>,
    text: String,
}

impl Path {
    /// Reads a path; the error says what is wrong.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let segments: Vec<Segment> = text
            .split('.')
            .map(|part| match part {
                "" => Err(format!("the path '{text}' has an empty step")),
                "*" => Ok(Segment::Each),
                name => Ok(Segment::Name { name: name.to_owned(), index: name.parse().ok() }),
            })
            .collect::<Result<_, _>>()?;
        if segments.len() > SEGMENTS_MAX {
            return Err(format!("a path has at most {SEGMENTS_MAX} steps"));
        }
        Ok(Self { segments, text: text.to_owned() })
    }

    /// The steps.
    pub(crate) fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// How many steps are `*`.
    pub(crate) fn stars(&self) -> usize {
        self.segments.iter().filter(|segment| **segment == Segment::Each).count()
    }

    /// As written.
    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }
}
