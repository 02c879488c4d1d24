// One event, offered once.

export class Delivery {
  #abort = new AbortController();
  #hold;

  constructor(message, hold) {
    /** Names this offer. */
    this.token = message.token;
    /** Everything that is known of the event; `event.body` holds the bytes as the provider sent them. */
    this.event = message.event;
    /** Which offer of this event this is, first 1, as far as the gateway knows; uncounted ones are included. */
    this.attempt = message.attempt;
    /** Rises with each event of an entity, whatever happens: the fencing token for your own database. */
    this.place = [BigInt(message.generation), BigInt(message.shard), BigInt(message.position)];
    this.#hold = hold;
  }

  /** The token as a key of maps. */
  get key() {
    return this.token.toString('base64');
  }

  /** What to keep in order. An event without an ordering key is an entity of its own. */
  get entity() {
    return JSON.stringify([this.event.tenant, this.event.orderingKey || this.event.receiptId]);
  }

  /** Aborted when the gateway took the delivery back: stop if you can. Only an ack still counts. */
  get signal() {
    return this.#abort.signal;
  }

  /** Asks for so much more time, at most an hour: for work longer than the gateway's `max_hold` (5 minutes). */
  hold(ms) {
    this.#hold(this, ms);
  }

  /** The gateway took it back. */
  revoke() {
    this.#abort.abort();
  }

  /** For logs: neither body nor headers. */
  toString() {
    return `${this.event.receiptId} (${this.event.eventType}), attempt ${this.attempt}`;
  }
}
