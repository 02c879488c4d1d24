//! How many lanes each session should have. Pure: every gateway and every store comes to the same answer by itself.

use std::collections::BTreeMap;

use portero_types::{LaneCount, SessionId};

/// Divides a subscription's lanes in proportion to weights, by largest remainder. In the order of sessions, each once;
/// weights that are given for one session several times are added up.
///
/// The numbers add up to `lanes` unless nobody has a weight. A weight above zero gets at least one lane while there are
/// enough for all; when there are not, the heaviest get one each. A heavier session never gets less than a lighter one.
/// Ties go to the smaller session id.
#[must_use]
pub fn targets(lanes: LaneCount, weights: &[(SessionId, u32)]) -> Vec<(SessionId, u16)> {
    let mut sessions: BTreeMap<SessionId, u64> = BTreeMap::new();
    for (session, weight) in weights {
        *sessions.entry(*session).or_default() += u64::from(*weight);
    }
    let mut parts: Vec<Part> =
        sessions.into_iter().map(|(session, weight)| Part { session, weight, lanes: 0 }).collect();
    let mut waiting: Vec<&mut Part> = parts.iter_mut().filter(|part| part.weight > 0).collect();
    waiting.sort_by(|a, b| b.weight.cmp(&a.weight).then(a.session.cmp(&b.session)));
    divide(lanes.get(), &mut waiting);
    parts.into_iter().map(|part| (part.session, part.lanes)).collect()
}

struct Part {
    session: SessionId,
    weight: u64,
    lanes: u16,
}

/// Divides lanes between parts in descending order of weight.
fn divide(lanes: u16, parts: &mut [&mut Part]) {
    if usize::from(lanes) <= parts.len() {
        parts.iter_mut().take(usize::from(lanes)).for_each(|part| part.lanes = 1);
        return;
    }
    // Whoever would get less than one lane gets one, and the others divide what is left.
    let (mut rest, mut heavy) = (u128::from(lanes), parts.len());
    let mut total: u128 = parts.iter().map(|part| u128::from(part.weight)).sum();
    while let Some(lightest) = parts[..heavy].last_mut() {
        if u128::from(lightest.weight) * rest >= total {
            break;
        }
        lightest.lanes = 1;
        total -= u128::from(lightest.weight);
        rest -= 1;
        heavy -= 1;
    }
    let mut left = rest;
    for part in &mut parts[..heavy] {
        let whole = u128::from(part.weight) * rest / total;
        part.lanes = u16::try_from(whole).unwrap_or(lanes);
        left -= whole;
    }
    let remainder = |part: &Part| u128::from(part.weight) * rest % total;
    let mut order: Vec<usize> = (0..heavy).collect();
    // Stable: equal remainders stay in the order of weight, then session.
    order.sort_by(|a, b| remainder(parts[*b]).cmp(&remainder(parts[*a])));
    for place in order.into_iter().take(usize::try_from(left).unwrap_or(0)) {
        parts[place].lanes += 1;
    }
}

#[cfg(test)]
mod tests {
    use portero_types::Timestamp;
    use proptest::prelude::*;

    use super::*;

    fn session(number: u64) -> SessionId {
        SessionId::new(Timestamp::from_secs(1_750_000_000), u128::from(number) << 24)
    }

    fn weighted(weights: &[u32]) -> Vec<(SessionId, u32)> {
        (0..).zip(weights).map(|(number, weight)| (session(number), *weight)).collect()
    }

    fn lanes(count: u16) -> LaneCount {
        LaneCount::new(count).expect("a power of two")
    }

    fn numbers(count: u16, weights: &[u32]) -> Vec<u16> {
        targets(lanes(count), &weighted(weights)).into_iter().map(|(_, lanes)| lanes).collect()
    }

    #[test]
    fn lanes_follow_weights() {
        assert_eq!(numbers(16, &[1]), [16]);
        assert_eq!(numbers(16, &[1, 1]), [8, 8]);
        assert_eq!(numbers(16, &[3, 1]), [12, 4]);
        assert_eq!(numbers(16, &[1, 1, 1]), [6, 5, 5], "a tie goes to the smaller id");
        assert_eq!(numbers(16, &[1_000, 1]), [15, 1], "nobody who may work is left out");
        assert_eq!(numbers(4, &[5, 1, 9, 5, 5, 7]), [1, 0, 1, 1, 0, 1], "the heaviest first");
        assert_eq!(numbers(16, &[0, 2, 0]), [0, 16, 0]);
        assert_eq!(numbers(16, &[0, 0]), [0, 0]);
        assert_eq!(numbers(16, &[]), [0; 0]);
    }

    #[test]
    fn a_session_that_is_given_twice_has_both_weights() {
        let weights = [(session(1), 1), (session(2), 2), (session(1), 1)];
        assert_eq!(targets(lanes(8), &weights), [(session(1), 4), (session(2), 4)]);
    }

    proptest! {
        #[test]
        fn every_lane_is_given_once_and_nobody_is_left_out(
            weights in prop::collection::vec(prop_oneof![Just(0), 1..5_u32, any::<u32>()], 0..40),
            exponent in 0..9_u32,
        ) {
            let count = 1_u16 << exponent;
            let given = numbers(count, &weights);
            let at_work = weights.iter().filter(|weight| **weight > 0).count();
            let expected = if at_work == 0 { 0 } else { count };
            prop_assert_eq!(given.iter().sum::<u16>(), expected);
            for (weight, lanes) in weights.iter().zip(&given) {
                prop_assert!(*weight > 0 || *lanes == 0);
                if at_work <= usize::from(count) {
                    prop_assert!((*weight > 0) == (*lanes > 0));
                } else {
                    prop_assert!(*lanes <= 1);
                }
            }
        }

        #[test]
        fn a_heavier_session_never_gets_less(
            weights in prop::collection::vec(1..1_000_u32, 1..30), exponent in 0..9_u32,
        ) {
            let given = numbers(1 << exponent, &weights);
            for (a, lanes_a) in weights.iter().zip(&given) {
                for (b, lanes_b) in weights.iter().zip(&given) {
                    prop_assert!(a <= b || lanes_a >= lanes_b, "{weights:?} {given:?}");
                }
            }
        }

        #[test]
        fn nobody_is_more_than_one_lane_above_what_its_weight_is_due(
            weights in prop::collection::vec(1..1_000_u32, 1..30), exponent in 0..9_u32,
        ) {
            let count = 1_u16 << exponent;
            let total: f64 = weights.iter().map(|weight| f64::from(*weight)).sum();
            for (weight, lanes) in weights.iter().zip(numbers(count, &weights)) {
                let due = f64::from(*weight) * f64::from(count) / total;
                prop_assert!(f64::from(lanes) < due.max(1.0) + 1.0, "{lanes} for {due}");
            }
        }

        #[test]
        fn the_order_of_the_question_does_not_matter(
            weights in prop::collection::vec(0..9_u32, 0..20), exponent in 0..9_u32,
        ) {
            let mut asked = weighted(&weights);
            let answer = targets(lanes(1 << exponent), &asked);
            prop_assert!(answer.is_sorted_by(|a, b| a.0 < b.0));
            asked.reverse();
            prop_assert_eq!(targets(lanes(1 << exponent), &asked), answer);
        }
    }
}
