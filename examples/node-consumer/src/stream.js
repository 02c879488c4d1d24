// One stream, from Hello to its end.

import grpc from '@grpc/grpc-js';
import { Delivery } from './delivery.js';
import { release } from './outcome.js';
import { MESSAGE_BYTES_MAX } from './settings.js';
import { Batch } from './settling.js';
import { between, fromDuration, now, toDuration } from './time.js';

const PROTOCOL = 1;
// Silence after which the gateway counts as dead.
const SILENCE_MS = 25_000;
const HEARTBEAT_MS_MAX = 10_000;
// How long a closed stream may take to end on the gateway's side.
const FAREWELL_MS = 1_000;
// How long the last outcomes of a shutdown may take to be recorded.
export const CLOSE_MS = 5_000;
const UNSETTLED_MAX = 10_000;
const NEVER = Number.POSITIVE_INFINITY;

/** One stream: what arrives goes to the workers, their outcomes go back in batches. */
export class Stream {
  #settings;
  #workers;
  #events;
  #call;
  #batch = new Batch();
  #control = [];
  // Keys of deliveries without an outcome.
  #held = new Set();
  #openedAt;
  #heardAt;
  #heartbeatEvery;
  #heartbeatAt = NEVER;
  #reconnectAt = NEVER;
  #stopping = false;
  #closeAt = NEVER;
  #left = false;
  #full = false;
  #timer;
  #welcomed;
  // Why we ended the call ourselves.
  #reason;

  constructor(settings, workers, events) {
    this.#settings = settings;
    this.#workers = workers;
    this.#events = events;
  }

  /** How long it has been open, milliseconds. */
  get age() {
    return this.#openedAt === undefined ? 0 : now() - this.#openedAt;
  }

  /** Whether the outcome of this delivery goes this way. */
  carries(delivery) {
    return this.#held.has(delivery.key);
  }

  /** Sends an outcome of a delivery that the stream carries. */
  settle(item) {
    this.#held.delete(item.delivery.key);
    this.#batch.add(item, now());
    this.#pump();
  }

  /** Sends a frame of no settlement, such as Flow or Hold. */
  send(frame) {
    this.#control.push(frame);
    this.#pump();
  }

  /** The stream is over: the outcomes that have no final status. */
  leftovers() {
    return this.#batch.takeAll();
  }

  /**
   * Runs until the stream ends; gives the milliseconds to wait before the next one. `unsettled`: tokens of deliveries of
   * earlier streams that have no status yet; `opened` is called with the Welcome.
   */
  async run(client, unsettled, opened, stop) {
    const { token } = this.#settings;
    this.#call = client.Subscribe(token.metadata());
    this.#heardAt = now();
    const leave = () => this.#leave();
    stop.addEventListener('abort', leave);
    const ended = new Promise((resolve, reject) => {
      this.#call.on('error', () => {}); // told by 'status', too
      this.#call.on('data', (frame) => this.#guard(() => this.#onFrame(frame)));
      this.#call.on('drain', () => {
        this.#full = false;
        this.#pump();
      });
      // Frames that came before the status are handled first.
      this.#call.on('status', (status) => setImmediate(() => this.#over(status, resolve, reject)));
    });
    this.#welcomed = opened;
    this.#call.write({ hello: this.#hello(unsettled) });
    this.#pump();
    try {
      await ended;
    } finally {
      clearTimeout(this.#timer);
      this.#left = true;
      stop.removeEventListener('abort', leave);
    }
    return this.#reconnectAt === NEVER ? 0 : Math.max(0, this.#reconnectAt - now());
  }

  #hello(unsettled) {
    const { subscription, instanceId, bootId, maxInflightEvents, maxInflightBytes } = this.#settings;
    return {
      subscription: `subscriptions/${subscription}`,
      instanceId,
      bootId,
      protocol: PROTOCOL,
      flow: { maxInflightEvents, maxInflightBytes },
      maxMessageBytes: MESSAGE_BYTES_MAX,
      unsettledTokens: unsettled.slice(0, UNSETTLED_MAX),
    };
  }

  #over(status, resolve, reject) {
    // A stream that was asked to end, or asked for it, may end in any way.
    if (this.#left || this.#reconnectAt !== NEVER) resolve();
    else if (this.#reason) reject(this.#reason);
    else if (status.code === grpc.status.OK) reject(new Error('the gateway closed the stream'));
    else reject(Object.assign(new Error(status.details), { code: status.code }));
  }

  #guard(work) {
    try {
      work();
    } catch (error) {
      this.#end(error);
    }
    this.#pump();
  }

  #end(reason) {
    this.#reason ??= reason;
    this.#call.cancel();
  }

  #onFrame(message) {
    this.#heardAt = now();
    const frame = message[message.frame];
    if (this.#openedAt === undefined && message.frame !== 'welcome') {
      throw new Error('the first frame was not Welcome');
    }
    switch (message.frame) {
      case 'welcome':
        this.#onWelcome(frame);
        break;
      case 'deliver':
        for (const delivery of frame.deliveries) this.#onDelivery(delivery);
        break;
      case 'settled': {
        const { done, again } = this.#batch.settled(frame, now());
        if (again.length > 0) this.#events.emit('resent', { count: again.length });
        for (const item of done) this.#events.emit('settled', item);
        break;
      }
      case 'revoke': {
        const keys = new Set(frame.tokens.map((token) => token.toString('base64')));
        for (const key of keys) this.#held.delete(key);
        for (const delivery of this.#workers.revoke(keys)) {
          this.#events.emit('revoked', { delivery, reason: frame.reason });
        }
        break;
      }
      case 'heartbeat':
        this.#events.emit('lag', {
          entries: Number(frame.headLag),
          oldestUnsettledMs: fromDuration(frame.oldestUnsettledAge),
        });
        break;
      case 'drain': {
        this.#events.emit('draining', { reason: frame.reason });
        const low = fromDuration(frame.reconnectAfterMin);
        this.#reconnectAt = now() + between(low, fromDuration(frame.reconnectAfterMax));
        this.#releaseUntouched();
        break;
      }
      // A frame of a newer protocol is passed over.
    }
  }

  #onWelcome(welcome) {
    if (this.#openedAt !== undefined) throw new Error('Welcome came twice');
    this.#openedAt = now();
    // These go on as if the stream had never broken.
    for (const token of welcome.resumedTokens) this.#held.add(token.toString('base64'));
    const asked = Math.max(100, fromDuration(welcome.heartbeatEvery));
    // A little early, because the gateway counts on its side of the network.
    this.#heartbeatEvery = 0.8 * Math.min(asked, HEARTBEAT_MS_MAX);
    this.#heartbeatAt = now() + this.#heartbeatEvery;
    this.#welcomed(welcome);
  }

  #onDelivery(message) {
    const delivery = new Delivery(message, (held, ms) => {
      if (this.carries(held)) this.send({ hold: { token: held.token, duration: toDuration(ms) } });
    });
    this.#events.emit('delivered', { delivery });
    this.#held.add(delivery.key);
    if (this.#stopping || this.#reconnectAt !== NEVER) this.settle({ delivery, outcome: release });
    else this.#workers.offer(delivery);
  }

  #releaseUntouched() {
    for (const delivery of this.#workers.takeUntouched()) this.settle({ delivery, outcome: release });
  }

  /** The graceful end: no new events, running handlers may finish, their outcomes are recorded. */
  async #leave() {
    this.#stopping = true;
    if (this.#openedAt === undefined) {
      this.#left = true;
      this.#call.cancel();
      return;
    }
    this.send({ goodbye: {} });
    this.#releaseUntouched();
    await this.#workers.finish(this.#settings.shutdownMs);
    this.#closeAt = now() + CLOSE_MS;
    this.#pump();
  }

  #isOver(at) {
    if (this.#closeAt !== NEVER) return this.#batch.isEmpty || at >= this.#closeAt;
    const drained = this.#reconnectAt !== NEVER && !this.#stopping;
    return drained && this.#batch.isEmpty && this.#held.size === 0;
  }

  #nextFrame(at) {
    if (at >= this.#heartbeatAt) {
      this.#heartbeatAt = at + this.#heartbeatEvery;
      return { heartbeat: {} };
    }
    if (this.#control.length > 0) return this.#control.shift();
    const settle = this.#batch.take(at);
    return settle && { settle };
  }

  /** Writes what is due, as far as the connection takes it, and sets the clock for what comes next. */
  #pump() {
    clearTimeout(this.#timer);
    if (this.#left) return;
    const at = now();
    if (at >= this.#heardAt + SILENCE_MS) {
      this.#end(new Error('the gateway went silent'));
      return;
    }
    if (this.#isOver(at)) {
      this.#left = true;
      this.#call.end();
      this.#timer = setTimeout(() => this.#call.cancel(), FAREWELL_MS);
      return;
    }
    while (!this.#full) {
      const frame = this.#nextFrame(at);
      if (!frame) break;
      this.#full = !this.#call.write(frame);
    }
    const due = this.#full ? NEVER : Math.min(this.#heartbeatAt, this.#batch.due);
    const wake = Math.min(due, this.#closeAt, this.#heardAt + SILENCE_MS);
    this.#timer = setTimeout(() => this.#pump(), Math.max(0, wake - at));
  }
}
