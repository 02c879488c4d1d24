//! What is known to be wrong with the files, and what of it was told: each thing once, not at every look.

use std::time::Duration;

use portero_types::Timestamp;

use crate::file::LoadError;

/// What goes on is told of once in so long.
const AGAIN_AFTER: Duration = Duration::from_secs(86_400);

/// What was met and told so far.
#[derive(Default)]
pub(crate) struct Trouble {
    /// What the last look met.
    met: Option<LoadError>,
    /// What was warned of.
    told: Option<LoadError>,
    /// When the certificate's end was told of.
    pub(crate) certificate: Told,
    /// When the approaching end of a revocation list was told of.
    pub(crate) lists: Told,
    /// When it was told that one has ended.
    pub(crate) ended_lists: Told,
}

/// When something that goes on was told of.
#[derive(Default)]
pub(crate) struct Told(Option<Timestamp>);

impl Trouble {
    /// Nothing is wrong with the files. Whether something was, and was told.
    pub(crate) fn is_over(&mut self) -> bool {
        self.met = None;
        self.told.take().is_some()
    }

    /// Notes that the files cannot be used, and answers whether to tell it. `asked`: somebody waits for the answer; else only
    /// what two looks meet is told, because files are often replaced one after the other.
    pub(crate) fn is_news(&mut self, error: &LoadError, asked: bool) -> bool {
        let is_settled = asked || self.met.as_ref() == Some(error);
        self.met = Some(error.clone());
        if !is_settled || self.told.as_ref() == Some(error) {
            return asked;
        }
        self.told = Some(error.clone());
        true
    }
}

impl Told {
    /// Whether to tell it at this moment; then it counts as told.
    pub(crate) fn is_due(&mut self, now: Timestamp) -> bool {
        let is_due = self.0.is_none_or(|at| now.since(at) >= AGAIN_AFTER);
        if is_due {
            self.0 = Some(now);
        }
        is_due
    }

    /// What was told is over.
    pub(crate) fn forget(&mut self) {
        self.0 = None;
    }
}
