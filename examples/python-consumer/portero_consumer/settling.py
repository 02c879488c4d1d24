"""Outcomes on their way to the gateway, each kept until the gateway gave its final word on it."""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from portero.v1 import subscriber_service_pb2 as pb

from .backoff import Backoff
from .delivery import Delivery
from .outcome import Outcome, to_settlement

ITEMS_MAX = 64
"""Items that make a frame go at once. Without batches there would be many small HTTP/2 frames, which servers refuse."""
LINGER_SECONDS = 0.005
"""How long the first item of a frame waits for others."""

ON_RECORD = frozenset((pb.SETTLEMENT_STATUS_DURABLE, pb.SETTLEMENT_STATUS_DURABLE_LATE, pb.SETTLEMENT_STATUS_ALREADY))
"""Statuses after which an acked event does not come again by itself. Nothing else means that an ack counts."""
FINAL = ON_RECORD | {pb.SETTLEMENT_STATUS_STALE, pb.SETTLEMENT_STATUS_UNKNOWN_TOKEN}


class Item(NamedTuple):
    """An outcome without a final status."""

    delivery: Delivery
    outcome: Outcome

    def settlement(self) -> pb.Settlement:
        return to_settlement(self.delivery.token, self.outcome)


Done = list[tuple[Item, "pb.SettlementStatus"]]


class Batch:
    """The outcomes of one stream. `now` is always the event loop's time."""

    def __init__(self) -> None:
        self._pending: deque[Item] = deque()
        self._sent: dict[int, list[Item]] = {}
        self._last_frame = 0
        self._refused = Backoff(0.1, 2.0)
        self._held_until = 0.0
        self.due: float | None = None
        """When the next frame goes."""

    def add(self, item: Item, now: float) -> None:
        self._pending.append(item)
        if len(self._pending) >= ITEMS_MAX:
            self.due = max(now, self._held_until)
        elif self.due is None:
            self.due = max(now + LINGER_SECONDS, self._held_until)

    def take(self, now: float) -> pb.Settle | None:
        """A frame of pending items, which then wait for their statuses; None when none is due."""
        if self.due is None or self.due > now:
            return None
        items = [self._pending.popleft() for _ in range(min(ITEMS_MAX, len(self._pending)))]
        self.due = now if self._pending else None
        self._last_frame += 1
        self._sent[self._last_frame] = items
        return pb.Settle(frame_no=self._last_frame, items=[item.settlement() for item in items])

    def settled(self, frame: pb.Settled, now: float) -> tuple[Done, int]:
        """The items that are final, and how many go again."""
        done, again = sort(self._sent.pop(frame.frame_no, []), frame.results)
        if again:
            self._pending.extendleft(reversed(again))
            self._held_until = now + 0.05 + self._refused.next()
            self.due = self._held_until
        else:
            self._refused.reset()
        return done, len(again)

    @property
    def is_empty(self) -> bool:
        return not self._pending and not self._sent

    def take_all(self) -> list[Item]:
        """The stream is over: everything without a final status, in order."""
        items = [item for items in self._sent.values() for item in items]
        items.extend(self._pending)
        self._sent.clear()
        self._pending.clear()
        self.due = None
        return items


def sort(items: Iterable[Item], results: Sequence[pb.SettlementResult]) -> tuple[Done, list[Item]]:
    """Splits items into those with a final status and those to send again. One without an answer goes again."""
    statuses = {result.token: result.status for result in results}
    done: Done = []
    again: list[Item] = []
    for item in items:
        status = statuses.get(item.delivery.token)
        if status is not None and status in FINAL:
            done.append((item, status))
        else:
            again.append(item)
    return done, again
