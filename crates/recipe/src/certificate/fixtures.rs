//! Keys and certificates for tests only. The certificates are valid from 2025-06-01 to 2025-07-01.

pub(crate) const RSA_2048_PRIVATE: &str = include_str!("fixtures/rsa-2048.private.pem");
pub(crate) const RSA_2048_PUBLIC: &str = include_str!("fixtures/rsa-2048.public.pem");
pub(crate) const RSA_2048_CERTIFICATE: &str = include_str!("fixtures/rsa-2048.certificate.pem");
pub(crate) const RSA_1024_PRIVATE: &str = include_str!("fixtures/rsa-1024.private.pem");
pub(crate) const RSA_1024_PUBLIC: &str = include_str!("fixtures/rsa-1024.public.pem");
pub(crate) const RSA_1024_CERTIFICATE: &str = include_str!("fixtures/rsa-1024.certificate.pem");
pub(crate) const P256_PRIVATE: &str = include_str!("fixtures/p256.private.pem");
pub(crate) const P256_PUBLIC: &str = include_str!("fixtures/p256.public.pem");
pub(crate) const P256_CERTIFICATE: &str = include_str!("fixtures/p256.certificate.pem");
pub(crate) const P384_PUBLIC: &str = include_str!("fixtures/p384.public.pem");
pub(crate) const ED25519_PRIVATE: &str = include_str!("fixtures/ed25519.private.pem");
pub(crate) const ED25519_PUBLIC: &str = include_str!("fixtures/ed25519.public.pem");
