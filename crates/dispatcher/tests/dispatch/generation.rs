//! A database that comes back without some of what was committed.

use portero_dispatcher::{EndReason, Outcome, Status};
use portero_store::testing::Database as _;
use portero_types::EntityHash;

use crate::support::{Place, Run, accept, deliveries, ids, settle, until, until_the_end};

/// F9. Positions are handed out again after the log lost its end: what was acked at them is not taken for the new events.
#[tokio::test(flavor = "multi_thread")]
async fn when_the_log_loses_its_end_all_streams_end_and_new_events_at_old_positions_are_delivered() {
    let place = Place::postgres().await;
    let Place::Postgres(database) = &place else { panic!("it is") };
    let (one, two) = (Run::start_as(&place, "one").await, Run::start_as(&place, "two").await);
    let mut a = one.attach("a").await;
    accept(&one.store, "e", &["e1", "e2", "e3"]).await;
    for id in ["e1", "e2", "e3"] {
        let got = deliveries(&mut a, 1).await;
        assert_eq!(ids(&got), [id]);
        assert_eq!(settle(&a, &got[0], Outcome::Ack).await, Status::Durable);
    }
    let mut b = two.attach("b").await;
    let before = one.dispatcher.generation();
    assert_eq!((a.generation(), b.generation()), (before, before));

    let tenant = portero_store::testing::fixture::tenant_id("acme");
    let shards = portero_types::ShardCount::new(
        u16::try_from(one.store.heads().await.expect("heads").len()).expect("few"),
    );
    let shard = EntityHash::of(&tenant, "e").slot().shard(shards.expect("a power of two"));
    database.rewind_log(shard, 1).await;
    assert_eq!(until_the_end(&mut a).await.1, EndReason::GenerationChanged);
    assert_eq!(until_the_end(&mut b).await.1, EndReason::GenerationChanged);
    let after = one.store.generation().await.expect("read");
    assert!(after > before, "{after:?} after {before:?}");
    until("both go on under the same generation", async || {
        one.dispatcher.generation() == two.dispatcher.generation()
    })
    .await;

    accept(&one.store, "e", &["new2", "new3"]).await;
    let mut a = one.attach("a").await;
    assert!(a.generation() > before);
    for id in ["new2", "new3"] {
        let got = deliveries(&mut a, 1).await;
        assert_eq!(ids(&got), [id]);
        assert_eq!(settle(&a, &got[0], Outcome::Ack).await, Status::Durable);
    }
    one.stop().await;
    two.stop().await;
}
