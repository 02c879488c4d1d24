//! What is in use, and how it changes with the files.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use portero_types::{Clock, Timestamp};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::file::LoadError;
use crate::material::{Content, Material, TlsFiles};
use crate::{Purpose, metrics};

/// How often the files are read again.
pub const LOOK_EVERY: Duration = Duration::from_secs(5);
/// From so long before a certificate's end its operator is warned, once a day.
const WARN_BEFORE: Duration = Duration::from_secs(7 * 86_400);
const DAY: Duration = Duration::from_secs(86_400);

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
    clock: Arc<dyn Clock>,
    material: ArcSwap<Material>,
    trouble: Mutex<Trouble>,
}

/// What is known of new files that cannot be used, and what was said.
#[derive(Default)]
struct Trouble {
    /// What the last look met.
    met: Option<LoadError>,
    /// What was warned of.
    told: Option<LoadError>,
    /// When the certificate's end was warned of.
    end_told_at: Option<Timestamp>,
}

impl ServerTls {
    /// Reads the files for the first time. Blocks for as long as that takes. A certificate that is out of its time is used
    /// and warned of: other listeners of this process may well do their work.
    ///
    /// # Errors
    /// [`LoadError`] names the file and what is wrong with it.
    pub fn load(purpose: Purpose, files: TlsFiles, clock: Arc<dyn Clock>) -> Result<Self, LoadError> {
        let material = files.read()?.build(purpose, &files)?;
        metrics::expiry(purpose, material.not_after);
        metrics::failing(purpose, false);
        let shared = Shared {
            purpose,
            files,
            clock,
            material: ArcSwap::from_pointee(material),
            trouble: Mutex::default(),
        };
        let this = Self(Arc::new(shared));
        this.warn_of_the_end();
        Ok(this)
    }

    /// What the next handshake is done with.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.0.material.load().config))
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
        let files = self.0.files.clone();
        let Ok(read) = tokio::task::spawn_blocking(move || files.read()).await else { return };
        match read.and_then(|content| self.examine(&content)) {
            Ok(None) => self.is_well(),
            Ok(Some(material)) => {
                let purpose = self.0.purpose;
                tracing::info!(
                    listener = purpose.name(),
                    not_after_secs = material.not_after.as_secs(),
                    "the TLS files have changed: new connections get the new certificate"
                );
                metrics::reload(purpose, "used");
                metrics::expiry(purpose, material.not_after);
                self.0.material.store(Arc::new(material));
                self.is_well();
                self.trouble(|trouble| trouble.end_told_at = None);
            }
            Err(error) => self.keeps_the_old(error, asked),
        }
        self.warn_of_the_end();
    }

    /// `None` when the content is what is in use.
    fn examine(&self, content: &Content) -> Result<Option<Material>, LoadError> {
        let present = self.0.material.load();
        if content.fingerprint() == present.fingerprint {
            return Ok(None);
        }
        let material = content.build(self.0.purpose, &self.0.files)?;
        let now = self.0.clock.now();
        let is_good = |material: &Material| material.not_before <= now && now <= material.not_after;
        if is_good(&present) && !is_good(&material) {
            let path = self.0.files.cert_file.clone();
            return Err(LoadError::OutOfTime { path, expired: material.not_after < now });
        }
        Ok(Some(material))
    }

    fn is_well(&self) {
        let was_told = self.trouble(|trouble| {
            trouble.met = None;
            trouble.told.take().is_some()
        });
        if was_told {
            metrics::failing(self.0.purpose, false);
            tracing::info!(listener = self.0.purpose.name(), "the TLS files can be used again");
        }
    }

    fn keeps_the_old(&self, error: LoadError, asked: bool) {
        let is_news = self.trouble(|trouble| {
            let is_settled = asked || trouble.met.as_ref() == Some(&error);
            trouble.met = Some(error.clone());
            if !is_settled || trouble.told.as_ref() == Some(&error) {
                return asked;
            }
            trouble.told = Some(error.clone());
            true
        });
        if is_news {
            metrics::reload(self.0.purpose, "refused");
            metrics::failing(self.0.purpose, true);
            tracing::warn!(
                listener = self.0.purpose.name(),
                %error,
                "the new TLS files cannot be used; the certificate that was read before stays in use"
            );
        }
    }

    fn warn_of_the_end(&self) {
        let (now, not_after) = (self.0.clock.now(), self.not_after());
        if now.plus(WARN_BEFORE) < not_after {
            return;
        }
        let is_news = self.trouble(|trouble| {
            let told_of_late = trouble.end_told_at.is_some_and(|at| now.since(at) < DAY);
            if !told_of_late {
                trouble.end_told_at = Some(now);
            }
            !told_of_late
        });
        if is_news {
            let listener = self.0.purpose.name();
            let hours = not_after.since(now).as_secs() / 3600;
            if now > not_after {
                tracing::warn!(listener, "the TLS certificate has expired: clients refuse it");
            } else {
                tracing::warn!(listener, hours, "the TLS certificate ends within a week");
            }
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
