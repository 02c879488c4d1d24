//! TLS towards the source's URL: own authorities, a certificate of our own.

use reqwest::{Certificate, ClientBuilder, Identity};
use zeroize::Zeroizing;

use crate::cli::TlsArgs;
use crate::commands::exit::Failure;
use crate::gateway::read_certificates;

/// Puts the arguments on a client.
pub(super) fn apply(
    mut builder: ClientBuilder,
    args: &TlsArgs,
    url: &url::Url,
) -> Result<ClientBuilder, Failure> {
    if !args.is_given() {
        return Ok(builder);
    }
    if url.scheme() != "https" {
        return Err(Failure::usage(
            "the URL must begin with https:// when --ca-file or --client-cert is given",
        ));
    }
    if let Some(path) = &args.ca_file {
        let pem = read("--ca-file", path)?;
        let authorities = Certificate::from_pem_bundle(&pem).map_err(|_| {
            Failure::usage(format!("--ca-file {} holds a damaged certificate", path.display()))
        })?;
        builder = builder.tls_certs_only(authorities);
    }
    if let Some((certificate, key)) = args.own() {
        let mut pem = Zeroizing::new(read("--client-cert", &certificate)?);
        let place = key.display();
        let key = Zeroizing::new(
            std::fs::read(&key)
                .map_err(|_| Failure::usage(format!("--client-key {place} cannot be read")))?,
        );
        pem.push(b'\n');
        pem.extend_from_slice(&key);
        let identity = Identity::from_pem(&pem)
            .map_err(|_| Failure::usage(format!("--client-key {place} holds no private key in PEM")))?;
        builder = builder.identity(identity);
    }
    Ok(builder)
}

fn read(flag: &str, path: &std::path::Path) -> Result<Vec<u8>, Failure> {
    read_certificates(flag, path).map_err(|error| Failure::usage(error.to_string()))
}
