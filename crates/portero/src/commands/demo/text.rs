//! The report as a person reads it; at most 100 columns wide.

use std::fmt::Write as _;

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{Cell, CellAlignment, Table};
use portero_example_ledger::scenario::Twist;
use portero_example_ledger::{Cents, EventKind, PaymentEvent};

use super::play::Sent;
use super::report::{DeliveryLine, Entry, OrderLine, Report, Totals};

const INTRODUCTION: &str = "\
The payment laboratory

Pagora, a fictional payment provider, sends nine deliveries for five orders of a shop, each of them
over HTTP to two receivers. The naive one answers 200 and applies whatever arrives. Behind Portero a
consumer takes events from the gRPC stream and applies each in one transaction with its inbox.
";

/// The whole report.
pub(super) fn render(report: &Report) -> String {
    let mut out = format!("{INTRODUCTION}\n{}\n", deliveries(&report.deliveries));
    let _ = write!(out, "\nWho believes what afterwards:\n\n{}\n\n", orders(&report.orders));
    let _ = writeln!(out, "  Naive receiver  {}", totals(&report.naive));
    let _ = writeln!(out, "  Portero         {}", totals(&report.portero));
    out.push('\n');
    if report.clean {
        out.push_str("With Portero the shop's books and the provider's agree to the cent.\n");
    } else {
        out.push_str("Not everything went as it should:\n");
        for problem in &report.problems {
            let _ = writeln!(out, "  - {problem}");
        }
    }
    out
}

/// What delivery `at` was, in a few words.
pub(super) fn told(sent: &[Sent], at: usize) -> String {
    let event = &sent[at].planned.event;
    let first = sent.iter().position(|other| other.planned.event == *event).unwrap_or(at);
    match sent[at].planned.twist {
        Twist::Plain => what(event),
        Twist::Retry => "the same again, signed anew".to_owned(),
        Twist::SameMoment if first == at => format!("{}, copy 1", what(event)),
        Twist::SameMoment => "copy 2, at the same moment".to_owned(),
        Twist::ReplayAfter(later) => {
            format!("request {} again, {} days later", first + 1, later.as_secs() / 86_400)
        }
        Twist::Forged => "forged approval, another key".to_owned(),
        Twist::TooEarly => format!("{}, too early", what(event)),
    }
}

fn what(event: &PaymentEvent) -> String {
    let word = match event.kind {
        EventKind::OrderCreated => "order",
        EventKind::PaymentApproved => "approval",
        EventKind::PaymentRefunded => "refund",
    };
    format!("{word} of {}", event.amount_cents)
}

fn deliveries(lines: &[DeliveryLine]) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED).set_header([
        "#",
        "Order",
        "What was sent",
        "Portero answered",
        "Its consumer",
    ]);
    for line in lines {
        table.add_row([
            line.number.to_string(),
            line.order.clone(),
            line.sent.clone(),
            line.portero.label.clone(),
            consumer(&line.consumer),
        ]);
    }
    table
}

fn consumer(outcomes: &[&str]) -> String {
    let words: Vec<&str> = outcomes
        .iter()
        .map(|outcome| match *outcome {
            "ack" => "applied",
            "defer" => "deferred",
            "reject" => "rejected",
            other => other,
        })
        .collect();
    words.join(", then ")
}

fn orders(lines: &[OrderLine]) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED).set_header([
        "Order",
        "Price",
        "Provider's books",
        "Naive receiver",
        "Portero",
    ]);
    for line in lines {
        table.add_row([
            Cell::new(&line.order),
            Cell::new(Cents(line.amount_cents)).set_alignment(CellAlignment::Right),
            Cell::new(entry(line.provider)),
            Cell::new(judged(line.provider, line.naive)),
            Cell::new(judged(line.provider, line.portero)),
        ]);
    }
    table
}

fn entry(entry: Option<Entry>) -> String {
    let Some(entry) = entry else { return "nothing".to_owned() };
    format!("{:<8} {:>8}", entry.state, Cents(entry.credited_cents))
}

/// A receiver's entry, and what is wrong with it.
fn judged(truth: Option<Entry>, found: Option<Entry>) -> String {
    if truth == found {
        return format!("✓ {}", entry(found));
    }
    let credit = |entry: Option<Entry>| Cents(entry.map_or(0, |entry| entry.credited_cents));
    let difference = credit(found) - credit(truth);
    let wrong = match difference {
        Cents(0) => "wrong state".to_owned(),
        Cents(1..) => format!("+{difference}"),
        Cents(_) => difference.to_string(),
    };
    format!("✗ {}  {wrong}", entry(found))
}

fn totals(totals: &Totals) -> String {
    let Totals { wrong_orders, credited_too_much_cents, credited_too_little_cents } = *totals;
    if wrong_orders == 0 {
        return "zero differences".to_owned();
    }
    let number = match wrong_orders {
        1 => "1 wrong order".to_owned(),
        many => format!("{many} wrong orders"),
    };
    let little = match credited_too_little_cents {
        0 => String::new(),
        cents => format!(", {} too little", Cents(cents)),
    };
    format!("{number}, {} credited too much{little}", Cents(credited_too_much_cents))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_says_what_is_wrong_with_it() {
        let entry = |state, credited_cents| Some(Entry { state, credited_cents });
        assert_eq!(judged(entry("paid", 2_500_000), entry("paid", 2_500_000)), "✓ paid      $25,000");
        assert_eq!(
            judged(entry("paid", 2_500_000), entry("paid", 5_000_000)),
            "✗ paid      $50,000  +$25,000"
        );
        assert_eq!(judged(entry("refunded", 0), entry("paid", 0)), "✗ paid           $0  wrong state");
        assert_eq!(judged(entry("paid", 100), None), "✗ nothing  -$1");
    }

    #[test]
    fn totals_read_well() {
        let of = |wrong_orders, credited_too_much_cents, credited_too_little_cents| {
            totals(&Totals { wrong_orders, credited_too_much_cents, credited_too_little_cents })
        };
        assert_eq!(of(5, 11_550_000, 0), "5 wrong orders, $115,500 credited too much");
        assert_eq!(of(1, 0, 700), "1 wrong order, $0 credited too much, $7 too little");
        assert_eq!(of(0, 0, 0), "zero differences");
    }
}
