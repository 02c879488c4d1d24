//! The shop's consumer: a real gRPC stream into the ledger, and a record of what was settled.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Context as _;
use portero_client::{
    CancellationToken, Client, Error, Observer, Outcome, SettlementStatus, SubscribeOptions,
};
use portero_example_ledger::Ledger;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::setup::SUBSCRIPTION;

/// By receipt: the outcomes on record (`ack`, `defer`, …), in their order.
pub(super) type Trails = BTreeMap<String, Vec<&'static str>>;

/// The running consumer.
pub(super) struct Consumer {
    trails: watch::Receiver<Trails>,
    shutdown: CancellationToken,
    running: AbortOnDropHandle<Result<(), Error>>,
}

impl Consumer {
    /// Follows the subscription into the ledger.
    pub(super) fn start(client: &Client, ledger: &Ledger) -> Self {
        let (record, trails) = watch::channel(Trails::new());
        let shutdown = CancellationToken::new();
        let options = SubscribeOptions {
            shutdown: shutdown.clone(),
            observer: Arc::new(Recorder(record)),
            ..SubscribeOptions::default()
        };
        let ledger = ledger.clone();
        let consuming = client.subscribe(SUBSCRIPTION, options).run(move |delivery| {
            let ledger = ledger.clone();
            async move { ledger.handle(delivery).await }
        });
        Self { trails, shutdown, running: AbortOnDropHandle::new(tokio::spawn(consuming)) }
    }

    /// Waits until the record fulfils `wish`. Fails when the consumer ends.
    pub(super) async fn until(&mut self, wish: impl Fn(&Trails) -> bool) -> anyhow::Result<()> {
        let trails = &mut self.trails;
        tokio::select! {
            fulfilled = async { trails.wait_for(|trails| wish(trails)).await.is_ok() } => {
                anyhow::ensure!(fulfilled, "the consumer is gone");
                Ok(())
            }
            ended = &mut self.running => {
                ended.context("the consumer failed")?.context("the subscription ended")?;
                anyhow::bail!("the consumer ended before its time")
            }
        }
    }

    /// Stops it in order and gives the record.
    pub(super) async fn stop(self) -> anyhow::Result<Trails> {
        self.shutdown.cancel();
        self.running.await.context("the consumer failed")?.context("the subscription ended")?;
        Ok(self.trails.borrow().clone())
    }
}

struct Recorder(watch::Sender<Trails>);

impl Observer for Recorder {
    fn settled(&self, receipt_id: &str, outcome: &Outcome, status: SettlementStatus) {
        if status.is_durable() {
            self.0
                .send_modify(|trails| trails.entry(receipt_id.to_owned()).or_default().push(outcome.name()));
        }
    }
}
