//! What clients' certificates are judged by: authorities, and lists of what these have revoked.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use portero_types::{Clock, Timestamp};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::time_provider::TimeProvider;
use rustls::{CertificateError, RootCertStore};
use x509_cert::crl::CertificateList;
use x509_cert::der::Decode as _;
use x509_cert::name::Name;

use crate::file::{File, LoadError};
use crate::material::{Fingerprint, TlsFiles};

/// A list is warned of when a quarter of its life is left, or less than this.
const LIST_WARNING_MAX: Duration = Duration::from_secs(7 * 86_400);

/// Authorities of clients' certificates and what they have revoked. A certificate that no list speaks for is refused where
/// lists are given, as is every one of an authority whose list has ended.
pub(crate) struct Clients {
    pub(crate) fingerprint: Fingerprint,
    pub(crate) verifier: Arc<dyn ClientCertVerifier>,
    /// The life of the list that ends first.
    pub(crate) lists: Option<ListLife>,
    /// Authorities that no list is of: nobody gets in by their certificates.
    unlisted: Vec<Name>,
}

/// When a revocation list has to be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ListLife {
    pub(crate) warn_from: Timestamp,
    pub(crate) ends: Timestamp,
}

/// Why a client is not, or no longer, trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distrust {
    /// Its certificate is of none of the authorities.
    Authority,
    /// Its certificate was revoked.
    Revoked,
    /// Its certificate has expired.
    Expired,
    /// No revocation list speaks for its certificate, or the one that does has ended.
    StatusUnknown,
}

impl Distrust {
    /// A stable code.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Authority => "authority",
            Self::Revoked => "revoked",
            Self::Expired => "expired",
            Self::StatusUnknown => "status_unknown",
        }
    }

    pub(crate) fn of(error: &rustls::Error) -> Self {
        #[expect(clippy::wildcard_enum_match_arm, reason = "the library's enums may grow")]
        match error {
            rustls::Error::InvalidCertificate(error) => match error {
                CertificateError::Revoked => Self::Revoked,
                CertificateError::Expired | CertificateError::ExpiredContext { .. } => Self::Expired,
                CertificateError::UnknownRevocationStatus
                | CertificateError::ExpiredRevocationList
                | CertificateError::ExpiredRevocationListContext { .. } => Self::StatusUnknown,
                _ => Self::Authority,
            },
            rustls::Error::InvalidCertRevocationList(_) => Self::StatusUnknown,
            _ => Self::Authority,
        }
    }
}

impl Clients {
    /// Checks authorities and lists. Lists that have ended are taken: whether to use them is the caller's to say.
    pub(crate) fn build(
        fingerprint: Fingerprint,
        authorities: Vec<CertificateDer<'static>>,
        lists: Option<Vec<CertificateRevocationListDer<'static>>>,
        files: &TlsFiles,
    ) -> Result<Self, LoadError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        let mut names = Vec::with_capacity(authorities.len());
        for certificate in authorities {
            // Its name is for a warning only: what can be read for verification is good enough.
            let parsed = x509_cert::Certificate::from_der(&certificate).ok();
            names.extend(parsed.map(|parsed| parsed.tbs_certificate().subject().clone()));
            roots.add(certificate).map_err(|_| files.unusable(File::ClientCa))?;
        }
        let mut builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        let mut life: Option<ListLife> = None;
        let mut culprit = File::ClientCa;
        if let Some(lists) = lists {
            culprit = File::ClientCrl;
            for list in &lists {
                let list = CertificateList::from_der(list).map_err(|_| files.unusable(culprit))?;
                let of_this = ListLife::of(&list).ok_or_else(|| files.unusable(culprit))?;
                life = Some(life.filter(|life| life.ends <= of_this.ends).unwrap_or(of_this));
                let issuer: &Name = &list.tbs_cert_list.issuer;
                names.retain(|name| name != issuer);
            }
            builder = builder.with_crls(lists).enforce_revocation_expiration();
        } else {
            names.clear();
        }
        let verifier = builder.build().map_err(|_| files.unusable(culprit))?;
        Ok(Self { fingerprint, verifier, lists: life, unlisted: names })
    }

    /// Judges a client's certificate, with the chain above it, as the handshake does.
    pub(crate) fn judge(&self, chain: &[CertificateDer<'_>], now: Timestamp) -> Result<(), Distrust> {
        let Some((own, above)) = chain.split_first() else { return Err(Distrust::Authority) };
        let judged = self.verifier.verify_client_cert(own, above, unix(now));
        judged.map(drop).map_err(|error| Distrust::of(&error))
    }

    /// The first authority that no list is of, and how many there are.
    pub(crate) fn unlisted(&self) -> Option<(String, usize)> {
        self.unlisted.first().map(|name| (name.to_string(), self.unlisted.len()))
    }
}

impl ListLife {
    /// `None` when the list does not say when it ends (RFC 5280 section 5.1.2.5 wants it).
    fn of(list: &CertificateList) -> Option<Self> {
        let at = |time: &x509_cert::time::Time| Timestamp::EPOCH.plus(time.to_unix_duration());
        let begins = at(&list.tbs_cert_list.this_update);
        let ends = at(list.tbs_cert_list.next_update.as_ref()?);
        let warning = (ends.since(begins) / 4).min(LIST_WARNING_MAX);
        Some(Self { warn_from: ends.minus(warning), ends })
    }
}

fn unix(at: Timestamp) -> UnixTime {
    UnixTime::since_unix_epoch(at.since(Timestamp::EPOCH))
}

/// Time for handshakes: this process's clock, like everywhere.
pub(crate) struct HandshakeTime(pub(crate) Arc<dyn Clock>);

impl TimeProvider for HandshakeTime {
    fn current_time(&self) -> Option<UnixTime> {
        Some(unix(self.0.now()))
    }
}

impl fmt::Debug for HandshakeTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HandshakeTime")
    }
}
