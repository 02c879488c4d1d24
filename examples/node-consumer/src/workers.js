// Calls the handler: many entities at a time, one event per entity.

import { release, retry } from './outcome.js';
import { now, sleep } from './time.js';

/**
 * Deliveries from their arrival to their outcome, over all streams.
 *
 * The gateway has one event of an entity in flight, but after a reconnect an event may come again while older work on its
 * entity still runs: it waits here until that is done.
 */
export class Workers {
  #handler;
  #concurrency;
  #settle;
  #events;
  // By entity: what waits for it.
  #waiting = new Map();
  // Entities with something to do that have no handler.
  #ready = [];
  // By token: what handlers work on.
  #started = new Map();
  #emptied = [];

  constructor(handler, concurrency, settle, events) {
    this.#handler = handler;
    this.#concurrency = concurrency;
    this.#settle = settle;
    this.#events = events;
  }

  /** Takes a delivery: it is handled when its entity and a place are free. */
  offer(delivery) {
    const { entity } = delivery;
    const waiting = this.#waiting.get(entity);
    if (waiting) {
      waiting.push(delivery);
      return;
    }
    this.#waiting.set(entity, [delivery]);
    this.#ready.push(entity);
    this.#next();
  }

  /** What handlers work on. */
  get started() {
    return [...this.#started.values()];
  }

  /** Takes back what no handler has seen. */
  takeUntouched() {
    return [...this.#waiting.values()].flatMap((waiting) => waiting.splice(0));
  }

  /** Tells handlers that the gateway took these back, and forgets the ones that none has seen. */
  revoke(keys) {
    const revoked = [...keys].flatMap((key) => this.#started.get(key) ?? []);
    for (const waiting of this.#waiting.values()) {
      for (const delivery of waiting.splice(0)) {
        (keys.has(delivery.key) ? revoked : waiting).push(delivery);
      }
    }
    for (const delivery of revoked) delivery.revoke();
    return revoked;
  }

  /** Lets running handlers end, then aborts their signals; their events are released. */
  async finish(ms) {
    if (this.#started.size === 0) return;
    const over = new AbortController();
    this.#emptied.push(() => over.abort());
    await sleep(ms, over.signal);
    for (const delivery of this.started) {
      this.#started.delete(delivery.key);
      delivery.revoke();
      this.#settle(delivery, release);
    }
  }

  #next() {
    while (this.#started.size < this.#concurrency && this.#ready.length > 0) {
      const entity = this.#ready.shift();
      const delivery = this.#waiting.get(entity).shift();
      // What waited may have been taken back meanwhile.
      if (delivery) this.#handle(entity, delivery);
      else this.#waiting.delete(entity);
    }
  }

  async #handle(entity, delivery) {
    const began = now();
    this.#started.set(delivery.key, delivery);
    let outcome;
    try {
      outcome = await this.#handler(delivery);
      if (!outcome?.name) throw new TypeError('the handler gave no outcome');
    } catch (error) {
      this.#events.emit('failed', { delivery, error });
      outcome = retry('HANDLER_FAILED', 'the handler threw an exception');
    }
    // After the deadline of a shutdown it is released already.
    if (!this.#started.delete(delivery.key)) return;
    this.#events.emit('handled', { delivery, outcome, ms: now() - began });
    this.#settle(delivery, outcome);
    const waiting = this.#waiting.get(entity);
    // The same event, offered again because the stream broke: its work is done.
    while (waiting[0]?.event.receiptId === delivery.event.receiptId) this.#settle(waiting.shift(), outcome);
    if (waiting.length > 0) this.#ready.push(entity);
    else this.#waiting.delete(entity);
    this.#next();
    if (this.#started.size === 0) for (const tell of this.#emptied.splice(0)) tell();
  }
}
