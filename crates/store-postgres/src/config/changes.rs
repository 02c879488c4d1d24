//! What changed since a revision, by the revisions that triggers write into rows and tombstones.

use portero_store::{ConfigChanges, ConfigDelta, ConfigSnapshot, Removed, Result, Revision};
use portero_types::Timestamp;

use super::{freed, grants, keys, secrets, sources, subscriptions, tenants};
use crate::error::corrupt;
use crate::lease::Tx;
use crate::pools::Pool;
use crate::row::get;

pub(super) async fn since(pool: &Pool, since: Revision) -> Result<ConfigChanges> {
    let mut tx = Tx::begin_snapshot(pool).await?;
    let state = sqlx::query(
        "SELECT revision, forgotten, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now
         FROM config_revision",
    );
    let found = tx.rows(state).await?;
    let row = found.first().ok_or_else(|| corrupt("config_revision"))?;
    let (revision, forgotten) = (Revision(get(row, "revision")?), Revision(get(row, "forgotten")?));
    // A revision from the future is one of another history.
    let changes = if since < forgotten || since > revision {
        ConfigChanges::Full(everything(&mut tx, revision).await?)
    } else {
        let now = Timestamp::from_micros(get(row, "now")?);
        ConfigChanges::Delta(delta(&mut tx, since, revision, now).await?)
    };
    tx.commit().await?;
    Ok(changes)
}

/// Everything, as one snapshot of the database sees it.
pub(super) async fn all(pool: &Pool) -> Result<ConfigSnapshot> {
    let mut tx = Tx::begin_snapshot(pool).await?;
    let found = tx.rows(sqlx::query("SELECT revision FROM config_revision")).await?;
    let row = found.first().ok_or_else(|| corrupt("config_revision"))?;
    let snapshot = everything(&mut tx, Revision(get(row, "revision")?)).await?;
    tx.commit().await?;
    Ok(snapshot)
}

async fn everything(tx: &mut Tx, revision: Revision) -> Result<ConfigSnapshot> {
    Ok(ConfigSnapshot {
        revision,
        tenants: tx.rows(tenants::all()).await?.iter().map(tenants::read).collect::<Result<_>>()?,
        tenant_keys: tx.rows(keys::all()).await?.iter().map(keys::read).collect::<Result<_>>()?,
        sources: tx.rows(sources::all()).await?.iter().map(sources::read).collect::<Result<_>>()?,
        secrets: tx.rows(secrets::all_recent()).await?.iter().map(secrets::read).collect::<Result<_>>()?,
        subscriptions: tx
            .rows(subscriptions::all())
            .await?
            .iter()
            .map(subscriptions::read)
            .collect::<Result<_>>()?,
        grants: tx.rows(grants::all()).await?.iter().map(grants::read).collect::<Result<_>>()?,
        freed_names: tx.rows(freed::all()).await?.iter().map(freed::read).collect::<Result<_>>()?,
    })
}

async fn delta(tx: &mut Tx, since: Revision, revision: Revision, now: Timestamp) -> Result<ConfigDelta> {
    let mut delta = ConfigDelta {
        revision,
        tenants: tx.rows(tenants::changed(since)).await?.iter().map(tenants::read).collect::<Result<_>>()?,
        tenant_keys: tx.rows(keys::changed(since)).await?.iter().map(keys::read).collect::<Result<_>>()?,
        sources: tx.rows(sources::changed(since)).await?.iter().map(sources::read).collect::<Result<_>>()?,
        secrets: Vec::new(),
        subscriptions: tx
            .rows(subscriptions::changed(since))
            .await?
            .iter()
            .map(subscriptions::read)
            .collect::<Result<_>>()?,
        grants: tx.rows(grants::changed(since)).await?.iter().map(grants::read).collect::<Result<_>>()?,
        freed_names: tx.rows(freed::changed(since)).await?.iter().map(freed::read).collect::<Result<_>>()?,
        removed: Removed::default(),
    };
    let secrets = tx.rows(secrets::changed(since)).await?;
    delta.add_secrets(secrets.iter().map(secrets::read).collect::<Result<_>>()?, now);
    let tombstones = sqlx::query("SELECT kind, no FROM config_tombstones WHERE revision > $1").bind(since.0);
    for row in &tx.rows(tombstones).await? {
        if !delta.removed.add(get(row, "kind")?, get(row, "no")?) {
            return Err(corrupt("config_tombstones.kind"));
        }
    }
    Ok(delta)
}
