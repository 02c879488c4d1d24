"""One stream, from Hello to its end."""

import asyncio
import random
from collections import deque
from collections.abc import Iterable

import grpc
from portero.v1 import subscriber_service_pb2 as pb
from portero.v1.subscriber_service_pb2_grpc import SubscriberServiceStub

from .delivery import Delivery
from .observer import Observer
from .outcome import Release
from .settings import MESSAGE_BYTES_MAX, Settings
from .settling import ON_RECORD, Batch, Done, Item
from .workers import Workers

PROTOCOL = 1
SILENCE_SECONDS = 25
"""Silence after which the gateway counts as dead."""
HEARTBEAT_SECONDS_MAX = 10
FAREWELL_SECONDS = 1
"""How long a closed stream may take to end on the gateway's side."""
CLOSE_SECONDS = 5
"""How long the last outcomes of a shutdown may take to be recorded."""
UNSETTLED_MAX = 10_000


class StreamBroken(Exception):
    """The stream ended without having been asked to."""


class Stream:
    """One stream: what arrives goes to the workers, their outcomes go back in batches."""

    def __init__(self, settings: Settings, workers: Workers, observer: Observer) -> None:
        self._settings = settings
        self._workers = workers
        self._observer = observer
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._heartbeat_every = 0.0
        self._heartbeat_at = 0.0
        self._control: deque[pb.SubscribeRequest] = deque()
        self._batch = Batch()
        self._held: set[bytes] = set()
        self._opened_at: float | None = None
        self._reconnect_at: float | None = None
        self._stopping = False
        self._close_at: float | None = None
        self._left = False

    @property
    def seconds(self) -> float:
        """How long it has been open."""
        return 0 if self._opened_at is None else self._loop.time() - self._opened_at

    def carries(self, token: bytes) -> bool:
        """Whether the outcome of this delivery goes this way."""
        return token in self._held

    def settle(self, item: Item) -> None:
        """Sends an outcome of a delivery that the stream carries."""
        self._held.discard(item.delivery.token)
        self._batch.add(item, self._loop.time())
        self._wake.set()

    def send(self, frame: pb.SubscribeRequest) -> None:
        """Sends a frame of no settlement, such as Flow or Hold."""
        self._control.append(frame)
        self._wake.set()

    def leftovers(self) -> list[Item]:
        """The stream is over: the outcomes that have no final status."""
        return self._batch.take_all()

    async def open(self, stub: SubscriberServiceStub, unsettled: Iterable[bytes]) -> pb.Welcome:
        """Says Hello and waits for Welcome. `unsettled`: deliveries of earlier streams that have no status yet."""
        settings = self._settings
        flow = pb.Flow(max_inflight_events=settings.max_inflight_events, max_inflight_bytes=settings.max_inflight_bytes)
        hello = pb.Hello(
            subscription=settings.subscription_name,
            instance_id=settings.instance_id,
            boot_id=settings.boot_id,
            protocol=PROTOCOL,
            flow=flow,
            max_message_bytes=MESSAGE_BYTES_MAX,
            unsettled_tokens=list(unsettled)[:UNSETTLED_MAX],
        )
        self._call = stub.Subscribe(metadata=settings.token.metadata())
        async with asyncio.timeout(SILENCE_SECONDS):
            await self._call.write(pb.SubscribeRequest(hello=hello))
            first = await self._call.read()
        if first is grpc.aio.EOF or first.WhichOneof("frame") != "welcome":
            raise StreamBroken("the first frame was not Welcome")
        welcome: pb.Welcome = first.welcome
        self._opened_at = self._loop.time()
        # These go on as if the stream had never broken.
        self._held.update(welcome.resumed_tokens)
        # A little early, because the gateway counts on its side of the network.
        self._heartbeat_every = 0.8 * min(
            max(welcome.heartbeat_every.ToMilliseconds() / 1_000, 0.1), HEARTBEAT_SECONDS_MAX
        )
        return welcome

    async def run(self, stop: asyncio.Event) -> float:
        """Runs until the stream ends; gives the seconds to wait before the next one."""
        helpers = [asyncio.create_task(self._write()), asyncio.create_task(self._leave_on(stop))]
        try:
            await self._read()
        except (grpc.aio.AioRpcError, TimeoutError):
            # A stream that was asked to end, or asked for it, may end in any way.
            if self._reconnect_at is None and not self._left:
                raise
        finally:
            for helper in helpers:
                helper.cancel()
            await asyncio.gather(*helpers, return_exceptions=True)
        if self._reconnect_at is not None:
            return max(0.0, self._reconnect_at - self._loop.time())
        if not self._left:
            raise StreamBroken("the gateway closed the stream")
        return 0

    async def _read(self) -> None:
        async with asyncio.timeout(SILENCE_SECONDS) as self._patience:
            while True:
                frame = await self._call.read()
                if frame is grpc.aio.EOF:
                    return
                if not self._left:
                    self._patience.reschedule(self._loop.time() + SILENCE_SECONDS)
                self._on_frame(frame)
                self._wake.set()

    def _on_frame(self, frame: pb.SubscribeResponse) -> None:
        match frame.WhichOneof("frame"):
            case "deliver":
                for message in frame.deliver.deliveries:
                    self._on_delivery(Delivery(message, self._hold))
            case "settled":
                done, again = self._batch.settled(frame.settled, self._loop.time())
                report(self._observer, done, again)
            case "revoke":
                self._held.difference_update(frame.revoke.tokens)
                for delivery in self._workers.revoke(frame.revoke.tokens):
                    self._observer.revoked(delivery, frame.revoke.reason)
            case "heartbeat":
                beat = frame.heartbeat
                self._observer.lag(beat.head_lag, beat.oldest_unsettled_age.ToMilliseconds() / 1_000)
            case "drain":
                drain = frame.drain
                self._observer.draining(drain.reason)
                low = drain.reconnect_after_min.ToMilliseconds() / 1_000
                high = max(low, drain.reconnect_after_max.ToMilliseconds() / 1_000)
                self._reconnect_at = self._loop.time() + random.uniform(low, high)
                self._release_untouched()
            case "welcome":
                raise StreamBroken("Welcome came twice")
            # Nothing else: a frame of a newer protocol is passed over.

    def _on_delivery(self, delivery: Delivery) -> None:
        self._observer.delivered(delivery)
        self._held.add(delivery.token)
        if self._stopping or self._reconnect_at is not None:
            self.settle(Item(delivery, Release()))
        else:
            self._workers.offer(delivery)

    def _hold(self, delivery: Delivery, seconds: float) -> None:
        hold = pb.Hold(token=delivery.token)
        hold.duration.FromMilliseconds(round(seconds * 1_000))
        if self.carries(delivery.token):
            self.send(pb.SubscribeRequest(hold=hold))

    def _release_untouched(self) -> None:
        for delivery in self._workers.take_untouched():
            self.settle(Item(delivery, Release()))

    async def _leave_on(self, stop: asyncio.Event) -> None:
        """The graceful end: no new events, running handlers may finish, their outcomes are recorded."""
        await stop.wait()
        self._stopping = True
        self.send(pb.SubscribeRequest(goodbye=pb.Goodbye()))
        self._release_untouched()
        await self._workers.finish(self._settings.shutdown_seconds)
        self._close_at = self._loop.time() + CLOSE_SECONDS
        self._wake.set()

    def _is_over(self, now: float) -> bool:
        if self._close_at is not None:
            return self._batch.is_empty or now >= self._close_at
        drained = self._reconnect_at is not None and not self._stopping
        return drained and self._batch.is_empty and not self._held

    def _next_frame(self, now: float) -> pb.SubscribeRequest | None:
        if now >= self._heartbeat_at:
            self._heartbeat_at = now + self._heartbeat_every
            return pb.SubscribeRequest(heartbeat=pb.Heartbeat())
        if self._control:
            return self._control.popleft()
        settle = self._batch.take(now)
        return None if settle is None else pb.SubscribeRequest(settle=settle)

    async def _write(self) -> None:
        self._heartbeat_at = self._loop.time() + self._heartbeat_every
        try:
            while not self._is_over(self._loop.time()):
                frame = self._next_frame(self._loop.time())
                if frame is not None:
                    await self._call.write(frame)
                    continue
                self._wake.clear()
                moments = (self._heartbeat_at, self._batch.due, self._close_at)
                try:
                    async with asyncio.timeout_at(min(at for at in moments if at is not None)):
                        await self._wake.wait()
                except TimeoutError:
                    pass
            self._left = True
            await self._call.done_writing()
            self._patience.reschedule(self._loop.time() + FAREWELL_SECONDS)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            # The stream is over: whoever reads it learns why.
            pass


def report(observer: Observer, done: Done, again: int) -> None:
    """Tells what became of settlements."""
    if again:
        observer.resent(again)
    for item, status in done:
        name = pb.SettlementStatus.Name(status).removeprefix("SETTLEMENT_STATUS_")
        observer.settled(item.delivery, item.outcome, name, status in ON_RECORD)
