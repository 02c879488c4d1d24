//! Taking down steps.

use portero_types::SecretNo;

use super::{Outcome, Step};

/// What was looked at so far.
pub(super) struct Steps {
    /// Whether what speaks against the request counts; else it is only noted.
    is_refused: bool,
    steps: Vec<Step>,
}

impl Default for Steps {
    /// No step yet. What speaks against a request refuses it.
    fn default() -> Self {
        Self { is_refused: true, steps: Vec::new() }
    }
}

impl Steps {
    /// From here on the steps are of a request that is refused, or of one that is not.
    pub(super) const fn of_verdict(&mut self, is_refused: bool) {
        self.is_refused = is_refused;
    }

    /// Something that is as it should be.
    pub(super) fn passed(&mut self, name: &'static str, detail: impl Into<String>) {
        self.push(name, Outcome::Passed, detail.into(), None);
    }

    /// Something that speaks against the request. Where the request is accepted all the same, it is only noted.
    pub(super) fn failed(&mut self, name: &'static str, detail: impl Into<String>) {
        let outcome = if self.is_refused { Outcome::Failed } else { Outcome::Noted };
        self.push(name, outcome, detail.into(), None);
    }

    /// Something worth knowing.
    pub(super) fn noted(&mut self, name: &'static str, detail: impl Into<String>) {
        self.push(name, Outcome::Noted, detail.into(), None);
    }

    /// Something about one secret.
    pub(super) fn of_secret(&mut self, secret: SecretNo, outcome: Outcome, detail: impl Into<String>) {
        self.push("secret", outcome, detail.into(), Some(secret));
    }

    /// What would have made the signature match, perhaps with one secret.
    pub(super) fn hint(&mut self, secret: Option<SecretNo>, detail: String) {
        self.push("hint", Outcome::Noted, detail, secret);
    }

    /// Whether something was found that speaks against the request.
    pub(super) fn has_failed(&self) -> bool {
        self.steps.iter().any(|step| step.outcome == Outcome::Failed)
    }

    /// All of them.
    pub(super) fn finish(self) -> Vec<Step> {
        self.steps
    }

    fn push(&mut self, name: &'static str, outcome: Outcome, detail: String, secret: Option<SecretNo>) {
        self.steps.push(Step { name, outcome, detail, secret });
    }
}

/// A number of things in words: `1 header`, `3 headers`, `no headers`.
pub(super) fn count(n: usize, one: &str) -> String {
    match n {
        0 => format!("no {one}s"),
        1 => format!("1 {one}"),
        n => format!("{n} {one}s"),
    }
}
