//! The naive receiver behind HTTP, as a shop would run it without a gateway.

use std::sync::Arc;

use anyhow::Context as _;
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use portero_example_ledger::{Accounts, NaiveReceiver, scenario};
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

/// It listens until it is dropped.
pub(super) struct NaiveEndpoint {
    /// Where webhooks go.
    pub(super) url: String,
    receiver: Arc<NaiveReceiver>,
    _serving: AbortOnDropHandle<std::io::Result<()>>,
}

impl NaiveEndpoint {
    /// Listens on a free port of this machine, with the shop's open orders in its books.
    pub(super) async fn start() -> anyhow::Result<Self> {
        let receiver = Arc::new(NaiveReceiver::of_orders(scenario::orders()));
        let listener =
            TcpListener::bind("127.0.0.1:0").await.context("no port is free for the naive receiver")?;
        let url = format!("http://{}/webhooks", listener.local_addr()?);
        let routes = Router::new().route("/webhooks", post(receive)).with_state(Arc::clone(&receiver));
        let serving = tokio::spawn(async move { axum::serve(listener, routes).await });
        Ok(Self { url, receiver, _serving: AbortOnDropHandle::new(serving) })
    }

    /// What it believes.
    pub(super) fn accounts(&self) -> Accounts {
        self.receiver.accounts()
    }
}

async fn receive(State(receiver): State<Arc<NaiveReceiver>>, body: Bytes) -> StatusCode {
    match receiver.receive(&body) {
        Ok(()) => StatusCode::OK,
        Err(_) => StatusCode::BAD_REQUEST,
    }
}
