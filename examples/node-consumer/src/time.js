// Durations and waits, in milliseconds.

/** A moment of the clock that only goes forward. */
export const now = () => performance.now();

/** A duration as the protocol writes it. */
export function toDuration(ms) {
  const whole = Math.round(ms);
  return {
    seconds: Math.floor(whole / 1_000),
    nanos: (whole % 1_000) * 1_000_000,
  };
}

/** A duration from the protocol; absent ones are zero. */
export function fromDuration(duration) {
  return duration ? Number(duration.seconds) * 1_000 + duration.nanos / 1_000_000 : 0;
}

/** A random moment of a range. */
export const between = (low, high) => low + Math.random() * Math.max(0, high - low);

/** Waits, or less long when the signal is aborted. */
export function sleep(ms, signal) {
  if (signal?.aborted) return Promise.resolve();
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    signal?.addEventListener('abort', done);
  });
}

/** Exponential backoff with full jitter: wait n is uniform between zero and min(longest, first · 2ⁿ). */
export class Backoff {
  #failures = 0;

  constructor(firstMs = 100, longestMs = 10_000) {
    this.firstMs = firstMs;
    this.longestMs = longestMs;
  }

  /** The wait after one more failure. */
  next() {
    const ceiling = Math.min(this.longestMs, this.firstMs * 2 ** Math.min(this.#failures, 16));
    this.#failures += 1;
    return between(0, ceiling);
  }

  /** Begins anew. */
  reset() {
    this.#failures = 0;
  }
}
