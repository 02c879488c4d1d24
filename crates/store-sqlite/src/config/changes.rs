//! What changed since a revision, by the revisions that triggers write into rows and tombstones.

use portero_store::{ConfigChanges, ConfigDelta, ConfigSnapshot, Removed, Result, Revision};
use portero_types::Timestamp;
use sqlx::SqliteConnection;

use super::{database_now, freed, grant, key, secret, source, subscription, tenant};
use crate::error::{corrupt, statement};
use crate::row::{get, timestamp};

/// Several statements: call it within a snapshot.
pub(super) async fn since(connection: &mut SqliteConnection, since: Revision) -> Result<ConfigChanges> {
    let sql = concat!("SELECT revision, forgotten, ", database_now!(), " AS now FROM config_revision");
    let row = sqlx::query(sql).fetch_one(&mut *connection).await.map_err(statement)?;
    let (revision, forgotten) = (Revision(get(&row, "revision")?), Revision(get(&row, "forgotten")?));
    // A revision from the future is one of another history.
    if since < forgotten || since > revision {
        return everything(connection, revision).await.map(ConfigChanges::Full);
    }
    delta(connection, since, revision, timestamp(&row, "now")?).await.map(ConfigChanges::Delta)
}

/// Everything. Several statements: call it within a snapshot.
pub(super) async fn all(connection: &mut SqliteConnection) -> Result<ConfigSnapshot> {
    let sql = "SELECT revision FROM config_revision";
    let row = sqlx::query(sql).fetch_one(&mut *connection).await.map_err(statement)?;
    everything(connection, Revision(get(&row, "revision")?)).await
}

async fn everything(connection: &mut SqliteConnection, revision: Revision) -> Result<ConfigSnapshot> {
    Ok(ConfigSnapshot {
        revision,
        tenants: tenant::all(connection).await?,
        tenant_keys: key::all(connection).await?,
        sources: source::all(connection).await?,
        secrets: secret::all_recent(connection).await?,
        subscriptions: subscription::all(connection).await?,
        grants: grant::all(connection).await?,
        freed_names: freed::all(connection).await?,
    })
}

async fn delta(
    connection: &mut SqliteConnection,
    since: Revision,
    revision: Revision,
    now: Timestamp,
) -> Result<ConfigDelta> {
    let mut delta = ConfigDelta {
        revision,
        tenants: tenant::changed(connection, since).await?,
        tenant_keys: key::changed(connection, since).await?,
        sources: source::changed(connection, since).await?,
        secrets: Vec::new(),
        subscriptions: subscription::changed(connection, since).await?,
        grants: grant::changed(connection, since).await?,
        freed_names: freed::changed(connection, since).await?,
        removed: Removed::default(),
    };
    delta.add_secrets(secret::changed(connection, since).await?, now);
    let sql = "SELECT kind, no FROM config_tombstones WHERE revision > ?";
    let rows = sqlx::query(sql).bind(since.0).fetch_all(connection).await.map_err(statement)?;
    for row in &rows {
        if !delta.removed.add(get(row, "kind")?, get(row, "no")?) {
            return Err(corrupt("config_tombstones.kind"));
        }
    }
    Ok(delta)
}
