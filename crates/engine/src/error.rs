//! What the engine refuses.

use portero_types::EntityHash;

/// Who has to act on an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// A limit in the configuration makes no sense.
    Config,
    /// Stored state breaks an invariant. Someone must act; the lane must not run.
    Corrupt,
    /// The caller broke the calling order. The call changed nothing.
    Misuse,
}

/// A refused call. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A limit is below its bound.
    #[error("the lane's limit {field} is below its bound")]
    Config {
        /// Name of the field.
        field: &'static str,
    },
    /// A parked entity has no positions, or they do not rise.
    #[error("parked entity {:016x} has no rising positions", entity.0)]
    ParkedOrder {
        /// The entity.
        entity: EntityHash,
    },
    /// A position is parked or deferred for two entities, or the same entity is parked twice.
    #[error("position {position} stands in two places")]
    TwoPlaces {
        /// The position.
        position: u64,
    },
    /// A page starts after the lane's cursor: entries between them would be lost.
    #[error("a page that starts after {after} leaves a gap to the lane's cursor {cursor}")]
    Gap {
        /// Where the page starts.
        after: u64,
        /// Where the lane stands.
        cursor: u64,
    },
}

impl Error {
    /// Who has to act.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Config { .. } => ErrorKind::Config,
            Self::ParkedOrder { .. } | Self::TwoPlaces { .. } => ErrorKind::Corrupt,
            Self::Gap { .. } => ErrorKind::Misuse,
        }
    }
}
