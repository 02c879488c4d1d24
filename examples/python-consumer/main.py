"""A service that consumes a subscription until it is told to stop. Put your own work into `handle`."""

import argparse
import asyncio
import json
import logging
import os
import pathlib
import signal

import scripted
from portero_consumer import Ack, Consumer, Delivery, Observer, Outcome, Refused, Reject, Settings, Token

log = logging.getLogger("consumer")


async def handle(delivery: Delivery) -> Outcome:
    """Answers one event. Runs for many entities at a time and for one event of an entity.

    Work that blocks goes to a thread: `await asyncio.to_thread(...)`.
    """
    try:
        json.loads(delivery.event.body)
    except ValueError:
        return Reject("NOT_JSON", "the body is no JSON")
    log.info("%s: %s of %s", delivery.event.receipt_id, delivery.event.event_type, delivery.event.ordering_key)
    return Ack()


class Log(Observer):
    """Writes to the log what an operator wants to know."""

    def connected(self, welcome) -> None:
        log.info("connected: stream %s, %d lanes", welcome.stream_id, welcome.assigned_lanes)

    def disconnected(self, why, next_attempt_seconds) -> None:
        if next_attempt_seconds is None:
            log.info("disconnected: %s", why)
        else:
            log.warning("disconnected: %s; next attempt in %.1f s", why, next_attempt_seconds)

    def failed(self, delivery, error) -> None:
        log.error("the handler failed on %r", delivery, exc_info=error)

    def settled(self, delivery, outcome, status, on_record) -> None:
        if not on_record:
            log.warning("%r: %r was not recorded (%s), the event comes again", delivery, outcome, status)

    def lost(self, delivery, outcome) -> None:
        log.warning("%r: %r is lost, the event comes again", delivery, outcome)

    def revoked(self, delivery, reason) -> None:
        log.warning("%r was taken back: %s", delivery, reason)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--endpoint", default="http://127.0.0.1:50051", help="the gateway's gRPC endpoint")
    parser.add_argument("--subscription", required=True)
    parser.add_argument(
        "--instance", help="this consumer's place; a newer process of the same name takes its stream over"
    )
    parser.add_argument(
        "--token-file",
        type=pathlib.Path,
        default=os.environ.get("PORTERO_TOKEN_FILE"),
        help="file with the access token, read again for each connection; without it $PORTERO_TOKEN is sent",
    )
    parser.add_argument("--max-inflight-events", type=int, default=256)
    parser.add_argument("--scripted", action="store_true", help="test mode: see scripted.py")
    return parser.parse_args()


async def run(given: argparse.Namespace) -> None:
    token_file = given.token_file and pathlib.Path(given.token_file)
    settings = Settings(
        endpoint=given.endpoint,
        subscription=given.subscription,
        token=Token(file=token_file),
        max_inflight_events=given.max_inflight_events,
        **({"instance_id": given.instance} if given.instance else {}),
    )
    stop = asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(name, stop.set)
    if given.scripted:
        script = await scripted.Script.from_stdin()
        consumer = Consumer(settings, script.handle, scripted.Lines())
    else:
        consumer = Consumer(settings, handle, Log())
    await consumer.run(stop)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        asyncio.run(run(arguments()))
    except Refused as error:
        raise SystemExit(f"refused: {error}") from error
