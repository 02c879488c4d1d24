//! What should have happened, and what did not. Pure.

use portero_example_ledger::scenario::Twist;
use portero_example_ledger::{Cents, Reconciliation};

use super::consumer::Trails;
use super::play::Sent;

/// What the nine deliveries do to books that nobody guards.
const NAIVE_WRONG_ORDERS: usize = 5;
const NAIVE_TOO_MUCH: Cents = Cents::dollars(115_500);

/// Looks at every answer and at what the consumer did.
pub(super) fn deliveries(sent: &[Sent], trails: &Trails) -> Vec<String> {
    let mut problems = Vec::new();
    for (at, delivery) in sent.iter().enumerate() {
        let number = at + 1;
        let (label, naive) = (delivery.portero.label(), delivery.naive.status);
        let expected = expected(sent, at);
        if label != expected {
            problems
                .push(format!("delivery {number}: Portero answered \"{label}\" instead of \"{expected}\""));
        }
        if naive != 200 {
            problems.push(format!("delivery {number}: the naive receiver answered {naive}"));
        }
        let Some(receipt) = delivery.portero.accepted() else { continue };
        let trail = trails.get(receipt).map(Vec::as_slice).unwrap_or_default();
        let right = match delivery.planned.twist {
            Twist::TooEarly => matches!(trail, ["defer", .., "ack"]),
            Twist::Plain | Twist::SameMoment | Twist::Retry | Twist::Forged | Twist::ReplayAfter(_) => {
                trail == ["ack"]
            }
        };
        if !right {
            problems.push(format!("delivery {number}: the consumer's outcomes were {trail:?}"));
        }
    }
    let accepted = sent.iter().filter(|delivery| delivery.portero.accepted().is_some()).count();
    if trails.len() != accepted {
        problems.push(format!("the consumer got {} events, and {accepted} were accepted", trails.len()));
    }
    problems
}

/// Looks at both receivers' books.
pub(super) fn books(naive: &Reconciliation, portero: &Reconciliation) -> Vec<String> {
    let mut problems = Vec::new();
    let found = (naive.wrong_orders(), naive.credited_too_much(), naive.credited_too_little());
    if found != (NAIVE_WRONG_ORDERS, NAIVE_TOO_MUCH, Cents(0)) {
        problems.push(format!(
            "the naive receiver has {} wrong orders and {} too much instead of {NAIVE_WRONG_ORDERS} and {NAIVE_TOO_MUCH}",
            found.0, found.1
        ));
    }
    problems.extend(
        portero
            .rows
            .iter()
            .filter(|row| !row.is_right())
            .map(|row| format!("{}: the ledger behind Portero differs from the provider's books", row.order)),
    );
    problems
}

/// Of two copies at the same moment either may be the first, but only one.
fn expected(sent: &[Sent], at: usize) -> &'static str {
    let event = &sent[at].planned.event;
    let another_was_accepted = sent
        .iter()
        .enumerate()
        .any(|(n, other)| n != at && other.planned.event == *event && other.portero.accepted().is_some());
    match sent[at].planned.twist {
        Twist::SameMoment if another_was_accepted => "200 duplicate",
        Twist::Plain | Twist::TooEarly | Twist::SameMoment => "200 accepted",
        Twist::Retry => "200 duplicate",
        Twist::Forged => "401 SIGNATURE_MISMATCH",
        Twist::ReplayAfter(_) => "401 TIMESTAMP_TOO_OLD",
    }
}

#[cfg(test)]
mod tests {
    use portero_example_ledger::{NaiveReceiver, reconcile, scenario};

    use super::*;
    use crate::commands::demo::wire::Answer;

    fn answer(label: &str, receipt: usize) -> Answer {
        let (status, word) = label.split_once(' ').unwrap_or((label, ""));
        let (status, refused) = (status.parse().expect("a number"), word.contains('_'));
        Answer {
            status,
            outcome: if refused { "rejected" } else { word }.to_owned(),
            reason: refused.then(|| word.to_owned()),
            receipt_id: (word == "accepted").then(|| format!("rcpt_{receipt}")),
        }
    }

    /// The scenario as it should go, with one answer replaced.
    fn played(at: usize, label: &str) -> (Vec<Sent>, Trails) {
        let mut labels = [
            "200 accepted",
            "200 duplicate",
            "200 duplicate",
            "200 accepted",
            "200 accepted",
            "401 SIGNATURE_MISMATCH",
            "200 accepted",
            "200 accepted",
            "401 TIMESTAMP_TOO_OLD",
        ];
        labels[at] = label;
        let sent: Vec<Sent> = scenario::deliveries()
            .into_iter()
            .enumerate()
            .map(|(n, planned)| Sent { planned, portero: answer(labels[n], n), naive: answer("200", n) })
            .collect();
        let trails = sent.iter().filter_map(|sent| {
            let early = sent.planned.twist == Twist::TooEarly;
            let trail = if early { vec!["defer", "ack"] } else { vec!["ack"] };
            Some((sent.portero.accepted()?.to_owned(), trail))
        });
        let trails = trails.collect();
        (sent, trails)
    }

    #[test]
    fn the_scenario_as_it_should_go_has_no_problems() {
        let (sent, trails) = played(0, "200 accepted");
        assert_eq!(deliveries(&sent, &trails), Vec::<String>::new());
    }

    #[test]
    fn every_other_answer_is_a_problem() {
        for (at, label) in [
            (0, "503 unavailable"),
            (1, "200 accepted"),
            (2, "200 accepted"),
            (3, "200 duplicate"),
            (5, "200 accepted"),
            (8, "200 duplicate"),
        ] {
            let (sent, trails) = played(at, label);
            let problems = deliveries(&sent, &trails);
            let named = format!("delivery {}: Portero answered \"{label}\"", at + 1);
            assert!(problems.iter().any(|problem| problem.starts_with(&named)), "{at}: {problems:?}");
        }
    }

    #[test]
    fn a_refund_that_was_never_deferred_and_an_event_from_nowhere_are_problems() {
        let (sent, mut trails) = played(0, "200 accepted");
        trails.insert("rcpt_6".to_owned(), vec!["ack"]);
        trails.insert("rcpt_99".to_owned(), vec!["ack"]);
        let problems = deliveries(&sent, &trails);
        assert_eq!(problems.len(), 2, "{problems:?}");
    }

    #[test]
    fn books_are_clean_only_when_both_are_as_they_should_be() {
        let truth = scenario::provider_truth();
        let naive = NaiveReceiver::of_orders(scenario::orders());
        let untouched = reconcile(&truth, &naive.accounts());
        for planned in scenario::deliveries() {
            naive.receive(&planned.event.to_json()).expect("well-formed");
        }
        let (naive, right) = (reconcile(&truth, &naive.accounts()), reconcile(&truth, &truth));
        assert_eq!(books(&naive, &right), Vec::<String>::new());
        assert_eq!(books(&right, &right).len(), 1);
        assert_eq!(books(&naive, &untouched).len(), 4);
    }
}
