//! `[redis]`: the optional pre-filter shared by gateways. Without it each gateway has its own.

use std::path::PathBuf;

use portero_types::Redacted;

use super::Reader;

/// `[redis]`.
#[derive(Clone, Debug)]
pub(crate) struct Redis {
    /// `redis://…`, or absent.
    pub(crate) url: Option<Redacted<String>>,
    /// A file that holds the URL.
    pub(crate) url_file: Option<PathBuf>,
}

impl Redis {
    pub(super) fn read(section: &mut Reader) -> Self {
        let url = section.optional::<String>("url").filter(|url| !url.is_empty());
        let url_file = section.optional_path("url_file");
        if url.is_some() && url_file.is_some() {
            section.problem("url", "and url_file exclude each other: give one of them");
        }
        if url.as_ref().is_some_and(|url| !url.starts_with("redis://")) {
            section.problem("url", "must begin with redis://");
        }
        Self { url: url.map(Redacted::new), url_file }
    }
}
