//! Hints between gateways shorten waits and decide nothing.

use std::sync::atomic::Ordering;
use std::time::Duration;

use portero_dispatcher::{Outcome, Status};
use tokio::time::Instant;

use crate::faulty::Faulty;
use crate::support::{Options, Place, Run, accept, deliveries, ids, settle, until};

/// F14. A listener that breaks is made anew, and meanwhile polling finds everything.
#[tokio::test(flavor = "multi_thread")]
async fn while_hints_cannot_be_listened_to_polling_finds_everything_within_its_interval() {
    let place = Place::postgres().await;
    let faulty = Faulty::new(place.open().await);
    let options = Options { deliveries: Some(faulty.clone()), ..Options::new("test") };
    let run = Run::start_with(place.open().await, options).await;
    let mut stream = run.attach("c").await;
    until("it listens", async || faulty.listened.load(Ordering::SeqCst) == 1).await;
    faulty.is_deaf.store(true, Ordering::SeqCst);
    faulty.break_listeners();
    for number in 0..10 {
        let id = format!("id{number}");
        let began = Instant::now();
        accept(&run.store, "e", &[&id]).await;
        let got = deliveries(&mut stream, 1).await;
        assert_eq!(ids(&got), [id]);
        assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
        assert_eq!(settle(&stream, &got[0], Outcome::Ack).await, Status::Durable);
    }
    faulty.is_deaf.store(false, Ordering::SeqCst);
    until("it listens again", async || faulty.listened.load(Ordering::SeqCst) >= 2).await;
    run.stop().await;
}

/// F14, with the server ending the connection.
#[tokio::test(flavor = "multi_thread")]
async fn a_listener_whose_backend_is_killed_comes_back() {
    let place = Place::postgres().await;
    let Place::Postgres(database) = &place else { panic!("it is") };
    let run = Run::start(&place).await;
    let mut stream = run.attach("c").await;
    let listening =
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND query ILIKE 'LISTEN%'";
    until("it listens", async || !database.run(listening).await.is_empty()).await;
    database.run(format!("SELECT pg_terminate_backend(pid) FROM ({listening}) AS l")).await;
    accept(&run.store, "e", &["e1"]).await;
    assert_eq!(ids(&deliveries(&mut stream, 1).await), ["e1"]);
    until("it listens again", async || !database.run(listening).await.is_empty()).await;
    run.stop().await;
}

/// One gateway's commits wake the other before it polls.
#[tokio::test(flavor = "multi_thread")]
async fn what_one_gateway_commits_another_is_told_of() {
    let place = Place::postgres().await;
    let (one, two) = (Run::start_as(&place, "one").await, Run::start_as(&place, "two").await);
    let mut stream = two.attach("c").await;
    until("the lanes are there", async || two.share().await.0 == 16).await;
    for number in 0..5 {
        let id = format!("id{number}");
        one.accept("e", &[&id]).await;
        let got = deliveries(&mut stream, 1).await;
        assert_eq!(ids(&got), [id]);
        assert_eq!(settle(&stream, &got[0], Outcome::Ack).await, Status::Durable);
    }
    one.stop().await;
    two.stop().await;
}
