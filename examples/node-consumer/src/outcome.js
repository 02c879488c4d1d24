// What a handler says of a delivery.
//
// Codes are for machines (`A-Z0-9_`), texts for people; both are stored, so they must hold no secrets.

import { toDuration } from './time.js';

const CODE_CHARACTERS_MAX = 64;
const TEXT_BYTES_MAX = 1_024;
const DELAY_MS_MAX = 24 * 3_600_000;

/** @typedef {{ name: string, code?: string, text?: string, afterMs?: number }} Outcome */

/** Done. @type {Outcome} */
export const ack = Object.freeze({ name: 'ack' });

/** Not worked on: offered again at once, uncounted. @type {Outcome} */
export const release = Object.freeze({ name: 'release' });

/**
 * Failed for now: counts an attempt, the entity waits, then the event comes again.
 * @param {string} code
 * @param {string} [text]
 * @param {number} [afterMs] not before this long from now, at most 24 hours; without it the subscription's backoff
 * @returns {Outcome}
 */
export const retry = (code, text = '', afterMs = undefined) => ({
  name: 'retry',
  code,
  text,
  afterMs,
});

/**
 * Valid but too early: steps aside uncounted, and comes again after each later ack of its entity.
 * @param {string} code
 * @returns {Outcome}
 */
export const defer = (code, text = '') => ({ name: 'defer', code, text });

/**
 * Never going to work: a dead letter now.
 * @param {string} code
 * @returns {Outcome}
 */
export const reject = (code, text = '') => ({ name: 'reject', code, text });

/**
 * As it goes over the wire, within the protocol's bounds: one bad reason must not end a stream.
 * @param {Buffer} token
 * @param {Outcome} outcome
 */
export function toSettlement(token, outcome) {
  const settlement = {
    token,
    outcome: `OUTCOME_${outcome.name.toUpperCase()}`,
  };
  if (outcome.code !== undefined) {
    settlement.reasonCode = clean(outcome.code);
    settlement.reasonText = cut(outcome.text ?? '');
  }
  if (outcome.afterMs !== undefined) {
    settlement.delay = toDuration(Math.min(Math.max(outcome.afterMs, 0), DELAY_MS_MAX));
  }
  return settlement;
}

function clean(code) {
  const cleaned = String(code)
    .toUpperCase()
    .replace(/[^A-Z0-9]/g, '_');
  return cleaned.slice(0, CODE_CHARACTERS_MAX) || 'UNSPECIFIED';
}

function cut(text) {
  const bytes = Buffer.from(text);
  if (bytes.length <= TEXT_BYTES_MAX) return text;
  // A character that is cut through is left out.
  return new TextDecoder().decode(bytes.subarray(0, TEXT_BYTES_MAX), {
    stream: true,
  });
}
