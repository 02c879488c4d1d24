use super::fixtures::*;
use super::*;
use proptest::prelude::*;

const NOW: Timestamp = Timestamp::from_secs(1_750_000_000);

/// Each algorithm that can be signed with here, its private key and its public key.
fn pairs() -> Vec<(KeyPairAlgorithm, PrivateKey, PublicKey)> {
    [
        (KeyPairAlgorithm::RsaSha1, RSA_2048_PRIVATE, RSA_2048_PUBLIC),
        (KeyPairAlgorithm::RsaSha256, RSA_2048_PRIVATE, RSA_2048_PUBLIC),
        (KeyPairAlgorithm::EcdsaP256Der, P256_PRIVATE, P256_PUBLIC),
        (KeyPairAlgorithm::EcdsaP256Fixed, P256_PRIVATE, P256_PUBLIC),
        (KeyPairAlgorithm::Ed25519, ED25519_PRIVATE, ED25519_PUBLIC),
    ]
    .map(|(algorithm, private, public)| {
        let private = PrivateKey::from_pem(private).expect("a private key");
        (algorithm, private, PublicKey::from_pem(public).expect("a public key"))
    })
    .into()
}

#[test]
fn what_is_signed_verifies_and_a_flipped_bit_does_not() {
    for (algorithm, private, public) in pairs() {
        let signature = private.sign(algorithm, b"message").expect("it fits");
        assert!(public.verifies(algorithm, b"message", &signature), "{algorithm:?}");
        assert!(private.public().verifies(algorithm, b"message", &signature), "{algorithm:?}");
        assert!(!public.verifies(algorithm, b"messagf", &signature), "{algorithm:?}");
        for byte in 0..signature.len() {
            let mut changed = signature.clone();
            changed[byte] ^= 1 << (byte % 8);
            assert!(!public.verifies(algorithm, b"message", &changed), "{algorithm:?}: byte {byte}");
        }
        for length in [0, 1, signature.len() - 1] {
            assert!(!public.verifies(algorithm, b"message", &signature[..length]), "{algorithm:?}: {length}");
        }
        let longer = [&signature[..], &[0]].concat();
        assert!(!public.verifies(algorithm, b"message", &longer), "{algorithm:?}: longer");
    }
}

#[test]
fn an_algorithm_never_takes_a_signature_or_key_of_another() {
    for (algorithm, private, public) in pairs() {
        let signature = private.sign(algorithm, b"message").expect("it fits");
        for (other, other_private, _) in pairs().iter().filter(|(other, ..)| *other != algorithm) {
            assert!(!public.verifies(*other, b"message", &signature), "{algorithm:?} as {other:?}");
            assert_eq!(other_private.public().fits(algorithm), private.public().fits(*other));
        }
        assert!(public.fits(algorithm));
    }
}

#[test]
fn p256_signatures_of_the_same_message_are_the_same() {
    let key = PrivateKey::from_pem(P256_PRIVATE).expect("a key");
    let sign = || key.sign(KeyPairAlgorithm::EcdsaP256Fixed, b"message");
    assert_eq!(sign(), sign());
}

#[test]
fn a_certificate_gives_the_key_inside() {
    for (certificate, public, algorithm, private) in [
        (RSA_2048_CERTIFICATE, RSA_2048_PUBLIC, KeyPairAlgorithm::RsaSha256, RSA_2048_PRIVATE),
        (P256_CERTIFICATE, P256_PUBLIC, KeyPairAlgorithm::EcdsaP256Der, P256_PRIVATE),
    ] {
        let signature = PrivateKey::from_pem(private).expect("a key").sign(algorithm, b"m").expect("it fits");
        for text in [certificate, public] {
            let key = PublicKey::from_pem(text).expect("a key");
            assert!(key.verifies(algorithm, b"m", &signature));
        }
        let certificate = Certificate::from_pem(certificate.as_bytes()).expect("a certificate");
        assert!(certificate.key_at(NOW).expect("in its time").verifies(algorithm, b"m", &signature));
    }
}

#[test]
fn both_ends_of_a_certificates_time_belong_to_it() {
    let certificate = Certificate::from_pem(RSA_2048_CERTIFICATE.as_bytes()).expect("a certificate");
    let (first, last) = (1_748_736_000, 1_751_328_000);
    let at = |second: i64, micros: i64| {
        let now = Timestamp::from_micros(second * 1_000_000 + micros);
        certificate.key_at(now).map(|_| ())
    };
    assert_eq!(at(first, -1), Err(InvalidKey::NotYetValid));
    assert_eq!(at(first, 0), Ok(()));
    assert_eq!(at(last, 999_999), Ok(()));
    assert_eq!(at(last + 1, 0), Err(InvalidKey::Expired));
}

#[test]
fn pasted_keys_are_read_however_their_lines_end() {
    for text in [
        RSA_2048_PUBLIC.replace('\n', "\r\n"),
        RSA_2048_PUBLIC.replace('\n', " "),
        RSA_2048_PUBLIC.replace('\n', ""),
        format!("\n  key:\n{RSA_2048_PUBLIC}\n"),
    ] {
        assert!(PublicKey::from_pem(&text).is_ok(), "{text}");
    }
    let base64 = RSA_2048_PUBLIC.lines().filter(|line| !line.starts_with('-')).collect::<Vec<_>>().join("\n");
    assert!(PublicKey::from_spki_base64(&base64).is_ok());
    assert!(PublicKey::from_spki_base64(base64.trim_end_matches('=')).is_ok());
}

#[test]
fn weak_unknown_and_misplaced_keys_are_told_apart() {
    let refused = |text: &str| PublicKey::from_pem(text).err();
    assert_eq!(refused(RSA_1024_PUBLIC), Some(InvalidKey::Weak));
    assert_eq!(refused(RSA_1024_CERTIFICATE), Some(InvalidKey::Weak));
    assert_eq!(PrivateKey::from_pem(RSA_1024_PRIVATE).err(), Some(InvalidKey::Weak));
    assert_eq!(refused(P384_PUBLIC), Some(InvalidKey::Unsupported));
    assert_eq!(refused(RSA_2048_PRIVATE), Some(InvalidKey::Private));
    assert_eq!(refused("whsec_abc"), Some(InvalidKey::NotPem));
    assert_eq!(
        refused("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----"),
        Some(InvalidKey::Malformed)
    );
    assert_eq!(refused("-----BEGIN PUBLIC KEY-----\n!\n-----END PUBLIC KEY-----"), Some(InvalidKey::NotPem));
    assert_eq!(
        refused("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END CERTIFICATE-----"),
        Some(InvalidKey::NotPem)
    );
    assert_eq!(PublicKey::from_spki_base64("AAAA").err(), Some(InvalidKey::Malformed));
    assert_eq!(PublicKey::from_spki_base64("!").err(), Some(InvalidKey::NotBase64));
    assert_eq!(PrivateKey::from_pem(RSA_2048_PUBLIC).err(), Some(InvalidKey::NotPem));
}

#[test]
fn an_rsa_key_with_a_small_exponent_is_refused() {
    let mut der =
        base64_lines(&RSA_2048_PUBLIC.lines().filter(|line| !line.starts_with('-')).collect::<String>())
            .expect("base64");
    // The exponent 65537 is the last integer.
    let length = der.len();
    assert_eq!(&der[length - 5..], [0x02, 0x03, 0x01, 0x00, 0x01]);
    for exponent in [[0x00, 0x00, 0x01], [0x00, 0x00, 0x02], [0x01, 0x00, 0x00]] {
        der[length - 3..].copy_from_slice(&exponent);
        assert!(PublicKey::from_spki(&der).is_err(), "{exponent:?}");
    }
}

#[test]
fn a_point_off_the_curve_is_no_key() {
    assert!(PublicKey::from_p256_point(&[1; 32], &[1; 32]).is_err());
    assert!(PublicKey::from_p256_point(&[0; 32], &[0; 32]).is_err());
}

#[test]
fn debug_shows_no_key() {
    let key = PrivateKey::from_pem(P256_PRIVATE).expect("a key");
    assert_eq!(format!("{key:?} {:?}", key.public()), "PrivateKey(…) PublicKey(P-256)");
}

proptest! {
    #[test]
    fn no_bytes_make_a_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = (PublicKey::from_spki(&bytes), Certificate::from_der(&bytes), Certificate::from_pem(&bytes));
        let text = base64::engine::general_purpose::STANDARD.encode(&bytes);
        for label in ["PUBLIC KEY", "CERTIFICATE", "PRIVATE KEY"] {
            let pem = format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----");
            let _ = (PublicKey::from_pem(&pem), PrivateKey::from_pem(&pem).is_ok());
        }
    }

    #[test]
    fn a_changed_certificate_never_makes_the_reader_panic(at in 0_usize..700, bit in 0_u32..8) {
        let (_, mut der) = pem_block(RSA_2048_CERTIFICATE).expect("a block");
        let at = at % der.len();
        der[at] ^= 1 << bit;
        let _ = Certificate::from_der(&der);
    }
}
