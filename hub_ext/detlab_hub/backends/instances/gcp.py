"""Instances of Google Compute Engine. They are found by their labels; a request has an id, so that none is made twice.

An accepted request is an operation that may fail later (quota, no machines left): `list` looks at those that have not
ended, and lists an instance that never came as stopped, with the reason.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from detlab_hub.backends.instances.base import InstanceOrder, ProviderError, Trouble
from detlab_hub.backends.instances.gcp_request import instance_resource
from detlab_hub.backends.instances.gcp_settings import (
    AGENT_LABEL,
    CLUSTER_LABEL,
    POOL_LABEL,
    GcpSettings,
    label_value,
)
from detlab_hub.backends.instances.gcp_words import HINTS, failure_of, in_words
from detlab_hub.backends.instances.startup import startup_script
from detlab_hub.core.provisioning import Instance, InstanceState

_STATES = {
    "PENDING": InstanceState.PENDING,
    "PROVISIONING": InstanceState.PENDING,
    "STAGING": InstanceState.PENDING,
    "RUNNING": InstanceState.RUNNING,
    "REPAIRING": InstanceState.RUNNING,
    "SUSPENDING": InstanceState.STOPPED,
    "SUSPENDED": InstanceState.STOPPED,
    "STOPPED": InstanceState.STOPPED,
    "TERMINATED": InstanceState.STOPPED,
}
"""Their names at Google; what has another one is ending."""
_REQUESTS = uuid.UUID("6f6a8f0e-5d2b-4f4e-9a55-0f4f8f6e1c11")
_PREEMPTED = "compute.instances.preempted"
_SECONDS = 30.0
"""For an answer."""
_PAGE = 500
_REMEMBERED = 3600.0
"""Seconds for which an instance that was given up is ended if it comes."""


@dataclass(frozen=True, slots=True)
class _Launch:
    """A launch whose operation has not ended, or has failed.

    Attributes:
        instance: As it is listed meanwhile.
        operation: Name of the operation.
    """

    instance: Instance
    operation: str


class GcpProvider:
    """The Compute Engine instances of one pool of one cluster.

    Args:
        settings: Settings of the instances.
        cluster: The cluster's id: other clusters of the project are left alone.
        pool: The pool's name.
        master: Address of the service, as agents reach it.
        clock: The time, in seconds.
    """

    def __init__(
        self, settings: GcpSettings, cluster: str, pool: str, master: str, clock: Callable[[], float] = time.time
    ) -> None:
        settings.check_pool(pool)
        self._settings = settings
        self._cluster = cluster
        self._pool = pool
        self._master = master
        self._clock = clock
        self._clients: _Clients | None = None
        self._launches: dict[str, _Launch] = {}
        self._endings: dict[str, str] = {}
        """Operations that end instances; by the instance."""
        self._unwanted: dict[str, float] = {}
        """When instances were to end that Google did not have: those whose launches were given up may come yet."""
        self._preempted: dict[str, bool] = {}
        """Which stopped instances Google took back."""
        self._looked_back = False

    # --- the protocol

    def launch(self, order: InstanceOrder) -> Instance:
        """Ask for an instance; Google recognizes the order by its request's id, we by its label. See `Provider`."""
        for known in self.list():
            if known.agent_id == order.agent_id:
                return known
        clients, machine = self._open(), self._machine
        with in_words(machine):
            from google.api_core.exceptions import Conflict

            try:
                operation = clients.instances.insert_unary(self._request(order), retry=None, timeout=_SECONDS)
            except Conflict as error:
                # Of an earlier request whose id Google has forgotten; the list may lag behind it.
                return self._known(order, error)
        made = Instance(
            id=self._name(order.agent_id),
            agent_id=order.agent_id,
            state=InstanceState.PENDING,
            launched_at=order.now,
            spot=self._settings.instance_type.preemptible,
        )
        self._launches[made.id] = _Launch(made, operation.name)
        return made

    def list(self) -> tuple[Instance, ...]:
        """List all instances that have our labels, and those that are asked for or failed to come. See `Provider`."""
        self._open()
        with in_words(self._machine):
            found = {one.id: one for one in self._listed()}
            if not self._looked_back:
                self._look_back()
                self._looked_back = True
            for name in [*self._launches]:
                self._follow(name, found)
        self._unwanted = {name: at for name, at in self._unwanted.items() if self._clock() < at + _REMEMBERED}
        for name in self._unwanted.keys() & found.keys():
            found[name] = replace(found[name], state=InstanceState.STOPPED, why="its launch had been given up")
        self._preempted = {name: was for name, was in self._preempted.items() if name in found}
        return tuple(found.values())

    def terminate(self, ids: Collection[str]) -> None:
        """End instances that have our labels. See `Provider`."""
        ours = sorted({instance.id for instance in self.list()} & set(ids))
        failed = [error for name in ours if (error := self._ended_badly(name)) is not None]
        for name in ours:
            self._end(name)
        if failed:
            raise failed[0]

    # --- questions to Google

    @property
    def _machine(self) -> str:
        kind = self._settings.instance_type
        with_gpus = f" with {kind.gpu_num} {kind.gpu_type}" if kind.accelerators else ""
        return f"{'preemptible ' if kind.preemptible else ''}{kind.machine_type}{with_gpus}"

    def _open(self) -> _Clients:
        """Return the clients, made at their first use: without the library only this pool has a problem.

        Raises:
            ProviderError: google-cloud-compute is not installed, or there are no credentials.
        """
        if self._clients is None:
            self._clients = _open(self._settings.endpoint_url, self._machine)
        return self._clients

    def _listed(self) -> tuple[Instance, ...]:
        clients = self._open()
        ours = {CLUSTER_LABEL: label_value(self._cluster), POOL_LABEL: self._pool}
        request = {
            "project": self._settings.project,
            "zone": self._settings.zone,
            "filter": " AND ".join(f'(labels.{key} = "{value}")' for key, value in ours.items()),
            "max_results": _PAGE,
        }
        pages = clients.instances.list(request, retry=None, timeout=_SECONDS)
        return tuple(self._instance(each) for each in pages if ours.items() <= dict(each.labels).items())

    def _instance(self, said: Any) -> Instance:
        made = Instance(
            id=said.name,
            agent_id=said.labels.get(AGENT_LABEL, said.name),
            state=_STATES.get(said.status, InstanceState.ENDING),
            launched_at=datetime.fromisoformat(said.creation_timestamp).timestamp(),
            spot=said.scheduling.preemptible,
        )
        if made.state is InstanceState.STOPPED and made.spot and self._was_preempted(made.id):
            hint = "its tasks continue elsewhere; one that is not preemptible costs more and stays"
            return replace(made, why="Google took it back: it was preempted", trouble=Trouble.CAPACITY.value, hint=hint)
        return made

    def _was_preempted(self, name: str) -> bool:
        if name not in self._preempted:
            operations = self._operations(f'operationType = "{_PREEMPTED}"')
            self._preempted[name] = any(_target(one) == name for one in operations)
        return self._preempted[name]

    def _operations(self, which: str) -> Any:
        request = {
            "project": self._settings.project,
            "zone": self._settings.zone,
            "filter": which,
            "max_results": _PAGE,
        }
        return self._open().operations.list(request, retry=None, timeout=_SECONDS)

    def _operation(self, name: str) -> Any:
        """Return an operation; None for one that Google does not know any more."""
        from google.api_core.exceptions import NotFound

        request = {"project": self._settings.project, "zone": self._settings.zone, "operation": name}
        try:
            return self._open().operations.get(request, retry=None, timeout=_SECONDS)
        except NotFound:
            return None

    def _look_back(self) -> None:
        """Find the launches of an earlier master that have not ended: the list of instances may lack them."""
        for operation in self._operations('status != "DONE"'):
            name = _target(operation)
            agent_id = name.removeprefix(self._settings.name_prefix)
            if operation.operation_type != "insert" or name in self._launches:
                continue
            if operation.client_operation_id == self._request_id(agent_id):
                spot = self._settings.instance_type.preemptible
                made = Instance(name, agent_id, InstanceState.PENDING, self._clock(), spot)
                self._launches[name] = _Launch(made, operation.name)

    # --- launches

    def _follow(self, name: str, found: dict[str, Instance]) -> None:
        """Add a launch to what is listed, until it is there or was given up; one that failed with its reason."""
        launch, there = self._launches[name], found.get(name)
        if there is not None and there.state in {InstanceState.RUNNING, InstanceState.ENDING}:
            del self._launches[name]
            return
        if launch.instance.state is InstanceState.PENDING:
            launch = self._looked_at(launch)
            self._launches[name] = launch
        if launch.instance.state is InstanceState.STOPPED:
            found[name] = launch.instance if there is None else replace(
                there, state=InstanceState.STOPPED, why=launch.instance.why, trouble=launch.instance.trouble,
                hint=launch.instance.hint,
            )  # fmt: skip
        elif there is None and launch.operation:
            found[name] = launch.instance
        elif there is None:
            del self._launches[name]  # made, and gone since

    def _looked_at(self, launch: _Launch) -> _Launch:
        """Return a launch as its operation says: failed, late, or under way; without operation once it is done."""
        if not launch.operation:
            return launch
        operation = self._operation(launch.operation)
        if operation is not None and operation.status.name == "DONE":
            error = failure_of(operation, self._machine)
            return _failed(launch, error) if error is not None else replace(launch, operation="")
        if self._clock() - launch.instance.launched_at > self._settings.operation_timeout_period:
            seconds = f"{self._settings.operation_timeout_period:g} s"
            late = f"{self._machine}: Google did not say within {seconds} that it was made (operation_timeout_period)"
            return _failed(launch, ProviderError(Trouble.UNREACHABLE, late, HINTS[Trouble.UNREACHABLE]))
        return replace(launch, operation="") if operation is None else launch

    def _known(self, order: InstanceOrder, error: Exception) -> Instance:
        request = {
            "project": self._settings.project,
            "zone": self._settings.zone,
            "instance": self._name(order.agent_id),
        }
        said = self._open().instances.get(request, retry=None, timeout=_SECONDS)
        wanted = {CLUSTER_LABEL: label_value(self._cluster), AGENT_LABEL: label_value(order.agent_id)}
        if not wanted.items() <= dict(said.labels).items():
            text = f"the project has an instance {said.name} that is not this cluster's"
            hint = "choose another name_prefix in this pool's provider"
            raise ProviderError(Trouble.CONFIGURATION, text, hint) from error
        return self._instance(said)

    # --- endings

    def _end(self, name: str) -> None:
        from google.api_core.exceptions import NotFound

        self._launches.pop(name, None)
        request = {"project": self._settings.project, "zone": self._settings.zone, "instance": name}
        with in_words(self._machine):
            try:
                operation = self._open().instances.delete_unary(request, retry=None, timeout=_SECONDS)
            except NotFound:
                self._endings.pop(name, None)
                self._unwanted[name] = self._clock()
                return
        self._endings[name] = operation.name

    def _ended_badly(self, name: str) -> ProviderError | None:
        """Return why the last try to end an instance failed, once."""
        if name not in self._endings:
            return None
        with in_words(self._machine):
            operation = self._operation(self._endings[name])
        if operation is None or operation.status.name != "DONE":
            return None
        del self._endings[name]
        return failure_of(operation, self._machine)

    # --- the request

    def _name(self, agent_id: str) -> str:
        return f"{self._settings.name_prefix}{agent_id}"

    def _request_id(self, agent_id: str) -> str:
        return str(uuid.uuid5(_REQUESTS, f"{self._cluster} {agent_id}"))

    def _request(self, order: InstanceOrder) -> dict[str, Any]:
        return {
            "project": self._settings.project,
            "zone": self._settings.zone,
            "request_id": self._request_id(order.agent_id),
            "instance_resource": instance_resource(
                self._settings, self._name(order.agent_id), self._labels(order), self.startup(order)
            ),
        }

    def _labels(self, order: InstanceOrder) -> dict[str, str]:
        ours = {CLUSTER_LABEL: self._cluster, POOL_LABEL: self._pool, AGENT_LABEL: order.agent_id}
        return {key: label_value(text) for key, text in ours.items()}

    def startup(self, order: InstanceOrder) -> str:
        """Return the script that root runs on the instance at each start."""
        chosen = self._settings
        return startup_script(
            order,
            self._master,
            fingerprint=chosen.fingerprint,
            setup=chosen.setup,
            command=chosen.agent_command,
            arguments=chosen.agent_arguments,
        )


@dataclass(frozen=True, slots=True)
class _Clients:
    """Google's library, opened."""

    instances: Any
    operations: Any


def _open(endpoint: str, machine: str) -> _Clients:
    """Open Google's library with the credentials that it finds.

    Raises:
        ProviderError: It is not installed, or there are no credentials.
    """
    try:
        from google.cloud import compute_v1
    except ImportError as error:
        hint = "pip install 'detlab[gcp]' beside the master"
        text = f"Google Cloud needs google-cloud-compute: {error}"
        raise ProviderError(Trouble.CONFIGURATION, text, hint) from error
    options = {"api_endpoint": endpoint} if endpoint else None
    with in_words(machine):
        return _Clients(
            compute_v1.InstancesClient(client_options=options), compute_v1.ZoneOperationsClient(client_options=options)
        )


def _target(operation: Any) -> str:
    return str(operation.target_link).rpartition("/")[2]


def _failed(launch: _Launch, error: ProviderError) -> _Launch:
    failed = replace(
        launch.instance,
        state=InstanceState.STOPPED,
        why=error.message,
        trouble=error.trouble.value,
        hint=error.hint,
    )
    return replace(launch, instance=failed)
