//! What a runbook is followed on: two gateways on Postgres, the tenant `acme` with its source `stripe` and the secret `february`,
//! an event that waits for delivery, and somebody who has a token.

use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;

use portero_client::{Error, ErrorKind, Outcome, SubscribeOptions, v1};
use portero_recipe::{Recipe, SignOptions};
use serde_json::Value;
use tokio::task::JoinHandle;

use crate::harness::{
    Answer, Client, Consumer, Gateway, Kind, Provider, Site, Source, canaries, eventually, now, output,
    stripe_event, subscription,
};

const PATIENCE: Duration = Duration::from_secs(30);
const SETTINGS: &str = "[database]\nurl_file = \"database.url\"\n[keyring]\npath = \"keyring.json\"\n[auth]\n\
                        local_issuer_key_file = \"issuer.pem\"\n";
/// The event that was accepted before the runbook began.
const BEFORE: &str = "evt_before";

type Stream = JoinHandle<Result<(), Error>>;

/// See the module.
pub(super) struct Stage {
    title: &'static str,
    site: Arc<Site>,
    gateways: Vec<Gateway>,
    /// With the old secret.
    stripe: Source,
    /// The new secret, when a command has shown it.
    shown: Option<String>,
    /// The new secret, when the provider has it.
    new: Option<String>,
    /// A token that others know.
    leaked: String,
    /// A stream that was opened with it, where the runbook is about that.
    stream: Option<Stream>,
}

impl Stage {
    /// Sets it for a runbook.
    pub(super) async fn set(title: &'static str) -> Self {
        let site = Site::new(Kind::Postgres);
        let write = |name: &str, text: &str| std::fs::write(site.path(name), text).expect("written");
        write("portero.toml", SETTINGS);
        write("database.url", &site.database_url());
        write("admin.token", &site.admin_token());
        let one = start(&site).await;
        let stripe = configure(&one).await;
        let leaked = site.token(&["--subject", "billing-service"]);
        let stream = match title {
            "A leaked token" => Some(subscribe(&one, &leaked).await),
            _ => None,
        };
        let other = start(&site).await;
        other.is_up_to_date().await;
        let gateways = vec![one, other];
        let stage = Self { title, site, gateways, stripe, shown: None, new: None, leaked, stream };
        let before = stage.send(0, &stage.stripe.secret, BEFORE).await;
        assert!(before.is_success(), "{before:?}");
        stage
    }

    /// Runs a block of commands, as a shell does that stops at the first that fails.
    pub(super) async fn run(&mut self, commands: &str) {
        let mut shell = self.shell(commands);
        let ran = tokio::task::spawn_blocking(move || output(&mut shell)).await.expect("no panic");
        let (said, complained) = (text(&ran.stdout), text(&ran.stderr));
        assert!(ran.status.success(), "{}: {commands}{said}{complained}", self.title);
        self.notice(&said);
        canaries::assert_none("the standard error of a runbook", &complained);
    }

    fn shell(&self, commands: &str) -> Command {
        let program = Site::program();
        let folder = Path::new(program.get_program()).parent().expect("a folder").display().to_string();
        let mut shell = Command::new("bash");
        shell.args(["-euo", "pipefail", "-c", commands]).current_dir(self.site.folder_path()).env_clear();
        shell.env("PATH", format!("{folder}:/usr/bin:/bin"));
        shell.env("PORTERO_ENDPOINT", self.gateways[0].grpc_url());
        shell.env("PORTERO_TOKEN_FILE", "admin.token").env("PORTERO_CONFIG", "portero.toml");
        let (seq, hash) = self.noted_entry();
        shell.env("SEQ", seq).env("HASH", hash);
        shell
    }

    /// The entry of the audit log that the second gateway wrote to its own log when it started.
    fn noted_entry(&self) -> (String, String) {
        let log = self.gateways[1].log.text();
        let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let noted = lines.rev().find(|line| line["message"] == "the audit log's last entry");
        noted.map_or_else(Default::default, |noted| {
            (noted["audit.seq"].to_string(), noted["audit.hash"].as_str().unwrap_or_default().to_owned())
        })
    }

    /// Takes up a value that was shown, on the terminal or in the file.
    fn notice(&mut self, said: &str) {
        let values = std::fs::read_to_string(self.site.path("march.jsonl")).unwrap_or_default();
        let both = format!("{said}\n{values}");
        let is_value = |word: &&str| word.starts_with("whsec_") && **word != self.stripe.secret;
        let words = both.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        if let Some(value) = words.rev().find(is_value) {
            canaries::plant_secret(value);
            self.shown = Some(value.to_owned());
        }
    }

    /// Does what no command does.
    pub(super) async fn act(&mut self, what: &str) {
        match what {
            "give the provider the new secret." => {
                self.new = Some(self.shown.take().expect("a command has shown one"));
            }
            "restart the gateways, one after the other." => {
                for gateway in &mut self.gateways {
                    gateway.terminate();
                    assert!(gateway.ended(PATIENCE).await.success(), "a gateway ends well");
                    gateway.launch().await;
                }
            }
            _ => panic!("nobody knows how to {what:?}"),
        }
    }

    /// Looks whether something is true.
    pub(super) async fn look(&mut self, what: &str) {
        match what {
            "requests that are signed with the old secret are still accepted." => {
                self.are_accepted(&self.stripe.secret, "evt_by_the_old_secret").await;
            }
            "requests that are signed with the new secret are accepted." => {
                let new = self.new.clone().expect("the provider has it");
                self.are_accepted(&new, "evt_by_the_new_secret").await;
            }
            "requests that are signed with the old secret are refused." => self.are_refused().await,
            "events that were accepted before are delivered." => self.is_delivered(BEFORE).await,
            "whoever has the leaked token is refused, and its stream has ended." => {
                self.is_refused(ErrorKind::PermissionDenied).await;
            }
            "whoever has a token of the old key is refused." => {
                self.is_refused(ErrorKind::Unauthenticated).await;
            }
            "the tenant is gone, and nothing of it is delivered." => self.is_gone().await,
            "an export with a removed entry does not verify." => self.is_noticed(),
            _ => panic!("nobody knows how to see that {what:?}"),
        }
    }

    async fn send(&self, gateway: usize, secret: &str, event: &str) -> Answer {
        let provider = Provider::new(&self.gateways[gateway], &self.stripe);
        let options = SignOptions { now: now(), ..SignOptions::default() };
        provider.post(&provider.sign_with(secret, &stripe_event(event, event, 0), options)).await
    }

    async fn are_accepted(&self, secret: &str, event: &str) {
        for gateway in 0..self.gateways.len() {
            eventually("the secret verifies", PATIENCE, async || {
                self.send(gateway, secret, event).await.is_success().then_some(())
            })
            .await;
        }
    }

    /// A revocation counts at once everywhere; a retirement within a moment.
    async fn are_refused(&self) {
        let patience = if self.title.contains("leaked") { Duration::ZERO } else { PATIENCE };
        for gateway in 0..self.gateways.len() {
            let refused = eventually("the old secret verifies nothing", patience, async || {
                let answer = self.send(gateway, &self.stripe.secret, "evt_forged").await;
                (!answer.is_success()).then_some(answer)
            })
            .await;
            assert_eq!(refused.status, 401, "{refused:?}");
        }
    }

    async fn is_delivered(&self, event: &str) {
        let consumer = Consumer::start(&self.gateways[0]).await;
        eventually("the event is delivered", PATIENCE, async || {
            let handled = consumer.handled();
            let delivered = handled.iter().find(|handled| handled.event_id == event)?;
            assert_eq!(delivered.body, stripe_event(event, event, 0), "it is what was sent");
            Some(())
        })
        .await;
        consumer.stop().await;
    }

    /// The stream has ended, and another one is refused.
    async fn is_refused(&mut self, kind: ErrorKind) {
        if let Some(stream) = self.stream.take() {
            let ended = tokio::time::timeout(PATIENCE, stream).await.expect("the stream ends");
            let error = ended.expect("no panic").expect_err("it is refused");
            assert_eq!(error.kind(), kind, "{error}");
        }
        let again = run_stream(&self.gateways[1], &self.leaked).await;
        let again = tokio::time::timeout(PATIENCE, again).await.expect("it ends at once");
        assert_eq!(again.expect("no panic").expect_err("refused").kind(), kind);
    }

    async fn is_gone(&self) {
        for gateway in 0..self.gateways.len() {
            eventually("the source is gone", PATIENCE, async || {
                let answer = self.send(gateway, &self.stripe.secret, "evt_late").await;
                (answer.status == 404).then_some(())
            })
            .await;
        }
        let mut admin = self.gateways[0].admin().await;
        eventually("what was not delivered is counted", PATIENCE, async || {
            let consumer = Consumer::start(&self.gateways[0]).await;
            consumer.is_connected().await;
            let request = v1::GetSubscriptionRequest { name: "subscriptions/billing".to_owned() };
            let billing = admin.get_subscription(request).await.expect("a subscription").into_inner();
            assert!(consumer.handled().is_empty(), "nothing is delivered");
            consumer.stop().await;
            (billing.expired_count > 0).then_some(())
        })
        .await;
    }

    fn is_noticed(&self) {
        let export = std::fs::read_to_string(self.site.path("audit.jsonl")).expect("an export");
        let mut lines: Vec<&str> = export.lines().collect();
        lines.remove(1);
        std::fs::write(self.site.path("cut.jsonl"), lines.join("\n")).expect("written");
        let verified = self.site.run(&["audit", "verify", "--file", "cut.jsonl"]);
        let said = said(&verified);
        assert!(verified.status.code() == Some(1) && said.contains('2'), "{said}");
    }

    /// The gateways still do their work.
    pub(super) async fn end(self) {
        for gateway in &self.gateways {
            let page = crate::harness::get(&format!("{}/readyz", gateway.management_url())).await;
            assert_eq!(page.status, 200, "{page:?}");
        }
    }
}

async fn start(site: &Arc<Site>) -> Gateway {
    let mut gateway = Gateway::new(site).config_file(SETTINGS);
    for setting in ["DATABASE__URL", "KEYRING__PATH", "AUTH__LOCAL_ISSUER_KEY_FILE"] {
        gateway = gateway.without(setting);
    }
    gateway.launch().await;
    gateway
}

/// The tenant, its source with its secret, a subscription and who may have it.
async fn configure(gateway: &Gateway) -> Source {
    let mut admin = gateway.admin().await;
    let tenant =
        v1::CreateTenantRequest { tenant_id: "acme".to_owned(), tenant: Some(v1::Tenant::default()) };
    admin.create_tenant(tenant).await.expect("a tenant");
    let verification = v1::source::Verification::Preset("stripe".to_owned());
    let recipe = Recipe::preset("stripe").expect("a preset");
    let mut stripe = Source::without_secret(&mut admin, "acme", "stripe", verification, recipe).await;
    let secret = v1::CreateSecretRequest {
        parent: stripe.name.clone(),
        secret_id: "february".to_owned(),
        ..v1::CreateSecretRequest::default()
    };
    stripe.secret = admin.create_secret(secret).await.expect("a secret").into_inner().value;
    canaries::plant_secret(&stripe.secret);
    admin.create_subscription(subscription("billing", |_| {})).await.expect("a subscription");
    let (endpoint, token) = (gateway.grpc_url(), gateway.site.path("admin.token"));
    let grant = ["grant", "create", "billing", "--subject", "billing-service", "--role", "consumer"];
    let of = ["--subscription", "billing", "--endpoint", &endpoint, "--token-file", &token];
    gateway.site.succeed(&[&grant[..], &of[..]].concat());
    stripe.is_known(gateway).await;
    stripe
}

/// Opens a stream that takes nothing off the log: it retries whatever it gets.
async fn run_stream(gateway: &Gateway, token: &str) -> Stream {
    let client = Client::connect(gateway.grpc_url(), token).await;
    let later = || Outcome::retry_after(Duration::from_secs(1), "LATER", "not now");
    let run = client.subscribe("billing", SubscribeOptions::default()).run(move |_| async move { later() });
    tokio::spawn(run)
}

/// A stream that is open.
async fn subscribe(gateway: &Gateway, token: &str) -> Stream {
    eventually("the grant counts", PATIENCE, async || {
        let stream = run_stream(gateway, token).await;
        eventually("it is open, or refused", PATIENCE, async || {
            let open = gateway.metric("portero_dispatcher_streams", &[]).await > 0.5;
            (open || stream.is_finished()).then_some(())
        })
        .await;
        (!stream.is_finished()).then_some(stream)
    })
    .await
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn said(output: &Output) -> String {
    format!("{}{}", text(&output.stdout), text(&output.stderr))
}
