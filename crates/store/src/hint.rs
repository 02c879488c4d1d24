//! Hints between gateways. A hint only shortens a wait: whoever gets one looks, and looks now and then without one.

use async_trait::async_trait;

/// What may have changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hint {
    /// The log grew.
    Log,
    /// Lanes, weights, streams or requests changed: call [`crate::LaneStore::roll`].
    Lanes,
    /// Configuration changed. Stores tell it themselves with each change.
    Config,
}

/// Passes hints on.
#[async_trait]
pub trait HintStore: Send + Sync + 'static {
    /// Tells everybody who listens, this process included. Never part of a transaction, least of all the accept one.
    /// Callers bound how often they call it for [`Hint::Log`].
    ///
    /// # Errors
    /// `Unavailable`: nobody was told, or somebody.
    async fn hint(&self, hint: Hint) -> crate::Result<()>;

    /// Listens from now on, on a connection of its own.
    ///
    /// # Errors
    /// `Unavailable` when that connection cannot be made.
    async fn listen(&self) -> crate::Result<Box<dyn Hints>>;
}

/// Hints as they come in. Those of one kind may be merged. Dropping it ends the listening.
#[async_trait]
pub trait Hints: Send + 'static {
    /// Waits for the next hint. Cancel-safe: a hint that was not returned is returned by the next call.
    ///
    /// # Errors
    /// Any error means that hints may have been lost and no more will come: look at once, and listen anew.
    async fn next(&mut self) -> crate::Result<Hint>;
}
