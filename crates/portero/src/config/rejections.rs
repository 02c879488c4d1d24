//! `[rejections]`: what is remembered of refused requests.

use std::time::Duration;

use super::Reader;

/// `[rejections]`.
#[derive(Clone, Debug)]
pub(crate) struct Rejections {
    /// How long a refused request is kept for those who look for the cause.
    pub(crate) retention: Duration,
}

impl Rejections {
    pub(super) fn read(section: &mut Reader) -> Self {
        let hour = Duration::from_secs(3600);
        Self { retention: section.within("retention", hour * 72, hour, hour * 24 * 90) }
    }
}
