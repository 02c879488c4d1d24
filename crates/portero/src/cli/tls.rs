//! What commands that speak TLS take: whom to believe, what to show.

use std::path::PathBuf;

use clap::Args;

/// TLS with a gateway, for https.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct TlsArgs {
    /// Certificates (PEM) that the gateway's must come from; default: the system's authorities.
    #[arg(long, env = "PORTERO_CA_FILE", value_name = "FILE", help_heading = "TLS")]
    pub(crate) ca_file: Option<PathBuf>,
    /// A certificate (PEM) to show to a gateway that wants one.
    #[arg(
        long,
        env = "PORTERO_CLIENT_CERT",
        value_name = "FILE",
        requires = "client_key",
        help_heading = "TLS"
    )]
    pub(crate) client_cert: Option<PathBuf>,
    /// Its private key (PEM).
    #[arg(
        long,
        env = "PORTERO_CLIENT_KEY",
        value_name = "FILE",
        requires = "client_cert",
        help_heading = "TLS"
    )]
    pub(crate) client_key: Option<PathBuf>,
}

impl TlsArgs {
    /// The certificate and its key, when both are given: one alone is refused before.
    pub(crate) fn own(&self) -> Option<(PathBuf, PathBuf)> {
        self.client_cert.clone().zip(self.client_key.clone())
    }

    /// Whether any is given.
    pub(crate) const fn is_given(&self) -> bool {
        self.ca_file.is_some() || self.client_cert.is_some()
    }
}
