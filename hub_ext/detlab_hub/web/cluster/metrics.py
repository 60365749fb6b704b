"""Route of the metrics that monitoring scrapes."""

from __future__ import annotations

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4

from detlab_hub.services.cluster.metrics import Metrics as MetricsService
from detlab_hub.web.base import Guarded
from detlab_hub.web.paths import route
from detlab_hub.web.scopes import needs


@route("metrics")
class Metrics(Guarded):
    """Metrics of the cluster."""

    @needs("read", cross_site="xsrf", media="text/plain")
    async def get(self) -> None:
        """Return metrics in Prometheus' text format."""
        text = await self.services[MetricsService].text(self.person)
        self.set_header("Content-Type", CONTENT_TYPE_PLAIN_0_0_4)
        self.finish(text)
