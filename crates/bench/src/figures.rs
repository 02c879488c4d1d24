//! Small arithmetic of reports.

/// The median; between the middle two of an even number, 0 of none.
pub(crate) fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    let half = figures.len() / 2;
    match figures.len() {
        0 => 0.0,
        odd if odd % 2 == 1 => figures[half],
        _ => f64::midpoint(figures[half - 1], figures[half]),
    }
}

/// A count by a number of seconds, or of anything else.
#[expect(clippy::cast_precision_loss, reason = "counts of a few minutes are far below 2^52")]
pub(crate) fn per(count: u64, seconds: f64) -> f64 {
    count as f64 / seconds
}

/// Microseconds as milliseconds.
pub(crate) fn to_ms(micros: u64) -> f64 {
    per(micros, 1_000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_lies_between_the_middle_two() {
        assert!((median([1.0, 9.0, 3.0, 5.0].into_iter()) - 4.0).abs() < 1e-9);
        assert!((median([2.0, 9.0, 1.0].into_iter()) - 2.0).abs() < 1e-9);
        assert!(median(std::iter::empty()).abs() < 1e-9);
    }
}
