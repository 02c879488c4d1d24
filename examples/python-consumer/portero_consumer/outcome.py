"""What a handler says of a delivery."""

from dataclasses import dataclass

from google.protobuf.duration_pb2 import Duration
from portero.v1 import subscriber_service_pb2 as pb

CODE_BYTES_MAX = 64
TEXT_BYTES_MAX = 1_024
DELAY_SECONDS_MAX = 24 * 3600


@dataclass(frozen=True)
class Ack:
    """Done."""


@dataclass(frozen=True)
class Retry:
    """Failed for now: counts an attempt, the entity waits, then the event comes again.

    `code` is for machines (`A-Z0-9_`), `text` for people; both are stored, so they must hold no secrets.
    """

    code: str
    text: str = ""
    after_seconds: float | None = None
    """Not before this long from now, at most 24 hours. None: the subscription's backoff."""


@dataclass(frozen=True)
class Defer:
    """Valid but too early: steps aside uncounted, and comes again after each later ack of its entity."""

    code: str
    text: str = ""


@dataclass(frozen=True)
class Reject:
    """Never going to work: a dead letter now."""

    code: str
    text: str = ""


@dataclass(frozen=True)
class Release:
    """Not worked on: offered again at once, uncounted."""


Outcome = Ack | Retry | Defer | Reject | Release


def name_of(outcome: Outcome) -> str:
    """`ack`, `retry`, `defer`, `reject` or `release`: a label for metrics."""
    return type(outcome).__name__.lower()


def to_settlement(token: bytes, outcome: Outcome) -> pb.Settlement:
    """As it goes over the wire, within the protocol's bounds: one bad reason must not end a stream."""
    settlement = pb.Settlement(token=token, outcome=f"OUTCOME_{name_of(outcome).upper()}")
    match outcome:
        case Retry(code, text) | Defer(code, text) | Reject(code, text):
            settlement.reason_code = _clean(code)
            settlement.reason_text = text.encode()[:TEXT_BYTES_MAX].decode(errors="ignore")
    if isinstance(outcome, Retry) and outcome.after_seconds is not None:
        milliseconds = round(min(max(outcome.after_seconds, 0), DELAY_SECONDS_MAX) * 1_000)
        delay = Duration()
        delay.FromMilliseconds(milliseconds)
        settlement.delay.CopyFrom(delay)
    return settlement


def _clean(code: str) -> str:
    code = "".join(c.upper() if c.isascii() and c.isalnum() else "_" for c in code[:CODE_BYTES_MAX])
    return code or "UNSPECIFIED"
