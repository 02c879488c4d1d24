//! Providers that name a certificate, want a confirmation or bring a secret.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use portero_client::v1;
use portero_recipe::Recipe;
use rcgen::{CertificateParams, KeyPair, SigningKey as _};
use serde_json::{Value, json};

use crate::harness::{
    Admin, Gateway, Internet, Kind, Provider, Setup, Signed, Site, Source, eventually, plant_path,
};
use crate::kinds::on_each_store;

const PATIENCE: std::time::Duration = std::time::Duration::from_secs(20);
const PAYPAL_CERTIFICATE: &str = "https://api.paypal.com/v1/notifications/certs/CERT-1";
const SNS_CERTIFICATE: &str = "https://sns.us-east-1.amazonaws.com/SimpleNotificationService-1.pem";
const SUBSCRIBE: &str = "https://sns.us-east-1.amazonaws.com/?Action=ConfirmSubscription&TopicArn=arn:aws:sns:us-east-1:123456789012:T&Token=t";
const WEBHOOK_ID: &str = "1JE4291016473214C";
const TOPIC: &str = "arn:aws:sns:us-east-1:123456789012:T";
/// A key that is as public as this file.
const RSA_KEY: &str = include_str!("../crates/recipe/src/certificate/fixtures/rsa-2048.private.pem");

/// A provider's key, and its certificate, which is valid now.
struct Signer {
    key: KeyPair,
    certificate: String,
}

impl Signer {
    fn new() -> Self {
        let key = KeyPair::from_pem(RSA_KEY).expect("an RSA key");
        let names = vec!["certs.example.com".to_owned()];
        let certificate =
            CertificateParams::new(names).expect("a name").self_signed(&key).expect("signed").pem();
        Self { key, certificate }
    }

    fn sign(&self, message: &str) -> String {
        STANDARD.encode(self.key.sign(message.as_bytes()).expect("signed"))
    }

    /// An event of PayPal whose certificate is at `url`.
    fn paypal(&self, event_id: &str, url: &str) -> Signed {
        let body =
            json!({ "id": event_id, "event_type": "PAYMENT.CAPTURE.COMPLETED", "resource": { "id": "c_1" } });
        let body = body.to_string().into_bytes();
        let (id, time) = ("69cd13f0-d67a-11e5-baa3-778b53f4ae55", "2026-01-02T03:04:05Z");
        let signature = self.sign(&format!("{id}|{time}|{WEBHOOK_ID}|{}", crc32fast::hash(&body)));
        let headers = [
            ("paypal-transmission-id", id),
            ("paypal-transmission-time", time),
            ("paypal-auth-algo", "SHA256withRSA"),
            ("paypal-cert-url", url),
            ("paypal-transmission-sig", &signature),
        ];
        Signed { headers: headers.map(|(name, value)| (name.to_owned(), value.to_owned())).into(), body }
    }

    /// A message of SNS, signed over its own fields.
    fn sns(&self, mut message: Value, signed: &[&str]) -> Signed {
        let text: String = signed
            .iter()
            .map(|name| format!("{name}\n{}\n", message[*name].as_str().expect("a text")))
            .collect();
        message["Signature"] = self.sign(&text).into();
        Signed { headers: Vec::new(), body: message.to_string().into_bytes() }
    }

    fn notification(&self) -> Signed {
        let message = json!({
            "Type": "Notification", "MessageId": "sns-1", "TopicArn": TOPIC, "Message": "{\"k\":1}",
            "Timestamp": "2026-01-02T03:04:05.000Z", "SignatureVersion": "2", "SigningCertURL": SNS_CERTIFICATE,
        });
        self.sns(message, &["Message", "MessageId", "Timestamp", "TopicArn", "Type"])
    }

    fn confirmation(&self) -> Signed {
        let message = json!({
            "Type": "SubscriptionConfirmation", "MessageId": "sns-2", "TopicArn": TOPIC, "Message": "confirm", "Token": "t",
            "SubscribeURL": SUBSCRIBE, "Timestamp": "2026-01-02T03:04:05.000Z", "SignatureVersion": "2",
            "SigningCertURL": SNS_CERTIFICATE,
        });
        self.sns(message, &["Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"])
    }
}

/// A source of a preset with one setting and no secret, known to the gateway's edge.
async fn source(admin: &mut Admin, gateway: &Gateway, preset: &str, settings: &[(&str, &str)]) -> Source {
    let source = v1::Source {
        verification: Some(v1::source::Verification::Preset(preset.to_owned())),
        settings: settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        ..v1::Source::default()
    };
    let parent = "tenants/acme".to_owned();
    let request = v1::CreateSourceRequest { parent, source_id: preset.to_owned(), source: Some(source) };
    let made = admin.create_source(request).await.expect("a source").into_inner();
    plant_path(&made.ingest_path);
    let recipe = Recipe::preset(preset).expect("a preset");
    let source = Source { name: made.name, path: made.ingest_path, secret: String::new(), recipe };
    let probe = Provider::new(gateway, &source);
    let empty = Signed { headers: Vec::new(), body: Vec::new() };
    eventually("the edge knows the source", PATIENCE, async || {
        (probe.post(&empty).await.status != 404).then_some(())
    })
    .await;
    source
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn providers_that_name_a_certificate_verify_through_the_proxy() {
    let internet = Internet::start(&["api.paypal.com", "sns.us-east-1.amazonaws.com"]).await;
    let site = Site::new(Kind::Sqlite);
    std::fs::write(site.path("authority.pem"), &internet.authority).expect("written");
    let mut gateway = Gateway::new(&site)
        .set("OUTBOUND__PROXY", &internet.proxy_url)
        .set("OUTBOUND__CA_FILE", site.path("authority.pem"));
    gateway.launch().await;
    let mut setup = Setup::new(&gateway).await;
    let paypal = source(&mut setup.admin, &gateway, "paypal", &[("webhook_id", WEBHOOK_ID)]).await;
    let sns = source(&mut setup.admin, &gateway, "aws-sns", &[("topic_arn", TOPIC)]).await;
    let (paypal, sns) = (Provider::new(&gateway, &paypal), Provider::new(&gateway, &sns));
    let signer = Signer::new();
    internet.write(PAYPAL_CERTIFICATE, &signer.certificate);
    internet.write(SNS_CERTIFICATE, &signer.certificate);

    let events: Vec<_> = (0..10).map(|n| signer.paypal(&format!("WH-{n}"), PAYPAL_CERTIFICATE)).collect();
    let answers = futures::future::join_all(events.iter().map(|event| paypal.post(event))).await;
    assert!(answers.iter().all(|answer| answer.field("status") == "accepted"), "{answers:?}");
    assert_eq!(internet.asked(PAYPAL_CERTIFICATE), 1, "one fetch for all");
    let mut forged = signer.paypal("WH-10", PAYPAL_CERTIFICATE);
    forged.body.push(b' ');
    let answer = paypal.post(&forged).await;
    assert_eq!((answer.status, answer.reason().as_str()), (401, "SIGNATURE_MISMATCH"));
    let missing = signer.paypal("WH-11", &format!("{PAYPAL_CERTIFICATE}-gone"));
    let answer = paypal.post(&missing).await;
    assert_eq!((answer.status, answer.field("error").as_str()), (503, "fetch_failed"), "{answer:?}");
    assert!(!answer.header("retry-after").is_empty());

    assert_eq!(sns.post(&signer.notification()).await.field("status"), "accepted");
    let answer = sns.post(&signer.confirmation()).await;
    assert_eq!((answer.status, internet.asked(SUBSCRIBE)), (503, 1), "not confirmed yet: {answer:?}");
    internet.write(SUBSCRIBE, "<ConfirmSubscriptionResponse/>");
    assert_eq!(sns.post(&signer.confirmation()).await.field("status"), "accepted");
    assert_eq!((internet.asked(SUBSCRIBE), internet.asked(SNS_CERTIFICATE)), (2, 1));
}

on_each_store!(a_handshake_brings_the_secret_once_and_who_else_brings_one_is_listed_as_refused);

async fn a_handshake_brings_the_secret_once_and_who_else_brings_one_is_listed_as_refused(kind: Kind) {
    let site = Site::new(kind);
    let mut gateway = Gateway::start(&site).await;
    let mut setup = Setup::new(&gateway).await;
    let asana = source(&mut setup.admin, &gateway, "asana", &[]).await;
    let provider = Provider::new(&gateway, &asana);
    let hook = |secret: &str| Signed {
        headers: vec![("x-hook-secret".to_owned(), secret.to_owned())],
        body: Vec::new(),
    };
    let secret = "b537207f20cbfa02357cf448134da559e8bd39d61597dcd5631b8012eae53e81";
    let answer = provider.post(&hook(secret)).await;
    assert_eq!((answer.status, answer.header("x-hook-secret")), (200, secret), "{answer:?}");
    // Asana signs with it as soon as it has its answer.
    let event =
        json!({ "events": [{ "action": "changed", "resource": { "gid": "7", "resource_type": "task" } }] });
    let signed =
        provider.sign_with(secret, event.to_string().as_bytes(), portero_recipe::SignOptions::default());
    assert_eq!(provider.post(&signed).await.field("status"), "accepted");

    let second = provider.post(&hook("another-secret-from-somebody-else-0123456789")).await;
    assert_eq!((second.status, second.reason().as_str()), (401, "HANDSHAKE_NOT_EXPECTED"), "{second:?}");
    // A shutdown writes down what waits, so after it nothing is on its way any more.
    gateway.terminate();
    assert!(gateway.ended(PATIENCE).await.success());
    gateway.launch().await;
    let request = v1::ListRejectionsRequest { parent: asana.name.clone(), ..Default::default() };
    let listed =
        gateway.admin().await.list_rejections(request).await.expect("listed").into_inner().rejections;
    let newest = listed.first().expect("one at least");
    assert_eq!(newest.request_id, second.header("x-request-id"));
    assert_eq!((newest.reason.as_str(), newest.explainable), ("HANDSHAKE_NOT_EXPECTED", true));
}
