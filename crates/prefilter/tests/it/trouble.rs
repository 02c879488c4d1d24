//! A Redis that fails. Whatever it does, a lookup answers in time, and what it answers was remembered.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use portero_prefilter::{Layered, Prefilter};
use tokio::time::Instant;

use crate::server::{Server, hit, key, lookup, over_redis, over_redis_within, remember, until};

const SHORT: Duration = Duration::from_millis(30);
/// Far more than one time-out, far less than waiting for a stopped server.
const SOON: Duration = Duration::from_secs(2);

fn is_skipped(layered: &Layered) -> bool {
    layered.redis().unwrap().is_skipped()
}

async fn until_used_again(layered: &Layered) {
    until("Redis is used again", async || {
        layered.tend().await;
        !is_skipped(layered)
    })
    .await;
}

async fn until_skipped(layered: &Layered) {
    until("Redis is skipped", async || {
        assert_eq!(lookup(layered, "db-1", 999).await, None);
        is_skipped(layered)
    })
    .await;
}

#[tokio::test]
async fn an_absent_redis_knows_nothing_and_is_used_when_it_comes() {
    let mut server = Server::start().await;
    server.kill();
    let layered = over_redis(&server.url());
    remember(&layered, "db-1", 1).await;
    until_skipped(&layered).await;
    server.restart().await;
    until_used_again(&layered).await;
    assert_eq!(lookup(&layered, "db-1", 1).await, None, "it is empty");
    remember(&layered, "db-1", 1).await;
    assert_eq!(lookup(&layered, "db-1", 1).await, Some(hit(1)));
}

#[tokio::test]
async fn a_flushed_redis_knows_nothing_and_learns_again() {
    let server = Server::start().await;
    let layered = over_redis(&server.url());
    remember(&layered, "db-1", 1).await;
    assert_eq!(lookup(&layered, "db-1", 1).await, Some(hit(1)));
    redis::cmd("FLUSHALL").exec_async(&mut server.connection().await).await.unwrap();
    assert_eq!(lookup(&layered, "db-1", 1).await, None);
    remember(&layered, "db-1", 1).await;
    assert_eq!(lookup(&layered, "db-1", 1).await, Some(hit(1)));
}

#[tokio::test]
async fn values_that_are_not_ours_are_nothing_known() {
    let server = Server::start().await;
    let layered = over_redis(&server.url());
    remember(&layered, "db-1", 1).await;
    let mut connection = server.connection().await;
    let keys: Vec<Vec<u8>> = redis::cmd("KEYS").arg("*").query_async(&mut connection).await.unwrap();
    let name = &keys[0];
    let value: Vec<u8> = redis::cmd("GET").arg(name).query_async(&mut connection).await.unwrap();
    for garbage in [Vec::new(), b"1".to_vec(), vec![0; value.len()], vec![0xff; 1 << 20], value[1..].to_vec()]
    {
        redis::cmd("SET").arg(name).arg(&garbage).exec_async(&mut connection).await.unwrap();
        assert_eq!(lookup(&layered, "db-1", 1).await, None);
    }
    redis::cmd("DEL").arg(name).exec_async(&mut connection).await.unwrap();
    redis::cmd("RPUSH").arg(name).arg("a list").exec_async(&mut connection).await.unwrap();
    assert_eq!(lookup(&layered, "db-1", 1).await, None);
    assert!(!is_skipped(&layered), "a wrong value is no failure of Redis");
    remember(&layered, "db-1", 1).await;
    assert_eq!(lookup(&layered, "db-1", 1).await, Some(hit(1)), "and is overwritten");
}

#[tokio::test]
async fn a_value_copied_to_another_key_is_nothing_known() {
    let server = Server::start().await;
    let layered = over_redis(&server.url());
    remember(&layered, "db-1", 1).await;
    let mut connection = server.connection().await;
    let first: Vec<Vec<u8>> = redis::cmd("KEYS").arg("*").query_async(&mut connection).await.unwrap();
    remember(&layered, "db-1", 2).await;
    let both: Vec<Vec<u8>> = redis::cmd("KEYS").arg("*").query_async(&mut connection).await.unwrap();
    let second = both.iter().find(|name| **name != first[0]).unwrap();
    redis::cmd("COPY").arg(&first[0]).arg(second).arg("REPLACE").exec_async(&mut connection).await.unwrap();
    assert_eq!(lookup(&layered, "db-1", 1).await, Some(hit(1)));
    assert_eq!(lookup(&layered, "db-1", 2).await, None);
}

#[tokio::test]
async fn a_stopped_redis_costs_a_few_time_outs_and_then_nothing() {
    let server = Server::start().await;
    let layered = over_redis_within(&server.url(), SHORT);
    // The first call connects, which may take longer than it may.
    until("it is known", async || {
        remember(&layered, "db-1", 1).await;
        layered.tend().await;
        lookup(&layered, "db-1", 1).await.is_some()
    })
    .await;
    server.signal("STOP");
    let begun = Instant::now();
    for n in 0..1_000 {
        assert_eq!(lookup(&layered, "db-1", 1).await, None, "{n}");
        remember(&layered, "db-1", 2).await;
    }
    assert!(is_skipped(&layered));
    assert!(begun.elapsed() < SOON, "2,000 calls took {:?}", begun.elapsed());
    let begun = Instant::now();
    layered.tend().await;
    assert!(is_skipped(&layered), "a probe does not trust a stopped server");
    assert!(begun.elapsed() < SOON);
    server.signal("CONT");
    until_used_again(&layered).await;
    until("the old entry is found again", async || {
        layered.tend().await;
        lookup(&layered, "db-1", 1).await == Some(hit(1))
    })
    .await;
}

#[tokio::test]
async fn answers_that_come_too_late_are_not_taken_for_others() {
    let server = Server::start().await;
    let layered = over_redis_within(&server.url(), SHORT);
    let all: Vec<_> = (0..50).map(|n| (key(n), hit(n))).collect();
    until("all are known", async || {
        layered.confirm("db-1", Instant::now());
        layered.remember(&all).await;
        layered.tend().await;
        lookup(&layered, "db-1", 49).await.is_some()
    })
    .await;
    for _ in 0..3 {
        server.signal("STOP");
        assert_eq!(lookup(&layered, "db-1", 0).await, None);
        server.signal("CONT");
        for n in 1..50 {
            let found = lookup(&layered, "db-1", n).await;
            assert!(found.is_none_or(|found| found == hit(n)), "{n}");
        }
        layered.tend().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_killed_mid_flight_never_invents_an_entry() {
    let mut server = Server::start().await;
    let layered = Arc::new(over_redis(&server.url()));
    let is_over = Arc::new(AtomicBool::new(false));
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..8_usize {
        let (layered, is_over) = (layered.clone(), is_over.clone());
        tasks.spawn(async move {
            let mut found = 0_u32;
            for n in (task..).step_by(8) {
                if is_over.load(Ordering::SeqCst) {
                    break;
                }
                remember(&layered, "db-1", n).await;
                let hits = layered.lookup(&[key(n), key(n + 1_000_000)]).await;
                assert!(hits[0].is_none_or(|hit_| hit_ == hit(n)));
                assert_eq!(hits[1], None, "it was never remembered");
                found += u32::from(hits[0].is_some());
                tokio::task::yield_now().await;
            }
            found
        });
    }
    for _ in 0..3 {
        until("entries are found", async || lookup_any(&layered).await).await;
        server.kill();
        until_skipped(&layered).await;
        server.restart().await;
        until_used_again(&layered).await;
    }
    is_over.store(true, Ordering::SeqCst);
    assert!(tasks.join_all().await.into_iter().sum::<u32>() > 0);
}

async fn lookup_any(layered: &Layered) -> bool {
    remember(layered, "db-1", 5_000_000).await;
    lookup(layered, "db-1", 5_000_000).await.is_some()
}

#[tokio::test]
async fn a_full_redis_that_refuses_writes_still_answers() {
    let server = Server::start().await;
    let layered = over_redis(&server.url());
    remember(&layered, "db-1", 1).await;
    let mut connection = server.connection().await;
    redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg("1").exec_async(&mut connection).await.unwrap();
    remember(&layered, "db-1", 2).await;
    assert_eq!(lookup(&layered, "db-1", 2).await, None);
    assert_eq!(lookup(&layered, "db-1", 1).await, Some(hit(1)));
}
