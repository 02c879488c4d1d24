//! Histories with a planted mistake each, so that the checker is known to find it, and healthy ones that it must pass.

use super::checker::{Known, Pause, Who, violations};
use crate::harness::{History, Offer, Record, What};

/// A history that is written down step by step, a millisecond each.
#[derive(Default)]
struct Story {
    records: Vec<Record>,
    known: Known,
}

impl Story {
    fn add(&mut self, consumer: &str, what: What) -> i64 {
        let at = i64::try_from(self.records.len()).expect("short") * 1_000;
        self.records.push(Record { at, consumer: consumer.to_owned(), run: 1, what });
        at
    }

    /// A delivery of event `number` of the one entity arrives and its handler is called.
    fn starts(&mut self, consumer: &str, number: u64, attempt: u32) {
        let offer = Offer {
            token: format!("{number}-{attempt}"),
            receipt: format!("rcpt_{number}"),
            event: format!("evt_{number}"),
            entity: "acme/entity".to_owned(),
            place: (1, 0, number),
            attempt,
        };
        self.known.accepted.insert(offer.receipt.clone());
        self.add(consumer, What::Delivered(offer.clone()));
        self.add(consumer, What::Started(offer));
    }

    fn handles(&mut self, consumer: &str, number: u64, attempt: u32, outcome: &str) {
        let token = format!("{number}-{attempt}");
        self.add(
            consumer,
            What::Handled { token, receipt: format!("rcpt_{number}"), outcome: outcome.to_owned() },
        );
    }

    fn is_settled(&mut self, consumer: &str, number: u64, status: &str) {
        let receipt = format!("rcpt_{number}");
        self.add(consumer, What::Settled { receipt, outcome: "ack".to_owned(), status: status.to_owned() });
    }

    fn breaks(&mut self, consumer: &str) {
        self.add(consumer, What::Disconnected { why: String::new() });
    }

    /// Somebody was stopped from the beginning until now.
    fn was_stopped(&mut self, who: Who) {
        let until = i64::try_from(self.records.len()).expect("short") * 1_000;
        self.known.pauses.push(Pause { who, from: 0, until });
    }

    fn verdict(self) -> Vec<String> {
        violations(&History(self.records), &self.known)
    }

    #[track_caller]
    fn must_show(self, what: &str) {
        let found = self.verdict();
        assert!(found.iter().any(|violation| violation.starts_with(what)), "{what} was not found: {found:?}");
    }

    #[track_caller]
    fn must_pass(self) {
        let found = self.verdict();
        assert!(found.is_empty(), "{found:#?}");
    }
}

#[test]
fn a_retry_a_broken_stream_and_a_late_ack_pass() {
    let mut story = Story::default();
    story.starts("a", 1, 1);
    story.handles("a", 1, 1, "retry");
    story.starts("a", 1, 2);
    story.breaks("a");
    story.starts("b", 1, 3);
    story.handles("a", 1, 2, "ack");
    story.is_settled("a", 1, "durable_late");
    story.handles("b", 1, 3, "ack");
    story.is_settled("b", 1, "already");
    story.starts("b", 2, 1);
    story.handles("b", 2, 1, "ack");
    story.must_pass();
}

#[test]
fn a_deferred_event_may_come_after_later_ones() {
    let mut story = Story::default();
    for (number, attempt, outcome) in [(1, 1, "defer"), (2, 1, "ack"), (1, 2, "ack")] {
        story.starts("a", number, attempt);
        story.handles("a", number, attempt, outcome);
    }
    story.must_pass();
}

#[test]
fn an_event_before_one_that_has_begun_is_found() {
    let mut story = Story::default();
    for (number, attempt) in [(2, 1), (1, 1)] {
        story.starts("a", number, attempt);
        story.handles("a", number, attempt, "ack");
    }
    story.must_show("out of order");
}

#[test]
fn an_event_that_begins_while_the_former_one_waits_for_its_retry_is_found() {
    let mut story = Story::default();
    story.starts("a", 1, 1);
    story.handles("a", 1, 1, "retry");
    story.starts("a", 2, 1);
    story.must_show("too early");
}

#[test]
fn an_event_that_begins_after_its_predecessor_was_in_hand_when_a_consumer_died_is_found() {
    let mut story = Story::default();
    story.starts("a", 1, 1);
    story.add("a", What::Ended);
    story.starts("b", 2, 1);
    story.must_show("too early");
}

#[test]
fn two_consumers_at_work_on_one_entity_are_found() {
    let mut story = Story::default();
    story.starts("a", 1, 1);
    story.starts("b", 1, 2);
    story.must_show("two at once");
}

#[test]
fn a_second_consumer_at_work_on_what_another_one_resumed_is_found() {
    let mut story = Story::default();
    story.starts("a", 1, 1);
    story.breaks("a");
    story.add("a", What::Resumed { kept: 1, stopped: 0 });
    story.starts("b", 1, 2);
    story.must_show("two at once");
}

#[test]
fn a_consumer_that_was_stopped_is_excused_and_one_that_was_not_is_not() {
    for (who, is_excused) in [
        (Who::Consumer("a".to_owned()), true),
        (Who::Consumer("c".to_owned()), false),
        (Who::Gateway(0), true),
        (Who::Gateway(1), false),
    ] {
        let mut story = Story::default();
        story.known.links.insert("a".to_owned(), vec![(0, 0)]);
        story.known.links.insert("b".to_owned(), vec![(0, 2)]);
        story.starts("a", 1, 1);
        story.was_stopped(who);
        story.starts("b", 1, 2);
        story.handles("a", 1, 1, "ack");
        story.handles("b", 1, 2, "ack");
        if is_excused { story.must_pass() } else { story.must_show("two at once") }
    }
}

#[test]
fn a_delivery_after_the_durable_ack_is_found() {
    let mut story = Story::default();
    story.starts("a", 1, 1);
    story.handles("a", 1, 1, "ack");
    story.is_settled("a", 1, "durable");
    story.starts("b", 1, 2);
    story.must_show("acked at");
}

#[test]
fn an_accepted_event_without_an_end_is_found_unless_it_is_a_dead_letter() {
    for dead in [false, true] {
        let mut story = Story::default();
        story.known.accepted.insert("rcpt_7".to_owned());
        story.starts("a", 1, 1);
        story.handles("a", 1, 1, "ack");
        if dead {
            story.known.dead.insert("rcpt_7".to_owned());
            story.must_pass();
        } else {
            story.must_show("lost");
        }
    }
}

#[test]
fn a_delivery_that_nobody_was_told_of_is_found() {
    let mut story = Story::default();
    story.starts("a", 1, 1);
    story.handles("a", 1, 1, "ack");
    story.known.accepted.clear();
    story.must_show("nobody was told");
}
