//! A Redis that works.

use std::time::Duration;

use portero_prefilter::{InvalidRedis, KEYS_PER_COMMAND_MAX, Layered, Prefilter, Redis, RedisConfig};
use tokio::time::Instant;

use crate::server::{Server, hit, key, local, lookup, over_redis, remember, shared_url};

/// A name that no other test and no former run uses.
fn identity(test: &str) -> String {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    format!("{test}-{}-{port}", std::process::id())
}

#[tokio::test]
async fn what_one_replica_remembers_another_knows() {
    let identity = identity("shared");
    let (one, other) = (over_redis(&shared_url()), over_redis(&shared_url()));
    assert_eq!(lookup(&other, &identity, 1).await, None);
    remember(&one, &identity, 1).await;
    assert_eq!(lookup(&other, &identity, 1).await, Some(hit(1)));
}

#[tokio::test]
async fn another_identity_of_the_database_knows_nothing() {
    let identity = identity("stale");
    let before = over_redis(&shared_url());
    remember(&before, &identity, 1).await;
    let after = over_redis(&shared_url());
    assert_eq!(lookup(&after, &format!("{identity}-restored"), 1).await, None);
    assert_eq!(lookup(&before, &identity, 1).await, Some(hit(1)));
}

#[tokio::test]
async fn a_batch_longer_than_one_command_is_answered_in_order() {
    let identity = identity("batch");
    let layered = over_redis(&shared_url());
    let n = KEYS_PER_COMMAND_MAX * 2 + 3;
    layered.confirm(&identity, Instant::now());
    let events: Vec<_> = (0..n).filter(|i| i % 3 != 0).map(|i| (key(i), hit(i))).collect();
    layered.remember(&events).await;
    let keys: Vec<_> = (0..n).map(key).collect();
    layered.confirm(&identity, Instant::now());
    let expected: Vec<_> = (0..n).map(|i| (i % 3 != 0).then(|| hit(i))).collect();
    assert_eq!(layered.lookup(&keys).await, expected);
    assert!(layered.lookup(&[]).await.is_empty());
}

#[tokio::test]
async fn every_entry_has_a_time_to_live() {
    let server = Server::start().await;
    remember(&over_redis(&server.url()), "db-1", 1).await;
    let mut connection = server.connection().await;
    let keys: Vec<Vec<u8>> = redis::cmd("KEYS").arg("*").query_async(&mut connection).await.unwrap();
    assert_eq!(keys.len(), 1);
    let ttl_ms: i64 = redis::cmd("PTTL").arg(&keys[0]).query_async(&mut connection).await.unwrap();
    assert!((86_000_000..=86_400_000).contains(&ttl_ms), "{ttl_ms}");
}

#[tokio::test]
async fn what_redis_knew_is_known_locally_from_then_on() {
    let mut server = Server::start().await;
    remember(&over_redis(&server.url()), "db-1", 1).await;
    let config = RedisConfig { call_timeout: Duration::from_millis(500), ..RedisConfig::new(server.url()) };
    let layered = Layered::new(Some(local()), Some(Redis::new(config).unwrap()));
    assert_eq!(lookup(&layered, "db-1", 1).await, Some(hit(1)));
    server.kill();
    assert_eq!(lookup(&layered, "db-1", 1).await, Some(hit(1)));
}

#[tokio::test]
async fn impossible_settings_are_refused_without_showing_the_password() {
    for url in ["", "http://x", "redis://user:hunter2@", "hunter2"] {
        let error = Redis::new(RedisConfig::new(url)).err();
        assert!(error.is_none_or(|e| e == InvalidRedis::Url), "{url}");
    }
    let config = RedisConfig::new("redis://:hunter2@127.0.0.1:1");
    assert!(!format!("{config:?}").contains("hunter2"));
    assert!(!format!("{:?}", Redis::new(config.clone()).unwrap()).contains("hunter2"));
    let bad = RedisConfig { ttl: Duration::ZERO, ..config.clone() };
    assert_eq!(Redis::new(bad).err(), Some(InvalidRedis::Ttl));
    let bad = RedisConfig { call_timeout: Duration::from_secs(2), ..config };
    assert_eq!(Redis::new(bad).err(), Some(InvalidRedis::CallTimeout));
}
