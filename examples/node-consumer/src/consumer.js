// Keeps one subscription alive: connects, runs a stream, and connects again until it is stopped or refused for good.

import { EventEmitter, once } from 'node:events';
import { promisify } from 'node:util';
import grpc from '@grpc/grpc-js';
import { release } from './outcome.js';
import { connector } from './settings.js';
import { settlement, sort } from './settling.js';
import { CLOSE_MS, Stream } from './stream.js';
import { Backoff, now, sleep } from './time.js';
import { Workers } from './workers.js';

// A stream that lasted so long ends a series of failures.
const PROVEN_MS = 5_000;
const LATE_ITEMS_MAX = 10_000;
const CALL_ITEMS_MAX = 1_000;
const CALL_MS = 10_000;
const REFUSALS = [grpc.status.INVALID_ARGUMENT, grpc.status.NOT_FOUND, grpc.status.PERMISSION_DENIED];

/** The gateway refused for good: the request, the subscription's name or the grants of the token are wrong. */
export class Refused extends Error {}

/**
 * Calls `handler` for each event of a subscription; it gives (a promise of) the outcome.
 *
 * Delivery is at least once: make what the handler does idempotent, by `delivery.place` or `event.idempotencyKey`.
 *
 * Events, for metrics and logs: `connected` (the Welcome), `disconnected` { why, nextAttemptMs }, `delivered` { delivery },
 * `handled` { delivery, outcome, ms }, `failed` { delivery, error }, `settled` { delivery, outcome, status, onRecord }: an ack
 * counts only when it is on record, `resent` { count }, `lost` { delivery, outcome }, `revoked` { delivery, reason },
 * `draining` { reason }, `lag` { entries, oldestUnsettledMs }.
 */
export class Consumer extends EventEmitter {
  #settings;
  #connect;
  #workers;
  #stream;
  // Outcomes whose stream is over. They are settled by unary calls, one call at a time.
  #late = [];
  #settling = Promise.resolve();
  #backoff = new Backoff();

  constructor(settings, handler) {
    super();
    this.#settings = settings;
    this.#connect = connector(settings);
    const settle = (delivery, outcome) => this.#settle({ delivery, outcome });
    this.#workers = new Workers(handler, settings.concurrency, settle, this);
  }

  /** Runs until the signal is aborted, then finishes what it began. Throws Refused. */
  async run(stop) {
    while (!stop.aborted) {
      let wait;
      try {
        wait = await this.#oneStream(stop);
        this.emit('disconnected', {
          why: 'as asked',
          nextAttemptMs: stop.aborted ? undefined : wait,
        });
      } catch (error) {
        wait = this.#after(error);
      }
      await sleep(wait, stop);
    }
    await this.#workers.finish(this.#settings.shutdownMs);
    await this.#settleTheRest();
  }

  /** Replaces the limits of the present stream. */
  setFlow(maxInflightEvents, maxInflightBytes) {
    this.#stream?.send({ flow: { maxInflightEvents, maxInflightBytes } });
  }

  /** How long to wait after a failure. */
  #after(error) {
    const code = grpc.status[error.code];
    const why = code ? `${code}: ${error.details ?? error.message}` : error.message;
    const isUnauthenticated = error.code === grpc.status.UNAUTHENTICATED;
    if (REFUSALS.includes(error.code) || (isUnauthenticated && !this.#settings.token.canRenew)) {
      this.emit('disconnected', { why, nextAttemptMs: undefined });
      throw new Refused(why, { cause: error });
    }
    const wait = this.#backoff.next();
    this.emit('disconnected', { why, nextAttemptMs: wait });
    return wait;
  }

  async #oneStream(stop) {
    const client = this.#connect();
    const over = new AbortController();
    const stream = new Stream(this.#settings, this.#workers, this);
    try {
      // First, so that the gateway does not offer again what is done.
      await this.#settleLate(client);
      if (stop.aborted) return 0;
      const unsettled = [...this.#late.map((item) => item.delivery), ...this.#workers.started];
      const opened = (welcome) => {
        this.#opened(stream, welcome, unsettled);
        this.#settleLateAsItComes(client, over.signal);
      };
      const tokens = unsettled.map((delivery) => delivery.token);
      return await stream.run(client, tokens, opened, stop);
    } finally {
      over.abort();
      this.#stream = undefined;
      if (stream.age >= PROVEN_MS) this.#backoff.reset();
      // The gateway offers again what nobody here has begun; what was begun may go on.
      this.#workers.takeUntouched();
      for (const item of stream.leftovers()) this.#keep(item);
      client.close();
    }
  }

  #opened(stream, welcome, unsettled) {
    this.#stream = stream;
    this.emit('connected', welcome);
    // What goes on is settled on this stream; of the rest only an ack counts.
    const goesOn = ({ delivery }) => stream.carries(delivery);
    const items = this.#late.filter(goesOn);
    this.#late = this.#late.filter((item) => !goesOn(item));
    const stops = new Set(unsettled.filter((delivery) => !stream.carries(delivery)).map(({ key }) => key));
    for (const delivery of this.#workers.revoke(stops)) {
      this.emit('revoked', { delivery, reason: 'it did not go on after the reconnect' });
    }
    for (const item of items) stream.settle(item);
    // What was released between Hello and Welcome.
    const working = new Set(this.#workers.started);
    for (const delivery of unsettled.filter((one) => stream.carries(one) && !working.has(one))) {
      stream.settle({ delivery, outcome: release });
    }
  }

  #settle(item) {
    if (this.#stream?.carries(item.delivery)) this.#stream.settle(item);
    else this.#keep(item);
  }

  #keep(item) {
    // The end of its stream has released it.
    if (item.outcome.name === 'release') return;
    this.#late.push(item);
    if (this.#late.length > LATE_ITEMS_MAX) this.emit('lost', this.#late.shift());
    this.emit('late');
  }

  /** One unary call for each 1,000 outcomes; what is not recorded stays. */
  #settleLate(client) {
    const work = this.#settling.then(() => this.#call(client));
    this.#settling = work.catch(() => {});
    return work;
  }

  async #call(client) {
    const settle = promisify(client.Settle.bind(client));
    const subscription = `subscriptions/${this.#settings.subscription}`;
    const items = [...this.#late];
    for (let first = 0; first < items.length; first += CALL_ITEMS_MAX) {
      const some = items.slice(first, first + CALL_ITEMS_MAX);
      const request = { subscription, items: some.map(settlement) };
      const metadata = this.#settings.token.metadata();
      const { results } = await settle(request, metadata, {
        deadline: Date.now() + CALL_MS,
      });
      const { done, again } = sort(some, results);
      const final = new Set(done.map(({ item }) => item));
      this.#late = this.#late.filter((item) => !final.has(item));
      if (again.length > 0) this.emit('resent', { count: again.length });
      for (const item of done) this.emit('settled', item);
    }
  }

  async #settleLateAsItComes(client, over) {
    const backoff = new Backoff();
    while (!over.aborted) {
      if (this.#late.length === 0) {
        backoff.reset();
        await once(this, 'late', { signal: over }).catch(() => {});
        continue;
      }
      // A call that failed has recorded nothing that we know of: it is made again.
      await this.#settleLate(client).catch(() => {});
      if (this.#late.length > 0) await sleep(50 + backoff.next(), over);
    }
  }

  /** The end of a shutdown: outcomes that no stream took. */
  async #settleTheRest() {
    const until = now() + CLOSE_MS;
    while (this.#late.length > 0 && now() < until) {
      const client = this.#connect();
      await this.#settleLate(client).catch(() => {});
      client.close();
      if (this.#late.length > 0) await sleep(50 + this.#backoff.next());
    }
    for (const item of this.#late.splice(0)) this.emit('lost', item);
  }
}
