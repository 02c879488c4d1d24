//! Whether the schema fits the program.

use async_trait::async_trait;

/// The schema in the database compared with what this program needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchemaState {
    /// It fits.
    Current {
        /// Its version.
        version: i64,
    },
    /// No migration has run.
    Empty,
    /// Migrations are missing: run `portero migrate`.
    Behind {
        /// Version in the database.
        found: i64,
        /// Version that this program needs.
        needed: i64,
    },
    /// A newer program has migrated it: run that one.
    Ahead {
        /// Version in the database.
        found: i64,
        /// Version that this program needs.
        needed: i64,
    },
    /// A migration was changed after it ran, or was interrupted.
    Damaged {
        /// The migration's version.
        version: i64,
    },
}

/// Looks after the schema.
#[async_trait]
pub trait SchemaStore: Send + Sync + 'static {
    /// Compares the schema with what this program needs. Changes nothing.
    async fn schema_state(&self) -> crate::Result<SchemaState>;

    /// Brings the schema up to what this program needs. Idempotent; concurrent callers wait for each other.
    ///
    /// # Errors
    /// `SchemaMismatch` when the schema is ahead or damaged.
    async fn migrate(&self) -> crate::Result<()>;

    /// Whether the database can commit: a cheap write and its commit.
    async fn check_writable(&self) -> crate::Result<()>;

    /// Which database this is, and which line of its history: changes when another database takes its place or when it
    /// was restored or failed over. Whatever is remembered outside the database belongs to one identity only. 1 to 200
    /// characters of `a-z`, `0-9`, `-` and `.`. Needs no privilege beyond those of the other calls.
    async fn identity(&self) -> crate::Result<String>;
}
