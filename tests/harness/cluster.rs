//! Several gateways on one Postgres, consumers in processes of their own, and the balancers between them.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use portero_client::v1;

use tokio::time::Instant;

use super::history::Follower;
use super::{
    Behaviour, ConsumerProcess, Gateway, History, Kind, Provider, Proxy, Setup, Site, What, subscription,
};

/// The subscription that the consumers of a cluster share.
const SUBSCRIPTION: &str = "shared";

/// How often histories are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Gateways, consumers and what is between them.
pub(crate) struct Cluster {
    pub(crate) site: Arc<Site>,
    pub(crate) gateways: Vec<Gateway>,
    pub(crate) consumers: Vec<Member>,
    pub(crate) setup: Setup,
    /// Before the edges of all gateways.
    edge: Proxy,
}

/// A consumer and its own balancer before all gateways.
pub(crate) struct Member {
    pub(crate) process: ConsumerProcess,
    pub(crate) link: Proxy,
}

impl Cluster {
    /// Starts gateways, and the subscription `shared`, changed by `change`. There are no consumers yet.
    pub(crate) async fn start(gateways: usize, change: impl FnOnce(&mut v1::Subscription)) -> Self {
        let site = Site::new(Kind::Postgres);
        let mut started = vec![Gateway::start(&site).await];
        for _ in 1..gateways {
            started.push(Gateway::start(&site).await);
        }
        let mut setup = Setup::new(&started[0]).await;
        setup.admin.create_subscription(subscription(SUBSCRIPTION, change)).await.expect("a subscription");
        for gateway in &started {
            gateway.is_up_to_date().await;
        }
        let edges = started.iter().map(Gateway::edge_address).collect();
        let edge = Proxy::over(edges, 0).await;
        Self { site, gateways: started, consumers: Vec::new(), setup, edge }
    }

    /// Starts one more consumer, whose first connection goes to the gateway of its number.
    pub(crate) async fn add_consumer(&mut self, behaviour: Behaviour) {
        let number = self.consumers.len();
        let addresses = self.gateways.iter().map(Gateway::grpc_address).collect();
        let link = Proxy::over(addresses, number % self.gateways.len()).await;
        let name = format!("consumer-{number}");
        let mut process = ConsumerProcess::new(&self.site, &name, link.url(), SUBSCRIPTION, behaviour);
        process.launch();
        self.consumers.push(Member { process, link });
    }

    /// A provider that reaches any gateway that listens.
    pub(crate) fn provider(&self) -> Provider {
        let mut provider = self.setup.provider(&self.gateways[0]);
        provider.url = format!("{}{}", self.edge.url(), self.setup.stripe.path);
        provider
    }

    /// The histories so far, as one.
    pub(crate) fn history(&self) -> History {
        History::read(&self.history_files())
    }

    pub(crate) fn history_files(&self) -> Vec<PathBuf> {
        self.consumers.iter().map(|member| member.process.history()).collect()
    }

    /// Since when each consumer was connected to which gateway.
    pub(crate) fn links(&self) -> HashMap<String, Vec<(i64, usize)>> {
        let links = self.consumers.iter().map(|member| {
            let opened = member.link.opened().into_iter().map(|opened| (opened.at, opened.upstream));
            (member.process.name().to_owned(), opened.collect())
        });
        links.collect()
    }

    /// Receipts of the subscription's dead letters.
    pub(crate) async fn dead_letters(&mut self) -> HashSet<String> {
        let (mut dead, mut page_token) = (HashSet::new(), String::new());
        loop {
            let parent = format!("subscriptions/{SUBSCRIPTION}");
            let request = v1::ListDeadLettersRequest { parent, page_size: 0, page_token };
            let page = self.setup.admin.list_dead_letters(request).await.expect("a page").into_inner();
            dead.extend(page.dead_letters.into_iter().map(|letter| letter.receipt_id));
            page_token = page.next_page_token;
            if page_token.is_empty() {
                return dead;
            }
        }
    }

    /// Waits until each of these events was acked or is a dead letter; gives those that are dead letters. Consumers that
    /// ended by themselves are started again meanwhile.
    pub(crate) async fn all_concluded(
        &mut self,
        accepted: &HashSet<String>,
        within: Duration,
    ) -> HashSet<String> {
        let mut follower = Follower::new(self.history_files());
        let (mut open, mut handled) = (accepted.clone(), HashSet::new());
        let deadline = Instant::now() + within;
        loop {
            self.revive_consumers();
            for record in follower.news() {
                if let What::Settled { receipt, outcome, status } = record.what {
                    if outcome == "ack" && status != "stale" {
                        open.remove(&receipt);
                    }
                } else if let What::Handled { receipt, outcome, .. } = record.what
                    && outcome == "ack"
                {
                    handled.insert(receipt);
                }
            }
            let dead = self.dead_letters().await;
            // The ack of a consumer that died may be on record without its knowing: then it does not come again.
            let is_open = |receipt: &&String| !dead.contains(*receipt) && !handled.contains(*receipt);
            let left = open.iter().filter(is_open).count();
            if left == 0 {
                return dead;
            }
            let some: Vec<&String> = open.iter().filter(is_open).take(3).collect();
            assert!(
                Instant::now() < deadline,
                "{left} of {} events are neither acked nor dead after {within:?}, such as {some:?}",
                accepted.len()
            );
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Starts consumers again that ended by themselves.
    pub(crate) fn revive_consumers(&mut self) {
        for member in &mut self.consumers {
            if member.process.exited().is_some() {
                member.process.launch();
            }
        }
    }

    /// Stops all consumers gently.
    pub(crate) async fn stop_consumers(&mut self) {
        for member in &mut self.consumers {
            let status = member.process.stop(Duration::from_secs(30)).await;
            assert!(status.success(), "{} ended with {status}", member.process.name());
        }
    }
}
