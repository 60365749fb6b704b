"""The route of elastic pools."""

from __future__ import annotations

from detlab.schemas.elasticwire import ElasticPoolList
from detlab_hub.services.elastic.provisioning import Provisioning
from detlab_hub.web.base import Guarded
from detlab_hub.web.paths import route
from detlab_hub.web.scopes import needs


@route("instances", relayed=True)
class Instances(Guarded):
    """The instances of elastic pools."""

    @needs("admin", cross_site="xsrf")
    async def get(self) -> ElasticPoolList:
        """List elastic pools with their instances, why they do not grow, and the last errors of their providers."""
        return ElasticPoolList(items=self.services[Provisioning].list(self.person))
