//! Pagora, the fictional payment provider, and someone who pretends to be Pagora.

use std::time::Duration;

use anyhow::Context as _;
use portero_example_ledger::{PaymentEvent, RECIPE};
use portero_recipe::{Recipe, SignOptions, SignedRequest, generate_secret, sign};
use portero_types::{Clock as _, Redacted};

use crate::clock::SystemClock;
use crate::entropy;

/// How long Pagora waits for an answer before it sends again.
pub(super) const RETRY_AFTER: Duration = Duration::from_secs(30);

/// The provider: its key, and the time as it knows it.
pub(super) struct Pagora {
    recipe: Recipe,
    secret: Redacted<String>,
    clock: SystemClock,
}

impl Pagora {
    /// Signs with `secret`.
    pub(super) fn new(secret: String, clock: SystemClock) -> anyhow::Result<Self> {
        let recipe = Recipe::from_json(RECIPE).context("Pagora's recipe cannot be used")?;
        Ok(Self { recipe, secret: Redacted::new(secret), clock })
    }

    /// A request as Pagora makes it, signed now.
    pub(super) fn request(&self, event: &PaymentEvent) -> anyhow::Result<SignedRequest> {
        self.signed(event, self.secret.expose_secret())
    }

    /// A request that looks like Pagora's, signed now with a key that is not.
    pub(super) fn forgery(&self, event: &PaymentEvent) -> anyhow::Result<SignedRequest> {
        let secret = generate_secret(&self.recipe, entropy::random()).context("Pagora shares no secret")?;
        self.signed(event, &secret)
    }

    fn signed(&self, event: &PaymentEvent, secret: &str) -> anyhow::Result<SignedRequest> {
        let options = SignOptions { now: self.clock.now(), ..SignOptions::default() };
        sign(&self.recipe, secret, &event.to_json(), options).context("the event cannot be signed")
    }
}

#[cfg(test)]
mod tests {
    use portero_example_ledger::scenario;

    use super::*;

    #[test]
    fn a_retry_has_the_same_body_and_another_signature() {
        let clock = SystemClock::default();
        let pagora = Pagora::new("a secret of sixteen bytes".to_owned(), clock.clone()).expect("valid");
        let event = &scenario::deliveries()[0].event;
        let first = pagora.request(event).expect("signed");
        clock.advance(RETRY_AFTER);
        let again = pagora.request(event).expect("signed");
        assert_eq!(first.body, again.body);
        assert_ne!(first.headers, again.headers);
    }

    #[test]
    fn a_forgery_differs_in_nothing_but_its_signature() {
        let pagora =
            Pagora::new("a secret of sixteen bytes".to_owned(), SystemClock::default()).expect("valid");
        let event = &scenario::deliveries()[0].event;
        let (genuine, forged) =
            (pagora.request(event).expect("signed"), pagora.forgery(event).expect("signed"));
        assert_eq!(genuine.body, forged.body);
        let names = |request: &SignedRequest| -> Vec<String> {
            request.headers.iter().map(|(name, _)| name.clone()).collect()
        };
        assert_eq!(names(&genuine), names(&forged));
        assert_ne!(genuine.headers, forged.headers);
    }
}
