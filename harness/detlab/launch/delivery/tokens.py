"""The task token: its file, and when it is renewed. No clock and no network."""

from __future__ import annotations

from dataclasses import dataclass, field

from detlab.backoff import Backoff


def life_of(said: float | None, expires_at: float, wall: float) -> float:
    """Return a token's remaining life in seconds.

    Args:
        said: The life as the master gives it, in seconds; None from older masters, which do not.
        expires_at: When the token ends by the master's clock, in seconds since the epoch.
        wall: The current time by our clock, in seconds since the epoch.
    """
    return expires_at - wall if said is None else said


@dataclass
class TokenKeeper:
    """Hold a token and say when to renew it: from half of its life on.

    An expired token is offered for renewal too (after an outage of hours every token is): whether it may still
    renew is the master's decision.

    Args:
        token: The token.
        expires_at: When it ends, on the clock of `now`.
        issued_at: Since when we have it, same clock.
    """

    token: str
    expires_at: float
    issued_at: float
    backoff: Backoff = field(default_factory=lambda: Backoff(first=1.0, cap=60.0))
    _not_before: float = 0.0
    _forced: float | None = None

    def due(self, now: float) -> bool:
        """Whether to ask for a fresh token now."""
        half = self.issued_at + (self.expires_at - self.issued_at) / 2
        wanted = now >= half or self._forced is not None
        return wanted and now >= self._not_before

    def refused(self, now: float) -> None:
        """Record that the master rejected the token: it is renewed at the next chance, whatever its expiry date."""
        if self._forced is None:
            self._forced = now

    def renewed(self, token: str, expires_at: float, now: float) -> None:
        """Record a fresh token and when it expires."""
        self.token, self.expires_at, self.issued_at = token, expires_at, now
        self._forced = None
        self._not_before = 0.0
        self.backoff.reset()

    def failed(self, now: float) -> None:
        """Record that a renewal failed: the next attempt follows after a pause."""
        self._not_before = now + self.backoff.next_pause()
