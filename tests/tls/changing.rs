//! Certificates that change while the gateway works.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::task::JoinHandle;

use super::{NAMES, PATIENCE, consumer, http, provider, secure};
use crate::harness::{Authority, Gateway, Issued, Kind, Provider, Site, eventually, stripe_event};

const WARNING: &str = "the new TLS files cannot be used; the certificate that was read before stays in use";
const CHANGED: &str = "the TLS files have changed: new connections get the new certificate";

/// A provider that delivers one event after the other over a connection that it keeps, until it is told to stop.
struct Steady {
    sent: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    task: JoinHandle<usize>,
}

impl Steady {
    fn begin(provider: Provider) -> Self {
        let (sent, stop) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let (count, stopped) = (Arc::clone(&sent), Arc::clone(&stop));
        let task = tokio::spawn(async move {
            while !stopped.load(Ordering::SeqCst) {
                let n = count.load(Ordering::SeqCst);
                let body = stripe_event(&format!("evt_{n}"), &format!("entity-{}", n % 5), n / 5);
                let answer = provider.post(&provider.sign(&body)).await;
                assert_eq!(answer.status, 200, "event {n}: {answer:?}");
                count.store(n + 1, Ordering::SeqCst);
            }
            count.load(Ordering::SeqCst)
        });
        Self { sent, stop, task }
    }

    /// Waits until it has sent some more.
    async fn goes_on(&self) {
        let goal = self.sent.load(Ordering::SeqCst) + 10;
        eventually("the provider goes on", PATIENCE, async || {
            assert!(!self.task.is_finished(), "a delivery was refused");
            (self.sent.load(Ordering::SeqCst) >= goal).then_some(())
        })
        .await;
    }

    async fn finish(self) -> usize {
        self.stop.store(true, Ordering::SeqCst);
        self.task.await.expect("no delivery was refused")
    }
}

/// Whether a new connection that trusts only this authority is served.
async fn serves(gateway: &Gateway, authority: &Authority) -> bool {
    let client = http(&[authority]).build().expect("a client");
    client.head(format!("{}/in/nothing", gateway.secure_edge_url())).send().await.is_ok()
}

/// Writes new files and asks the gateway to look at them now.
async fn change(gateway: &Gateway, site: &Site, issued: &Issued) {
    let before = gateway.log.count(CHANGED);
    issued.write(site, "gateway");
    gateway.signal("HUP");
    eventually("both listeners take the files over", PATIENCE, async || {
        (gateway.log.count(CHANGED) >= before + 2).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_certificates_loses_nothing_of_what_is_under_way() {
    let site = Site::new(Kind::Sqlite);
    let (first, second) = (Authority::new("first"), Authority::new("second"));
    first.issue(&NAMES).write(&site, "gateway");
    let (gateway, setup) = secure(&site, |gateway| gateway.with_tls("gateway")).await;
    let consumer = consumer(&gateway, &first.trusted(&site)).await;
    // It trusts the first only: its connection must outlive the change.
    let steady = Steady::begin(provider(&setup, &gateway, http(&[&first])));
    consumer.has_acked(10, PATIENCE).await;

    change(&gateway, &site, &second.issue(&NAMES)).await;
    assert!(serves(&gateway, &second).await, "new connections get the new certificate");
    assert!(!serves(&gateway, &first).await);
    steady.goes_on().await;
    change(&gateway, &site, &first.issue(&NAMES)).await;
    assert!(serves(&gateway, &first).await);
    steady.goes_on().await;

    let sent = steady.finish().await;
    consumer.has_acked(sent, PATIENCE).await;
    assert_eq!(consumer.receipts().len(), sent, "each event once");
    assert_eq!(consumer.connections(), 1, "its stream went on");
    consumer.check_promises();
    consumer.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broken_files_change_nothing_are_told_once_and_mended_ones_are_found_without_a_signal() {
    let site = Site::new(Kind::Sqlite);
    let (first, second) = (Authority::new("first"), Authority::new("second"));
    first.issue(&NAMES).write(&site, "gateway");
    let (gateway, _) = secure(&site, |gateway| gateway.with_tls("gateway")).await;
    let failing = async || gateway.metric("portero_tls_reload_failing", &[]).await;

    let good = second.issue(&NAMES);
    let stranger = second.issue(&NAMES);
    let broken = [
        Issued { certificate: "no certificate".to_owned(), key: good.key.clone() },
        Issued { certificate: good.certificate.clone(), key: stranger.key },
        second.issue_expired(&NAMES),
    ];
    for (n, issued) in broken.iter().enumerate() {
        issued.write(&site, "gateway");
        gateway.signal("HUP");
        eventually("both listeners warn", PATIENCE, async || {
            (gateway.log.count(WARNING) >= 2 * (n + 1)).then_some(())
        })
        .await;
        assert_eq!(failing().await, 2.0);
        assert!(serves(&gateway, &first).await, "the certificate that was read before stays in use");
    }

    good.write(&site, "gateway");
    eventually("the mended files are found", Duration::from_secs(20), async || {
        serves(&gateway, &second).await.then_some(())
    })
    .await;
    eventually("nothing is wrong any more", PATIENCE, async || (failing().await == 0.0).then_some(())).await;
    let text = gateway.log.text();
    assert!(text.contains("is not the key of the first certificate") && text.contains("has expired"));
    let used = gateway.metric("portero_tls_reloads_total", &["outcome=\"used\""]).await;
    assert_eq!(used, 2.0);
}
