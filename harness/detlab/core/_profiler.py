"""`core_context.profiler`: Determined's switch for system metrics."""

from __future__ import annotations

import logging

logger = logging.getLogger("detlab.core")


class ProfilerContext:
    """Accepts Determined's calls and says that this runtime takes no system metrics yet."""

    def __init__(self) -> None:
        self._warned = False

    def on(self, sampling_interval: float = 1, samples_per_report: int = 10) -> None:
        """Warn, once, that nothing is sampled.

        Raises:
            ValueError: The arguments would be invalid.
        """
        if sampling_interval < 0.1:
            raise ValueError(f"sampling_interval must be at least 0.1 s, not {sampling_interval}")
        if not isinstance(samples_per_report, int) or samples_per_report < 1:
            raise ValueError(f"samples_per_report must be an integer of 1 or more, not {samples_per_report!r}")
        if not self._warned:
            logger.warning("profiler.on(): system metrics are not in this runtime yet; nothing is sampled")
            self._warned = True

    def off(self) -> None:
        """Do nothing: nothing is sampled."""
