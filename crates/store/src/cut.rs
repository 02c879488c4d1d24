//! Progress that lies beyond its shard's head belongs to a history that was lost, and is cut to the head. Pure.

use crate::{ClaimedLane, JournalState, Overflow, ParkedEntity, ParkedState};

impl JournalState {
    /// Whether anything of it lies beyond the head of its lane's shard.
    #[must_use]
    pub fn is_beyond(&self, head: u64) -> bool {
        let progress = self.acked.last().copied().unwrap_or(0).max(self.watermark);
        let detours = self.detours.iter().flat_map(|detour| {
            let acked = detour.acked.last().copied().unwrap_or(0);
            [detour.starts_after, detour.ends_at.unwrap_or(0), detour.watermark, acked]
        });
        detours.chain([progress]).any(|n| n > head)
    }
}

impl ClaimedLane {
    /// Whether anything of the lane lies beyond the head of its shard.
    #[must_use]
    pub fn is_beyond(&self, head: u64) -> bool {
        let parked = self.parked.iter().flat_map(|parked| {
            let listed = parked.positions.last().copied().unwrap_or(0);
            [listed, parked.overflow.map_or(0, |overflow| overflow.last)]
        });
        let deferred = self.deferred.iter().map(|deferred| deferred.position);
        self.state.is_beyond(head) || parked.chain(deferred).any(|n| n > head)
    }

    /// Drops what lies beyond the head. Positions up to it keep their meaning; those above will be handed out again. A
    /// blocked entity stays blocked.
    pub fn cut_to(&mut self, head: u64) {
        let state = &mut self.state;
        state.watermark = state.watermark.min(head);
        state.acked.retain(|n| *n <= head);
        for detour in &mut state.detours {
            detour.starts_after = detour.starts_after.min(head);
            detour.ends_at = detour.ends_at.map(|end| end.min(head));
            detour.watermark = detour.watermark.min(head);
            detour.acked.retain(|n| *n <= head);
        }
        self.parked.retain_mut(|parked| cut_parked(parked, head));
        self.deferred.retain(|deferred| deferred.position <= head);
    }
}

/// Whether anything of it is left.
fn cut_parked(parked: &mut ParkedEntity, head: u64) -> bool {
    parked.positions.retain(|n| *n <= head);
    parked.overflow = parked
        .overflow
        .filter(|overflow| overflow.after < head)
        .map(|overflow| Overflow { last: overflow.last.min(head), ..overflow });
    !parked.positions.is_empty() || parked.overflow.is_some() || parked.state == ParkedState::Blocked
}

#[cfg(test)]
mod tests {
    use portero_types::{EntityHash, Epoch, LaneNo, SubscriptionNo, TenantNo, Timestamp};

    use super::*;
    use crate::{Deferred, Detour, JournalState, LaneKey};

    fn parked(
        entity: u64,
        state: ParkedState,
        positions: &[u64],
        overflow: Option<(u64, u64)>,
    ) -> ParkedEntity {
        ParkedEntity {
            entity: EntityHash(entity),
            state,
            positions: positions.to_vec(),
            overflow: overflow.map(|(after, last)| Overflow { after, last }),
            attempts: 1,
            interruptions: 0,
            due_at: Timestamp::from_secs(1),
            first_failed_at: Timestamp::from_secs(1),
            reason_code: String::new(),
            reason_text: String::new(),
        }
    }

    fn lane() -> ClaimedLane {
        let deferred = |position| Deferred {
            entity: EntityHash(9),
            position,
            deadline: Timestamp::from_secs(9),
            reason_code: String::new(),
            reason_text: String::new(),
        };
        let detour = Detour {
            tenant: TenantNo(1),
            starts_after: 3,
            ends_at: Some(11),
            watermark: 5,
            acked: vec![9, 11],
        };
        ClaimedLane {
            lane: LaneKey { subscription: SubscriptionNo(1), lane: LaneNo(0) },
            epoch: Epoch(2),
            state: JournalState { seq: 0, watermark: 8, acked: vec![10, 12], detours: vec![detour] },
            parked: vec![
                parked(1, ParkedState::Retry, &[2, 11], None),
                parked(2, ParkedState::Retry, &[11], Some((11, 12))),
                parked(3, ParkedState::Blocked, &[12], None),
                parked(4, ParkedState::Held, &[], Some((6, 12))),
            ],
            deferred: vec![deferred(4), deferred(11)],
        }
    }

    #[test]
    fn what_lies_within_the_head_is_left_as_it_is() {
        assert!(!lane().is_beyond(12) && lane().is_beyond(11));
        let mut cut = lane();
        cut.cut_to(12);
        assert_eq!((cut.state, cut.parked, cut.deferred), (lane().state, lane().parked, lane().deferred));
    }

    #[test]
    fn each_part_alone_makes_a_lane_lie_beyond() {
        let bare = || {
            let mut bare = lane();
            bare.cut_to(0);
            bare
        };
        assert!(!bare().is_beyond(0));
        let whole = lane();
        for part in 0..5 {
            let mut lane = bare();
            match part {
                0 => lane.state.watermark = 1,
                1 => lane.state.acked = vec![7],
                2 => lane.state.detours.clone_from(&whole.state.detours),
                3 => lane.parked.clone_from(&whole.parked),
                _ => lane.deferred.clone_from(&whole.deferred),
            }
            assert!(lane.is_beyond(0), "part {part}");
        }
    }

    #[test]
    fn what_lies_beyond_is_dropped_and_the_rest_keeps_its_place() {
        let mut cut = lane();
        cut.cut_to(10);
        assert!(!cut.is_beyond(10));
        assert_eq!((cut.state.watermark, &cut.state.acked[..]), (8, &[10][..]));
        let detour = &cut.state.detours[0];
        assert_eq!((detour.starts_after, detour.ends_at, detour.watermark), (3, Some(10), 5));
        assert_eq!(detour.acked, [9]);
        let left = [
            parked(1, ParkedState::Retry, &[2], None),
            parked(3, ParkedState::Blocked, &[], None),
            parked(4, ParkedState::Held, &[], Some((6, 10))),
        ];
        assert_eq!(cut.parked, left);
        assert_eq!(cut.deferred.len(), 1);
        cut.cut_to(1);
        assert_eq!((cut.state.watermark, cut.state.acked.len(), cut.parked.len()), (1, 0, 1));
    }
}
