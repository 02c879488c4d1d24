//! Stored grants, found by whom they are for.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use portero_store::Grant;
use portero_types::SubjectPattern;

/// Every grant, by issuer. A row whose subject is no pattern grants nothing.
#[derive(Debug, Default)]
pub(crate) struct Grants(HashMap<String, OfIssuer>);

#[derive(Debug, Default)]
struct OfIssuer {
    exact: HashMap<String, Vec<Arc<Grant>>>,
    /// By what subjects begin with.
    prefixes: HashMap<String, Vec<Arc<Grant>>>,
    /// The lengths of these: a call costs as many looks as there are, however many grants are kept.
    lengths: BTreeSet<usize>,
}

impl Grants {
    pub(crate) fn new(rows: impl IntoIterator<Item = Arc<Grant>>) -> Self {
        let mut issuers: HashMap<String, OfIssuer> = HashMap::new();
        for row in rows {
            let Ok(pattern) = SubjectPattern::new(row.subject.as_str()) else { continue };
            let issuer = issuers.entry(row.issuer.clone()).or_default();
            if let Some(prefix) = pattern.prefix() {
                issuer.lengths.insert(prefix.len());
                issuer.prefixes.entry(prefix.to_owned()).or_default().push(row);
            } else {
                issuer.exact.entry(row.subject.clone()).or_default().push(row);
            }
        }
        Self(issuers)
    }

    /// The grants of a caller, in no order.
    pub(crate) fn of(&self, issuer: &str, subject: &str) -> impl Iterator<Item = &Arc<Grant>> {
        let found = self.0.get(issuer);
        let exact = found.and_then(|issuer| issuer.exact.get(subject)).into_iter().flatten();
        let prefixed = found.into_iter().flat_map(|issuer| {
            let beginnings = issuer.lengths.iter().filter_map(|length| subject.get(..*length));
            beginnings.filter_map(|beginning| issuer.prefixes.get(beginning)).flatten()
        });
        exact.chain(prefixed)
    }
}

#[cfg(test)]
mod tests {
    use portero_types::{GrantId, GrantNo, Timestamp};

    use super::*;

    fn grant(no: i64, issuer: &str, subject: &str) -> Arc<Grant> {
        Arc::new(Grant {
            no: GrantNo(no),
            id: GrantId::new(format!("g{no}")).expect("valid"),
            issuer: issuer.to_owned(),
            subject: subject.to_owned(),
            role: "viewer".to_owned(),
            tenant: None,
            subscriptions: Vec::new(),
            created_at: Timestamp::EPOCH,
        })
    }

    #[test]
    fn a_caller_gets_what_names_it_and_what_names_its_beginning_of_its_issuer_alone() {
        let grants = Grants::new([
            grant(1, "a", "alice"),
            grant(2, "a", "alice"),
            grant(3, "a", "al*"),
            grant(4, "a", "bob*"),
            grant(5, "b", "alice"),
            grant(6, "b", "*"),
            grant(7, "a", "ali*"),
            grant(8, "a", "alice-and-bob*"),
            grant(9, "c", "zoë*"),
        ]);
        let of = |issuer: &str, subject: &str| -> Vec<i64> {
            grants.of(issuer, subject).map(|grant| grant.no.0).collect()
        };
        assert_eq!(of("a", "alice"), [1, 2, 3, 7]);
        assert_eq!(of("a", "albert"), [3]);
        assert_eq!(of("b", "alice"), [5]);
        assert!(of("b", "bob").is_empty(), "everybody is no pattern");
        assert!(of("c", "alice").is_empty());
        assert_eq!(
            (of("c", "zoë"), of("c", "zoè")),
            (vec![9], vec![]),
            "a beginning may end within a character"
        );
        assert_eq!(of("a", "al*"), [3], "a subject is never taken for a pattern");
    }
}
