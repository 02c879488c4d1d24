//! The admin service over a real store. What tokens allow is the permission table's test.

mod audit;
mod elsewhere;
mod explain;
mod grants;
mod limits;
mod outdated;
mod pages;
mod parked;
mod presets;
mod rejections;
mod secret_life;
mod secrets;
mod settings;
mod sources;
mod subscriptions;

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use portero_auth::{Grant, Issuer, NewToken, Verifier};
use portero_directory::{Directory, DirectoryConfig};
use portero_keyring::{KeyId, Keyring, rejection_aad};
use portero_proto::v1;
use portero_proto::v1::source::Verification;
use portero_store::{CapturedRequest, NewRejection, RejectionStore as _, SchemaStore as _, Sealed};
use portero_store_sqlite::SqliteStore;
use portero_types::{Clock as _, ManualClock, RequestId, SourceId, SubscriptionId, TenantId, Timestamp};
use tempfile::TempDir;
use tonic::{Code, Request, Status};
use tonic_types::StatusExt as _;

use super::Admin;
use crate::Entropy;
use crate::authenticate::Gate;

const NOW: Timestamp = Timestamp::from_secs(1_750_000_000);
const SECRET: &str = "whsec_4f1c9a70b2e35d6888a1c0ffee123456";

/// The service on a database of its own, with the tenants `acme` and `globex`.
struct Service {
    admin: Admin,
    issuer: Issuer,
    store: Arc<SqliteStore>,
    directory: Directory,
    clock: ManualClock,
    _folder: TempDir,
}

impl Service {
    async fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Arc::new(SqliteStore::open_in(folder.path()).await.expect("opens"));
        store.migrate().await.expect("migrates");
        let keyring = Arc::new(Keyring::generate(KeyId::new("k1").expect("valid"), [7; 32]).expect("usable"));
        let config = DirectoryConfig::default();
        let (directory, _) =
            Directory::open(Arc::clone(&store) as _, Arc::clone(&keyring), config).await.expect("readable");
        let issuer = Issuer::generate("portero", "portero", [1; 32]);
        let verifier = Arc::new(Verifier::new(vec![issuer.trusted()]).expect("usable"));
        let clock = ManualClock::at(NOW);
        let next = AtomicU8::new(1);
        let entropy: Entropy = Arc::new(move || [next.fetch_add(1, Ordering::Relaxed); 32]);
        let admin = Admin::new(
            Arc::clone(&store) as _,
            directory.clone(),
            keyring,
            Gate::new(verifier, directory.clone(), Arc::new(clock.clone())),
            Arc::new(clock.clone()),
            entropy,
        );
        let service = Self { admin, issuer, store, directory, clock, _folder: folder };
        for tenant in ["acme", "globex"] {
            let message = v1::CreateTenantRequest { tenant_id: tenant.to_owned(), tenant: None };
            let request = service.by(&Grant::platform_admin(), message);
            service.admin.do_create_tenant(request).await.expect("created");
        }
        service
    }

    /// A call by somebody with this grant.
    fn by<T>(&self, grant: &Grant, message: T) -> Request<T> {
        self.called(message, "tester", Some(grant.clone()))
    }

    /// A call by somebody whose token grants nothing.
    fn known_as<T>(&self, subject: &str, message: T) -> Request<T> {
        self.called(message, subject, None)
    }

    fn called<T>(&self, message: T, subject: &str, grant: Option<Grant>) -> Request<T> {
        let lifetime = Duration::from_secs(30 * 86_400);
        let new = NewToken { subject: subject.to_owned(), grant, lifetime };
        let minted = self.issuer.mint(&new, self.clock.now(), 1).expect("a token");
        let mut request = Request::new(message);
        let bearer = format!("Bearer {}", minted.token.expose_secret());
        request.metadata_mut().insert("authorization", bearer.parse().expect("ASCII"));
        request
    }

    /// A call by acme's admin.
    fn acme<T>(&self, message: T) -> Request<T> {
        self.by(&admin_of("acme"), message)
    }

    async fn create(&self, id: &str, source: v1::Source) -> Result<v1::Source, Status> {
        let message = v1::CreateSourceRequest {
            parent: "tenants/acme".to_owned(),
            source_id: id.to_owned(),
            source: Some(source),
        };
        Ok(self.admin.do_create_source(self.acme(message)).await?.into_inner())
    }

    async fn update(&self, id: &str, source: v1::Source, paths: &[&str]) -> Result<v1::Source, Status> {
        let message = v1::UpdateSourceRequest {
            source: Some(v1::Source { name: name(id), ..source }),
            update_mask: Some(prost_types::FieldMask {
                paths: paths.iter().map(|path| (*path).to_owned()).collect(),
            }),
        };
        Ok(self.admin.do_update_source(self.acme(message)).await?.into_inner())
    }

    async fn get(&self, id: &str) -> v1::Source {
        let message = v1::GetSourceRequest { name: name(id) };
        self.admin.do_get_source(self.acme(message)).await.expect("there").into_inner()
    }

    async fn add_secret(&self, source: &str, id: &str, value: &str) {
        let message = v1::CreateSecretRequest {
            parent: name(source),
            secret_id: id.to_owned(),
            value: value.to_owned(),
            not_before: None,
        };
        self.admin.do_create_secret(self.acme(message)).await.expect("added");
    }

    /// What the gateway has in memory.
    fn loaded(&self, id: &str) -> Arc<portero_directory::Source> {
        let snapshot = self.directory.snapshot();
        let found =
            snapshot.sources().find(|source| source.id.as_str() == id && source.tenant == tenant("acme"));
        Arc::clone(found.expect("loaded"))
    }

    /// Remembers a refused request of a source as the edge does. Its id.
    async fn refuse(&self, source: &str, secs: i64, request: Option<&CapturedRequest>) -> RequestId {
        self.refuse_sealed_for(source, source, secs, request).await
    }

    /// The same with a capture that was sealed for another source.
    async fn refuse_sealed_for(
        &self,
        sealed_for: &str,
        source: &str,
        secs: i64,
        request: Option<&CapturedRequest>,
    ) -> RequestId {
        let (sealed_for, source) = (self.loaded(sealed_for), self.loaded(source));
        let received_at = Timestamp::from_secs(NOW.as_secs() + secs);
        let request_id = RequestId::new(received_at, u128::from(secs.unsigned_abs() + 1) << 24);
        let capture = request.map(|request| {
            let aad = rejection_aad(&sealed_for.tenant, &sealed_for.id, request_id);
            let keys = &sealed_for.verification.as_ref().expect("usable").keys;
            Sealed(keys.seal(&aad, &request.encode(), [9; 12]))
        });
        let new = NewRejection {
            request_id,
            tenant_no: source.tenant_no,
            source_no: source.no,
            received_at,
            method: "POST".to_owned(),
            reason: "SIGNATURE_MISMATCH".to_owned(),
            detail: "no listed signature matches".to_owned(),
            body_bytes: request.map_or(300_000, |request| request.body.len() as u64),
            body_digest: [0xab; 32],
            capture,
        };
        self.store.record(vec![new]).await.expect("recorded");
        request_id
    }
}

fn tenant(id: &str) -> TenantId {
    TenantId::new(id).expect("valid")
}

fn admin_of(id: &str) -> Grant {
    Grant::tenant_admin(tenant(id))
}

fn consumer() -> Grant {
    Grant::consumer(vec![SubscriptionId::new("billing").expect("valid")])
}

/// The name of one of acme's sources.
fn name(source: &str) -> String {
    format!("tenants/acme/sources/{}", SourceId::new(source).expect("valid"))
}

fn preset(name: &str) -> v1::Source {
    v1::Source { verification: Some(Verification::Preset(name.to_owned())), ..v1::Source::default() }
}

/// The field that a refusal names.
#[track_caller]
fn bad_field<T: std::fmt::Debug>(outcome: Result<T, Status>) -> String {
    let status = outcome.expect_err("refused");
    assert_eq!(status.code(), Code::InvalidArgument, "{status}");
    let details = status.get_error_details();
    details.bad_request().expect("names a field").field_violations[0].field.clone()
}

#[track_caller]
fn code<T: std::fmt::Debug>(outcome: Result<T, Status>) -> Code {
    outcome.expect_err("refused").code()
}
