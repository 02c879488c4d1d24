"""Consumes a Portero subscription: events of one entity in order, each settled with its outcome, over reconnects."""

from .consumer import Consumer, Refused
from .delivery import Delivery
from .observer import Observer
from .outcome import Ack, Defer, Outcome, Reject, Release, Retry
from .settings import Settings, Token

__all__ = [
    "Ack",
    "Consumer",
    "Defer",
    "Delivery",
    "Observer",
    "Outcome",
    "Refused",
    "Reject",
    "Release",
    "Retry",
    "Settings",
    "Token",
]
