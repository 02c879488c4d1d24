//! What a directory tells of itself, by which clocks it is fresh, and what it waits for.

use std::sync::Arc;
use std::time::Duration;

use portero_store::{ConfigStore, Replica, Revision};
use portero_types::{ManualClock, ReplicaId, Timestamp};
use tokio_util::sync::CancellationToken;

use super::{key, keyring, snapshot, source};
use crate::testing::FixedConfig;
use crate::{Directory, DirectoryConfig, Follower, Reporting};

const NOW: Timestamp = Timestamp::from_secs(1_750_000_000);
const SECOND: Duration = Duration::from_secs(1);

fn me(clock: &ManualClock) -> Reporting {
    Reporting {
        replica: ReplicaId::new(NOW, 1),
        instance: "one".to_owned(),
        roles: vec!["edge".to_owned(), "admin".to_owned()],
        version: "1.2.3".to_owned(),
        clock: Arc::new(clock.clone()),
    }
}

fn other(n: u8, revision: i64) -> Replica {
    Replica {
        id: ReplicaId::new(NOW, u128::from(n) << 24),
        instance: format!("other-{n}"),
        roles: vec!["edge".to_owned()],
        version: "1.2.3".to_owned(),
        key_id: "v1".to_owned(),
        revision: Revision(revision),
        started_at: NOW,
        seen_at: NOW,
        skew_micros: 0,
        live: true,
    }
}

async fn open(store: &FixedConfig, clock: &ManualClock) -> (Directory, Follower) {
    store.set_database_time(NOW);
    let config = DirectoryConfig { reporting: Some(me(clock)), ..DirectoryConfig::default() };
    Directory::open(Arc::new(store.clone()), keyring(), config).await.expect("readable")
}

fn empty() -> FixedConfig {
    FixedConfig::new(snapshot(Vec::new(), Vec::new()))
}

async fn replicas(store: &FixedConfig) -> Vec<(String, Revision)> {
    let replicas = store.replicas().await.expect("a list");
    replicas.into_iter().map(|replica| (replica.instance, replica.revision)).collect()
}

#[tokio::test(start_paused = true)]
async fn it_reports_what_it_has_applied_and_signs_off_in_the_end() {
    let (store, clock) = (empty(), ManualClock::at(NOW));
    let (directory, follower) = open(&store, &clock).await;
    let shutdown = CancellationToken::new();
    let following = tokio::spawn(follower.run(shutdown.clone()));
    let mut changed = directory.changed();
    for revision in 2..5 {
        store.change(|config| config.sources.push(source(u8::try_from(revision).expect("small"), "stripe")));
        tokio::time::timeout(SECOND, changed.changed()).await.expect("in time").expect("open");
        tokio::time::timeout(SECOND / 4, async {
            while replicas(&store).await != [("one".to_owned(), Revision(revision))] {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await
        .expect("told at once, not by the next look");
    }
    store.set_replica(other(1, 1));
    store.set_replica(other(2, 1));
    tokio::time::sleep(SECOND).await;
    assert_eq!(directory.edges(), 3);
    shutdown.cancel();
    following.await.expect("no panic");
    assert_eq!(replicas(&store).await.len(), 2, "it signed off");
}

#[tokio::test(start_paused = true)]
async fn a_hint_makes_it_look_at_once_and_many_make_it_look_now_and_then() {
    let (store, clock) = (empty(), ManualClock::at(NOW));
    let (directory, follower) = open(&store, &clock).await;
    let following = tokio::spawn(follower.run(CancellationToken::new()));
    tokio::time::sleep(SECOND).await;
    let mut changed = directory.changed();
    store.change(|config| config.sources.push(source(1, "stripe")));
    directory.look();
    tokio::time::timeout(Duration::from_millis(30), changed.changed()).await.expect("at once").expect("open");
    assert!(directory.snapshot().source_by_ingest_key(&key(1)).is_some());
    let began = tokio::time::Instant::now();
    for _ in 0..100 {
        store.change(|_| ());
        directory.look();
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(began.elapsed() < SECOND);
    assert!(store.deltas_read() < 12, "a storm of hints is a few looks: {}", store.deltas_read());
    following.abort();
}

#[tokio::test(start_paused = true)]
async fn it_is_stale_when_either_clock_says_so() {
    let (store, clock) = (empty(), ManualClock::at(NOW));
    let (directory, _follower) = open(&store, &clock).await;
    assert!(directory.is_fresh());
    clock.advance(Duration::from_secs(5));
    assert!(!directory.is_fresh(), "the machine was suspended, and its steady clock with it");
    directory.refresh_now().await.expect("readable");
    assert!(directory.is_fresh());
    tokio::time::advance(Duration::from_secs(5)).await;
    assert!(!directory.is_fresh(), "the wall clock stands still");
    directory.refresh_now().await.expect("readable");
    clock.set(NOW.minus(Duration::from_secs(60)));
    assert!(!directory.is_fresh(), "the wall clock was set back");
    directory.refresh_now().await.expect("readable");
    assert!(directory.is_fresh(), "what is confirmed now is fresh now");
}

#[tokio::test(start_paused = true)]
async fn the_difference_of_clocks_is_measured_with_each_report() {
    let (store, clock) = (empty(), ManualClock::at(NOW));
    let (directory, follower) = open(&store, &clock).await;
    assert_eq!(directory.clock_skew_micros(), 0);
    let shutdown = CancellationToken::new();
    let following = tokio::spawn(follower.run(shutdown.clone()));
    for (ahead, expected) in [(42, 42_000_000), (-7, -7_000_000), (0, 0)] {
        let set = NOW.as_secs() + ahead;
        clock.set(Timestamp::from_secs(set));
        tokio::time::sleep(SECOND).await;
        assert_eq!(directory.clock_skew_micros(), expected);
    }
    shutdown.cancel();
    following.await.expect("no panic");
}

#[tokio::test(start_paused = true)]
async fn confirming_waits_for_every_live_edge_and_names_those_that_are_behind() {
    let (store, clock) = (empty(), ManualClock::at(NOW));
    let (directory, follower) = open(&store, &clock).await;
    let shutdown = CancellationToken::new();
    let following = tokio::spawn(follower.run(shutdown.clone()));
    store.set_replica(other(1, 1));
    store.set_replica(Replica { live: false, ..other(2, 1) });
    store.set_replica(Replica { roles: vec!["stream".to_owned()], ..other(3, 1) });
    store.change(|config| config.sources.push(source(1, "stripe")));
    let wanted = Revision(2);

    let began = tokio::time::Instant::now();
    let behind = directory.confirm(wanted, 2 * SECOND).await.expect("readable");
    let names: Vec<_> = behind.iter().map(|replica| replica.instance.as_str()).collect();
    assert_eq!(names, ["other-1"], "neither who is gone nor who takes no webhooks");
    assert!(began.elapsed() > SECOND, "it was given its time");

    let waiting = tokio::spawn({
        let directory = directory.clone();
        async move { directory.confirm(wanted, 10 * SECOND).await.expect("readable") }
    });
    tokio::time::sleep(SECOND).await;
    assert!(!waiting.is_finished());
    store.set_replica(other(1, 2));
    let behind = tokio::time::timeout(SECOND / 4, waiting).await.expect("at once").expect("no panic");
    assert_eq!(behind, []);

    store.set_down(true);
    directory.confirm(wanted, SECOND).await.expect_err("nothing is known");
    shutdown.cancel();
    following.await.expect("no panic");
}

#[tokio::test(start_paused = true)]
async fn two_live_processes_of_one_name_are_both_waited_for() {
    let (store, clock) = (empty(), ManualClock::at(NOW));
    let (one, follower) = open(&store, &clock).await;
    let following_one = tokio::spawn(follower.run(CancellationToken::new()));
    tokio::time::sleep(SECOND).await;
    let namesake = Reporting { replica: ReplicaId::new(NOW, 2 << 24), ..me(&clock) };
    let config = DirectoryConfig { reporting: Some(namesake), ..DirectoryConfig::default() };
    let (two, follower) =
        Directory::open(Arc::new(store.clone()), keyring(), config).await.expect("readable");
    let following_two = tokio::spawn(follower.run(CancellationToken::new()));
    tokio::time::sleep(2 * SECOND).await;
    assert_eq!(replicas(&store).await.len(), 2, "neither takes the place of the other for good");
    assert_eq!((one.edges(), two.edges()), (2, 2));

    following_two.abort();
    store.change(|config| config.sources.push(source(1, "stripe")));
    let behind = one.confirm(Revision(2), SECOND).await.expect("readable");
    assert_eq!(behind.iter().map(|replica| replica.id).collect::<Vec<_>>(), [ReplicaId::new(NOW, 2 << 24)]);
    following_one.abort();
}

#[tokio::test(start_paused = true)]
async fn who_has_signed_off_is_not_there_again_when_it_looks_once_more() {
    let (store, clock) = (empty(), ManualClock::at(NOW));
    let (directory, follower) = open(&store, &clock).await;
    let shutdown = CancellationToken::new();
    let following = tokio::spawn(follower.run(shutdown.clone()));
    tokio::time::sleep(SECOND).await;
    shutdown.cancel();
    following.await.expect("no panic");
    store.change(|config| config.sources.push(source(1, "stripe")));
    assert_eq!(directory.refresh_now().await.expect("readable"), Revision(2), "the last calls are served");
    assert!(replicas(&store).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn who_is_alone_has_nothing_to_catch_up_with() {
    let (store, clock) = (empty(), ManualClock::at(NOW));
    let (directory, _follower) = open(&store, &clock).await;
    let looks = store.looks();
    for _ in 0..1_000 {
        assert!(!directory.catch_up().await);
    }
    assert_eq!(store.looks(), looks, "a refusal costs nothing");
    store.set_replica(Replica { roles: vec!["admin".to_owned()], ..other(1, 1) });
    directory.refresh_now().await.expect("readable");
    store.change(|config| config.sources.push(source(1, "stripe")));
    assert!(directory.catch_up().await);
    assert!(directory.snapshot().source_by_ingest_key(&key(1)).is_some());
}

/// The revisions of two lines of history say nothing of each other, and neither line may be taken for the other until the next
/// report.
#[tokio::test(start_paused = true)]
async fn whoever_looks_first_after_a_restore_notices_it() {
    let (store, clock) = (empty(), ManualClock::at(NOW));
    let (directory, _follower) = open(&store, &clock).await;
    store.set_replica(other(1, 1));
    for (n, catches_up) in [(1, false), (2, true)] {
        let mut restored = snapshot(vec![source(n, "stripe")], Vec::new());
        restored.revision = directory.snapshot().revision();
        store.restore(restored);
        if catches_up {
            assert!(directory.catch_up().await);
        } else {
            directory.refresh_now().await.expect("readable");
        }
        assert!(directory.snapshot().source_by_ingest_key(&key(n)).is_some());
    }
}
