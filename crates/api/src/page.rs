//! Paging (AIP-158): the token is the last id of the page before.

use std::str::FromStr;

use portero_types::InvalidId;
use tonic::Status;

use crate::error::invalid;

const SIZE_DEFAULT: i32 = 100;
const SIZE_MAX: i32 = 1_000;

/// How many items a page has.
pub(crate) fn size(asked: i32) -> Result<u32, Status> {
    let size = if asked == 0 { SIZE_DEFAULT } else { asked.min(SIZE_MAX) };
    u32::try_from(size).map_err(|_| invalid("page_size", "must not be negative"))
}

/// Where a page begins.
pub(crate) fn after<T: FromStr<Err = InvalidId>>(token: &str) -> Result<Option<T>, Status> {
    if token.is_empty() {
        return Ok(None);
    }
    token
        .parse()
        .map(Some)
        .map_err(|_| invalid("page_token", "must be the next_page_token of the answer before"))
}

/// The token of the next page; empty after the last one.
pub(crate) fn next<T>(page: &portero_store::Page<T>, id: impl FnOnce(&T) -> String) -> String {
    page.items.last().filter(|_| page.more).map(id).unwrap_or_default()
}
