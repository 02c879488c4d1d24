"""Calls the handler: many entities at a time, one event per entity."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable

from .delivery import Delivery, Entity
from .observer import Observer
from .outcome import Outcome, Release, Retry

Handler = Callable[[Delivery], Awaitable[Outcome]]


class Workers:
    """Deliveries from their arrival to their outcome, over all streams.

    The gateway has one event of an entity in flight, but after a reconnect an event may come again while older work on
    its entity still runs: it waits here until that is done.
    """

    def __init__(
        self, handler: Handler, concurrency: int, settle: Callable[[Delivery, Outcome], None], observer: Observer
    ) -> None:
        self._handler = handler
        self._room = asyncio.Semaphore(concurrency)
        self._settle = settle
        self._observer = observer
        self._waiting: dict[Entity, deque[Delivery]] = {}
        self._tasks: dict[Entity, asyncio.Task[None]] = {}
        self._started: dict[bytes, Delivery] = {}

    def offer(self, delivery: Delivery) -> None:
        """Takes a delivery: it is handled when its entity and a place are free."""
        entity = delivery.entity
        self._waiting.setdefault(entity, deque()).append(delivery)
        if entity not in self._tasks:
            self._tasks[entity] = asyncio.create_task(self._serve(entity))

    @property
    def started(self) -> list[Delivery]:
        """What handlers work on."""
        return list(self._started.values())

    def take_untouched(self) -> list[Delivery]:
        """Takes back what no handler has seen."""
        taken = [delivery for waiting in self._waiting.values() for delivery in waiting]
        for waiting in self._waiting.values():
            waiting.clear()
        return taken

    def revoke(self, tokens: Iterable[bytes]) -> list[Delivery]:
        """Tells handlers that the gateway took these back, and forgets the ones that none has seen."""
        tokens = set(tokens)
        revoked = [self._started[token] for token in tokens if token in self._started]
        for waiting in self._waiting.values():
            gone = [delivery for delivery in waiting if delivery.token in tokens]
            for delivery in gone:
                waiting.remove(delivery)
            revoked.extend(gone)
        for delivery in revoked:
            delivery.revoked.set()
        return revoked

    async def finish(self, seconds: float) -> None:
        """Lets running handlers end, then cancels them; their events are released."""
        tasks = list(self._tasks.values())
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=seconds)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def _serve(self, entity: Entity) -> None:
        waiting = self._waiting[entity]
        try:
            while waiting:
                async with self._room:
                    # What waited may have been taken back meanwhile.
                    if not waiting:
                        return
                    delivery = waiting.popleft()
                    outcome = await self._handle(delivery)
                self._settle(delivery, outcome)
                # The same event, offered again because the stream broke: its work is done.
                while waiting and waiting[0].event.receipt_id == delivery.event.receipt_id:
                    self._settle(waiting.popleft(), outcome)
        finally:
            del self._waiting[entity], self._tasks[entity]

    async def _handle(self, delivery: Delivery) -> Outcome:
        clock = asyncio.get_running_loop().time
        began = clock()
        self._started[delivery.token] = delivery
        try:
            outcome = await self._handler(delivery)
            if not isinstance(outcome, Outcome):
                raise TypeError("the handler gave no outcome")
        except asyncio.CancelledError:
            self._settle(delivery, Release())
            raise
        except Exception as error:
            self._observer.failed(delivery, error)
            outcome = Retry("HANDLER_FAILED", "the handler raised an exception")
        finally:
            del self._started[delivery.token]
        self._observer.handled(delivery, outcome, clock() - began)
        return outcome
