"""Keeps one subscription alive: connects, runs a stream, and connects again until it is stopped or refused for good."""

import asyncio
from typing import Any

import grpc
from portero.v1 import subscriber_service_pb2 as pb
from portero.v1.subscriber_service_pb2_grpc import SubscriberServiceStub

from .backoff import Backoff
from .delivery import Delivery
from .observer import Observer
from .outcome import Outcome, Release
from .settings import Settings
from .settling import Item, sort
from .stream import CLOSE_SECONDS, Stream, StreamBroken, report
from .workers import Handler, Workers

PROVEN_SECONDS = 5
"""A stream that lasted so long ends a series of failures."""
LATE_ITEMS_MAX = 10_000
CALL_ITEMS_MAX = 1_000
CALL_SECONDS = 10
REFUSALS = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND, grpc.StatusCode.PERMISSION_DENIED)


class Refused(Exception):
    """The gateway refused for good: the request, the subscription's name or the grants of the token are wrong."""


class Consumer:
    """Calls `handler` for each event of a subscription.

    Delivery is at least once: make what the handler does idempotent, by `delivery.place` or `event.idempotency_key`.
    """

    def __init__(self, settings: Settings, handler: Handler, observer: Observer | None = None) -> None:
        self._settings = settings
        self._observer = observer or Observer()
        self._workers = Workers(handler, settings.concurrency, self._settle, self._observer)
        self._stream: Stream | None = None
        # Outcomes whose stream is over. They are settled by unary calls.
        self._late: list[Item] = []
        self._late_came = asyncio.Event()
        self._backoff = Backoff()

    async def run(self, stop: asyncio.Event) -> None:
        """Runs until `stop` is set, then finishes what it began. Raises Refused."""
        while not stop.is_set():
            try:
                wait = await self._one_stream(stop)
                self._observer.disconnected("as asked", None if stop.is_set() else wait)
            except (grpc.aio.AioRpcError, StreamBroken, TimeoutError, OSError, ValueError) as error:
                wait = self._after(error)
            await _first_of(asyncio.create_task(stop.wait()), asyncio.create_task(asyncio.sleep(wait)))
        await self._workers.finish(self._settings.shutdown_seconds)
        await self._settle_the_rest()

    def set_flow(self, max_inflight_events: int, max_inflight_bytes: int) -> None:
        """Replaces the limits of the present stream."""
        flow = pb.Flow(max_inflight_events=max_inflight_events, max_inflight_bytes=max_inflight_bytes)
        if self._stream:
            self._stream.send(pb.SubscribeRequest(flow=flow))

    def _after(self, error: Exception) -> float:
        """How long to wait after a failure."""
        why = str(error) or type(error).__name__
        if isinstance(error, grpc.aio.AioRpcError):
            why = f"{error.code().name}: {error.details()}"
            refused = error.code() in REFUSALS
            refused |= error.code() is grpc.StatusCode.UNAUTHENTICATED and not self._settings.token.can_renew
            if refused:
                self._observer.disconnected(why, None)
                raise Refused(why) from error
        wait = self._backoff.next()
        self._observer.disconnected(why, wait)
        return wait

    async def _one_stream(self, stop: asyncio.Event) -> float:
        async with self._settings.channel() as channel:
            stub = SubscriberServiceStub(channel)
            stream = Stream(self._settings, self._workers, self._observer)
            opening = asyncio.create_task(self._open(stub, stream))
            await _first_of(opening, asyncio.create_task(stop.wait()))
            if opening.cancelled() or not opening.done():
                return 0
            opening.result()
            late = asyncio.create_task(self._settle_late_as_it_comes(stub))
            try:
                return await stream.run(stop)
            finally:
                late.cancel()
                await asyncio.gather(late, return_exceptions=True)
                self._stream = None
                if stream.seconds >= PROVEN_SECONDS:
                    self._backoff.reset()
                # The gateway offers again what nobody here has begun; what was begun may go on.
                self._workers.take_untouched()
                for item in stream.leftovers():
                    self._keep(item)

    async def _open(self, stub: SubscriberServiceStub, stream: Stream) -> None:
        # First, so that the gateway does not offer again what is done.
        await self._settle_late(stub)
        unsettled = [item.delivery for item in self._late] + self._workers.started
        welcome = await stream.open(stub, [delivery.token for delivery in unsettled])
        self._stream = stream
        self._observer.connected(welcome)
        # What goes on is settled on this stream; of the rest only an ack counts.
        for item in [item for item in self._late if stream.carries(item.delivery.token)]:
            self._late.remove(item)
            stream.settle(item)
        stops = {delivery.token for delivery in unsettled}.difference(welcome.resumed_tokens)
        for delivery in self._workers.revoke(stops):
            self._observer.revoked(delivery, "it did not go on after the reconnect")
        # What was released between Hello and Welcome.
        working = {delivery.token for delivery in self._workers.started}
        for delivery in unsettled:
            if stream.carries(delivery.token) and delivery.token not in working:
                stream.settle(Item(delivery, Release()))

    def _settle(self, delivery: Delivery, outcome: Outcome) -> None:
        item = Item(delivery, outcome)
        if self._stream and self._stream.carries(delivery.token):
            self._stream.settle(item)
        else:
            self._keep(item)

    def _keep(self, item: Item) -> None:
        # The end of its stream has released it.
        if isinstance(item.outcome, Release):
            return
        self._late.append(item)
        self._late_came.set()
        if len(self._late) > LATE_ITEMS_MAX:
            lost = self._late.pop(0)
            self._observer.lost(lost.delivery, lost.outcome)

    async def _settle_late(self, stub: SubscriberServiceStub) -> None:
        """One unary call for each 1,000 outcomes; what is not recorded stays."""
        self._late_came.clear()
        items, recorded = list(self._late), 0
        for first in range(0, len(items), CALL_ITEMS_MAX):
            some = items[first : first + CALL_ITEMS_MAX]
            request = pb.SettleRequest(
                subscription=self._settings.subscription_name, items=[item.settlement() for item in some]
            )
            response = await stub.Settle(request, timeout=CALL_SECONDS, metadata=self._settings.token.metadata())
            done, again = sort(some, response.results)
            final = {id(item) for item, _ in done}
            self._late = [item for item in self._late if id(item) not in final]
            recorded += len(done)
            report(self._observer, done, len(again))
        if recorded < len(items):
            self._late_came.set()

    async def _settle_late_as_it_comes(self, stub: SubscriberServiceStub) -> None:
        backoff = Backoff()
        while True:
            await self._late_came.wait()
            try:
                await self._settle_late(stub)
                if not self._late:
                    backoff.reset()
                    continue
            except grpc.aio.AioRpcError:
                self._late_came.set()
            await asyncio.sleep(0.05 + backoff.next())

    async def _settle_the_rest(self) -> None:
        """The end of a shutdown: outcomes that no stream took."""
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                while self._late:
                    try:
                        async with self._settings.channel() as channel:
                            await self._settle_late(SubscriberServiceStub(channel))
                    except (grpc.aio.AioRpcError, OSError, ValueError):
                        pass
                    if self._late:
                        await asyncio.sleep(0.05 + self._backoff.next())
        except TimeoutError:
            for item in self._late:
                self._observer.lost(item.delivery, item.outcome)


async def _first_of(*tasks: asyncio.Task[Any]) -> None:
    """Waits for the first and cancels the others."""
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
