//! `[edge.tls]` and `[grpc.tls]`: the files of a listener that speaks TLS.

use portero_tls::TlsFiles;

use super::Reader;

/// `None`: the listener speaks plainly.
pub(super) fn read(section: &mut Reader) -> Option<TlsFiles> {
    let mut file = |name: &str| section.optional_path(name).filter(|path| !path.as_os_str().is_empty());
    let (cert, key) = (file("cert_file"), file("key_file"));
    let (client_ca_file, client_crl_file) = (file("client_ca_file"), file("client_crl_file"));
    if client_crl_file.is_some() && client_ca_file.is_none() {
        section.problem("client_ca_file", "must be given with client_crl_file");
    }
    match (cert, key) {
        (Some(cert_file), Some(key_file)) => {
            Some(TlsFiles { cert_file, key_file, client_ca_file, client_crl_file })
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
            if client_ca_file.is_some() {
                section.problem("cert_file", "and key_file must be given with client_ca_file");
            }
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Config, Sources};

    fn load(text: &str) -> Result<Config, String> {
        Config::load(&Sources::for_test(text, &[])).map_err(|problems| problems.to_string())
    }

    #[test]
    fn a_listener_speaks_tls_when_certificate_and_key_are_named() {
        let config = load("[edge.tls]\ncert_file = \"c\"\nkey_file = \"k\"\n").expect("valid");
        let tls = config.edge.tls.expect("TLS");
        assert_eq!((tls.cert_file.to_str(), tls.client_ca_file), (Some("c"), None));
        assert!(config.grpc.tls.is_none());
        let sources = Sources::for_test(
            "",
            &[("PORTERO__GRPC__TLS__CERT_FILE", "c"), ("PORTERO__GRPC__TLS__KEY_FILE", "k")],
        );
        assert!(Config::load(&sources).expect("valid").grpc.tls.is_some());
    }

    #[test]
    fn half_of_a_pair_is_refused_by_name() {
        for (given, missing) in [
            ("cert_file", "edge.tls.key_file"),
            ("key_file", "edge.tls.cert_file"),
            ("client_ca_file", "edge.tls.cert_file"),
            ("client_crl_file", "edge.tls.client_ca_file"),
        ] {
            let problems = load(&format!("[edge.tls]\n{given} = \"x\"\n")).expect_err("refused");
            assert!(problems.contains(missing), "{problems}");
        }
        let problems = load("[edge.tls]\nciphers = \"all\"\n").expect_err("refused");
        assert!(problems.contains("edge.tls.ciphers is not a known setting"), "{problems}");
    }

    #[test]
    fn certificates_for_redis_need_a_url_with_tls() {
        let problems = load("[redis]\nurl = \"redis://h\"\nca_file = \"c\"\nclient_cert_file = \"c\"\n")
            .expect_err("refused");
        assert!(problems.contains("rediss://") && problems.contains("client_key_file"), "{problems}");
        assert!(load("[redis]\nurl = \"rediss://h\"\nca_file = \"c\"\n").is_ok());
    }
}
