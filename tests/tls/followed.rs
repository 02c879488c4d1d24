//! What `portero tail` says when its certificate is revoked while it runs.

use std::fs::File;

use super::{NAMES, PATIENCE, secure, text};
use crate::harness::{Authority, Gateway, Issued, Kind, Process, Site, canaries, eventually};

const REFUSED: &str = "it does not accept the client certificate; trying again";

/// A `portero tail billing`, and what it says on standard error.
struct Tail {
    // Held: dropping it ends the program.
    _process: Process,
    said: String,
}

impl Tail {
    fn start(gateway: &Gateway, authority: &Authority, own: &Issued, name: &str) -> Self {
        let site = &gateway.site;
        let certificate = own.write(site, "bob");
        let token_file = site.path("consumer.token");
        std::fs::write(&token_file, site.consumer_token("billing")).expect("written");
        let said = site.path(name);
        let mut command = Site::program();
        command
            .current_dir(site.folder_path())
            .args(["tail", "billing", "--endpoint", &gateway.secure_grpc_url(), "--token-file", &token_file])
            .args(["--ca-file", &text(&authority.file(site))])
            .args(["--client-cert", &text(&certificate.cert_file)])
            .args(["--client-key", &text(&certificate.key_file)])
            .stdout(File::create(site.path("events")).expect("a file"))
            .stderr(File::create(&said).expect("a file"));
        Self { _process: Process::spawn(&mut command), said }
    }

    fn said(&self) -> String {
        std::fs::read_to_string(&self.said).expect("text")
    }

    async fn says(&self, words: &str) {
        eventually(words, PATIENCE, async || self.said().contains(words).then_some(())).await;
    }
}

async fn refusals(gateway: &Gateway) -> f64 {
    let labels = ["listener=\"grpc\"", "outcome=\"revoked_client_certificate\""];
    gateway.metric("portero_tls_handshakes_total", &labels).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tail_whose_certificate_is_revoked_says_once_why_it_tries_again_and_goes_on_with_a_new_one() {
    let site = Site::new(Kind::Sqlite);
    let (authority, clients) = (Authority::new("authority"), Authority::new("clients"));
    authority.issue(&NAMES).write(&site, "gateway");
    let list = text(&site.replace("clients.crl", &clients.revoked(&[], 2096)));
    let (gateway, _) =
        secure(&site, |gateway| gateway.with_tls("gateway").with_clients_of(&clients).with_revoked_in(&list))
            .await;
    let tail = Tail::start(&gateway, &authority, &clients.issue_numbered(&["bob"], 7), "tail.err");
    tail.says("following billing").await;

    site.replace("clients.crl", &clients.revoked(&[7], 2096));
    gateway.signal("HUP");
    tail.says(REFUSED).await;
    eventually("it goes on trying", PATIENCE, async || (refusals(&gateway).await >= 4.0).then_some(())).await;
    assert_eq!(tail.said().matches(REFUSED).count(), 1, "{}", tail.said());

    // The certificate is renewed where it is.
    clients.issue_numbered(&["bob"], 8).write(&site, "bob");
    tail.says("again; Ctrl-C stops").await;
    assert_eq!(tail.said().matches(REFUSED).count(), 1, "{}", tail.said());

    // A further outage for the same reason, and one that is there from the start.
    site.replace("clients.crl", &clients.revoked(&[7, 8], 2096));
    gateway.signal("HUP");
    eventually("it is told again", PATIENCE, async || {
        (tail.said().matches(REFUSED).count() == 2).then_some(())
    })
    .await;
    let other = Tail::start(&gateway, &authority, &clients.issue_numbered(&["bob"], 7), "other.err");
    other.says(REFUSED).await;
    canaries::assert_none("the standard error of a command", tail.said() + &other.said());
}
