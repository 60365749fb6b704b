"""Routes of config policies."""

from __future__ import annotations

from detlab.schemas.wire.configs.config_policies import PolicyQuery, PolicyView, SetPolicy
from detlab_hub.core.rights import Action
from detlab_hub.services.admission.configs.config_policies import ConfigPolicies as ConfigPoliciesService
from detlab_hub.web.base import Guarded
from detlab_hub.web.paths import route
from detlab_hub.web.scopes import needs


@route("config-policies")
class ConfigPolicies(Guarded):
    """What a cluster or a workspace holds every config to."""

    @needs("read", cross_site="xsrf")
    async def get(self, query: PolicyQuery) -> PolicyView:
        """Return the config policy of the cluster, or of a workspace that the caller may read."""
        return await self.services[ConfigPoliciesService].get(self.person, query)

    @needs("write", cross_site="xsrf", action=Action.CONFIG_POLICY_SET)
    async def put(self, body: SetPolicy) -> PolicyView:
        """Set a config policy, which replaces the one before. It ends nothing; the reply names what runs beyond it."""
        return await self.services[ConfigPoliciesService].set(self.person, body)

    @needs("write", cross_site="xsrf", action=Action.CONFIG_POLICY_REMOVE)
    async def delete(self, query: PolicyQuery) -> PolicyView:
        """Delete a config policy; return it as it was."""
        return await self.services[ConfigPoliciesService].remove(self.person, query)
