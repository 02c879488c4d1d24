//! A standby takes no part: it lags behind, and what it shows may never have happened.

use portero_store::testing::assert_fails;
use portero_store::{ErrorKind, LaneStore, SchemaStore};
use portero_store_postgres::{PostgresConfig, PostgresStore};
use portero_types::Generation;
use sqlx::{Connection, Executor, PgConnection};

use super::server::{Server, run};

/// F12, and F9's other half: a promoted standby is another incarnation.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_is_refused_until_it_is_promoted() {
    let server = Server::prepare().await;
    run(server.as_its_user("touch").await.arg(server.data().join("standby.signal"))).await;
    server.start("").await;
    let refused = PostgresStore::connect(PostgresConfig::new(server.url())).await;
    let message = refused.as_ref().map_or_else(ToString::to_string, |_| String::new());
    assert!(message.contains("standby"), "{message}");
    assert_fails(refused, ErrorKind::FailedPrecondition);

    let mut admin = PgConnection::connect(&server.url()).await.expect("connected");
    admin.execute("SELECT pg_promote()").await.expect("promoted");
    let store = PostgresStore::connect(PostgresConfig::new(server.url())).await.expect("a primary");
    store.migrate().await.expect("migrated");
    assert_eq!(store.incarnation().await.expect("looked"), Generation(1));
    admin.execute("UPDATE installation SET incarnation = 'before the failover'").await.expect("changed");
    let other = PostgresStore::connect(PostgresConfig::new(server.url())).await.expect("a primary");
    let (one, two) = tokio::join!(store.incarnation(), other.incarnation());
    assert_eq!((one.expect("looked"), two.expect("looked")), (Generation(2), Generation(2)));
    assert_eq!(store.incarnation().await.expect("looked"), Generation(2));
    store.close().await;
    other.close().await;
    admin.close().await.expect("closed");
    drop(server);
}
