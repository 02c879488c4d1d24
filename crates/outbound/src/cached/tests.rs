//! The cache over a fetcher whose answers the test writes down.

use futures::future::join_all;

use super::*;
use crate::testing::{Scripted, wanted};

const HOST: &str = "https://certs.example.com";
const SOURCE: SourceNo = SourceNo(1);
const OTHER: SourceNo = SourceNo(2);

fn cached(upstream: &Arc<Scripted>) -> CachedFetcher {
    CachedFetcher::new(Arc::clone(upstream) as _, CacheConfig::default())
}

fn url(n: usize) -> String {
    format!("{HOST}/{n}")
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_kept_for_as_long_as_the_recipe_says_and_no_longer_than_a_day() {
    let upstream = Scripted::new();
    let cache = cached(&upstream);
    let mut short = wanted(&url(1));
    short.cache_for = Duration::from_secs(60);
    let mut long = wanted(&url(2));
    long.cache_for = Duration::from_secs(365 * 86_400);
    for fetch in [&short, &short, &long, &long] {
        assert_eq!(cache.fetch(fetch, SOURCE).await, Ok(Bytes::from_static(b"answer")));
    }
    assert_eq!(upstream.count(), 2);
    tokio::time::advance(Duration::from_secs(61)).await;
    let _ = (cache.fetch(&short, SOURCE).await, cache.fetch(&long, SOURCE).await);
    assert_eq!(upstream.count(), 3);
    tokio::time::advance(Duration::from_secs(86_401)).await;
    let _ = cache.fetch(&long, SOURCE).await;
    assert_eq!(upstream.count(), 4);
}

#[tokio::test]
async fn many_who_ask_for_the_same_at_once_cause_one_fetch() {
    let upstream = Scripted::gated(0);
    let cache = cached(&upstream);
    let fetch = wanted(&url(1));
    let asking = join_all((0..100).map(|_| cache.fetch(&fetch, SOURCE)));
    let opening = async {
        upstream.until_in_flight(1).await;
        upstream.open(10);
    };
    let (answers, ()) = tokio::join!(asking, opening);
    assert!(answers.iter().all(|answer| *answer == Ok(Bytes::from_static(b"answer"))));
    assert_eq!(upstream.count(), 1);
}

#[tokio::test]
async fn one_who_leaves_does_not_take_the_fetch_from_the_others() {
    let upstream = Scripted::gated(0);
    let cache = cached(&upstream);
    let fetch = wanted(&url(1));
    let mut first = Box::pin(cache.fetch(&fetch, SOURCE));
    assert!(futures::poll!(&mut first).is_pending());
    let mut second = Box::pin(cache.fetch(&fetch, SOURCE));
    assert!(futures::poll!(&mut second).is_pending());
    drop(first);
    upstream.open(1);
    assert_eq!(second.await, Ok(Bytes::from_static(b"answer")));
    assert_eq!(upstream.count(), 1);
}

#[tokio::test]
async fn when_everyone_left_the_fetch_ends_and_gives_its_slot_back() {
    let upstream = Scripted::gated(0);
    let cache = cached(&upstream);
    for n in 0..20 {
        let fetch = wanted(&format!("{HOST}/{n}"));
        let mut asking = Box::pin(cache.fetch(&fetch, SourceNo(n)));
        assert!(futures::poll!(&mut asking).is_pending(), "{n}");
    }
    upstream.open(1);
    assert_eq!(cache.fetch(&wanted(&url(1)), SOURCE).await, Ok(Bytes::from_static(b"answer")));
    assert!(cache.0.state().flights.is_empty());
}

#[tokio::test]
async fn only_eight_fetches_are_under_way_at_once() {
    let upstream = Scripted::gated(0);
    let cache = cached(&upstream);
    let fetches: Vec<_> = (0..9).map(|n| wanted(&format!("https://host-{n}.example.com/"))).collect();
    let mut asking: Vec<_> = fetches.iter().map(|fetch| Box::pin(cache.fetch(fetch, SOURCE))).collect();
    for one in &mut asking[..8] {
        assert!(futures::poll!(one).is_pending());
    }
    assert_eq!(asking.pop().expect("the ninth").await, Err(FetchError::Busy));
    let mut confirm = wanted(&url(1));
    confirm.cache_for = Duration::ZERO;
    assert_eq!(cache.fetch(&confirm, SOURCE).await, Err(FetchError::Busy), "confirmations count too");
    upstream.open(9);
    join_all(asking).await;
    assert_eq!(cache.fetch(&confirm, SOURCE).await, Ok(Bytes::from_static(b"answer")));
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_not_asked_again_for_half_a_minute() {
    let upstream = Scripted::new();
    upstream.answer(&url(1), Err(FetchError::Refused(404)));
    let cache = cached(&upstream);
    for _ in 0..5 {
        assert_eq!(cache.fetch(&wanted(&url(1)), SOURCE).await, Err(FetchError::Refused(404)));
    }
    assert_eq!(upstream.count(), 1);
    tokio::time::advance(Duration::from_secs(31)).await;
    upstream.answer(&url(1), Ok("now"));
    assert_eq!(cache.fetch(&wanted(&url(1)), SOURCE).await, Ok(Bytes::from_static(b"now")));
}

#[tokio::test(start_paused = true)]
async fn ever_new_urls_of_a_host_are_asked_for_slowly_and_known_ones_stay_usable() {
    let upstream = Scripted::new();
    let cache = cached(&upstream);
    let known = wanted(&format!("{HOST}/known"));
    assert!(cache.fetch(&known, SOURCE).await.is_ok());
    let mut asked = 0;
    for n in 0..200 {
        upstream.answer(&url(n), Err(FetchError::Refused(404)));
        asked += usize::from(cache.fetch(&wanted(&url(n)), SOURCE).await == Err(FetchError::Refused(404)));
    }
    assert_eq!(asked, 9, "the known one took a token too");
    assert!(cache.fetch(&known, SOURCE).await.is_ok(), "a hit never counts");
    assert!(
        cache.fetch(&wanted("https://other.example.com/1"), SOURCE).await.is_ok(),
        "nor does another host"
    );
    // It grows old in the middle of the storm, and is fetched again all the same.
    tokio::time::advance(Duration::from_secs(3601)).await;
    for n in 200..240 {
        upstream.answer(&url(n), Err(FetchError::Refused(404)));
        let _ = cache.fetch(&wanted(&url(n)), SOURCE).await;
    }
    assert_eq!(cache.fetch(&wanted(&url(999)), SOURCE).await, Err(FetchError::Busy));
    assert!(cache.fetch(&known, SOURCE).await.is_ok());
}

#[tokio::test]
async fn the_cache_is_bounded_and_forged_failures_do_not_push_good_answers_out() {
    let upstream = Scripted::new();
    let config = CacheConfig {
        entries_max: 10,
        new_per_source: Rate { burst: 1_000, refill: Duration::ZERO },
        ..CacheConfig::default()
    };
    let cache = CachedFetcher::new(Arc::clone(&upstream) as _, config);
    assert!(cache.fetch(&wanted(&url(0)), SOURCE).await.is_ok());
    for n in 1..100 {
        upstream.answer(&url(n), Err(FetchError::Refused(404)));
        let _ = cache.fetch(&wanted(&url(n)), SOURCE).await;
    }
    let before = upstream.count();
    assert!(cache.fetch(&wanted(&url(0)), SOURCE).await.is_ok());
    assert_eq!(upstream.count(), before, "it was kept");
    let mut odd = wanted(&url(0));
    odd.cache_key = "k".repeat(KEY_BYTES_MAX + 1);
    assert_eq!(cache.fetch(&odd, SOURCE).await, Err(FetchError::Forbidden));
}

#[tokio::test(start_paused = true)]
async fn made_up_keys_of_one_source_leave_the_host_to_another_that_knows_nothing_yet() {
    let upstream = Scripted::new();
    let cache = cached(&upstream);
    for n in 0..1_000 {
        upstream.answer(&url(n), Err(FetchError::Refused(404)));
        let _ = cache.fetch(&wanted(&url(n)), SOURCE).await;
    }
    assert_eq!(upstream.count(), 10);
    let genuine = wanted(&format!("{HOST}/genuine"));
    assert_eq!(cache.fetch(&genuine, SOURCE).await, Err(FetchError::Busy));
    assert!(cache.fetch(&genuine, OTHER).await.is_ok());
    assert!(cache.fetch(&genuine, SOURCE).await.is_ok(), "what another brought is there for all");
}

#[tokio::test(start_paused = true)]
async fn many_sources_together_ask_a_host_only_so_fast() {
    let upstream = Scripted::new();
    let cache = cached(&upstream);
    for n in 0..1_000 {
        let source = SourceNo(i64::try_from(n / 5).expect("small"));
        let _ = cache.fetch(&wanted(&url(n)), source).await;
    }
    assert_eq!(upstream.count(), 300);
    tokio::time::advance(Duration::from_secs(1)).await;
    for n in 1_000..1_100 {
        let _ = cache.fetch(&wanted(&url(n)), SourceNo(i64::try_from(n).expect("small"))).await;
    }
    assert_eq!(upstream.count(), 305);
}

#[tokio::test(start_paused = true)]
async fn what_confirms_something_is_asked_each_time_but_not_endlessly() {
    let upstream = Scripted::new();
    let cache = cached(&upstream);
    let mut confirm = wanted(&url(1));
    confirm.cache_for = Duration::ZERO;
    for _ in 0..5 {
        assert!(cache.fetch(&confirm, SOURCE).await.is_ok());
    }
    assert_eq!(cache.fetch(&confirm, SOURCE).await, Err(FetchError::Busy), "it is replayed");
    assert!(cache.fetch(&confirm, OTHER).await.is_ok(), "nobody else pays for it");
    assert!(cache.fetch(&wanted(&url(2)), SOURCE).await.is_ok(), "nor do its keys");
    assert_eq!(upstream.count(), 7);
    tokio::time::advance(Duration::from_secs(30)).await;
    assert!(cache.fetch(&confirm, SOURCE).await.is_ok());
    assert_eq!(cache.fetch(&confirm, SOURCE).await, Err(FetchError::Busy));
}

#[test]
fn a_bucket_belongs_to_a_host_and_port() {
    for (url, name) in [
        ("https://a.example.com/x", "a.example.com"),
        ("https://a.example.com?x", "a.example.com"),
        ("https://a.example.com:8443", "a.example.com:8443"),
        ("", ""),
    ] {
        assert_eq!(host(url), name);
    }
}
