// Consumes a Portero subscription: events of one entity in order, each settled with its outcome, over reconnects.

export { Consumer, Refused } from './consumer.js';
export { ack, defer, reject, release, retry } from './outcome.js';
export { settings, token } from './settings.js';
