//! Reads consumers' histories and finds broken promises.
//!
//! What it allows is what the promises leave open. A process that was stopped (SIGSTOP) sees and does things late: whoever
//! was stopped, or whose gateway was, between two events that it put out of order, is excused for these two. A delivery is
//! over for its consumer when the handler ended, when the gateway took it back, when its stream broke, or when the process
//! died; until then nobody else may work on its entity.

use std::collections::{HashMap, HashSet};

use crate::harness::{History, Offer, What};

/// How much later than a process goes on it may still be catching up, microseconds.
const CATCH_UP: i64 = 1_000_000;

/// Somebody was stopped for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pause {
    pub(crate) who: Who,
    pub(crate) from: i64,
    pub(crate) until: i64,
}

/// Who was stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    Gateway(usize),
    Consumer(String),
}

/// What is known besides the histories.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    pub(crate) pauses: Vec<Pause>,
    /// For each consumer, since when it was connected to which gateway; in order.
    pub(crate) links: HashMap<String, Vec<(i64, usize)>>,
    /// Receipts of accepted events.
    pub(crate) accepted: HashSet<String>,
    /// Receipts of dead letters.
    pub(crate) dead: HashSet<String>,
}

/// One delivery whose handler was called, put together from several records.
#[derive(Clone, Debug)]
struct Run<'a> {
    consumer: &'a str,
    offer: &'a Offer,
    delivered: i64,
    started: i64,
    /// When nothing of it was in the consumer's hands any more.
    over: i64,
    /// The handler's outcome, and when.
    outcome: Option<(i64, &'a str)>,
}

/// Everything that is wrong, in words.
pub(crate) fn violations(history: &History, known: &Known) -> Vec<String> {
    let runs = runs(history);
    let outcomes = Outcomes::new(&runs);
    let mut found = Vec::new();
    let mut entities: HashMap<&str, Vec<&Run<'_>>> = HashMap::new();
    for run in &runs {
        entities.entry(&run.offer.entity).or_default().push(run);
    }
    for runs in entities.values_mut() {
        runs.sort_by_key(|run| run.started);
        out_of_order(runs, &outcomes, known, &mut found);
        two_at_once(runs, known, &mut found);
    }
    came_again(history, known, &mut found);
    lost(&runs, known, &mut found);
    found
}

/// Puts deliveries together.
fn runs(history: &History) -> Vec<Run<'_>> {
    let mut runs: Vec<Run<'_>> = Vec::new();
    let mut delivered: HashMap<(&str, u32, &str), i64> = HashMap::new();
    // Those that are not over, by consumer, process and token.
    let mut open: HashMap<(&str, u32, &str), usize> = HashMap::new();
    // Those whose stream broke while their handlers ran.
    let mut cut: HashMap<(&str, u32), Vec<(&str, usize)>> = HashMap::new();
    for record in &history.0 {
        let consumer = record.consumer.as_str();
        match &record.what {
            What::Delivered(offer) => {
                delivered.insert((consumer, record.run, &offer.token), record.at);
            }
            What::Started(offer) => {
                let key = (consumer, record.run, offer.token.as_str());
                let delivered = delivered.get(&key).copied().unwrap_or(record.at);
                let run =
                    Run { consumer, offer, delivered, started: record.at, over: i64::MAX, outcome: None };
                open.insert(key, runs.len());
                runs.push(run);
            }
            What::Handled { token, outcome, .. } => {
                let found = open.remove(&(consumer, record.run, token.as_str())).or_else(|| {
                    // Its stream broke, or it was taken back, but its outcome still counts for something.
                    let of = |run: &Run<'_>| run.consumer == consumer && run.offer.token == *token;
                    runs.iter().rposition(of)
                });
                if let Some(run) = found.map(|run| &mut runs[run]) {
                    run.over = run.over.min(record.at);
                    run.outcome = Some((record.at, outcome));
                }
            }
            What::Revoked { token } => {
                if let Some(run) = open.remove(&(consumer, record.run, token.as_str())) {
                    runs[run].over = record.at;
                }
            }
            What::Disconnected { .. } | What::Ended => open.retain(|(of, process, token), run| {
                let ends = *of == consumer && *process == record.run;
                if ends {
                    runs[*run].over = record.at;
                    cut.entry((consumer, record.run)).or_default().push((token, *run));
                }
                !ends
            }),
            // All of them go on where they were, as if nothing had happened.
            What::Resumed { stopped: 0, .. } => {
                for (token, run) in cut.remove(&(consumer, record.run)).unwrap_or_default() {
                    if runs[run].outcome.is_none() {
                        runs[run].over = i64::MAX;
                        open.insert((consumer, record.run, token), run);
                    }
                }
            }
            What::Resumed { .. } => drop(cut.remove(&(consumer, record.run))),
            What::Begun | What::Connected { .. } | What::Settled { .. } => {}
        }
    }
    runs
}

/// Deliveries of an entity start in position order, and none before the former one is concluded.
fn out_of_order(runs: &[&Run<'_>], outcomes: &Outcomes<'_>, known: &Known, found: &mut Vec<String>) {
    let mut furthest: Option<&Run<'_>> = None;
    // Started, and not known to be concluded.
    let mut pending: Vec<&Run<'_>> = Vec::new();
    for run in runs {
        match furthest {
            Some(furthest) if run.offer.place < furthest.offer.place => {
                let deferred = outcomes.has(run, run.started, &["defer"]);
                if !deferred && !known.excuses(run, furthest.started, run.started) {
                    found.push(format!("out of order: {run:?} after {furthest:?}"));
                }
                continue;
            }
            Some(furthest) if run.offer.place == furthest.offer.place => continue,
            _ => {}
        }
        for earlier in pending.drain(..) {
            let concluded = outcomes.has(earlier, run.started, &["ack", "reject", "defer"])
                || known.dead.contains(&earlier.offer.receipt);
            if !concluded && !known.excuses(run, earlier.started, run.started) {
                found.push(format!("too early: {run:?} while {earlier:?} was not concluded"));
            }
        }
        pending.push(run);
        furthest = Some(run);
    }
}

/// At most one live stream works on an entity.
fn two_at_once(runs: &[&Run<'_>], known: &Known, found: &mut Vec<String>) {
    let mut at_work: Vec<&Run<'_>> = Vec::new();
    for second in runs {
        at_work.retain(|first| first.over > second.started);
        for first in &at_work {
            if !known.excuses(first, first.started, second.started)
                && !known.excuses(second, first.started, second.started)
            {
                found.push(format!("two at once: {second:?} began while {first:?} was at work"));
            }
        }
        at_work.push(second);
    }
}

/// How handlers of each event ended, and when.
struct Outcomes<'a>(HashMap<&'a str, Vec<(i64, &'a str)>>);

impl<'a> Outcomes<'a> {
    fn new(runs: &[Run<'a>]) -> Self {
        let mut outcomes: HashMap<&str, Vec<(i64, &str)>> = HashMap::new();
        for run in runs {
            outcomes.entry(&run.offer.receipt).or_default().extend(run.outcome);
        }
        Self(outcomes)
    }

    /// Whether one ended in one of these ways until then.
    fn has(&self, run: &Run<'_>, until: i64, wanted: &[&str]) -> bool {
        let all = self.0.get(run.offer.receipt.as_str()).map(Vec::as_slice).unwrap_or_default();
        all.iter().any(|(at, outcome)| *at <= until && wanted.contains(outcome))
    }
}

/// After a durable ack the event is not delivered again.
fn came_again(history: &History, known: &Known, found: &mut Vec<String>) {
    // When the ack was known to be durable, and how many deliveries may still be on their way.
    let mut acked: HashMap<&str, (i64, u32)> = HashMap::new();
    for record in &history.0 {
        if let What::Settled { receipt, outcome, status } = &record.what
            && outcome == "ack"
            && ["durable", "durable_late", "already"].contains(&status.as_str())
        {
            acked.entry(receipt).or_insert((record.at, 0)).1 += u32::from(status == "durable_late");
        }
        let What::Delivered(offer) = &record.what else { continue };
        let Some((since, owed)) = acked.get_mut(offer.receipt.as_str()) else { continue };
        if *owed > 0 {
            *owed -= 1;
        } else if !known.was_stopped(&record.consumer, record.at, *since, record.at) {
            found.push(format!("acked at {since}, delivered again: {record:?}"));
        }
    }
}

/// Every accepted event ends acked or as a dead letter, and nothing else is delivered.
fn lost(runs: &[Run<'_>], known: &Known, found: &mut Vec<String>) {
    let acked: HashSet<&str> = runs
        .iter()
        .filter(|run| run.outcome.is_some_and(|(_, outcome)| outcome == "ack"))
        .map(|run| run.offer.receipt.as_str())
        .collect();
    for receipt in &known.accepted {
        if !acked.contains(receipt.as_str()) && !known.dead.contains(receipt) {
            let seen: Vec<&Run<'_>> = runs.iter().filter(|run| run.offer.receipt == *receipt).collect();
            found.push(format!("lost: {receipt} was accepted and is neither acked nor dead; {seen:?}"));
        }
    }
    for run in runs.iter().filter(|run| !known.accepted.contains(&run.offer.receipt)) {
        found.push(format!("nobody was told that this was accepted: {run:?}"));
    }
}

impl Known {
    /// Whether this delivery's consumer or its gateway was stopped in the meantime.
    fn excuses(&self, run: &Run<'_>, from: i64, until: i64) -> bool {
        self.was_stopped(run.consumer, run.delivered, from, until)
    }

    fn was_stopped(&self, consumer: &str, delivered: i64, from: i64, until: i64) -> bool {
        let links = self.links.get(consumer).map(Vec::as_slice).unwrap_or_default();
        let gateway = links.iter().rfind(|(since, _)| *since <= delivered).map(|(_, gateway)| *gateway);
        self.pauses.iter().any(|pause| {
            let concerns = match &pause.who {
                Who::Consumer(name) => name == consumer,
                Who::Gateway(number) => Some(*number) == gateway,
            };
            concerns && pause.from <= until && pause.until + CATCH_UP >= from
        })
    }
}
