//! Names that were given up, by the transactions that delete what had them.

use portero_store::{FreedName, Name, Result, Revision};
use portero_types::Timestamp;
use sqlx::SqliteConnection;
use sqlx::sqlite::SqliteRow;

use crate::error::{corrupt, statement};
use crate::row::{get, timestamp};

/// Every one.
pub(super) async fn all(connection: &mut SqliteConnection) -> Result<Vec<FreedName>> {
    let sql = "SELECT kind, name, freed_at FROM freed_names ORDER BY kind, name";
    sqlx::query(sql).fetch_all(connection).await.map_err(statement)?.iter().map(read).collect()
}

/// Those that were given up after a revision, perhaps once more.
pub(super) async fn changed(connection: &mut SqliteConnection, since: Revision) -> Result<Vec<FreedName>> {
    let query = sqlx::query("SELECT kind, name, freed_at FROM freed_names WHERE revision > ?").bind(since.0);
    query.fetch_all(connection).await.map_err(statement)?.iter().map(read).collect()
}

/// Its holder gives up a name.
pub(super) async fn insert(connection: &mut SqliteConnection, name: &Name, at: Timestamp) -> Result<()> {
    let sql = "INSERT INTO freed_names (kind, name, freed_at) VALUES (?, ?, ?) \
               ON CONFLICT (kind, name) DO UPDATE SET freed_at = max(freed_at, excluded.freed_at)";
    let query = sqlx::query(sql).bind(name.kind()).bind(name.text()).bind(at.as_micros());
    query.execute(connection).await.map(drop).map_err(statement)
}

fn read(row: &SqliteRow) -> Result<FreedName> {
    let name = Name::from_columns(get(row, "kind")?, get(row, "name")?);
    Ok(FreedName { name: name.ok_or_else(|| corrupt("freed_names.name"))?, at: timestamp(row, "freed_at")? })
}
