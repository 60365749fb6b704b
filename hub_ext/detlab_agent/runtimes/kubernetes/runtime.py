"""Tasks as pods; see `NodeRuntime`. The master places them, this makes the pods and says how they go."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import TimeoutError as TooLate
from pathlib import Path
from typing import Any, Literal

from detlab.schemas.runtimes import KUBERNETES
from detlab.schemas.wire import NodeHello
from detlab_agent.runtimes.base import RefusedTask, Say
from detlab_agent.runtimes.dispatch import NodeRuntime
from detlab_agent.runtimes.kubernetes.cluster import KubernetesCluster
from detlab_agent.runtimes.kubernetes.flags import KubernetesFlags
from detlab_agent.runtimes.kubernetes.kubeconfig import Access, Opened
from detlab_agent.runtimes.kubernetes.lease import HeldLease, LeaseStanding, holder_of
from detlab_agent.runtimes.kubernetes.options import KubernetesOptions, Rules, read_options
from detlab_agent.runtimes.kubernetes.places import Namespaces
from detlab_agent.runtimes.kubernetes.pods import (
    SERVICE_PORT,
    home_claim,
    label_value,
    place_of,
    pod,
    pod_group,
    pod_name,
    secret,
)
from detlab_agent.runtimes.kubernetes.preparation import PATIENCE, prepare
from detlab_agent.runtimes.kubernetes.task import KubernetesTask
from detlab_agent.runtimes.preparation import Order
from detlab_agent.runtimes.registry import RuntimeSetup
from detlab_agent.settings import AgentError, AgentSettings

_log = logging.getLogger(__name__)

LEASE = "detlab-agent"
_CREATE_SECONDS = 90.0


class KubernetesRuntime:
    """Run tasks as pods of one namespace, or of those that groups and users have; see `NodeRuntime`.

    Args:
        opened: How the cluster is reached.
        rules: What pods may be.
        directory: Of the agent.
        sees_all: Whether the agent may list the pods of all namespaces.
    """

    name = KUBERNETES
    tasks_are: Literal["here", "elsewhere"] = "elsewhere"
    reached = True
    asks_point = True

    def __init__(self, opened: Opened, rules: Rules, directory: Path, *, sees_all: bool = False) -> None:
        self._opened, self._rules, self._directory, self._sees_all = opened, rules, directory, sees_all
        self._places: Namespaces | None = None
        self._held: HeldLease | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def places(self) -> Namespaces:
        """The namespaces of the cluster; first asked for in the agent's loop."""
        if self._places is None:
            self._places = Namespaces(self._opened, self._rules, sees_all=self._sees_all)
        return self._places

    @property
    def cluster(self) -> KubernetesCluster:
        """The cluster with the usual namespace."""
        return self.places.first

    def nodes(self) -> Sequence[NodeHello]:
        """See `NodeRuntime.nodes`."""
        return [] if self._places is None else self._places.first.offered()

    def queue(self) -> None:
        """See `NodeRuntime.queue`: the master chooses the node of each pod."""

    def available(self) -> bool:
        """See `NodeRuntime.available`."""
        return self._held is not None and self._held.standing is not LeaseStanding.TAKEN

    async def begin(self, on_change: Callable[[], None]) -> None:
        """See `NodeRuntime.begin`.

        Raises:
            AgentError: The cluster does not say what it has.
        """
        cluster = self.cluster
        self._loop = asyncio.get_running_loop()
        try:
            await self.places.begin(on_change, PATIENCE)
        except TimeoutError as error:
            trouble = cluster.nodes.trouble or cluster.pods.trouble or "no answer"
            raise AgentError(f"the state of the cluster cannot be read: {trouble}") from error
        self._held = HeldLease(cluster.api, LEASE, holder_of(self._directory, self._rules.agent))
        self._held.hold()
        cluster.may_make = self._check_lease
        self._keeper = asyncio.create_task(self._held.keep(on_change))
        _log.info("namespace %s at %s: %d nodes", cluster.api.namespace, cluster.api.url, len(cluster.offered()))

    async def close(self) -> None:
        """See `NodeRuntime.close`."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        if self._places is not None:
            await self._places.close()

    async def ready(self, order: Order, say: Say) -> None:
        """See `NodeRuntime.ready`: the node pulls the image.

        While the API server does not answer, launches wait here: nobody else has the namespace as far as is known.

        Raises:
            RefusedTask: It is not for a node of the cluster, another agent has taken over, or the API server has not
                answered for too long.
        """
        if not order.launch.node:
            raise RefusedTask("a pod needs a node of the cluster, and this is the agent's own machine")
        held = self._held
        if held is not None and held.standing is LeaseStanding.UNANSWERED:
            say("queued", f"Kubernetes does not answer, and its pod is made as soon as it does: {held.trouble}")
            limit = self._rules.options.pending_limit
            if await held.known(limit) is LeaseStanding.UNANSWERED:
                raise RefusedTask(f"Kubernetes has not answered for {limit:g} s: {held.trouble}")
        self._check_lease()

    def _check_lease(self) -> None:
        """Check that no other agent makes the pods of the namespace.

        Raises:
            RefusedTask: One does.
        """
        if not self.available():
            raise RefusedTask("another agent serves the namespace of this one now")

    def make(self, order: Order) -> KubernetesTask:
        """See `NodeRuntime.make`."""
        launch, name = order.launch, pod_name(order.record.stem)
        cluster = self.places.of(place_of(order, self._rules).namespace)
        node = cluster.node(launch.node)
        if node is None:
            raise RefusedTask(f"node {launch.node} is not in the cluster any more")
        made = pod(order, name, node, self._rules)
        hidden = secret(order, name, self._rules)
        task = KubernetesTask(
            launch.allocation_id,
            launch.run,
            tuple(launch.slots),
            order.record,
            cluster=cluster,
            pod=name,
            namespace=cluster.api.namespace,
            node=launch.node,
            port=SERVICE_PORT if launch.service is not None else None,
        )
        task.note()
        assert self._loop is not None
        group, claim = pod_group(order, self._rules), home_claim(order, self._rules)
        first = [*([("podgroups", group)] if group else []), *([("persistentvolumeclaims", claim)] if claim else [])]
        making = cluster.create(hidden, made, first)
        future = asyncio.run_coroutine_threadsafe(making, self._loop)
        try:
            future.result(_CREATE_SECONDS + self._rules.options.pending_limit)
        except TooLate as error:
            self._loop.call_soon_threadsafe(cluster.give_up, name, first)
            future.cancel()
            raise RefusedTask(f"the API server at {cluster.api.url} takes too long to make the pod") from error
        cluster.use(name, launch.node, launch.slots)
        return task

    def recover(self, record: Path, noted: dict[str, Any]) -> KubernetesTask | None:
        """See `NodeRuntime.recover`: whether the pod is there shows when the cluster is followed."""
        there = KubernetesTask.noted(record, noted)
        task = KubernetesTask(**there, cluster=self.places.of(there["namespace"]))
        task.cluster.use(task.pod, task.node, task.slots)
        return task

    def sweep(self, kept: set[str]) -> None:
        """See `NodeRuntime.sweep`: every pod has its record by now (`preparation.adopt`)."""


def restricted(options: KubernetesOptions, settings: AgentSettings) -> bool:
    """Return whether pods meet the level "restricted" of Pod Security: if nothing says otherwise.

    Raises:
        AgentError: The settings say so, and the command line allows what that level does not have.
    """
    beyond = [
        flag
        for flag, given in (
            ("--allow-mount", settings.allow_mounts),
            ("--volume", settings.volumes),
            ("--allow-privileges", settings.allow_privileges),
        )
        if given
    ]
    if options.pod_security == "restricted" and beyond:
        raise AgentError(
            f"pod_security: restricted has no host directories and no capabilities, which {' and '.join(beyond)} "
            "allow: leave these out (claims do the same), or set pod_security: privileged, and that level for the "
            "namespace"
        )
    if options.pod_security is None and beyond:
        _log.warning("pods may have what Pod Security 'restricted' does not admit, because of %s", " and ".join(beyond))
    return options.pod_security == "restricted" or (options.pod_security is None and not beyond)


def make(setup: RuntimeSetup) -> NodeRuntime | None:
    """Make the runtime of an agent, in a thread.

    Raises:
        AgentError: The cluster cannot be used; or an option is wrong.
    """
    if not setup.required:
        return None
    settings = setup.settings
    flags: KubernetesFlags = settings.of_runtimes.get(KUBERNETES, KubernetesFlags())
    options = read_options(flags.settings)
    rules = Rules(
        options,
        label_value(settings.marked_id),
        settings.allow_mounts,
        settings.volumes,
        settings.allow_privileges,
        settings.task_memory,
        restricted(options, settings),
    )
    access = Access(flags.kubeconfig, flags.context, flags.namespace, setup.environ)
    opened, sees_all = asyncio.run(prepare(access, LEASE, rules, setup.directory, setup.maker.directory))
    return KubernetesRuntime(opened, rules, setup.directory, sees_all=sees_all)
