"""The metrics for monitoring: one table, each metric a function of one sample of the master."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from prometheus_client import CollectorRegistry, Gauge, generate_latest
from sqlalchemy.orm import Session

from detlab.schemas.wire import ClusterView
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.context import Service, ServiceContext, ServiceLookup
from detlab_hub.services.cluster.cluster import Cluster
from detlab_hub.services.cluster.health import count_waiting


@dataclass(frozen=True)
class Sample:
    """The source of the metrics, read in one transaction.

    Attributes:
        cluster: The cluster as the caller sees it.
        waiting: Trials and tasks of everybody that wait for slots.
        longest_wait: Seconds for which the first of them has waited.
        ready: Whether the master can write and its loops run.
    """

    cluster: ClusterView
    waiting: int
    longest_wait: float
    ready: bool


@dataclass(frozen=True)
class PrometheusMetric:
    """A gauge.

    Attributes:
        name: Its name with the unit at its end, as Prometheus has them.
        about: One sentence.
        value: Computes it.
    """

    name: str
    about: str
    value: Callable[[Sample], float]


METRICS = (
    PrometheusMetric("detlab_ready", "1 if the master can write and its loops run.", lambda sample: sample.ready),
    PrometheusMetric(
        "detlab_draining", "1 if nothing new starts because of a drain.", lambda sample: sample.cluster.draining
    ),
    PrometheusMetric("detlab_agents", "Connected agents.", lambda sample: sample.cluster.agents),
    PrometheusMetric("detlab_slots", "Slots of the connected agents.", lambda sample: sample.cluster.slots_total),
    PrometheusMetric(
        "detlab_slots_used", "Slots that a trial or task holds.", lambda sample: sample.cluster.slots_used
    ),
    PrometheusMetric(
        "detlab_experiments_active",
        "Experiments that have not ended, as far as the token may see them.",
        lambda sample: sample.cluster.experiments_active,
    ),
    PrometheusMetric("detlab_waiting", "Trials and tasks that wait for slots.", lambda sample: sample.waiting),
    PrometheusMetric(
        "detlab_longest_wait_seconds", "How long the first of them has waited.", lambda sample: sample.longest_wait
    ),
    PrometheusMetric(
        "detlab_started_timestamp_seconds", "When the master started.", lambda sample: sample.cluster.started_at
    ),
)


class Metrics(Service):
    """Computes the metrics.

    Args:
        context: What the services share.
        cluster: Looks at the cluster.
    """

    def __init__(self, context: ServiceContext, cluster: Cluster) -> None:
        super().__init__(context)
        self._cluster = cluster

    @classmethod
    def made_for(cls, services: ServiceLookup) -> Self:
        """Make the one of a master."""
        return cls(services.context, services[Cluster])

    async def text(self, caller: Caller) -> bytes:
        """Return all metrics in Prometheus' text format."""
        now, ready = self._context.clock(), self._cluster.healthy()

        def sample(s: Session) -> Sample:
            waiting, oldest = count_waiting(s)
            longest = 0.0 if oldest is None else max(0.0, now - oldest)
            return Sample(self._cluster.read(s, caller), waiting, longest, ready)

        return render(await self._context.read(sample))


def render(sample: Sample) -> bytes:
    """Return all metrics of one sample in Prometheus' text format."""
    registry = CollectorRegistry()
    for metric in METRICS:
        Gauge(metric.name, metric.about, registry=registry).set(metric.value(sample))
    return generate_latest(registry)
