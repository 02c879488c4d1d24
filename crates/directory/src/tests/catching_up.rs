//! Looking once more before somebody is refused.

use std::time::Duration;

use portero_store::Revision;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{key, keyring, open, snapshot, source};
use crate::testing::FixedConfig;

const SECOND: Duration = Duration::from_secs(1);

fn empty() -> FixedConfig {
    FixedConfig::new(snapshot(Vec::new(), Vec::new()))
}

#[tokio::test(start_paused = true)]
async fn who_catches_up_sees_what_was_made_before() {
    let store = empty();
    let (directory, _follower) = open(&store, keyring()).await;
    for n in 1..10 {
        store.change(|config| config.sources.push(source(n, "stripe")));
        assert!(directory.snapshot().source_by_ingest_key(&key(n)).is_none());
        assert!(directory.catch_up().await);
        assert!(directory.snapshot().source_by_ingest_key(&key(n)).is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn however_many_catch_up_the_store_is_asked_four_times_a_second() {
    let store = empty();
    let (directory, _follower) = open(&store, keyring()).await;
    let (looked, began) = (store.looks(), Instant::now());
    let mut callers = JoinSet::new();
    for n in 0..10_000_u32 {
        // A thousand in every second, for ten seconds.
        let (directory, store) = (directory.clone(), store.clone());
        callers.spawn(async move {
            tokio::time::sleep(Duration::from_millis(u64::from(n))).await;
            store.change(|_| ());
            let made = store.present();
            let called = Instant::now();
            assert!(directory.catch_up().await);
            assert!(directory.snapshot().revision() >= made);
            called.elapsed()
        });
    }
    let longest = callers.join_all().await.into_iter().max().expect("some");
    assert!(longest <= SECOND / 2, "{longest:?}");
    // Each look that finds something new says at once that it is applied, which is a second question.
    let looks = store.looks() - looked;
    let seconds = began.elapsed().as_secs() + 1;
    assert!(looks as u64 <= seconds * 4 * 2 + 2, "{looks} looks in {seconds} seconds");
    assert_eq!(directory.snapshot().revision(), Revision(10_001));
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_longer_than_a_second_for_a_store_that_is_away() {
    let store = empty();
    let (directory, _follower) = open(&store, keyring()).await;
    store.set_down(true);
    assert!(!directory.catch_up().await);
    store.set_down(false);
    let hanging = store.hang().await;
    let mut callers = JoinSet::new();
    for _ in 0..1_000 {
        let directory = directory.clone();
        callers.spawn(async move {
            let called = Instant::now();
            (directory.catch_up().await, called.elapsed())
        });
    }
    let answers = callers.join_all().await;
    assert!(answers.iter().all(|(caught_up, _)| !caught_up));
    assert!(answers.iter().all(|(_, waited)| *waited <= SECOND + SECOND / 100), "{:?}", answers.iter().max());
    drop(hanging);
    store.change(|config| config.sources.push(source(1, "stripe")));
    assert!(directory.catch_up().await, "it goes on");
    assert!(directory.snapshot().source_by_ingest_key(&key(1)).is_some());
}
