"""Test mode: each event's body says what becomes of it, and what happens is printed as JSON lines.

`{"then": ["retry:300", "defer", "ack"]}` retries the first delivery after 300 ms, defers the second one and acks all
later ones. `told` waits for a line on standard input, such as `evt_1 ack`: the event's id and the outcome. Codes follow
a colon: `reject:NO_ORDER`.
"""

import asyncio
import json
import sys
import time
from collections import Counter

from portero_consumer import Ack, Defer, Delivery, Observer, Outcome, Reject, Release, Retry
from portero_consumer.outcome import name_of


def outcome_of(step: str) -> Outcome:
    word, _, detail = step.partition(":")
    match word:
        case "ack":
            return Ack()
        case "release":
            return Release()
        case "retry":
            return Retry("SCRIPTED", "as told", int(detail) / 1_000 if detail else None)
        case "defer":
            return Defer(detail or "SCRIPTED", "as told")
        case "reject":
            return Reject(detail or "SCRIPTED", "as told")
    return Reject("NO_SUCH_STEP", "the body asks for what this consumer cannot do")


class Script:
    """The handler."""

    def __init__(self) -> None:
        self._deliveries: Counter[str] = Counter()
        self._told: dict[str, asyncio.Future[str]] = {}
        self._listening: asyncio.Task[None] | None = None

    @classmethod
    async def from_stdin(cls) -> "Script":
        script, lines = cls(), asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
        script._listening = asyncio.create_task(script._listen(lines))
        return script

    async def handle(self, delivery: Delivery) -> Outcome:
        steps = json.loads(delivery.event.body).get("then", ["ack"])
        count = self._deliveries[delivery.event.receipt_id]
        self._deliveries[delivery.event.receipt_id] += 1
        step = steps[min(count, len(steps) - 1)]
        if step == "told":
            step = await self._order(delivery.event.event_id)
            del self._told[delivery.event.event_id]
        return outcome_of(step)

    def _order(self, event_id: str) -> asyncio.Future[str]:
        return self._told.setdefault(event_id, asyncio.get_running_loop().create_future())

    async def _listen(self, lines: asyncio.StreamReader) -> None:
        while line := await lines.readline():
            event_id, step = line.decode().split()
            self._order(event_id).set_result(step)


class Lines(Observer):
    """Prints a line for each thing that happens."""

    def connected(self, welcome) -> None:
        say("connected", generation=welcome.generation)
        if welcome.resumed_tokens:
            say("resumed", kept=len(welcome.resumed_tokens))

    def disconnected(self, why, next_attempt_seconds) -> None:
        say("disconnected", why=why, final=next_attempt_seconds is None)

    def delivered(self, delivery) -> None:
        event, place = delivery.event, delivery.place
        say("delivered", **about(delivery), ordering_key=event.ordering_key, attempt=delivery.attempt, place=place)

    def handled(self, delivery, outcome, seconds) -> None:
        say("handled", **about(delivery), outcome=name_of(outcome))

    def settled(self, delivery, outcome, status, on_record) -> None:
        say("settled", **about(delivery), outcome=name_of(outcome), status=status)

    def lost(self, delivery, outcome) -> None:
        say("lost", **about(delivery), outcome=name_of(outcome))

    def revoked(self, delivery, reason) -> None:
        say("revoked", **about(delivery), reason=reason)

    def draining(self, reason) -> None:
        say("draining", reason=reason)


def about(delivery: Delivery) -> dict[str, str]:
    return {"event_id": delivery.event.event_id}


def say(what: str, **fields: object) -> None:
    print(json.dumps({"what": what, **fields, "ms": round(time.monotonic() * 1_000)}), flush=True)
