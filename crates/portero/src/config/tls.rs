//! `[edge.tls]` and `[grpc.tls]`: the files of a listener that speaks TLS.

use portero_tls::TlsFiles;

use super::Reader;

/// `None`: the listener speaks plainly.
pub(super) fn read(section: &mut Reader) -> Option<TlsFiles> {
    let mut file = |name: &str| section.optional_path(name).filter(|path| !path.as_os_str().is_empty());
    let (cert, key, client_ca) = (file("cert_file"), file("key_file"), file("client_ca_file"));
    match (cert, key) {
        (Some(cert_file), Some(key_file)) => {
            Some(TlsFiles { cert_file, key_file, client_ca_file: client_ca })
        }
        (Some(_), None) => {
            section.problem("key_file", "must be given with cert_file");
            None
        }
        (None, Some(_)) => {
            section.problem("cert_file", "must be given with key_file");
            None
        }
        (None, None) => {
            if client_ca.is_some() {
                section.problem("cert_file", "and key_file must be given with client_ca_file");
            }
            None
        }
    }
}
