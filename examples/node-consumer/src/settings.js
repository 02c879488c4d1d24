// How to reach the gateway, and how much to take at a time.

import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import grpc from '@grpc/grpc-js';
import loader from '@grpc/proto-loader';

const TOKEN_CHARACTERS_MAX = 16 * 1024;
export const MESSAGE_BYTES_MAX = 4 << 20;
const WINDOW_BYTES = 8 << 20;

/** Where the access token comes from: a file, else the environment's PORTERO_TOKEN, else there is none. */
export function token(file = undefined) {
  return {
    /** Whether the next attempt may carry another token. */
    canRenew: file !== undefined,
    /** For one call. The file is read each time, so that a renewed token is taken up without a restart. */
    metadata() {
      const metadata = new grpc.Metadata();
      const text = (file ? readFileSync(file, 'utf8') : (process.env.PORTERO_TOKEN ?? '')).trim();
      if (!text && !file) return metadata;
      if (text.length > TOKEN_CHARACTERS_MAX || !/^[!-~]+$/.test(text)) {
        throw new Error('the token is empty, too long, or holds characters that no token has');
      }
      metadata.set('authorization', `Bearer ${text}`);
      return metadata;
    },
  };
}

/** Everything that a consumer needs to know; `endpoint`, `subscription` and `proto` have no defaults. */
export function settings(given) {
  return {
    /** `http://host:port` or `https://host:port`. */
    endpoint: undefined,
    subscription: undefined,
    /** The folder that holds `portero/v1/subscriber_service.proto`. */
    proto: undefined,
    token: token(),
    /** Stable name of this consumer's place (pod, host); a newer process of the same name takes its stream over. */
    instanceId: randomUUID(),
    /** Another one for each process start. */
    bootId: randomUUID(),
    /** Handlers at a time, each with an event of another entity. */
    concurrency: 64,
    /** Unsettled events at a time, at most 10,000. */
    maxInflightEvents: 256,
    /** Bytes of unsettled bodies at a time. */
    maxInflightBytes: 16 << 20,
    /** How long running handlers may take after the stop, before their events are released uncounted. */
    shutdownMs: 30_000,
    /** Certificate authorities for `https`, PEM; undefined: the ones that Node knows. */
    ca: undefined,
    ...given,
  };
}

/** Makes clients of the service, each with a connection of its own: no backoff but ours applies. */
export function connector({ endpoint, proto, ca }) {
  const url = new URL(endpoint);
  if (!['http:', 'https:'].includes(url.protocol) || !url.port) {
    throw new Error('the endpoint must be http://host:port or https://host:port');
  }
  const definition = loader.loadSync('portero/v1/subscriber_service.proto', {
    includeDirs: [proto],
    longs: String,
    enums: String,
    defaults: true,
    oneofs: true,
  });
  const { SubscriberService } = grpc.loadPackageDefinition(definition).portero.v1;
  const credentials =
    url.protocol === 'https:' ? grpc.credentials.createSsl(ca) : grpc.credentials.createInsecure();
  const options = {
    'grpc.keepalive_time_ms': 10_000,
    'grpc.keepalive_timeout_ms': 5_000,
    'grpc.keepalive_permit_without_calls': 1,
    'grpc-node.flow_control_window': WINDOW_BYTES,
    'grpc.max_receive_message_length': MESSAGE_BYTES_MAX,
    'grpc.use_local_subchannel_pool': 1,
    'grpc.enable_retries': 0,
  };
  return () => new SubscriberService(url.host, credentials, options);
}
