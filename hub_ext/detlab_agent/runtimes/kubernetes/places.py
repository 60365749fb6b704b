"""The namespaces of groups and users: one cluster, whose pods are in several of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from detlab_agent.runtimes.kubernetes.api import Api, Object
from detlab_agent.runtimes.kubernetes.cluster import KubernetesCluster
from detlab_agent.runtimes.kubernetes.kubeconfig import Opened
from detlab_agent.runtimes.kubernetes.options import NodeGroup, Rules


class NamespaceCluster(KubernetesCluster):
    """Pods of another namespace of the same cluster, whose nodes the first one knows.

    Args:
        api: The client, for this namespace.
        first: The cluster with the usual namespace.
    """

    def __init__(self, api: Api, first: KubernetesCluster) -> None:
        super().__init__(api, first.rules)
        self._first = first

    async def follow(self, patience: float) -> None:
        """Start to follow the pods.

        Raises:
            TimeoutError: The API server does not say in time what there is.
        """
        self.pods.start()
        async with asyncio.timeout(patience):
            await self.pods.synced()

    def node(self, name: str) -> Object | None:
        """See `KubernetesCluster.node`."""
        return self._first.node(name)

    def group_of(self, node: str) -> NodeGroup | None:
        """See `KubernetesCluster.group_of`."""
        return self._first.group_of(node)

    def use(self, pod: str, node: str, slots: Sequence[str]) -> None:
        """See `KubernetesCluster.use`."""
        self._first.use(pod, node, slots)

    def forget(self, pod: str) -> None:
        """See `KubernetesCluster.forget`."""
        self._first.forget(pod)

    def _pod_changed(self, name: str) -> None:
        self._first.pod_changed(name)


class Namespaces:
    """The clusters of an agent, one for each namespace; the first one has the nodes.

    Args:
        opened: How the API server is reached.
        rules: What pods may be.
        sees_all: Whether the agent may list the pods of all namespaces.
    """

    def __init__(self, opened: Opened, rules: Rules, *, sees_all: bool) -> None:
        self.first = KubernetesCluster(Api(opened), rules, sees_all=sees_all)
        self._others = {
            name: NamespaceCluster(Api(opened, name), self.first) for name in rules.namespaces(opened.namespace)
        }
        self.first.elsewhere = [other.pods for other in self._others.values()]

    async def begin(self, on_change: Callable[[], None], patience: float) -> None:
        """See `KubernetesCluster.begin`.

        Raises:
            TimeoutError: The API server does not say in time what there is.
        """
        for other in self._others.values():
            await other.follow(patience)
        await self.first.begin(on_change, patience)

    async def close(self) -> None:
        """Follow none any more."""
        await asyncio.gather(*(one.close() for one in (*self._others.values(), self.first)), return_exceptions=True)

    def of(self, namespace: str | None) -> KubernetesCluster:
        """Return the cluster with a namespace: the first one where none is named, or one that is no more."""
        return self._others.get(namespace or "", self.first)
