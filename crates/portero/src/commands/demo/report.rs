//! What came of it all. Its serialised form is what `--output json` promises.

use portero_example_ledger::{Account, Accounts, Cents, Reconciliation, reconcile, scenario};
use serde::Serialize;

use super::check;
use super::consumer::Trails;
use super::play::Sent;

/// The outcome of the laboratory.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// Whether Portero's books agree with the provider's and everything else went as the scenario says.
    pub(super) clean: bool,
    /// The deliveries, in the order in which they were sent.
    pub(super) deliveries: Vec<DeliveryLine>,
    /// The orders, in the order of their ids.
    pub(super) orders: Vec<OrderLine>,
    /// The naive receiver's books against the provider's.
    pub(super) naive: Totals,
    /// The ledger's books behind Portero against the provider's.
    pub(super) portero: Totals,
    /// What went otherwise than it should.
    pub(super) problems: Vec<String>,
}

/// One delivery.
#[derive(Debug, Serialize)]
pub(super) struct DeliveryLine {
    /// Counted from 1.
    pub(super) number: usize,
    pub(super) order: String,
    pub(super) event_id: String,
    pub(super) event_type: &'static str,
    pub(super) amount_cents: i64,
    /// What was sent, for people.
    pub(super) sent: String,
    pub(super) portero: PorteroAnswer,
    /// The HTTP status of the naive receiver.
    pub(super) naive_status: u16,
    /// What the consumer did: its outcomes in order, such as `["defer", "ack"]`; empty when the event did not reach it
    /// with this delivery.
    pub(super) consumer: Vec<&'static str>,
}

/// Portero's answer to a delivery.
#[derive(Debug, Serialize)]
pub(super) struct PorteroAnswer {
    pub(super) status: u16,
    pub(super) outcome: String,
    pub(super) reason: Option<String>,
    pub(super) receipt_id: Option<String>,
    #[serde(skip)]
    pub(super) label: String,
}

/// One order in all three books.
#[derive(Debug, Serialize)]
pub(super) struct OrderLine {
    pub(super) order: String,
    pub(super) amount_cents: i64,
    pub(super) provider: Option<Entry>,
    pub(super) naive: Option<Entry>,
    pub(super) portero: Option<Entry>,
}

/// One order in one book.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Entry {
    pub(super) state: &'static str,
    pub(super) credited_cents: i64,
}

/// One book against the provider's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Totals {
    pub(super) wrong_orders: usize,
    pub(super) credited_too_much_cents: i64,
    pub(super) credited_too_little_cents: i64,
}

impl Report {
    /// Compares the books and looks for what went otherwise.
    pub(super) fn new(sent: Vec<Sent>, trails: Trails, naive: &Accounts, portero: &Accounts) -> Self {
        let truth = scenario::provider_truth();
        let (naive, portero) = (reconcile(&truth, naive), reconcile(&truth, portero));
        let mut problems = check::deliveries(&sent, &trails);
        problems.extend(check::books(&naive, &portero));
        Self {
            clean: problems.is_empty(),
            deliveries: lines(&sent, &trails),
            orders: orders(&naive, &portero),
            naive: Totals::of(&naive),
            portero: Totals::of(&portero),
            problems,
        }
    }
}

impl Totals {
    fn of(books: &Reconciliation) -> Self {
        Self {
            wrong_orders: books.wrong_orders(),
            credited_too_much_cents: books.credited_too_much().0,
            credited_too_little_cents: books.credited_too_little().0,
        }
    }
}

impl From<Account> for Entry {
    fn from(account: Account) -> Self {
        let Account { amount: _, state, credited: Cents(credited_cents) } = account;
        Self { state: state.as_str(), credited_cents }
    }
}

fn lines(sent: &[Sent], trails: &Trails) -> Vec<DeliveryLine> {
    let line = |(at, delivery): (usize, &Sent)| {
        let (event, answer) = (&delivery.planned.event, &delivery.portero);
        DeliveryLine {
            number: at + 1,
            order: event.order_id.to_string(),
            event_id: event.id.clone(),
            event_type: event.kind.as_str(),
            amount_cents: event.amount_cents.0,
            sent: super::text::told(sent, at),
            portero: PorteroAnswer {
                status: answer.status,
                outcome: answer.outcome.clone(),
                reason: answer.reason.clone(),
                receipt_id: answer.receipt_id.clone(),
                label: answer.label(),
            },
            naive_status: delivery.naive.status,
            consumer: answer.accepted().and_then(|receipt| trails.get(receipt)).cloned().unwrap_or_default(),
        }
    };
    sent.iter().enumerate().map(line).collect()
}

fn orders(naive: &Reconciliation, portero: &Reconciliation) -> Vec<OrderLine> {
    let found = |books: &Reconciliation, order| {
        books.rows.iter().find(|row| row.order == order).and_then(|row| row.found).map(Entry::from)
    };
    scenario::orders()
        .into_iter()
        .map(|(order, amount)| OrderLine {
            provider: scenario::provider_truth().get(&order).copied().map(Entry::from),
            naive: found(naive, order.clone()),
            portero: found(portero, order.clone()),
            amount_cents: amount.0,
            order: order.0,
        })
        .collect()
}
