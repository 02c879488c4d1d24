//! `[redis]`: the optional pre-filter shared by gateways. Without it each gateway has its own.

use std::path::PathBuf;

use portero_types::Redacted;

use super::Reader;

/// `[redis]`.
#[derive(Clone, Debug)]
pub(crate) struct Redis {
    /// `redis://…` or `rediss://…`, or absent.
    pub(crate) url: Option<Redacted<String>>,
    /// A file that holds the URL.
    pub(crate) url_file: Option<PathBuf>,
    /// For `rediss://`: certificates that the server's must come from, in place of the system's.
    pub(crate) ca_file: Option<PathBuf>,
    /// For `rediss://`: a certificate of our own, and its key.
    pub(crate) client_files: Option<(PathBuf, PathBuf)>,
}

impl Redis {
    pub(super) fn read(section: &mut Reader) -> Self {
        let url = section.optional::<String>("url").filter(|url| !url.is_empty());
        let url_file = section.optional_path("url_file");
        if url.is_some() && url_file.is_some() {
            section.problem("url", "and url_file exclude each other: give one of them");
        }
        if url.as_ref().is_some_and(|url| !url.starts_with("redis://") && !url.starts_with("rediss://")) {
            section.problem("url", "must begin with redis:// or rediss://");
        }
        let ca_file = section.optional_path("ca_file");
        let client_cert = section.optional_path("client_cert_file");
        let client_key = section.optional_path("client_key_file");
        if client_cert.is_some() != client_key.is_some() {
            section.problem("client_cert_file", "and client_key_file must be given together");
        }
        let has_files = ca_file.is_some() || client_cert.is_some();
        if has_files && url.as_ref().is_some_and(|url| url.starts_with("redis://")) {
            section.problem("url", "must begin with rediss:// when certificates are given");
        }
        let client_files = client_cert.zip(client_key);
        Self { url: url.map(Redacted::new), url_file, ca_file, client_files }
    }
}
