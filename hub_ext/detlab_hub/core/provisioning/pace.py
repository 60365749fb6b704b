"""The rate at which a pool may grow: a bounded number of launches in a window, and a back-off after failures."""

from __future__ import annotations

from dataclasses import replace

from detlab.backoff import longest_pause
from detlab_hub.core.provisioning.model import HoldReason, PoolHistory, PoolLimits


def launched(history: PoolHistory, count: int, now: float) -> PoolHistory:
    """Record a number of launches; earlier failures no longer count, since launches work again."""
    return replace(history, launches=(*history.launches, *[now] * count), failures=0) if count else history


def launch_failed(history: PoolHistory, now: float) -> PoolHistory:
    """Remember that a launch failed."""
    return replace(history, launches=(*history.launches, now), failures=history.failures + 1, failed_at=now)


def retry_at(history: PoolHistory, limits: PoolLimits) -> float:
    """Return the time before which nothing is launched; 0 if the last launch succeeded."""
    failed = history.failures + history.duds
    if not failed:
        return 0.0
    return history.failed_at + longest_pause(failed, limits.retry_after, limits.retry_at_most)


def recent(history: PoolHistory, limits: PoolLimits, now: float) -> tuple[float, ...]:
    """Return the launches that still count: after a clock was set back none counts for longer than a window."""
    return tuple(min(at, now) for at in history.launches if now - limits.launch_window < at)


def allowed(
    history: PoolHistory, limits: PoolLimits, now: float, wanted: int
) -> tuple[int, tuple[HoldReason, str] | None]:
    """Return how many of the wanted launches may be tried now, and why not all."""
    again, failed = retry_at(history, limits), history.failures + history.duds
    if wanted and now < again <= now + limits.retry_at_most:
        tries = "launch" if failed == 1 else f"{failed} launches"
        return 0, (HoldReason.BACK_OFF, f"the last {tries} failed: tried again in {again - now:.0f} s")
    wanted_now = min(wanted, 1) if failed else wanted  # a try: the others follow if it goes well
    left = max(0, limits.launch_rate - len(recent(history, limits, now)))
    if wanted_now > left:
        text = f"at most {limits.launch_rate} launches in {limits.launch_window:.0f} s"
        return left, (HoldReason.RATE, text)
    if wanted_now < wanted:
        return wanted_now, (HoldReason.BACK_OFF, "the last launch failed: one is tried before the others")
    return wanted_now, None
