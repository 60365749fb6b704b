"""`core_context.profiler`: a thread that samples the node's metrics and reports their means."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from typing import Protocol

from detlab.core.metrics.system import Means, NodeReader, Reading, sample_between

logger = logging.getLogger("detlab.core")

_JOIN_SECONDS = 5.0
"""That `off` waits at most for a report on its way to the disk."""


class _Reader(Protocol):
    def read(self) -> Reading: ...


class ProfilerContext:
    """System metrics of the trial's node, as metrics of the trial.

    They are reported in the groups `cpu` (`cpu_util_simple`, %), `memory` (`memory_free`, `memory_used`, bytes),
    `disk` (`disk_throughput_read`, `disk_throughput_write`, bytes/s; `disk_iops`, 1/s; `disk_util_<path>`, % used of
    the file systems of `/`, of shared storage and of the working directory), `network` (`net_throughput_sent`,
    `net_throughput_recv`, bytes/s) and, where the package nvidia-ml-py finds GPUs, `gpu` (`gpu_util_<i>`, %;
    `gpu_free_memory_<i>`, bytes; `<i>` counts the GPUs of this task). All but the GPUs are of the whole node, whichever
    process uses it. Only the chief (rank 0) samples.

    A report stands at the step that the training has reached: in `Trainer.fit` the batches trained, elsewhere the
    `steps_completed` reported last; before the first of these nothing is reported. Reports at one step replace each
    other, and the value there is the mean of all samples taken since the step was reached. A resumed trial supersedes
    them as it does all metrics.
    """

    def __init__(
        self,
        report: Callable[[str, int, dict[str, float]], None] | None = None,
        steps: Callable[[], int | None] = lambda: None,
        open_reader: Callable[[], _Reader] = lambda: NodeReader(os.environ),
    ) -> None:
        self._report = report
        self._steps = steps
        self._open_reader = open_reader
        self._sampler: _Sampler | None = None

    def on(self, sampling_interval: float = 1, samples_per_report: int = 10) -> None:
        """Start sampling in a thread; if it already samples, change nothing. Off-cluster nothing is sampled.

        Args:
            sampling_interval: Seconds between samples, at least 0.1.
            samples_per_report: Samples whose mean is reported.

        Raises:
            ValueError: The arguments are invalid.
        """
        if sampling_interval < 0.1:
            raise ValueError(f"sampling_interval must be at least 0.1 s, not {sampling_interval}")
        if not isinstance(samples_per_report, int) or samples_per_report < 1:
            raise ValueError(f"samples_per_report must be an integer of 1 or more, not {samples_per_report!r}")
        if self._report is None:
            return
        if self._sampler is not None:
            logger.info("the profiler is already on")
            return
        self._sampler = _Sampler(self._open_reader, self._report, self._step_now, sampling_interval, samples_per_report)
        self._sampler.start()

    def off(self) -> None:
        """Stop at once, reporting what was sampled since the last report. Harmless when it is off."""
        sampler, self._sampler = self._sampler, None
        if sampler is not None:
            sampler.stop()

    def _step_now(self) -> int | None:
        """Return the step that training has reached; None before the trainer reports one."""
        return self._steps()

    def _follow(self, steps: Callable[[], int | None]) -> None:
        """Report at the steps that `steps` gives from now on."""
        self._steps = steps


class DummyProfilerContext(ProfilerContext):
    """Off-cluster: nothing is sampled, and the log says so."""

    def __init__(self) -> None:
        super().__init__()

    def on(self, sampling_interval: float = 1, samples_per_report: int = 10) -> None:
        """Check the arguments and say that nothing is sampled.

        Raises:
            ValueError: The arguments are invalid.
        """
        super().on(sampling_interval, samples_per_report)
        logger.info("off-cluster: the profiler records nothing")


class _Sampler(threading.Thread):
    """Samples until it is stopped. What goes wrong is one warning and never the training's end."""

    def __init__(
        self,
        open_reader: Callable[[], _Reader],
        report: Callable[[str, int, dict[str, float]], None],
        steps: Callable[[], int | None],
        interval: float,
        per_report: int,
    ) -> None:
        super().__init__(name="detlab-profiler", daemon=True)
        self._open_reader = open_reader
        self._report = report
        self._steps = steps
        self._interval = interval
        self._per_report = per_report
        self._stop_now = threading.Event()
        self._warned = False
        self._reader: _Reader | None = None
        self._before: Reading | None = None
        self._fresh = Means()
        """Of the samples not yet reported."""
        self._reported = Means()
        """Of those reported at `_step`."""
        self._step: int | None = None

    def run(self) -> None:
        """Sample, report, and report what is left at the end."""
        while True:
            self._guarded(self._sample)
            if self._fresh.count >= self._per_report:
                self._guarded(self._send)
            if self._stop_now.wait(self._interval):
                break
        if self._fresh.count:
            self._guarded(self._send)
        if self._fresh.count:
            logger.info("system metrics were not reported: the training has not reported a step yet")

    def stop(self) -> None:
        """Have the thread end, and wait for it for a few seconds at most."""
        self._stop_now.set()
        self.join(_JOIN_SECONDS)

    def _sample(self) -> None:
        if self._reader is None:
            self._reader = self._open_reader()  # here, not in `on`: a GPU driver may take seconds to answer
        before, self._before = self._before, self._reader.read()
        if before is not None:
            self._fresh.add(sample_between(before, self._before))

    def _send(self) -> None:
        """Report at the step that training has reached; until the step is known, keep sampling."""
        step = self._steps()
        if step is None:
            return
        if step != self._step:
            self._reported, self._step = Means(), step
        self._reported.merge(self._fresh)
        self._fresh = Means()
        for group, metrics in self._reported.means().items():
            self._report(group, step, metrics)

    def _guarded(self, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception as error:  # whatever a file, a driver or the disk raises: pictures of a node, no more
            if not self._warned:
                self._warned = True
                logger.warning("the profiler cannot read system metrics: %s: %s", type(error).__name__, error)
