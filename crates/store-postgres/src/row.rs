//! Columns to domain types and back. A column that holds no valid value is reported by table and column.

use portero_store::Result;
use sqlx::Row;
use sqlx::postgres::PgRow;

use crate::error::{Effect, corrupt, refused, store_error};

/// Reads a column.
pub(crate) fn get<'r, T>(row: &'r PgRow, column: &'static str) -> Result<T>
where
    T: sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres>,
{
    row.try_get(column).map_err(|e| store_error(&e, Effect::None))
}

/// Reads a column that holds text of a domain type.
pub(crate) fn parse<T: std::str::FromStr>(row: &PgRow, column: &'static str) -> Result<T> {
    get::<&str>(row, column)?.parse().map_err(|_| corrupt(column))
}

/// Reads a non-negative column of 64 bits.
pub(crate) fn unsigned(row: &PgRow, column: &'static str) -> Result<u64> {
    u64::try_from(get::<i64>(row, column)?).map_err(|_| corrupt(column))
}

/// Reads a non-negative column of 32 bits.
pub(crate) fn unsigned32(row: &PgRow, column: &'static str) -> Result<u32> {
    u32::try_from(get::<i32>(row, column)?).map_err(|_| corrupt(column))
}

/// Reads a column of 16 bits that holds a byte.
pub(crate) fn byte(row: &PgRow, column: &'static str) -> Result<u8> {
    u8::try_from(get::<i16>(row, column)?).map_err(|_| corrupt(column))
}

/// A number as a column of 64 bits holds it.
pub(crate) fn signed(value: u64, what: &'static str) -> Result<i64> {
    i64::try_from(value).map_err(|_| refused(what))
}

/// A number as a column of 32 bits holds it.
pub(crate) fn signed32(value: u32, what: &'static str) -> Result<i32> {
    i32::try_from(value).map_err(|_| refused(what))
}
