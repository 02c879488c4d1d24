//! Runs one test on each store.

/// Makes a test per store from an async function that takes a [`crate::harness::Kind`].
macro_rules! on_each_store {
    ($(#[$about:meta])* $name:ident) => {
        mod $name {
            use crate::harness::Kind;

            $(#[$about])*
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn on_sqlite() {
                super::$name(Kind::Sqlite).await;
            }

            $(#[$about])*
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn on_postgres() {
                super::$name(Kind::Postgres).await;
            }
        }
    };
}

pub(crate) use on_each_store;
