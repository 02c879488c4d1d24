//! Who changes configuration, and by which request.

use portero_types::{TenantId, Timestamp};

/// Longest id of a request, bytes of UTF-8.
pub const REQUEST_ID_BYTES_MAX: usize = 128;
/// Longest reason, bytes of UTF-8.
pub const REASON_BYTES_MAX: usize = 512;
/// Longest issuer and longest subject of an actor, bytes of UTF-8. Longer than what any verified caller has.
pub const ACTOR_BYTES_MAX: usize = 1024;

/// Issuer of what Portero does on its own account.
const SYSTEM: &str = "portero:system";
/// Issuer of who works at the database past the API: the command line on the machine itself.
const LOCAL: &str = "portero:local";

/// Somebody who changes something: a verified caller, or a part of Portero.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Actor {
    /// Who vouches for the subject; `portero:system` and `portero:local` for parts of Portero. Up to [`ACTOR_BYTES_MAX`].
    pub issuer: String,
    /// Who it is. Up to [`ACTOR_BYTES_MAX`].
    pub subject: String,
}

impl Actor {
    /// A part of Portero that acts by itself, such as `handshake`.
    #[must_use]
    pub fn system(part: &str) -> Self {
        Self { issuer: SYSTEM.to_owned(), subject: part.to_owned() }
    }

    /// A program on the machine itself, such as `cli`, that nobody vouches for.
    #[must_use]
    pub fn local(program: &str) -> Self {
        Self { issuer: LOCAL.to_owned(), subject: program.to_owned() }
    }
}

/// Who changes configuration, and why it may be traced. Every call that changes configuration takes one, and what it did is
/// written to the audit log in the change's own transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Who.
    pub actor: Actor,
    /// The request that asked for it: the caller's own id for it, or a fresh one. Up to [`REQUEST_ID_BYTES_MAX`].
    pub request_id: String,
    /// Why, in the words of who asked for it. 1 to [`REASON_BYTES_MAX`] bytes.
    pub reason: Option<String>,
    /// Whose a subscription or grant has to be that is changed: what it was when its caller was found to be allowed this. Another
    /// one may have its name by now. `None`: anybody's; `Some(None)`: the whole installation's.
    pub owner: Option<Option<TenantId>>,
    /// Now.
    pub at: Timestamp,
}

impl Change {
    /// A change. What stores would refuse of the id is left out of it: control characters, and what is beyond its bound.
    #[must_use]
    pub fn new(actor: Actor, request_id: &str, at: Timestamp) -> Self {
        let mut kept = String::new();
        for character in request_id.chars().filter(|character| !character.is_control()) {
            if kept.len() + character.len_utf8() > REQUEST_ID_BYTES_MAX {
                break;
            }
            kept.push(character);
        }
        Self { actor, request_id: kept, reason: None, owner: None, at }
    }

    /// The same, of nothing but what is a tenant's (`None`: the whole installation's) when it is made.
    #[must_use]
    pub fn of(self, owner: Option<TenantId>) -> Self {
        Self { owner: Some(owner), ..self }
    }

    /// Whether it may be made of what is this tenant's. Implementations ask within the transaction that makes it; what it may
    /// not be made of is not there.
    #[must_use]
    pub fn concerns(&self, owner: Option<&TenantId>) -> bool {
        self.owner.as_ref().is_none_or(|wanted| wanted.as_ref() == owner)
    }

    /// The same for a reason, without white space around it; an empty one is none.
    ///
    /// # Errors
    /// [`NoReason`] when it is too long or has control characters.
    pub fn because(self, reason: &str) -> Result<Self, NoReason> {
        let reason = reason.trim();
        if reason.len() > REASON_BYTES_MAX || reason.chars().any(char::is_control) {
            return Err(NoReason);
        }
        Ok(Self { reason: (!reason.is_empty()).then(|| reason.to_owned()), ..self })
    }
}

/// A text that cannot be a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must have at most {REASON_BYTES_MAX} bytes, without line breaks and other control characters")]
pub struct NoReason;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_id_is_kept_up_to_its_bound_and_without_control_characters() {
        let of = |id: &str| Change::new(Actor::system("test"), id, Timestamp::EPOCH).request_id;
        assert_eq!(of("deploy-42"), "deploy-42");
        assert_eq!(of("a\0b\nc"), "abc");
        assert_eq!(of(&"é".repeat(100)), "é".repeat(64));
    }

    #[test]
    fn a_reason_is_trimmed_and_one_that_cannot_be_shown_in_a_line_is_refused() {
        let change = Change::new(Actor::system("test"), "r", Timestamp::EPOCH);
        let of = |reason: &str| change.clone().because(reason).map(|change| change.reason);
        assert_eq!(of(" seen in a public repository\n"), Ok(Some("seen in a public repository".to_owned())));
        assert_eq!((of(""), of(" \t")), (Ok(None), Ok(None)));
        assert_eq!(of(&"é".repeat(256)), Ok(Some("é".repeat(256))));
        for odd in ["a\nb", "a\0b", "a\u{1b}[2Jb", &"é".repeat(257)] {
            assert_eq!(of(odd), Err(NoReason), "{odd:?}");
        }
    }
}
