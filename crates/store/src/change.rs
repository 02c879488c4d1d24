//! Who changes configuration, and by which request.

use portero_types::Timestamp;

/// Longest id of a request, bytes of UTF-8.
pub const REQUEST_ID_BYTES_MAX: usize = 128;
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
        Self { actor, request_id: kept, at }
    }
}

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
}
