// A service that consumes a subscription until it is told to stop. Put your own work into `handle`.

import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { Script, writeLines } from './scripted.js';
import { ack, Consumer, Refused, reject, settings, token } from './src/index.js';

/** Answers one event. Runs for many entities at a time and for one event of an entity. */
async function handle(delivery) {
  try {
    JSON.parse(delivery.event.body.toString());
  } catch {
    return reject('NOT_JSON', 'the body is no JSON');
  }
  console.info(`${delivery}: of ${delivery.event.orderingKey}`);
  return ack;
}

/** Writes to the log what an operator wants to know. */
function writeLog(consumer) {
  consumer.on('connected', ({ streamId, assignedLanes }) => {
    console.info(`connected: stream ${streamId}, ${assignedLanes} lanes`);
  });
  consumer.on('disconnected', ({ why, nextAttemptMs }) => {
    const next = nextAttemptMs === undefined ? '' : `; next attempt in ${Math.round(nextAttemptMs)} ms`;
    console.warn(`disconnected: ${why}${next}`);
  });
  consumer.on('failed', ({ delivery, error }) => console.error(`the handler failed on ${delivery}`, error));
  consumer.on('settled', ({ delivery, outcome, status, onRecord }) => {
    if (!onRecord) console.warn(`${delivery}: ${outcome.name} was not recorded (${status}), it comes again`);
  });
  consumer.on('lost', ({ delivery, outcome }) => {
    console.warn(`${delivery}: ${outcome.name} is lost, it comes again`);
  });
  consumer.on('revoked', ({ delivery, reason }) => console.warn(`${delivery} was taken back: ${reason}`));
}

const HELP = `usage: node main.js --subscription NAME [options]

  --endpoint URL            the gateway's gRPC endpoint; default http://127.0.0.1:50051
  --instance NAME           this consumer's place; a newer process of the same name takes its stream over
  --token-file FILE         file with the access token, read again for each connection; default $PORTERO_TOKEN_FILE,
                            without either $PORTERO_TOKEN is sent
  --proto FOLDER            folder with portero/v1/subscriber_service.proto; default that of the repository
  --max-inflight-events N   unsettled events at a time; default 256
  --scripted                test mode: see scripted.js`;

const text = { type: 'string' };
const OPTIONS = {
  endpoint: { ...text, default: 'http://127.0.0.1:50051' },
  subscription: text,
  instance: text,
  'token-file': { ...text, default: process.env.PORTERO_TOKEN_FILE },
  proto: {
    ...text,
    default: fileURLToPath(new URL('../../proto', import.meta.url)),
  },
  'max-inflight-events': { ...text, default: '256' },
  scripted: { type: 'boolean', default: false },
  help: { type: 'boolean', default: false },
};

/** What the command line says. */
function given() {
  try {
    return parseArgs({ options: OPTIONS }).values;
  } catch (error) {
    throw new Refused(`${error.message}\n\n${HELP}`);
  }
}

async function main() {
  const values = given();
  if (values.help) return console.info(HELP);
  if (!values.subscription) throw new Refused(HELP);
  const chosen = settings({
    endpoint: values.endpoint,
    subscription: values.subscription,
    proto: values.proto,
    token: token(values['token-file']),
    maxInflightEvents: Number(values['max-inflight-events']),
    ...(values.instance && { instanceId: values.instance }),
  });
  const stop = new AbortController();
  for (const signal of ['SIGTERM', 'SIGINT']) process.once(signal, () => stop.abort());
  const script = values.scripted ? new Script(process.stdin) : undefined;
  const consumer = new Consumer(chosen, script ? script.handle : handle);
  if (script) writeLines(consumer);
  else writeLog(consumer);
  await consumer.run(stop.signal);
  script?.close();
}

main().catch((error) => {
  console.error(error instanceof Refused ? error.message : error);
  process.exitCode = 1;
});
