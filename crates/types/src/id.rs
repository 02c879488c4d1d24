//! Identifiers. Names chosen by people are slugs; names chosen by Portero are UUIDs or row numbers.

use std::fmt;
use std::str::FromStr;

use uuid::Uuid;

use crate::Timestamp;

/// Why a text is not an identifier.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} must be {rule}")]
pub struct InvalidId {
    /// The kind of identifier.
    pub what: &'static str,
    /// The rule that the text breaks, as the end of the sentence "it must be …".
    pub rule: &'static str,
}

const SLUG_RULE: &str =
    "1 to 63 characters of a-z, 0-9 and '-', starting with a letter and not ending with '-'";

fn is_slug(text: &str) -> bool {
    let bytes = text.as_bytes();
    (1..=63).contains(&bytes.len())
        && bytes[0].is_ascii_lowercase()
        && bytes[bytes.len() - 1] != b'-'
        && bytes.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-')
}

macro_rules! slug {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Box<str>);

        impl $name {
            /// Checks and wraps a slug: 1 to 63 characters of `a-z`, `0-9` and `-`, first a letter, last not `-`
            /// (RFC 1035 label, lower case).
            ///
            /// # Errors
            /// [`InvalidId`] when the text breaks that rule.
            pub fn new(text: impl Into<String>) -> Result<Self, InvalidId> {
                let text = text.into();
                if is_slug(&text) {
                    Ok(Self(text.into_boxed_str()))
                } else {
                    Err(InvalidId { what: $what, rule: SLUG_RULE })
                }
            }

            /// The text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;
            fn from_str(text: &str) -> Result<Self, InvalidId> {
                Self::new(text)
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidId;
            fn try_from(text: String) -> Result<Self, InvalidId> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.0.into()
            }
        }
    };
}

slug!(
    /// A tenant, as its operator named it.
    TenantId,
    "a tenant id"
);
slug!(
    /// A source within a tenant, as its operator named it.
    SourceId,
    "a source id"
);
slug!(
    /// A secret within a source, as its operator named it.
    SecretId,
    "a secret id"
);
slug!(
    /// A subscription, as its operator named it. Unique in the whole installation.
    SubscriptionId,
    "a subscription id"
);
slug!(
    /// A grant, as its operator named it. Unique in the whole installation.
    GrantId,
    "a grant id"
);
slug!(
    /// The provider that scopes event ids, such as `stripe`.
    ProviderName,
    "a provider name"
);

macro_rules! number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub i64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number!(
    /// A tenant's row number: what hot tables store instead of the name. Positive.
    TenantNo
);
number!(
    /// A source's row number. Positive.
    SourceNo
);
number!(
    /// A secret's row number. Positive.
    SecretNo
);
number!(
    /// A subscription's row number. Positive.
    SubscriptionNo
);
number!(
    /// A grant's row number. Positive.
    GrantNo
);

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(pub Uuid);

        impl $name {
            /// A time-ordered id (UUIDv7, RFC 9562) for `now`, unique by 74 random bits taken from `random`.
            #[must_use]
            pub fn new(now: Timestamp, random: u128) -> Self {
                let millis = u64::try_from(now.as_millis()).unwrap_or(0);
                let bytes = random.to_le_bytes();
                let mut tail = [0_u8; 10];
                tail.copy_from_slice(&bytes[..10]);
                Self(uuid::Builder::from_unix_timestamp_millis(millis, &tail).into_uuid())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "_{}"), self.0.simple())
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;
            fn from_str(text: &str) -> Result<Self, InvalidId> {
                text.strip_prefix(concat!($prefix, "_"))
                    .filter(|hex| hex.len() == 32)
                    .and_then(|hex| Uuid::try_parse(hex).ok())
                    .map(Self)
                    .ok_or(InvalidId {
                        what: $what,
                        rule: concat!("'", $prefix, "_' and 32 hexadecimal digits"),
                    })
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidId;
            fn try_from(text: String) -> Result<Self, InvalidId> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.to_string()
            }
        }
    };
}

uuid_id!(
    /// A receipt: the ledger row of one accepted event. Shown as `rcpt_…`.
    ReceiptId,
    "rcpt",
    "a receipt id"
);
uuid_id!(
    /// One HTTP request at the edge. Shown as `req_…`.
    RequestId,
    "req",
    "a request id"
);
uuid_id!(
    /// One run of one gateway process: the owner of lanes, fenced as a whole. Shown as `sess_…`.
    SessionId,
    "sess",
    "a session id"
);
uuid_id!(
    /// One run of one process, of whatever role: who says how far it has applied the configuration. Shown as `repl_…`.
    ReplicaId,
    "repl",
    "a replica id"
);

/// The unguessable last part of a source's URL: 128 random bits, shown as 32 hexadecimal digits.
///
/// It is a bearer capability: whoever knows it may *offer* requests, which still have to verify. Debug hides it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct IngestKey([u8; 16]);

impl IngestKey {
    /// From 128 random bits.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The 128 bits.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Debug for IngestKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("IngestKey(…)")
    }
}

impl fmt::Display for IngestKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for IngestKey {
    type Err = InvalidId;
    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let invalid = InvalidId { what: "an ingest key", rule: "32 lower-case hexadecimal digits" };
        if text.len() != 32 || !text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(invalid);
        }
        u128::from_str_radix(text, 16).map(|bits| Self(bits.to_be_bytes())).map_err(|_| invalid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slugs_accept_labels_and_refuse_everything_else() {
        for good in ["a", "acme", "acme-2", &"a".repeat(63)] {
            assert!(TenantId::new(good).is_ok(), "{good}");
        }
        for bad in ["", "2acme", "-a", "a-", "Acme", "a_b", "a/b", "ä", "a\0", &"a".repeat(64)] {
            assert!(TenantId::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn prefixed_ids_read_back_what_they_show() {
        let id = ReceiptId::new(Timestamp::from_secs(1_750_000_000), 42);
        assert_eq!(id.to_string().parse(), Ok(id));
        assert!("req_00000000000000000000000000000000".parse::<ReceiptId>().is_err());
        assert!("rcpt_xyz".parse::<ReceiptId>().is_err());
    }

    #[test]
    fn later_receipts_sort_later() {
        let early = ReceiptId::new(Timestamp::from_secs(1), u128::MAX);
        let late = ReceiptId::new(Timestamp::from_secs(2), 0);
        assert!(early < late);
    }

    #[test]
    fn ingest_keys_read_back_and_hide_from_debug() {
        let key = IngestKey::from_bytes([0xab; 16]);
        assert_eq!(key.to_string().parse(), Ok(key));
        assert!(!format!("{key:?}").contains("ab"));
        assert!("AB".repeat(16).parse::<IngestKey>().is_err(), "one spelling per key");
    }
}
