//! Columns to domain types and back. A column that holds no valid value is reported by its name.

use std::str::FromStr;

use portero_store::Result;
use portero_types::{EntityHash, ReceiptId, Timestamp};
use serde::de::DeserializeOwned;
use sqlx::Row;
use sqlx::sqlite::SqliteRow;
use uuid::Uuid;

use crate::error::{corrupt, refused, statement};

/// Reads a column.
pub(crate) fn get<'r, T>(row: &'r SqliteRow, column: &'static str) -> Result<T>
where
    T: sqlx::Decode<'r, sqlx::Sqlite> + sqlx::Type<sqlx::Sqlite>,
{
    row.try_get(column).map_err(statement)
}

/// Reads a column that holds text of a domain type.
pub(crate) fn parse<T: FromStr>(row: &SqliteRow, column: &'static str) -> Result<T> {
    get::<&str>(row, column)?.parse().map_err(|_| corrupt(column))
}

/// Reads a column that holds a number which is not negative and fits `T`.
pub(crate) fn unsigned<T: TryFrom<i64>>(row: &SqliteRow, column: &'static str) -> Result<T> {
    let value = get::<i64>(row, column)?;
    if value < 0 {
        return Err(corrupt(column));
    }
    T::try_from(value).map_err(|_| corrupt(column))
}

/// Reads a column of bytes with a fixed length.
pub(crate) fn bytes<const N: usize>(row: &SqliteRow, column: &'static str) -> Result<[u8; N]> {
    get::<&[u8]>(row, column)?.try_into().map_err(|_| corrupt(column))
}

/// Reads a column that holds JSON.
pub(crate) fn from_json<T: DeserializeOwned>(row: &SqliteRow, column: &'static str) -> Result<T> {
    serde_json::from_str(get(row, column)?).map_err(|_| corrupt(column))
}

/// Reads a column that holds a moment.
pub(crate) fn timestamp(row: &SqliteRow, column: &'static str) -> Result<Timestamp> {
    get(row, column).map(Timestamp::from_micros)
}

/// Reads a column that holds an id of 16 bytes.
pub(crate) fn uuid(row: &SqliteRow, column: &'static str) -> Result<Uuid> {
    bytes(row, column).map(Uuid::from_bytes)
}

/// Reads `receipt_id`.
pub(crate) fn receipt_id(row: &SqliteRow) -> Result<ReceiptId> {
    uuid(row, "receipt_id").map(ReceiptId)
}

/// Reads `entity_hash`.
pub(crate) fn entity(row: &SqliteRow) -> Result<EntityHash> {
    get(row, "entity_hash").map(EntityHash::from_bits)
}

/// A number as a column holds it.
pub(crate) fn signed(value: u64, what: &'static str) -> Result<i64> {
    i64::try_from(value).map_err(|_| refused(what))
}
