//! What is in use, and how it changes with the files.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use portero_types::{Clock, Timestamp};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::clients::Clients;
use crate::file::LoadError;
use crate::material::{Content, Material, TlsFiles};
use crate::trouble::Trouble;
use crate::{Purpose, metrics};

/// How often the files are read again.
pub const LOOK_EVERY: Duration = Duration::from_secs(5);
/// From so long before a certificate's end its operator is warned, once a day.
const WARN_BEFORE: Duration = Duration::from_secs(7 * 86_400);

/// Asks for a look at the files at once, in addition to the regular ones. Clones ask the same listeners.
#[derive(Clone, Debug)]
pub struct Looks(watch::Sender<()>);

impl Looks {
    /// Nobody listens yet.
    #[must_use]
    pub fn new() -> Self {
        Self(watch::Sender::new(()))
    }

    /// Has every listener look at its files now.
    pub fn ask(&self) {
        self.0.send_replace(());
    }
}

impl Default for Looks {
    fn default() -> Self {
        Self::new()
    }
}

/// TLS of one listener. Cheap to clone; clones share what is in use.
#[derive(Clone)]
pub struct ServerTls(pub(crate) Arc<Shared>);

pub(crate) struct Shared {
    pub(crate) purpose: Purpose,
    files: TlsFiles,
    pub(crate) clock: Arc<dyn Clock>,
    material: ArcSwap<Material>,
    /// What clients are judged by now, for connections that stand.
    pub(crate) clients: watch::Sender<Option<Arc<Clients>>>,
    /// Held while one of them is judged.
    pub(crate) judging: tokio::sync::Mutex<()>,
    trouble: Mutex<Trouble>,
}

impl ServerTls {
    /// Reads the files for the first time. Blocks for as long as that takes. A certificate that is out of its time is used
    /// and warned of: other listeners of this process may well do their work. A revocation list that has ended is not: it
    /// would refuse everybody.
    ///
    /// # Errors
    /// [`LoadError`] names the file and what is wrong with it.
    pub fn load(purpose: Purpose, files: TlsFiles, clock: Arc<dyn Clock>) -> Result<Self, LoadError> {
        let material = files.read()?.build(purpose, &files, &clock, None)?;
        metrics::failing(purpose, false);
        let shared = Shared {
            purpose,
            files,
            clock,
            clients: watch::Sender::new(material.clients.clone()),
            judging: tokio::sync::Mutex::default(),
            material: ArcSwap::from_pointee(material),
            trouble: Mutex::default(),
        };
        let this = Self(Arc::new(shared));
        this.tell_of_new();
        this.warn_of_ends();
        Ok(this)
    }

    /// What the next handshake is done with.
    pub(crate) fn material(&self) -> Arc<Material> {
        self.0.material.load_full()
    }

    /// When the certificate in use ends.
    #[must_use]
    pub fn not_after(&self) -> Timestamp {
        self.0.material.load().not_after
    }

    /// Looks at the files every [`LOOK_EVERY`] and whenever `looks` asks for it, until `stop`.
    pub async fn follow(self, looks: Looks, stop: CancellationToken) {
        let mut asked = looks.0.subscribe();
        // While this sender lives, the channel does not close.
        let _looks = looks;
        loop {
            let at_once = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                changed = asked.changed() => changed.is_ok(),
                () = tokio::time::sleep(LOOK_EVERY) => false,
            };
            self.look(at_once).await;
        }
    }

    /// Reads the files and takes over what is new and good. `asked`: somebody waits for the answer, so what is wrong is told
    /// at once; else only when the next look meets it too, because files are often replaced one after the other.
    pub(crate) async fn look(&self, asked: bool) {
        let this = self.clone();
        // Lists may be long.
        let looking = tokio::task::spawn_blocking(move || {
            this.0.files.read().and_then(|content| this.examine(&content))
        });
        let Ok(found) = looking.await else { return };
        match found {
            Ok(None) => self.is_well(),
            Ok(Some(material)) => self.take_over(material),
            Err(error) => self.keeps_the_old(&error, asked),
        }
        self.warn_of_ends();
    }

    /// `None` when the content is what is in use.
    fn examine(&self, content: &Content) -> Result<Option<Material>, LoadError> {
        let present = self.0.material.load();
        if content.fingerprint() == present.fingerprint {
            return Ok(None);
        }
        let material = content.build(self.0.purpose, &self.0.files, &self.0.clock, Some(&present))?;
        let now = self.0.clock.now();
        let is_good = |material: &Material| material.not_before <= now && now <= material.not_after;
        if is_good(&present) && !is_good(&material) {
            let path = self.0.files.cert_file.clone();
            return Err(LoadError::OutOfTime { path, expired: material.not_after < now });
        }
        Ok(Some(material))
    }

    fn take_over(&self, material: Material) {
        let purpose = self.0.purpose;
        tracing::info!(
            listener = purpose.name(),
            not_after_secs = material.not_after.as_secs(),
            "the TLS files have changed: new connections get the new certificate"
        );
        metrics::reload(purpose, "used");
        let clients = material.clients.clone();
        self.0.material.store(Arc::new(material));
        // After the material, so that a handshake that misses this still has its connection judged by what came.
        let is_new = self.0.clients.send_if_modified(|present| {
            let is_same = match (&*present, &clients) {
                (Some(present), Some(clients)) => Arc::ptr_eq(present, clients),
                (None, None) => true,
                _ => false,
            };
            *present = clients;
            !is_same
        });
        if is_new {
            let listener = purpose.name();
            tracing::info!(
                listener,
                "whom the TLS files trust has changed: open connections of clients that are no longer trusted end"
            );
        }
        self.is_well();
        self.trouble(|trouble| {
            trouble.certificate.forget();
            if is_new {
                trouble.lists.forget();
                trouble.ended_lists.forget();
            }
        });
        self.tell_of_new();
    }

    /// What is worth knowing of what is in use from now on.
    fn tell_of_new(&self) {
        let (purpose, material) = (self.0.purpose, self.0.material.load());
        metrics::expiry(purpose, material.not_after);
        let Some(clients) = &material.clients else { return };
        if let Some(lists) = clients.lists {
            metrics::lists_expiry(purpose, lists.ends);
        }
        if let Some((authority, authorities)) = clients.unlisted() {
            tracing::warn!(
                listener = purpose.name(),
                authority,
                authorities,
                "client_crl_file holds no revocation list of an authority of client_ca_file: who shows its certificates is \
                 refused"
            );
        }
    }

    fn is_well(&self) {
        if self.trouble(Trouble::is_over) {
            metrics::failing(self.0.purpose, false);
            tracing::info!(listener = self.0.purpose.name(), "the TLS files can be used again");
        }
    }

    fn keeps_the_old(&self, error: &LoadError, asked: bool) {
        if !self.trouble(|trouble| trouble.is_news(error, asked)) {
            return;
        }
        metrics::reload(self.0.purpose, "refused");
        metrics::failing(self.0.purpose, true);
        let listener = self.0.purpose.name();
        if error.is_of_lists() {
            // Whoever was revoked since gets in until somebody acts.
            tracing::error!(
                listener,
                %error,
                "the new revocation list cannot be used; what was read before stays in use"
            );
        } else {
            tracing::warn!(
                listener,
                %error,
                "the new TLS files cannot be used; the certificate that was read before stays in use"
            );
        }
    }

    fn warn_of_ends(&self) {
        let (now, material) = (self.0.clock.now(), self.0.material.load());
        let (listener, not_after) = (self.0.purpose.name(), material.not_after);
        let hours = |end: Timestamp| end.since(now).as_secs() / 3600;
        if now.plus(WARN_BEFORE) >= not_after && self.trouble(|trouble| trouble.certificate.is_due(now)) {
            if now > not_after {
                tracing::warn!(listener, "the TLS certificate has expired: clients refuse it");
            } else {
                tracing::warn!(listener, hours = hours(not_after), "the TLS certificate ends within a week");
            }
        }
        let lists = material.clients.as_ref().and_then(|clients| clients.lists);
        let Some(lists) = lists.filter(|lists| now >= lists.warn_from) else { return };
        // Its end is told even when its approach was told within the day.
        let has_ended = now >= lists.ends;
        let is_due =
            self.trouble(
                |trouble| {
                    if has_ended { trouble.ended_lists.is_due(now) } else { trouble.lists.is_due(now) }
                },
            );
        if is_due && has_ended {
            tracing::error!(
                listener,
                "a revocation list in use has ended: clients of its authority are refused until there is a newer one"
            );
        } else if is_due {
            tracing::warn!(
                listener,
                hours = hours(lists.ends),
                "a revocation list in use ends soon: renew it"
            );
        }
    }

    fn trouble<T>(&self, change: impl FnOnce(&mut Trouble) -> T) -> T {
        change(&mut self.0.trouble.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl std::fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerTls")
            .field("purpose", &self.0.purpose)
            .field("files", &self.0.files)
            .finish_non_exhaustive()
    }
}
