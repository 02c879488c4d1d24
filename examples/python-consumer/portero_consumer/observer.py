"""Where a consumer reports what it does: hooks for metrics and logs."""

from portero.v1 import subscriber_service_pb2 as pb

from .delivery import Delivery
from .outcome import Outcome


class Observer:
    """Each hook does nothing unless it is overridden. They run on the event loop: they must return at once."""

    def connected(self, welcome: pb.Welcome) -> None:
        """A stream is open."""

    def disconnected(self, why: str, next_attempt_seconds: float | None) -> None:
        """A stream, or an attempt to open one, ended; None: there is no next attempt."""

    def delivered(self, delivery: Delivery) -> None:
        """A delivery arrived."""

    def handled(self, delivery: Delivery, outcome: Outcome, seconds: float) -> None:
        """A handler is done with a delivery."""

    def failed(self, delivery: Delivery, error: Exception) -> None:
        """A handler raised; the delivery is retried."""

    def settled(self, delivery: Delivery, outcome: Outcome, status: str, on_record: bool) -> None:
        """The gateway's final word. An ack counts only when it is `on_record`; else the event comes again."""

    def resent(self, count: int) -> None:
        """So many outcomes were not recorded and are sent again."""

    def lost(self, delivery: Delivery, outcome: Outcome) -> None:
        """An outcome could not be brought home: its event will come again."""

    def revoked(self, delivery: Delivery, reason: str) -> None:
        """The gateway took a delivery back."""

    def draining(self, reason: str) -> None:
        """The gateway asked to reconnect."""

    def lag(self, entries: int, oldest_unsettled_seconds: float) -> None:
        """How far behind this consumer is."""
