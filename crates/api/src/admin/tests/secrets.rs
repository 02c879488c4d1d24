//! Secrets that a handshake brought, and what is shown of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use portero_auth::Grant;
use portero_directory::Source;
use portero_keyring::{Keyring, secret_aad};
use portero_proto::v1;
use portero_store::{Actor, Change, ConfigStore as _, KeyStore as _, NewSecret, Resealed, Sealed};
use portero_store_sqlite::SqliteStore;
use portero_types::SecretId;
use tonic::{Code, Status};

use super::{NOW, SECRET, Service, admin_of, bad_field, code, consumer, name, preset};

const TOKEN: &str = "secret_tMrlL1qK5vuQAh1b6cZGhFChZTSYJlce98V0pYn7yBl";

/// A waiting source `wiki` that gets a secret as the edge brings it, sealed with `aad` of this secret id.
async fn brought(service: &Service, sealed_for: &str) -> String {
    let window = Some(prost_types::Duration { seconds: 3_600, nanos: 0 });
    let source = v1::Source { secret_window: window, ..preset("notion") };
    service.create("wiki", source).await.expect("created");
    let source = service.loaded("wiki");
    let [id, sealed_for] = ["handshake-1", sealed_for].map(|id| SecretId::new(id).expect("valid"));
    let aad = secret_aad(&source.tenant, &source.id, &sealed_for);
    let keys = &source.verification.as_ref().expect("usable").keys;
    let sealed = Sealed(keys.seal(&aad, TOKEN.as_bytes(), [8; 12]));
    let secret = NewSecret {
        tenant: source.tenant.clone(),
        source: source.id.clone(),
        id,
        sealed,
        not_before: NOW,
        retire_others_at: None,
        created_at: NOW,
    };
    let change = Change::new(Actor::system("handshake"), "req-1", NOW);
    assert!(service.store.write_handshake_secret(source.no, secret, NOW, &change).await.expect("answered"));
    format!("{}/secrets/handshake-1", name("wiki"))
}

async fn reveal(service: &Service, grant: &Grant, name: &str) -> Result<v1::Secret, Status> {
    let request = service.by(grant, v1::RevealSecretRequest { name: name.to_owned() });
    Ok(service.admin.do_reveal_secret(request).await?.into_inner())
}

async fn get(service: &Service, name: &str) -> v1::Secret {
    let request = service.acme(v1::GetSecretRequest { name: name.to_owned() });
    service.admin.do_get_secret(request).await.expect("there").into_inner()
}

#[tokio::test]
async fn a_secret_of_a_handshake_is_shown_once_and_says_so_before() {
    for grant in [admin_of("acme"), Grant::platform_admin()] {
        let service = Service::start().await;
        let name = brought(&service, "handshake-1").await;
        let before = get(&service, &name).await;
        assert_eq!((before.value.as_str(), before.unseen), ("", true));
        service.clock.advance(Duration::from_secs(30 * 60));
        let revealed = reveal(&service, &grant, &name).await.expect("shown");
        assert_eq!(revealed, v1::Secret { value: TOKEN.to_owned(), unseen: false, ..before.clone() });

        let again = reveal(&service, &grant, &name).await.expect_err("refused");
        assert_eq!(again.code(), Code::FailedPrecondition);
        assert!(again.message().contains("only once"), "{again}");
        assert!(!format!("{again:?}").contains(TOKEN));
        assert_eq!(get(&service, &name).await, v1::Secret { unseen: false, ..before });
    }
}

#[tokio::test]
async fn a_secret_that_somebody_gave_is_never_revealed() {
    let service = Service::start().await;
    service.create("pay", preset("stripe")).await.expect("created");
    service.add_secret("pay", "given", SECRET).await;
    let given = format!("{}/secrets/given", name("pay"));
    assert!(!get(&service, &given).await.unseen);
    let refused = reveal(&service, &admin_of("acme"), &given).await.expect_err("refused");
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(!format!("{refused:?}").contains(SECRET));
}

#[tokio::test]
async fn a_foreign_secret_is_as_absent_as_one_that_never_was() {
    let service = Service::start().await;
    let known = brought(&service, "handshake-1").await;
    let unknown = format!("{}/secrets/none", name("wiki"));
    for grant in [admin_of("globex"), consumer()] {
        let [known, unknown] = [
            reveal(&service, &grant, &known).await.expect_err("refused"),
            reveal(&service, &grant, &unknown).await.expect_err("refused"),
        ];
        assert_eq!((known.code(), known.message()), (Code::PermissionDenied, unknown.message()));
    }
    for absent in [unknown, known.replace("acme", "globex"), known.replace("wiki", "pay")] {
        let refused = reveal(&service, &Grant::platform_admin(), &absent).await.expect_err("absent");
        assert_eq!(
            (refused.code(), refused.message()),
            (Code::NotFound, &*format!("{absent} does not exist"))
        );
    }
    assert_eq!(bad_field(reveal(&service, &admin_of("acme"), &name("wiki")).await), "name");
    assert!(get(&service, &known).await.unseen, "nobody used it up");
}

#[tokio::test]
async fn a_secret_that_cannot_be_opened_stays_unseen() {
    let service = Service::start().await;
    let name = brought(&service, "handshake-2").await;
    let refused = reveal(&service, &admin_of("acme"), &name).await;
    assert_eq!(code(refused), Code::FailedPrecondition);
    assert!(get(&service, &name).await.unseen);
}

/// Every call draws randomness once between its look at the keys and the moment when the secret is used up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_that_is_sealed_again_while_it_is_revealed_is_not_lost() {
    let mut service = Service::start().await;
    let name = brought(&service, "handshake-1").await;
    let wiki = service.loaded("wiki");
    let (store, keyring) = (Arc::clone(&service.store), Arc::clone(&service.admin.keyring));
    let (runtime, done) = (tokio::runtime::Handle::current(), AtomicBool::new(false));
    service.admin.entropy = Arc::new(move || {
        if !done.swap(true, Ordering::Relaxed) {
            tokio::task::block_in_place(|| runtime.block_on(rekey(&store, &keyring, &wiki)));
        }
        [77; 32]
    });
    let revealed = reveal(&service, &admin_of("acme"), &name).await.expect("shown");
    assert_eq!(revealed.value, TOKEN);
}

/// What `portero keyring rotate-data-keys` does to a tenant with one secret.
async fn rekey(store: &SqliteStore, keyring: &Keyring, source: &Source) {
    let newer = keyring.new_data_key(2, &source.tenant, [21; 32], [22; 12]);
    let change = Change::new(Actor::local("cli"), "req-2", NOW);
    store.add_tenant_key(source.tenant_no, newer, &change).await.expect("added");
    let rows = store.tenant_keys(&source.tenant).await.expect("read");
    let keys = portero_directory::open_tenant_keys(&rows, keyring).expect("opened");
    let (_, secret) = store.secrets_of(source.tenant_no).await.expect("read").remove(0);
    let aad = secret_aad(&source.tenant, &source.id, &secret.id);
    let value = keys.open(&aad, &secret.sealed.0).expect("opened");
    let to = Sealed(keys.seal(&aad, &value, [23; 12]));
    let resealed = Resealed { no: secret.no, from: secret.sealed, to };
    assert_eq!(store.reseal(vec![resealed]).await.expect("resealed"), 1);
}

#[tokio::test]
async fn of_many_who_reveal_at_once_one_is_shown_it() {
    let service = Service::start().await;
    let name = brought(&service, "handshake-1").await;
    let acme = admin_of("acme");
    let [a, b, c, d] = [(); 4].map(|()| reveal(&service, &acme, &name));
    let outcomes: [_; 4] = tokio::join!(a, b, c, d).into();
    let shown: Vec<_> = outcomes.iter().flatten().map(|secret| secret.value.as_str()).collect();
    assert_eq!(shown, [TOKEN]);
    for refused in outcomes.into_iter().filter(Result::is_err) {
        assert_eq!(code(refused), Code::FailedPrecondition);
    }
    let listed = v1::ListSecretsRequest { parent: super::name("wiki"), ..v1::ListSecretsRequest::default() };
    let listed = service.admin.do_list_secrets(service.acme(listed)).await.expect("a list").into_inner();
    assert_eq!(listed.secrets.iter().map(|secret| secret.unseen).collect::<Vec<_>>(), [false]);
}

#[tokio::test]
async fn a_secret_that_would_serve_nothing_is_not_made() {
    let service = Service::start().await;
    let add = async |source: &str, value: &str| {
        let request = v1::CreateSecretRequest {
            parent: name(source),
            value: value.to_owned(),
            ..v1::CreateSecretRequest::default()
        };
        service.admin.do_create_secret(service.acme(request)).await
    };
    for provider in ["discord", "docker-hub", "postmark"] {
        service.create(provider, preset(provider)).await.expect("created");
    }
    assert_eq!(bad_field(add("discord", "").await), "value", "only Discord has the private half");
    assert_eq!(code(add("docker-hub", "").await), Code::FailedPrecondition);
    assert_eq!(code(add("docker-hub", SECRET).await), Code::FailedPrecondition);
    assert_eq!(bad_field(add("postmark", "a password alone").await), "value");
    let made = add("postmark", "").await.expect("made").into_inner();
    assert!(made.value.starts_with("portero:"), "a user and a password");
}
