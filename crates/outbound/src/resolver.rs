//! Name resolution that gives only public addresses. The connection goes to exactly what was checked here, so a name that
//! changes its mind in between wins nothing.

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use std::net::SocketAddr;

use crate::address::is_public;

/// The system's resolver without the addresses that are not public.
pub(crate) struct PublicOnly;

/// A name has addresses, and none of them is public.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the name has no public address")]
pub(crate) struct NotPublic;

impl Resolve for PublicOnly {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            Ok(Box::new(public(found)?.into_iter()) as Addrs)
        })
    }
}

/// The public ones. An empty list stays one: the name does not resolve.
fn public(mut found: Vec<SocketAddr>) -> Result<Vec<SocketAddr>, NotPublic> {
    let resolved = !found.is_empty();
    found.retain(|address| is_public(address.ip()));
    if resolved && found.is_empty() { Err(NotPublic) } else { Ok(found) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_public_addresses_are_left_of_a_name() {
        let list = |texts: &[&str]| texts.iter().map(|text| text.parse().expect("an address")).collect();
        let kept = public(list(&["10.0.0.1:0", "8.8.8.8:0", "[::1]:0"])).expect("one is public");
        assert_eq!(kept, ["8.8.8.8:0".parse().expect("an address")]);
        assert!(public(list(&["127.0.0.1:0", "[::1]:0"])).is_err());
        assert!(public(Vec::new()).is_ok_and(|none| none.is_empty()));
    }
}
