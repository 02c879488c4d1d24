//! Resource names (AIP-122), such as `tenants/{tenant}/sources/{source}/secrets/{secret}` and `subscriptions/{subscription}`.

use portero_types::{GrantId, RequestId, SecretId, SourceId, SubscriptionId, TenantId};
use tonic::Status;

use crate::error::invalid;

fn segments<'a, const N: usize>(
    name: &'a str,
    field: &str,
    form: &[&str; N],
) -> Result<Vec<&'a str>, Status> {
    let parts: Vec<&str> = name.split('/').collect();
    let fits = parts.len() == N * 2 && parts.iter().step_by(2).zip(form).all(|(part, word)| part == word);
    if !fits {
        let one = |word: &&str| match *word {
            "parkedEntities" => "parked_entity".to_owned(),
            word => word.trim_end_matches('s').to_owned(),
        };
        let wanted: Vec<String> = form.iter().map(|word| format!("{word}/{{{}}}", one(word))).collect();
        return Err(invalid(field, format!("must have the form {}", wanted.join("/"))));
    }
    Ok(parts.into_iter().skip(1).step_by(2).collect())
}

/// Parses one id of a name or field.
pub(crate) fn id<T: std::str::FromStr<Err = portero_types::InvalidId>>(
    text: &str,
    field: &str,
) -> Result<T, Status> {
    text.parse().map_err(|error: portero_types::InvalidId| {
        let is_the_id = field.ends_with("_id");
        let whose = if is_the_id { String::new() } else { format!("must hold {}, which ", error.what) };
        invalid(field, format!("{whose}must be {}", error.rule))
    })
}

/// `tenants/{tenant}`.
pub(crate) fn tenant(name: &str, field: &str) -> Result<TenantId, Status> {
    id(segments(name, field, &["tenants"])?[0], field)
}

/// `tenants/{tenant}/sources/{source}`.
pub(crate) fn source(name: &str, field: &str) -> Result<(TenantId, SourceId), Status> {
    let parts = segments(name, field, &["tenants", "sources"])?;
    Ok((id(parts[0], field)?, id(parts[1], field)?))
}

/// `tenants/{tenant}/sources/{source}/secrets/{secret}`.
pub(crate) fn secret(name: &str, field: &str) -> Result<(TenantId, SourceId, SecretId), Status> {
    let parts = segments(name, field, &["tenants", "sources", "secrets"])?;
    Ok((id(parts[0], field)?, id(parts[1], field)?, id(parts[2], field)?))
}

/// `tenants/{tenant}/sources/{source}/rejections/{rejection}`.
pub(crate) fn rejection(name: &str, field: &str) -> Result<(TenantId, SourceId, RequestId), Status> {
    let parts = segments(name, field, &["tenants", "sources", "rejections"])?;
    Ok((id(parts[0], field)?, id(parts[1], field)?, id(parts[2], field)?))
}

/// `presets/{preset}`.
pub(crate) fn preset<'a>(name: &'a str, field: &str) -> Result<&'a str, Status> {
    Ok(segments(name, field, &["presets"])?[0])
}

/// `subscriptions/{subscription}/parkedEntities/{parked_entity}`; the last one as it is written.
pub(crate) fn parked_entity<'a>(name: &'a str, field: &str) -> Result<(SubscriptionId, &'a str), Status> {
    let parts = segments(name, field, &["subscriptions", "parkedEntities"])?;
    Ok((id(parts[0], field)?, parts[1]))
}

/// `grants/{grant}`.
pub(crate) fn grant(name: &str, field: &str) -> Result<GrantId, Status> {
    id(segments(name, field, &["grants"])?[0], field)
}

/// `subscriptions/{subscription}`.
pub(crate) fn subscription(name: &str, field: &str) -> Result<SubscriptionId, Status> {
    id(segments(name, field, &["subscriptions"])?[0], field)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_only_in_their_exact_form() {
        let (tenant, source, secret) =
            secret("tenants/acme/sources/stripe/secrets/s1", "name").expect("well formed");
        assert_eq!((tenant.as_str(), source.as_str(), secret.as_str()), ("acme", "stripe", "s1"));
        for bad in [
            "",
            "acme",
            "tenants",
            "tenants/",
            "tenant/acme",
            "tenants/acme/",
            "tenants/Acme",
            "/tenants/acme",
        ] {
            assert!(super::tenant(bad, "name").is_err(), "{bad}");
        }
    }

    #[test]
    fn a_wrong_id_says_the_rule_and_where_it_stands() {
        let own = id::<SecretId>("T 9!", "secret_id").expect_err("no slug");
        assert!(own.message().contains("secret_id must be 1 to 63 characters"), "{own}");
        let within = tenant("tenants/Acme", "parent").expect_err("no slug");
        assert!(within.message().contains("parent must hold a tenant id, which must be 1 to 63"), "{within}");
    }

    #[test]
    fn a_wrong_form_says_the_right_one() {
        let status = subscription("billing", "parent").expect_err("no collection");
        assert!(
            status.message().contains("parent must have the form subscriptions/{subscription}"),
            "{status}"
        );
    }
}
