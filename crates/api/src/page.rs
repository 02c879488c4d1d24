//! Paging (AIP-158): the token is the last id of the page before.

use std::str::FromStr;

use portero_store::Page;
use portero_types::InvalidId;
use tonic::Status;

use crate::error::invalid;

const SIZE_DEFAULT: i32 = 100;
const SIZE_MAX: i32 = 1_000;
/// How many items are read at once for a page of what a caller may see.
pub(crate) const READ_MAX: u32 = 1_000;

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

/// Gathers a page of what a caller may see out of a list of more. It is full or the last one, and its token is an item of its
/// own, so that neither tells of what is left out.
pub(crate) struct Gathering<T> {
    size: usize,
    items: Vec<T>,
}

impl<T> Gathering<T> {
    pub(crate) const fn new(size: u32) -> Self {
        Self { size: size as usize, items: Vec::new() }
    }

    /// Takes the visible ones of the items that come next. Whether more are needed.
    pub(crate) fn take(&mut self, visible: impl Iterator<Item = T>) -> bool {
        // One more than the page holds tells whether there is a next one.
        let room = self.size + 1 - self.items.len();
        self.items.extend(visible.take(room));
        self.items.len() <= self.size
    }

    pub(crate) fn page(mut self) -> Page<T> {
        let more = self.items.len() > self.size;
        self.items.truncate(self.size);
        Page { items: self.items, more }
    }
}

/// The token of the next page; empty after the last one.
pub(crate) fn next<T>(page: &Page<T>, id: impl FnOnce(&T) -> String) -> String {
    page.items.last().filter(|_| page.more).map(id).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_visible_items_is_full_or_the_last_one() {
        let mut page = Gathering::new(2);
        assert!(page.take([1].into_iter()), "there is room");
        assert!(page.take([2].into_iter()), "whether there is a third one is not known yet");
        assert!(page.take(std::iter::empty()));
        assert!(!page.take([3, 4].into_iter()));
        assert_eq!(page.page(), Page { items: vec![1, 2], more: true });
        let mut last = Gathering::new(2);
        last.take([1, 2].into_iter());
        assert_eq!(last.page(), Page { items: vec![1, 2], more: false });
    }
}
