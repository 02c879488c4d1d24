"""How long to wait before the next attempt."""

import random


class Backoff:
    """Exponential with full jitter: wait n is uniform between zero and min(longest, first · 2ⁿ) seconds."""

    def __init__(self, first: float = 0.1, longest: float = 10.0) -> None:
        self._first = first
        self._longest = longest
        self._failures = 0

    def next(self) -> float:
        """The wait after one more failure."""
        ceiling = min(self._longest, self._first * 2.0 ** min(self._failures, 16))
        self._failures += 1
        return random.uniform(0, ceiling)

    def reset(self) -> None:
        """Begins anew."""
        self._failures = 0
