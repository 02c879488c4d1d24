//! Commands over the admin API: each calls it, and shows the answer.

pub(crate) mod audit;
pub(crate) mod grant;
mod limits;
mod list;
mod name;
pub(crate) mod parked;
pub(crate) mod receipt;
pub(crate) mod rejection;
pub(crate) mod replica;
pub(crate) mod secret;
pub(crate) mod source;
pub(crate) mod subscription;
pub(crate) mod tenant;
