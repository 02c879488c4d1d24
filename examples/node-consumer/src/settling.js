// Outcomes on their way to the gateway, each kept until the gateway gave its final word on it.

import { toSettlement } from './outcome.js';
import { Backoff } from './time.js';

// Items that make a frame go at once. Without batches there would be many small HTTP/2 frames, which servers refuse.
const ITEMS_MAX = 64;
// How long the first item of a frame waits for others.
const LINGER_MS = 5;

const ON_RECORD = new Set(['DURABLE', 'DURABLE_LATE', 'ALREADY']);
const FINAL = new Set([...ON_RECORD, 'STALE', 'UNKNOWN_TOKEN']);

/** Whether an acked event does not come again by itself. Nothing else means that an ack counts. */
export const isOnRecord = (status) => ON_RECORD.has(status);

/** As it goes over the wire. */
export const settlement = ({ delivery, outcome }) => toSettlement(delivery.token, outcome);

/** The outcomes of one stream. Times come from `now()` of time.js. */
export class Batch {
  #pending = [];
  #sent = new Map();
  #lastFrame = 0;
  #refused = new Backoff(100, 2_000);
  #heldUntil = 0;
  /** When the next frame goes. */
  due = Number.POSITIVE_INFINITY;

  /** Adds an outcome, `{ delivery, outcome }`. */
  add(item, at) {
    this.#pending.push(item);
    const due = this.#pending.length >= ITEMS_MAX ? at : Math.min(this.due, at + LINGER_MS);
    this.due = Math.max(due, this.#heldUntil);
  }

  /** A Settle of pending items, which then wait for their statuses; nothing when none is due. */
  take(at) {
    if (this.due > at) return undefined;
    const items = this.#pending.splice(0, ITEMS_MAX);
    this.due = this.#pending.length > 0 ? at : Number.POSITIVE_INFINITY;
    this.#lastFrame += 1;
    this.#sent.set(String(this.#lastFrame), items);
    return { frameNo: this.#lastFrame, items: items.map(settlement) };
  }

  /** The statuses of one frame: gives the items that are final, and those that go again. */
  settled({ frameNo, results }, at) {
    const sorted = sort(this.#sent.get(frameNo) ?? [], results);
    this.#sent.delete(frameNo);
    if (sorted.again.length > 0) {
      this.#pending.unshift(...sorted.again);
      this.#heldUntil = at + 50 + this.#refused.next();
      this.due = this.#heldUntil;
    } else {
      this.#refused.reset();
    }
    return sorted;
  }

  get isEmpty() {
    return this.#pending.length === 0 && this.#sent.size === 0;
  }

  /** The stream is over: everything without a final status, in order. */
  takeAll() {
    const items = [...this.#sent.values()].flat().concat(this.#pending);
    this.#sent.clear();
    this.#pending = [];
    return items;
  }
}

/** Splits items into those with a final status and those to send again. One without an answer goes again. */
export function sort(items, results) {
  const statuses = new Map(results.map(({ token, status }) => [token.toString('base64'), status]));
  const [done, again] = [[], []];
  for (const item of items) {
    const status = statuses.get(item.delivery.key)?.replace('SETTLEMENT_STATUS_', '');
    if (FINAL.has(status)) done.push({ ...item, item, status, onRecord: isOnRecord(status) });
    else again.push(item);
  }
  return { done, again };
}
