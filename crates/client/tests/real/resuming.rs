//! Streams that end while handlers run.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use portero_client::{Delivery, Outcome, SettlementStatus};
use tokio::sync::Semaphore;

use crate::gateway::Gateway;
use crate::proxy::{Proxy, target_of};
use crate::work::{Books, Consumer};

type Work = BoxFuture<'static, Outcome>;

/// A handler that writes into the books and returns when it is let.
fn gated(books: &Books) -> (Arc<Semaphore>, impl Fn(Delivery) -> Work + Send + Sync + use<>) {
    let gate = Arc::new(Semaphore::new(0));
    let (books, inner) = (books.clone(), Arc::clone(&gate));
    let handler = move |delivery: Delivery| -> Work {
        let (books, gate) = (books.clone(), Arc::clone(&inner));
        Box::pin(async move {
            books.begin(&delivery);
            tokio::select! {
                () = delivery.revoked().cancelled() => books.tell(&delivery),
                permit = gate.acquire() => permit.expect("open").forget(),
            }
            books.end(&delivery);
            if delivery.revoked().is_cancelled() { Outcome::Release } else { Outcome::Ack }
        })
    };
    (gate, handler)
}

/// F32, S2, S3: a connection that is cut while a handler runs costs no second run, no attempt and no word to the handler.
#[tokio::test]
async fn a_handler_whose_connection_is_cut_runs_once_and_its_ack_is_durable() {
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::start(folder.path()).await;
    let proxy = Proxy::start(&gateway.endpoint).await;
    gateway.accept("stripe:cus_1", &["evt_1", "evt_2"]).await;
    let books = Books::default();
    let (gate, handler) = gated(&books);
    let consumer = Consumer::start(&gateway, &proxy.endpoint, &books, handler).await;
    books.until("the handler runs", |entries| entries.began == ["evt_1"]).await;
    for cuts in 1..=3 {
        proxy.cut();
        books.until("the work goes on", |entries| entries.resumed == (cuts, 0)).await;
    }
    gate.add_permits(2);
    books.until("both are settled", |entries| entries.settled.len() == 2).await;
    {
        let entries = books.read();
        assert_eq!(entries.began, ["evt_1", "evt_2"], "once each, in order");
        assert!(entries.settled.iter().all(|(_, status)| *status == SettlementStatus::Durable));
        assert!(entries.told.is_empty() && !entries.overlapped);
    }
    consumer.stop().await;
}

/// F29, S7: a gateway that is replaced while a handler runs, by a drain and another process on its database, costs no second
/// run either.
#[tokio::test]
async fn a_handler_that_outlives_its_gateway_runs_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let old = Gateway::start(folder.path()).await;
    let proxy = Proxy::start(&old.endpoint).await;
    old.accept("stripe:cus_1", &["evt_1", "evt_2"]).await;
    let books = Books::default();
    let (gate, handler) = gated(&books);
    let consumer = Consumer::start(&old, &proxy.endpoint, &books, handler).await;
    books.until("the handler runs", |entries| entries.began == ["evt_1"]).await;
    // Nobody takes new streams until the next gateway is there.
    proxy.lead_to(None);
    proxy.cut();
    old.stop().await;
    let new = Gateway::again(folder.path()).await;
    proxy.lead_to(target_of(&new.endpoint));
    books.until("the work goes on", |entries| entries.resumed == (1, 0)).await;
    gate.add_permits(2);
    books.until("both are settled", |entries| entries.settled.len() == 2).await;
    {
        let entries = books.read();
        assert_eq!(entries.began, ["evt_1", "evt_2"], "once each, in order");
        assert!(entries.told.is_empty() && !entries.overlapped);
    }
    consumer.stop().await;
}

/// S7: what is finished within the time that a leaving gateway gives is settled there; the consumer then comes back by itself.
#[tokio::test]
async fn a_drain_waits_for_handlers_and_the_consumer_finds_the_next_gateway() {
    let folder = tempfile::tempdir().expect("a folder");
    let old = Gateway::start(folder.path()).await;
    let proxy = Proxy::start(&old.endpoint).await;
    old.accept("stripe:cus_1", &["evt_1", "evt_2"]).await;
    let books = Books::default();
    let (gate, handler) = gated(&books);
    let consumer = Consumer::start(&old, &proxy.endpoint, &books, handler).await;
    books.until("the handler runs", |entries| entries.began == ["evt_1"]).await;
    let draining = async { old.drain(Duration::from_secs(20)).await };
    let finishing = async {
        gate.add_permits(2);
        books.until("the first is settled", |entries| !entries.settled.is_empty()).await;
    };
    tokio::join!(draining, finishing);
    old.stop().await;
    let new = Gateway::again(folder.path()).await;
    proxy.lead_to(target_of(&new.endpoint));
    books.until("both are settled", |entries| entries.settled.len() == 2).await;
    {
        let entries = books.read();
        assert_eq!(entries.began, ["evt_1", "evt_2"], "once each, in order");
        assert!(entries.settled.iter().all(|(_, status)| *status == SettlementStatus::Durable));
        assert!(entries.told.is_empty() && !entries.overlapped);
    }
    consumer.stop().await;
}
