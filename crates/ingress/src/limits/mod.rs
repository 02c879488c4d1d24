//! Who may send how much.
//!
//! Two things are counted apart:
//!
//! - **What verified**, in events and bytes, by tenant and by source. Strangers use up nothing of it. Who has used it up is
//!   refused before the body is read, which costs next to nothing.
//! - **What did not verify**, by source and by tenant and address. A stranger pays a token of both before the body is read and
//!   gets them back if the request verifies. Without tokens it is refused. An address that failed at the tenant of late leaves
//!   half of a source's tokens to those that did not, so a provider's new address is examined beside a flood from few others.
//!   An address that verified at a source within the hour needs none there, so neither a flood of forged requests nor a
//!   stranger behind the same proxy silences a provider; everybody else trickles in as fast as the tokens come back. What an
//!   address is refused for at one tenant's sources counts against it there alone: it may be a proxy's, or a provider's that
//!   another tenant has configured with a wrong secret.
//!
//! Memory is bounded: of tenants, sources and addresses those that were not seen for longest are forgotten.

pub(crate) mod bucket;
pub(crate) mod client;
mod config;
pub(crate) mod in_flight;
mod known;
pub(crate) mod table;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use portero_types::{SourceNo, TenantNo};
use tokio::time::Instant;

use self::bucket::{Bucket, Rate};
use self::client::Client;
use self::in_flight::Holder;
use self::known::Known;
use self::table::Table;
use crate::metrics;

pub(crate) use self::config::Rates;
pub use self::config::{LimitsConfig, SendingLimits, UnverifiedLimits};

/// Most tenants, and most sources, whose buckets are known.
const SENDERS_MAX: usize = 131_072;
/// For how long an address that failed leaves half of a source's tokens to others.
const FAILED_FOR: Duration = Duration::from_secs(60);
/// Most addresses whose buckets are known, and most pairs of source and address that verified.
const ADDRESSES_MAX: usize = 131_072;

/// The limits of one gateway and what was counted.
#[derive(Debug)]
pub(crate) struct Limiter {
    config: LimitsConfig,
    began: Instant,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    tenants: Table<TenantNo, Spending>,
    sources: Table<SourceNo, Spending>,
    unverified_sources: Table<SourceNo, Bucket>,
    strangers: Table<(TenantNo, Client), Stranger>,
    known: Known,
}

/// What a tenant or a source may still send. A bucket is made when there is a limit.
#[derive(Debug, Default)]
struct Spending {
    events: Option<Bucket>,
    bytes: Option<Bucket>,
}

/// An address from which something came that did not verify.
#[derive(Debug, Default)]
struct Stranger {
    /// Made when there is a limit.
    bucket: Option<Bucket>,
    /// When it was last examined without success, as far as is known.
    failed_at: Option<Duration>,
}

/// Who sends a request to which source, and what holds for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Who {
    pub(crate) tenant: TenantNo,
    pub(crate) source: SourceNo,
    pub(crate) client: Client,
    pub(crate) tenant_rates: Rates,
    pub(crate) source_rates: Rates,
}

/// What is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    /// What a tenant may send.
    Tenant,
    /// What a source may send.
    Source,
    /// How many strangers a source examines.
    UnverifiedSource,
    /// How often an address may fail.
    UnverifiedAddress,
}

/// A refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limited {
    pub(crate) limit: Limit,
    /// How long until there is room again.
    pub(crate) after: Duration,
}

impl Limited {
    /// Whether it is for want of proof rather than for too much of what is proven.
    pub(crate) const fn is_about_proof(self) -> bool {
        matches!(self.limit, Limit::UnverifiedSource | Limit::UnverifiedAddress)
    }

    fn by(limit: Limit, after: Duration) -> Self {
        metrics::limited(match limit {
            Limit::Tenant => "tenant",
            Limit::Source => "source",
            Limit::UnverifiedSource => "unverified_source",
            Limit::UnverifiedAddress => "unverified_address",
        });
        Self { limit, after }
    }
}

impl Limiter {
    pub(crate) fn new(config: LimitsConfig) -> Arc<Self> {
        let state = State {
            tenants: Table::new(SENDERS_MAX),
            sources: Table::new(SENDERS_MAX),
            unverified_sources: Table::new(SENDERS_MAX),
            strangers: Table::new(ADDRESSES_MAX),
            known: Known::new(ADDRESSES_MAX, config.verified_for),
        };
        Arc::new(Self { config, began: Instant::now(), state: Mutex::new(state) })
    }

    /// Whether a request's body may be read.
    ///
    /// # Errors
    /// [`Limited`]; nothing is counted then.
    pub(crate) fn admit(self: &Arc<Self>, who: Who) -> Result<Admission, Limited> {
        let now = self.now();
        let mut state = self.lock();
        state.look(&who, now)?;
        let is_known = state.known.has(&who, now);
        if !is_known {
            state.pay(&who, &self.config, now)?;
        }
        drop(state);
        Ok(Admission { limiter: Arc::clone(self), who, is_known, is_settled: AtomicBool::new(false) })
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No operation leaves a bucket half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The buckets of a tenant and of a source that have a rate, each with what it is of.
    fn spending(&mut self, who: &Who, now: Duration) -> [(Limit, Rates, &mut Spending); 2] {
        let tenant = self.tenants.entry(who.tenant, Spending::default);
        let source = self.sources.entry(who.source, Spending::default);
        tenant.follow(&who.tenant_rates, now);
        source.follow(&who.source_rates, now);
        [(Limit::Tenant, who.tenant_rates, tenant), (Limit::Source, who.source_rates, source)]
    }

    /// Whether tenant and source may send.
    fn look(&mut self, who: &Who, now: Duration) -> Result<(), Limited> {
        for (limit, rates, spending) in self.spending(who, now) {
            spending.look(&rates, now).map_err(|after| Limited::by(limit, after))?;
        }
        Ok(())
    }

    /// Takes a token of the source's strangers and one of the address, or none.
    fn pay(&mut self, who: &Who, config: &LimitsConfig, now: Duration) -> Result<(), Limited> {
        let (of_source, of_address) = (config.unverified_source.rate(), config.unverified_address.rate());
        let stranger = self.strangers.entry((who.tenant, who.client), Stranger::default);
        let has_failed = stranger.failed_at.is_some_and(|at| now.saturating_sub(at) < FAILED_FOR);
        if let Some(rate) = of_source {
            let bucket = self.unverified_sources.entry(who.source, || Bucket::full(rate, now));
            let looked = if has_failed { bucket.look_sparing(rate, now) } else { bucket.look(rate, now) };
            looked.map_err(|after| Limited::by(Limit::UnverifiedSource, after))?;
        }
        if let Some(rate) = of_address {
            let bucket = stranger.bucket.get_or_insert_with(|| Bucket::full(rate, now));
            bucket.take(rate, now, 1).map_err(|after| Limited::by(Limit::UnverifiedAddress, after))?;
        }
        // Until the opposite is known.
        stranger.failed_at = Some(now);
        if let Some(rate) = of_source {
            let bucket = self.unverified_sources.entry(who.source, || Bucket::full(rate, now));
            // It was looked at above, under the same lock.
            let _ = bucket.take(rate, now, 1);
        }
        Ok(())
    }

    fn give_back(&mut self, who: &Who, config: &LimitsConfig, now: Duration) {
        if let Some(rate) = config.unverified_source.rate() {
            let bucket = self.unverified_sources.entry(who.source, || Bucket::full(rate, now));
            bucket.give_back(rate, now);
        }
        let stranger = self.strangers.entry((who.tenant, who.client), Stranger::default);
        if let Some((bucket, rate)) = stranger.bucket.as_mut().zip(config.unverified_address.rate()) {
            bucket.give_back(rate, now);
        }
    }
}

impl Spending {
    /// Has a full bucket where a limit is new, and none where there is no limit any more.
    fn follow(&mut self, rates: &Rates, now: Duration) {
        for (bucket, rate) in [(&mut self.events, rates.events), (&mut self.bytes, rates.bytes)] {
            match rate {
                Some(rate) => *bucket = Some(bucket.unwrap_or_else(|| Bucket::full(rate, now))),
                None => *bucket = None,
            }
        }
    }

    fn limited(&mut self, rates: &Rates) -> impl Iterator<Item = (&mut Bucket, Rate)> {
        let events = self.events.as_mut().zip(rates.events);
        events.into_iter().chain(self.bytes.as_mut().zip(rates.bytes))
    }

    fn look(&mut self, rates: &Rates, now: Duration) -> Result<(), Duration> {
        let waits = self.limited(rates).filter_map(|(bucket, rate)| bucket.look(rate, now).err());
        waits.max().map_or(Ok(()), Err)
    }

    fn take(&mut self, rates: &Rates, now: Duration, events: u64, bytes: u64) {
        let costs =
            [(self.events.as_mut().zip(rates.events), events), (self.bytes.as_mut().zip(rates.bytes), bytes)];
        for (limited, cost) in costs {
            if let Some((bucket, rate)) = limited {
                // Whoever takes has looked, under the same lock.
                let _ = bucket.take(rate, now, cost);
            }
        }
    }
}

/// Leave to read a request's body. Dropped as it is, it counts as a request that did not verify.
#[derive(Debug)]
pub(crate) struct Admission {
    limiter: Arc<Limiter>,
    who: Who,
    /// Whether the address verified at the source before; a stranger has paid.
    is_known: bool,
    /// Whether it was said what became of the request. The first word counts.
    is_settled: AtomicBool,
}

impl Admission {
    /// Who holds what the request takes of what is bounded.
    pub(crate) fn holder(&self) -> Holder {
        Holder { tenant: self.who.tenant, stranger: (!self.is_known).then_some(self.who.client) }
    }

    /// The request verified: the tokens come back, and its address is known here for a while.
    pub(crate) fn verified(&self) {
        if self.settle() {
            let (limiter, now) = (&self.limiter, self.limiter.now());
            let mut state = limiter.lock();
            state.known.add(&self.who, now);
            if !self.is_known {
                state.give_back(&self.who, &limiter.config, now);
                state.strangers.entry((self.who.tenant, self.who.client), Stranger::default).failed_at = None;
            }
        }
    }

    /// Whether it would have verified is not known, for a reason of ours: the tokens come back.
    pub(crate) fn undecided(&self) {
        if self.settle() && !self.is_known {
            let (limiter, now) = (&self.limiter, self.limiter.now());
            limiter.lock().give_back(&self.who, &limiter.config, now);
        }
    }

    /// The request did not verify. A stranger has paid for that; who is known pays what is there.
    pub(crate) fn failed(&self) {
        if self.settle() && self.is_known {
            let (limiter, now) = (&self.limiter, self.limiter.now());
            // For want of tokens nothing is taken: the known address goes on being examined.
            let _ = limiter.lock().pay(&self.who, &limiter.config, now);
        }
    }

    /// Whether this is the first word about the request.
    fn settle(&self) -> bool {
        !self.is_settled.swap(true, Ordering::AcqRel)
    }

    /// Counts what a verified request brought, before it is committed.
    ///
    /// # Errors
    /// [`Limited`] when tenant or source have used up what they may send; nothing is counted then.
    pub(crate) fn count(&self, events: usize, bytes: usize) -> Result<(), Limited> {
        let now = self.limiter.now();
        let mut state = self.limiter.lock();
        state.look(&self.who, now)?;
        let whole = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        for (_, rates, spending) in state.spending(&self.who, now) {
            spending.take(&rates, now, whole(events), whole(bytes));
        }
        Ok(())
    }
}
