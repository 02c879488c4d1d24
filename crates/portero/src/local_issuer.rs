//! The issuer that comes with Portero, for small installations.

/// Its name: the `iss` claim.
pub(crate) const NAME: &str = "portero-local";
/// Whom its tokens are for: the `aud` claim.
pub(crate) const AUDIENCE: &str = "portero";

/// Where `portero dev` keeps its data unless told otherwise.
pub(crate) const DEV_FOLDER: &str = "./.portero";
/// The token for management that `portero dev` leaves in its folder.
pub(crate) const ADMIN_TOKEN_FILE: &str = "admin.token";
/// The token for the demo subscription that `portero dev` leaves in its folder.
pub(crate) const CONSUMER_TOKEN_FILE: &str = "consumer.token";
