//! Paging (AIP-158): the token is the last id of the page before. A page holds no more than an answer does, so that nobody's
//! large items keep anybody from listing.

use std::str::FromStr;

use portero_store::Page;
use portero_types::InvalidId;
use tonic::Status;

use crate::error::invalid;

const SIZE_DEFAULT: i32 = 100;
const SIZE_MAX: i32 = 1_000;
/// Most bytes of a page's items, unless one alone has more. An answer's own bound lies above it.
const BYTES_MAX: usize = 1 << 20;
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

/// A page's items as they are shown, as many as an answer holds and at least one, and the token of the next page; empty
/// after the last one.
pub(crate) fn shown<T, M: prost::Message>(
    page: &Page<T>,
    show: impl Fn(&T) -> M,
    id: impl FnOnce(&T) -> String,
) -> (Vec<M>, String) {
    let (mut shown, mut bytes) = (Vec::with_capacity(page.items.len()), 0);
    for item in &page.items {
        let one = show(item);
        bytes += one.encoded_len();
        if bytes > BYTES_MAX && !shown.is_empty() {
            break;
        }
        shown.push(one);
    }
    let is_last = !page.more && shown.len() == page.items.len();
    let last = page.items[..shown.len()].last().filter(|_| !is_last);
    (shown, last.map(id).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_holds_no_more_than_an_answer_and_at_least_one_item() {
        let page = |sizes: &[usize], more| Page { items: sizes.to_vec(), more };
        let cut = |page: &Page<usize>| {
            let (items, token) = shown(page, |size| "x".repeat(*size), ToString::to_string);
            (items.len(), token)
        };
        assert_eq!(cut(&page(&[], false)), (0, String::new()));
        assert_eq!(cut(&page(&[10, 11], false)), (2, String::new()));
        assert_eq!(cut(&page(&[10, 11], true)), (2, "11".to_owned()));
        assert_eq!(cut(&page(&[400_001, 400_002, 400_003], false)), (2, "400002".to_owned()));
        assert_eq!(cut(&page(&[BYTES_MAX, 1], false)), (1, BYTES_MAX.to_string()));
    }

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
