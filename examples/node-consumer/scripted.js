// Test mode: each event's body says what becomes of it, and what happens is printed as JSON lines.
//
// `{"then": ["retry:300", "defer", "ack"]}` retries the first delivery after 300 ms, defers the second one and acks all
// later ones. `told` waits for a line on standard input, such as `evt_1 ack`: the event's id and the outcome. Codes follow
// a colon: `reject:NO_ORDER`.

import readline from 'node:readline';
import { ack, defer, reject, release, retry } from './src/index.js';

function outcomeOf(step) {
  const [word, detail] = step.split(':');
  switch (word) {
    case 'ack':
      return ack;
    case 'release':
      return release;
    case 'retry':
      return retry('SCRIPTED', 'as told', detail && Number(detail));
    case 'defer':
      return defer(detail ?? 'SCRIPTED', 'as told');
    case 'reject':
      return reject(detail ?? 'SCRIPTED', 'as told');
    default:
      return reject('NO_SUCH_STEP', 'the body asks for what this consumer cannot do');
  }
}

/** The handler. */
export class Script {
  #deliveries = new Map();
  // By event id: the order that came, or who waits for it.
  #orders = new Map();
  #lines;

  constructor(input) {
    this.#lines = readline.createInterface({ input });
    this.#lines.on('line', (line) => {
      const [eventId, step] = line.split(' ');
      this.#order(eventId).give(step);
    });
  }

  /** Listens no more. */
  close() {
    this.#lines.close();
    process.stdin.destroy();
  }

  handle = async ({ event }) => {
    const { then: steps = ['ack'] } = JSON.parse(event.body.toString());
    const count = this.#deliveries.get(event.receiptId) ?? 0;
    this.#deliveries.set(event.receiptId, count + 1);
    let step = steps[Math.min(count, steps.length - 1)];
    if (step === 'told') {
      step = await this.#order(event.eventId).given;
      this.#orders.delete(event.eventId);
    }
    return outcomeOf(step);
  };

  #order(eventId) {
    if (!this.#orders.has(eventId)) {
      const order = {};
      order.given = new Promise((resolve) => {
        order.give = resolve;
      });
      this.#orders.set(eventId, order);
    }
    return this.#orders.get(eventId);
  }
}

/** Prints a line for each thing that happens. */
export function writeLines(consumer) {
  const say = (what, fields) => {
    process.stdout.write(`${JSON.stringify({ what, ...fields, ms: Math.round(performance.now()) })}\n`);
  };
  const about = (delivery) => ({ event_id: delivery.event.eventId });
  consumer.on('connected', ({ generation, resumedTokens }) => {
    say('connected', { generation: Number(generation) });
    if (resumedTokens.length > 0) say('resumed', { kept: resumedTokens.length });
  });
  consumer.on('disconnected', ({ why, nextAttemptMs }) => {
    say('disconnected', { why, final: nextAttemptMs === undefined });
  });
  consumer.on('delivered', ({ delivery }) => {
    const { attempt, place, event } = delivery;
    const fields = {
      ordering_key: event.orderingKey,
      attempt,
      place: place.map(Number),
    };
    say('delivered', { ...about(delivery), ...fields });
  });
  consumer.on('handled', ({ delivery, outcome }) => {
    say('handled', { ...about(delivery), outcome: outcome.name });
  });
  consumer.on('settled', ({ delivery, outcome, status }) => {
    say('settled', { ...about(delivery), outcome: outcome.name, status });
  });
  consumer.on('lost', ({ delivery, outcome }) => say('lost', { ...about(delivery), outcome: outcome.name }));
  consumer.on('revoked', ({ delivery, reason }) => say('revoked', { ...about(delivery), reason }));
  consumer.on('draining', ({ reason }) => say('draining', { reason }));
}
