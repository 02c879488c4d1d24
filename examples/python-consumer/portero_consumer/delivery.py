"""One event, offered once."""

import asyncio
from collections.abc import Callable

from portero.v1 import subscriber_service_pb2 as pb

Entity = tuple[str, str]
"""Tenant and ordering key: events of one entity come in order."""


class Delivery:
    """One event, offered once. Its repr shows neither body nor headers."""

    def __init__(self, message: pb.Delivery, hold: Callable[["Delivery", float], None]) -> None:
        self.token: bytes = message.token
        self.event: pb.Event = message.event
        """Everything that is known of the event; `event.body` holds the bytes as the provider sent them."""
        self.attempt: int = message.attempt
        """Which offer of this event this is, first 1, as far as the gateway knows; uncounted ones are included."""
        self.place: tuple[int, int, int] = (message.generation, message.shard, message.position)
        """Rises with each event of an entity, whatever happens: the fencing token for your own database."""
        self.revoked = asyncio.Event()
        """Set when the gateway took the delivery back: stop if you can. Only an ack still counts."""
        self._hold = hold

    def hold(self, seconds: float) -> None:
        """Asks for so much more time, at most an hour: for work longer than the gateway's `max_hold` (5 minutes)."""
        self._hold(self, seconds)

    @property
    def entity(self) -> Entity:
        """What to keep in order. An event without an ordering key is an entity of its own."""
        return (self.event.tenant, self.event.ordering_key or self.event.receipt_id)

    def __repr__(self) -> str:
        event = self.event
        return f"<Delivery {event.receipt_id} {event.event_type!r} attempt={self.attempt} bytes={len(event.body)}>"
