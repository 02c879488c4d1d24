"""How to reach the gateway, and how much to take at a time."""

import os
import pathlib
import uuid
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import grpc

TOKEN_BYTES_MAX = 16 * 1024
MESSAGE_BYTES_MAX = 4 << 20
WINDOW_BYTES = 8 << 20


@dataclass(frozen=True)
class Token:
    """Where the access token comes from: a file, else an environment variable, else there is none."""

    file: pathlib.Path | None = None
    variable: str = "PORTERO_TOKEN"

    @property
    def can_renew(self) -> bool:
        """Whether the next attempt may carry another token."""
        return self.file is not None

    def metadata(self) -> list[tuple[str, str]]:
        """For one call. The file is read each time, so that a renewed token is taken up without a restart."""
        text = self.file.read_text() if self.file else os.environ.get(self.variable, "")
        text = text.strip()
        if not text and self.file is None:
            return []
        if not text or len(text) > TOKEN_BYTES_MAX or not text.isascii() or not text.isprintable() or " " in text:
            raise ValueError("the token is empty, too long, or holds characters that no token has")
        return [("authorization", f"Bearer {text}")]


@dataclass(frozen=True)
class Settings:
    """Everything that a consumer needs to know."""

    endpoint: str
    """`http://host:port` or `https://host:port`."""
    subscription: str
    token: Token = field(default_factory=Token)
    instance_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    """Stable name of this consumer's place (pod, host); a newer process of the same name takes its stream over."""
    boot_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    """Another one for each process start."""
    concurrency: int = 64
    """Handlers at a time, each with an event of another entity."""
    max_inflight_events: int = 256
    """Unsettled events at a time, at most 10,000."""
    max_inflight_bytes: int = 16 << 20
    """Bytes of unsettled bodies at a time."""
    shutdown_seconds: float = 30
    """How long handlers may take after the stop, before they are cancelled and their events released uncounted."""
    ca_file: pathlib.Path | None = None
    """Certificate authorities for `https`, PEM; None: the ones that gRPC knows."""

    @property
    def subscription_name(self) -> str:
        return f"subscriptions/{self.subscription}"

    def channel(self) -> grpc.aio.Channel:
        """A connection of its own: the subscription's stream shares it with nobody, and no backoff but ours applies."""
        url = urlsplit(self.endpoint)
        if url.scheme not in ("http", "https") or not url.netloc or url.path not in ("", "/"):
            raise ValueError("the endpoint must be http://host:port or https://host:port")
        options: list[tuple[str, int]] = [
            ("grpc.keepalive_time_ms", 10_000),
            ("grpc.keepalive_timeout_ms", 5_000),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.max_pings_without_data", 0),
            ("grpc.http2.lookahead_bytes", WINDOW_BYTES),
            ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.enable_retries", 0),
        ]
        if url.scheme == "http":
            return grpc.aio.insecure_channel(url.netloc, options)
        authorities = self.ca_file.read_bytes() if self.ca_file else None
        return grpc.aio.secure_channel(url.netloc, grpc.ssl_channel_credentials(authorities), options)
