//! How many events one lane takes from the log to a durable ack in a second, on one core and without any IO:
//! `cargo run --release -p portero-engine --example throughput`.
#![expect(clippy::print_stdout, reason = "it prints a figure")]

use std::time::Instant;

use portero_engine::{
    Entry, FlushResult, Lane, LaneConfig, Outcome, Reason, Restored, Room, Settlement, StreamId, Tag,
};
use portero_types::{EntityHash, Epoch, ReceiptId, Timestamp};
use rand::SeedableRng;
use rand::rngs::StdRng;

const EVENTS: u64 = 2_000_000;
/// Events in consumers' hands, and settlements in one flush.
const BATCH: usize = 256;

fn main() {
    for entities in [1_000_000_u64, 1_000, 16] {
        let rate = measure(entities);
        println!("{entities:>8} entities: {rate:>10.0} events/s");
    }
}

#[expect(clippy::cast_precision_loss, reason = "a rate for people")]
fn measure(entities: u64) -> f64 {
    let now = Timestamp::from_secs(1);
    let mut rng = StdRng::seed_from_u64(1);
    let mut lane = Lane::new(LaneConfig::default(), Epoch(1), Restored::default(), now).expect("valid");
    lane.set_stream(Some(StreamId(1)));
    let mut durable = 0;
    let started = Instant::now();
    while durable < EVENTS {
        let cursor = lane.cursor();
        let through = EVENTS.min(cursor + lane.capacity() as u64);
        let page: Vec<Entry> = (cursor + 1..=through)
            .map(|n| Entry {
                n,
                entity: EntityHash(n % entities),
                receipt_id: ReceiptId::new(now, u128::from(n)),
                tenant: portero_types::TenantNo(1),
                body_bytes: 2_048,
                accepted_at: now,
            })
            .collect();
        lane.handle_page(now, cursor, &page, through).expect("no gap");
        for _ in 0..BATCH {
            let Some(delivery) = lane.poll_delivery(now, Room::UNLIMITED) else { break };
            let settlement =
                Settlement { token: delivery.token, outcome: Outcome::Ack, reason: Reason::default() };
            lane.handle_settle(now, &mut rng, settlement, Tag(delivery.token.position));
        }
        if let Some(flush) = lane.poll_flush(now) {
            lane.handle_flushed(now, flush.seq, FlushResult::Written);
        }
        while lane.poll_settled().is_some() {
            durable += 1;
        }
    }
    EVENTS as f64 / started.elapsed().as_secs_f64()
}
