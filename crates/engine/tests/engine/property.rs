//! Generated histories. Set `PROPTEST_CASES` for more of them.

use std::time::Duration;

use portero_engine::{
    Action, Backoff, DeadLetterPolicy, Ending, FlushResult, LaneConfig, Outcome, Undeliverable,
};
use proptest::prelude::*;

use crate::world::{Step, World};

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        6 => Just(Outcome::Ack),
        2 => Just(Outcome::Retry { delay: None }),
        2 => (0..90_u64).prop_map(|secs| Outcome::Retry { delay: Some(Duration::from_secs(secs)) }),
        1 => Just(Outcome::Release),
        1 => Just(Outcome::Reject),
        3 => Just(Outcome::Defer),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let pick = || 0..1_000_usize;
    let ending = prop_oneof![Just(Ending::Graceful), Just(Ending::Abnormal)];
    let why = prop_oneof![
        Just(Undeliverable::NotSent),
        Just(Undeliverable::BodyGone),
        Just(Undeliverable::TooLarge),
        Just(Undeliverable::Unreadable)
    ];
    let result = prop_oneof![
        8 => Just(FlushResult::Written),
        2 => Just(FlushResult::Failed),
        2 => Just(FlushResult::Unknown),
        1 => Just(FlushResult::Lost),
    ];
    prop_oneof![
        12 => prop::option::weighted(0.85, 0..4_u64).prop_map(|entity| Step::Append { entity }),
        8 => (1..8_usize, 0..4_u64).prop_map(|(limit, overlap)| Step::Read { limit, overlap }),
        4 => (1..6_usize, prop::bool::weighted(0.1))
            .prop_map(|(limit, is_missing)| Step::Fetch { limit, is_missing }),
        4 => (prop::bool::weighted(0.4), prop::bool::weighted(0.1))
            .prop_map(|(new, none)| Step::Stream { new, none }),
        12 => (1..6_u32, prop::bool::weighted(0.7))
            .prop_map(|(events, is_idle)| Step::Deliver { events, is_idle }),
        4 => (pick(), any::<bool>()).prop_map(|(pick, is_present)| Step::Adopt { pick, is_present }),
        2 => (0..4_u64, prop_oneof![Just(Action::Retry), Just(Action::DeadLetter)])
            .prop_map(|(entity, action)| Step::Request { entity, action }),
        1 => any::<bool>().prop_map(|frozen| Step::Freeze { frozen }),
        16 => (pick(), outcome(), any::<bool>())
            .prop_map(|(pick, outcome, has_code)| Step::Settle { pick, outcome, has_code }),
        4 => (pick(), outcome()).prop_map(|(pick, outcome)| Step::SettleAny { pick, outcome }),
        1 => (pick(), 0..5_u32, 0..3_u64)
            .prop_map(|(pick, delivery, position)| Step::Forge { pick, delivery, position }),
        1 => (pick(), 0..4_000_u64).prop_map(|(pick, secs)| Step::Hold { pick, secs }),
        1 => (pick(), why).prop_map(|(pick, why)| Step::Undeliverable { pick, why }),
        2 => (pick(), ending).prop_map(|(pick, ending)| Step::EndStream { pick, ending }),
        4 => prop_oneof![Just(0), Just(1), Just(5), Just(31), Just(301), Just(3_600)]
            .prop_map(|secs| Step::Pass { secs }),
        10 => Just(Step::Send),
        10 => (result, any::<bool>()).prop_map(|(result, is_applied)| Step::Answer { result, is_applied }),
        1 => Just(Step::Hurry),
        1 => any::<bool>().prop_map(|is_applied| Step::Crash { is_applied }),
    ]
}

/// Steps that belong together more often than chance would bring them together: a consumer that works.
fn phrase() -> impl Strategy<Value = Vec<Step>> {
    let work = (0..1_000_usize, outcome(), any::<bool>()).prop_map(|(pick, outcome, has_code)| {
        vec![
            Step::Deliver { events: 9, is_idle: true },
            Step::Settle { pick, outcome, has_code },
            Step::Send,
            Step::Answer { result: FlushResult::Written, is_applied: true },
        ]
    });
    let intake = prop::collection::vec(0..3_u64, 1..5).prop_map(|entities| {
        let append = entities.into_iter().map(|entity| Step::Append { entity: Some(entity) });
        append.chain([Step::Read { limit: 9, overlap: 0 }]).collect()
    });
    let reconnect =
        (0..1_000_usize, any::<bool>(), any::<bool>()).prop_map(|(pick, abnormal, is_written)| {
            let ending = if abnormal { Ending::Abnormal } else { Ending::Graceful };
            let write = [Step::Send, Step::Answer { result: FlushResult::Written, is_applied: true }];
            let mut steps =
                vec![Step::Deliver { events: 2, is_idle: true }, Step::EndStream { pick: 0, ending }];
            steps.extend(write.into_iter().filter(|_| is_written));
            steps.push(Step::Stream { new: true, none: false });
            steps.extend((0..3).map(|n| Step::Adopt { pick: pick % 3 + n, is_present: true }));
            steps
        });
    prop_oneof![8 => step().prop_map(|step| vec![step]), 3 => work, 1 => intake, 1 => reconnect]
}

/// Limits so small that histories of a hundred steps reach all of them.
fn config() -> impl Strategy<Value = LaneConfig> {
    let policy = prop_oneof![Just(DeadLetterPolicy::Continue), Just(DeadLetterPolicy::ParkEntity)];
    (1..4_u32, 1..4_u32, 1..7_usize, 1..5_usize, 0..8_usize, policy).prop_map(
        |(
            attempts_max,
            interruptions_max,
            window_events_max,
            acked_max,
            beyond_window,
            dead_letter_policy,
        )| LaneConfig {
            attempts_max,
            interruptions_max,
            dead_letter_policy,
            backoff: Backoff { base: Duration::from_secs(1), max: Duration::from_secs(8) },
            retry_delay_max: Duration::from_secs(60),
            defer_deadline: Duration::from_secs(1_800),
            window_events_max,
            acked_max,
            detours_max: 0,
            blocked_max: 256,
            positions_max: window_events_max + beyond_window,
            ..LaneConfig::default()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_lane_agrees_with_the_model_through_any_history_and_everything_ends(
        config in config(),
        phrases in prop::collection::vec(phrase(), 1..200),
    ) {
        let mut world = World::new(config);
        for step in phrases.iter().flatten() {
            world.step(step);
        }
        world.heal();
    }
}
