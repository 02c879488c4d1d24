//! TLS of this gateway's listeners, and the certificates that it judges others by.

use std::path::Path;

use anyhow::Context as _;
use portero_tls::ServerTls;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tokio::signal::unix::{SignalKind, signal};

use super::Gateway;

/// Largest file of certificates, bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

impl Gateway {
    /// Keeps TLS of a listener up with its files from now on.
    pub(super) fn follow_tls(&self, tls: Option<&ServerTls>) {
        if let Some(tls) = tls {
            self.tasks.spawn(tls.clone().follow(self.tls_looks.clone(), self.close_rest.clone()));
        }
    }

    /// Has the TLS files looked at when a hang-up (SIGHUP) comes. Without TLS the signal means what it means to every program.
    pub(super) fn look_on_hangup(&self) {
        if self.config.edge.tls.is_none() && self.config.grpc.tls.is_none() {
            return;
        }
        // Taken before anything is served: until then it ends the process.
        let Ok(mut hangups) = signal(SignalKind::hangup()) else {
            tracing::warn!(
                "SIGHUP cannot be listened to; TLS files are read again every few seconds all the same"
            );
            return;
        };
        let (looks, stop) = (self.tls_looks.clone(), self.close_rest.clone());
        self.tasks.spawn(async move {
            while let Some(Some(())) = stop.run_until_cancelled(hangups.recv()).await {
                tracing::info!("SIGHUP: the TLS files are read again");
                looks.ask();
            }
        });
    }
}

/// The certificates (PEM) in a file that a setting names.
pub(crate) fn read_certificates(setting: &str, path: &Path) -> anyhow::Result<Vec<u8>> {
    let place = path.display();
    let size = std::fs::metadata(path).with_context(|| format!("{setting} {place} cannot be read"))?.len();
    anyhow::ensure!(size <= FILE_BYTES_MAX, "{setting} {place} is larger than 1 MiB");
    let pem = std::fs::read(path).with_context(|| format!("{setting} {place} cannot be read"))?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    anyhow::ensure!(
        found.is_ok_and(|found| !found.is_empty()),
        "{setting} {place} holds no certificates in PEM"
    );
    Ok(pem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_certificates_is_told_by_setting_and_path() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), "hush").expect("written");
        let error = read_certificates("database.ca_file", file.path()).expect_err("refused").to_string();
        assert!(error.starts_with("database.ca_file") && !error.contains("hush"), "{error}");
        let error = read_certificates("redis.ca_file", Path::new("/nonexistent")).expect_err("refused");
        assert_eq!(error.to_string(), "redis.ca_file /nonexistent cannot be read");
    }
}
