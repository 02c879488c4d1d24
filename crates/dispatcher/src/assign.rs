//! Which stream serves which lane.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use portero_engine::StreamId;
use portero_types::LaneNo;

/// Gives each lane to one of the streams: to the one that rendezvous hashing (highest random weight) prefers among those
/// that have less than their even share. So shares differ by one at most, and few lanes move when a stream comes or goes.
///
/// `streams` are names that stay the same over a consumer's reconnects, with the ids they have now. Empty: no answers.
pub(crate) fn assign(lanes: &[LaneNo], streams: &[(StreamId, &str)]) -> Vec<(LaneNo, StreamId)> {
    if streams.is_empty() {
        return Vec::new();
    }
    let share_max = lanes.len().div_ceil(streams.len());
    let mut shares = vec![0_usize; streams.len()];
    let mut assigned = Vec::with_capacity(lanes.len());
    for lane in lanes {
        let best = (0..streams.len())
            .filter(|index| shares[*index] < share_max)
            .max_by_key(|index| weight(*lane, streams[*index].1))
            .expect("the even share times the number of streams covers all lanes");
        shares[best] += 1;
        assigned.push((*lane, streams[best].0));
    }
    assigned
}

fn weight(lane: LaneNo, stream: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (lane.0, stream).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lanes(count: u8) -> Vec<LaneNo> {
        (0..count).map(LaneNo).collect()
    }

    #[test]
    fn every_lane_has_one_stream_and_shares_differ_by_one_at_most() {
        let names: Vec<String> = (0..5).map(|n| format!("consumer-{n}")).collect();
        let streams: Vec<_> = names.iter().zip(1..).map(|(name, id)| (StreamId(id), name.as_str())).collect();
        let assigned = assign(&lanes(16), &streams);
        assert_eq!(assigned.len(), 16);
        for (id, _) in &streams {
            let share = assigned.iter().filter(|(_, stream)| stream == id).count();
            assert!((1..=4).contains(&share), "{share}");
        }
    }

    #[test]
    fn a_consumer_that_comes_back_under_its_name_gets_its_lanes_back() {
        let before = assign(&lanes(16), &[(StreamId(1), "a"), (StreamId(2), "b")]);
        let after = assign(&lanes(16), &[(StreamId(2), "b"), (StreamId(9), "a")]);
        for ((lane, was), (_, is)) in before.iter().zip(&after) {
            assert_eq!(*was == StreamId(2), *is == StreamId(2), "lane {lane}");
        }
    }

    #[test]
    fn without_streams_nothing_is_assigned() {
        assert!(assign(&lanes(16), &[]).is_empty());
    }
}
