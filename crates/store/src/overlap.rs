//! How many secrets verify at one moment.

use portero_types::Timestamp;

/// The most spans that hold one moment together. A span holds its beginning and not its end; without an end it goes on
/// forever. Spans that end where they begin, or before, hold nothing.
#[must_use]
pub fn most_at_once(spans: &[(Timestamp, Option<Timestamp>)]) -> usize {
    let holds = |span: &(Timestamp, Option<Timestamp>), moment: Timestamp| {
        span.0 <= moment && span.1.is_none_or(|end| moment < end)
    };
    // The count rises only where a span begins, so looking at beginnings is enough.
    spans.iter().map(|(begin, _)| spans.iter().filter(|span| holds(span, *begin)).count()).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(begin: i64, end: i64) -> (Timestamp, Option<Timestamp>) {
        (Timestamp::from_secs(begin), Some(Timestamp::from_secs(end)))
    }

    #[test]
    fn spans_that_touch_do_not_overlap() {
        assert_eq!(most_at_once(&[]), 0);
        assert_eq!(most_at_once(&[span(1, 2), span(2, 3), span(3, 4)]), 1);
        assert_eq!(most_at_once(&[span(1, 3), span(2, 4), span(3, 5)]), 2);
    }

    #[test]
    fn a_span_without_end_overlaps_all_later_ones() {
        assert_eq!(most_at_once(&[(Timestamp::EPOCH, None), span(5, 6), span(7, 8)]), 2);
    }

    #[test]
    fn empty_spans_hold_nothing() {
        assert_eq!(most_at_once(&[span(5, 5), span(5, 4), span(1, 9)]), 1);
    }
}
