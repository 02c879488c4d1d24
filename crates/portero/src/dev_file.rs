//! `dev.json`: what `portero dev` tells the other commands on the same machine. It holds secrets of the demo sources.

use std::fmt;
use std::fs;
use std::io::{self, Read as _};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::private_file;

/// Name within the data folder.
const FILE_NAME: &str = "dev.json";
/// Largest file that is read, bytes.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// What `portero dev` serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DevFile {
    /// Where webhooks go, such as `http://127.0.0.1:8080`.
    pub(crate) edge_url: String,
    /// Where gRPC is, such as `http://127.0.0.1:50051`.
    pub(crate) grpc_url: String,
    /// The demo tenant's id.
    pub(crate) tenant: String,
    /// The demo subscription's id.
    pub(crate) subscription: String,
    /// The demo sources.
    pub(crate) sources: Vec<DevSource>,
}

/// One demo source. Debug hides its secret and its path.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DevSource {
    /// The source's id.
    pub(crate) source: String,
    /// The recipe's name; `custom` when `recipe` holds it.
    pub(crate) preset: String,
    /// `/in/{ingest key}`.
    pub(crate) ingest_path: String,
    /// The secret in the provider's form.
    pub(crate) secret: String,
    /// A custom recipe as JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) recipe: Option<String>,
}

impl DevFile {
    /// Reads the file in a data folder; `None` when there is none.
    ///
    /// # Errors
    /// When it cannot be read or is not such a file; never shows its content.
    pub(crate) fn read(folder: &Path) -> anyhow::Result<Option<Self>> {
        let path = folder.join(FILE_NAME);
        let place = path.display();
        let file = match fs::File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => anyhow::bail!("{place} cannot be read: {}", crate::file_error::words(&error)),
        };
        let mut text = Vec::new();
        let read = file.take(FILE_BYTES_MAX).read_to_end(&mut text);
        read.map_err(|error| {
            anyhow::anyhow!("{place} cannot be read: {}", crate::file_error::words(&error))
        })?;
        serde_json::from_slice(&text).map(Some).map_err(|error| {
            let (line, column) = (error.line(), error.column());
            anyhow::anyhow!(
                "{place} was not written by this version of `portero dev` (line {line}, column {column})"
            )
        })
    }

    /// Writes the file into a data folder with mode 0600: completely, or not at all.
    ///
    /// # Errors
    /// When the file system refuses.
    pub(crate) fn write(&self, folder: &Path) -> io::Result<()> {
        let mut text = serde_json::to_vec_pretty(self)?;
        text.push(b'\n');
        private_file::write(&folder.join(FILE_NAME), &text)
    }

    /// The source of that id, or else the first one with that recipe.
    pub(crate) fn source(&self, name: &str) -> Option<&DevSource> {
        let named = self.sources.iter().find(|source| source.source == name);
        named.or_else(|| self.sources.iter().find(|source| source.preset == name))
    }
}

impl fmt::Debug for DevSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DevSource")
            .field("source", &self.source)
            .field("preset", &self.preset)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(source: &str, preset: &str) -> DevSource {
        DevSource {
            source: source.to_owned(),
            preset: preset.to_owned(),
            ingest_path: "/in/0123".to_owned(),
            secret: "whsec_hush".to_owned(),
            recipe: None,
        }
    }

    fn file() -> DevFile {
        DevFile {
            edge_url: "http://127.0.0.1:8080".to_owned(),
            grpc_url: "http://127.0.0.1:50051".to_owned(),
            tenant: "demo".to_owned(),
            subscription: "demo".to_owned(),
            sources: vec![source("payments", "stripe"), source("stripe", "custom")],
        }
    }

    #[test]
    fn what_was_written_reads_back_and_only_its_owner_may_read_it() {
        let folder = tempfile::tempdir().expect("folder");
        assert_eq!(DevFile::read(folder.path()).expect("readable"), None);
        file().write(folder.path()).expect("written");
        file().write(folder.path()).expect("written again");
        assert_eq!(DevFile::read(folder.path()).expect("readable"), Some(file()));
        assert_eq!(fs::read_dir(folder.path()).expect("folder").count(), 1, "no temporary file is left");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            let mode = fs::metadata(folder.path().join(FILE_NAME)).expect("there").permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
    }

    #[test]
    fn a_broken_file_is_told_by_place_and_never_by_content() {
        let folder = tempfile::tempdir().expect("folder");
        fs::write(folder.path().join(FILE_NAME), r#"{"edge_url": hush}"#).expect("written");
        let error = DevFile::read(folder.path()).expect_err("broken").to_string();
        assert!(error.contains("dev.json") && !error.contains("hush"), "{error}");
    }

    #[test]
    fn a_source_is_found_by_its_id_before_its_recipe() {
        assert_eq!(file().source("stripe").map(|source| source.preset.as_str()), Some("custom"));
        assert_eq!(file().source("custom").map(|source| source.source.as_str()), Some("stripe"));
        assert_eq!(file().source("github"), None);
    }

    #[test]
    fn debug_shows_no_secret_and_no_path() {
        let shown = format!("{:?}", file());
        assert!(!shown.contains("hush") && !shown.contains("0123"), "{shown}");
    }
}
