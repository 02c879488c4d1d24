//! Resource names, made from ids and taken apart.

/// `tenants/{tenant}`.
pub(super) fn tenant(tenant: &str) -> String {
    format!("tenants/{tenant}")
}

/// `tenants/{tenant}/sources/{source}`.
pub(super) fn source(tenant: &str, source: &str) -> String {
    format!("tenants/{tenant}/sources/{source}")
}

/// `tenants/{tenant}/sources/{source}/secrets/{secret}`.
pub(super) fn secret(tenant: &str, source: &str, secret: &str) -> String {
    format!("tenants/{tenant}/sources/{source}/secrets/{secret}")
}

/// `tenants/{tenant}/sources/{source}/rejections/{request}`.
pub(super) fn rejection(tenant: &str, source: &str, request: &str) -> String {
    format!("tenants/{tenant}/sources/{source}/rejections/{request}")
}

/// `grants/{grant}`.
pub(super) fn grant(grant: &str) -> String {
    format!("grants/{grant}")
}

/// `subscriptions/{subscription}`.
pub(super) fn subscription(subscription: &str) -> String {
    format!("subscriptions/{subscription}")
}

/// `subscriptions/{subscription}/parkedEntities/{entity}`.
pub(super) fn parked_entity(subscription: &str, entity: &str) -> String {
    format!("subscriptions/{subscription}/parkedEntities/{entity}")
}

/// The id at a place of a name, counted from 0; empty when there is none.
pub(super) fn id(name: &str, place: usize) -> String {
    name.split('/').nth(place * 2 + 1).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_come_back_out_of_names() {
        let name = secret("acme", "stripe", "s1");
        assert_eq!([0, 1, 2, 3].map(|place| id(&name, place)), ["acme", "stripe", "s1", ""]);
        assert_eq!(id(&subscription("billing"), 0), "billing");
        assert_eq!(id("", 0), "");
    }
}
