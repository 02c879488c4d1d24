//! How much of the configuration one tenant may make up: every gateway holds all of it in memory, and a tenant's own people
//! make its sources and subscriptions.

use crate::{Error, ErrorKind, NewSource, NewSubscription, Result, Source, SourceUpdate};

/// Most sources of one tenant.
pub const SOURCES_PER_TENANT_MAX: u64 = 10_000;
/// Most bytes of recipes of their own that a tenant's sources have together; presets count nothing.
pub const RECIPE_BYTES_PER_TENANT_MAX: u64 = 16 << 20;
/// Most subscriptions that carry one tenant's events alone.
pub const SUBSCRIPTIONS_PER_TENANT_MAX: u64 = 1_000;

/// What a tenant has of sources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourcesHeld {
    /// How many.
    pub count: u64,
    /// Bytes of recipes of their own.
    pub recipe_bytes: u64,
}

impl NewSource {
    /// Whether there is room for it beside what its tenant has. Implementations ask within the transaction that writes it.
    ///
    /// # Errors
    /// `Exhausted` says which bound is reached, and what to do.
    pub fn check_room(&self, held: SourcesHeld) -> Result<()> {
        if held.count >= SOURCES_PER_TENANT_MAX {
            return exhausted(format!(
                "the tenant {} has {SOURCES_PER_TENANT_MAX} sources, the most that it can have: delete those that nobody needs",
                self.tenant
            ));
        }
        recipes(self.tenant.as_str(), held.recipe_bytes, &self.recipe)
    }
}

impl SourceUpdate {
    /// Whether there is room for its recipe beside those that its tenant has, its own former one among them. Implementations
    /// ask within the transaction that writes it.
    ///
    /// # Errors
    /// `Exhausted` says what to do.
    pub fn check_room(&self, before: &Source, held: SourcesHeld) -> Result<()> {
        let Some(recipe) = &self.recipe else { return Ok(()) };
        let others = held.recipe_bytes.saturating_sub(length(&before.recipe));
        recipes(self.tenant.as_str(), others, recipe)
    }
}

impl NewSubscription {
    /// Whether there is room for it beside what its tenant has. Implementations ask within the transaction that writes it.
    ///
    /// # Errors
    /// `Exhausted` says what to do.
    pub fn check_room(&self, of_tenant: u64) -> Result<()> {
        match &self.tenant {
            Some(tenant) if of_tenant >= SUBSCRIPTIONS_PER_TENANT_MAX => exhausted(format!(
                "the tenant {tenant} has {SUBSCRIPTIONS_PER_TENANT_MAX} subscriptions, the most that it can have: delete those \
                 that nobody needs"
            )),
            _ => Ok(()),
        }
    }
}

fn recipes(tenant: &str, others: u64, recipe: &str) -> Result<()> {
    if recipe.is_empty() || others.saturating_add(length(recipe)) <= RECIPE_BYTES_PER_TENANT_MAX {
        return Ok(());
    }
    exhausted(format!(
        "the recipes of the tenant {tenant} would have more than {RECIPE_BYTES_PER_TENANT_MAX} bytes together: use a preset, or \
         leave out of them what verifies nothing"
    ))
}

fn length(text: &str) -> u64 {
    u64::try_from(text.len()).unwrap_or(u64::MAX)
}

fn exhausted(message: String) -> Result<()> {
    Err(Error::new(ErrorKind::Exhausted, message))
}
