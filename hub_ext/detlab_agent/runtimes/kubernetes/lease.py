"""One agent for the pods of a namespace: a Lease of coordination.k8s.io, held as client-go's leader election holds one.

Clocks are not compared: a lease counts as given up when it has not changed for its duration by this agent's own clock.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import enum
import logging
import secrets
import time
from collections.abc import Callable
from pathlib import Path

from detlab_agent.runtimes.kubernetes.api import Api, ApiAway, ApiRefused, Object
from detlab_agent.settings import AgentError

_log = logging.getLogger(__name__)

GROUP = "coordination.k8s.io/v1"
DURATION = 20
"""Seconds without a renewal after which another agent may take over."""
RENEW = 5.0
"""Seconds between two renewals."""
_ANSWER = 10.0
"""Seconds for one answer about the lease: it is not kept by waiting longer."""
_LOOK = 1.0
_CONFLICT, _NOT_FOUND = 409, 404


def holder_of(directory: Path, agent: str) -> str:
    """Return who this agent is, the same for each start in its directory: the next one goes on at once.

    Args:
        directory: Of the agent; the file in that of a copy is the original's.
        agent: The name by which its pods are marked.
    """
    path = directory / "kubernetes-holder"
    found = path.read_text(encoding="ascii").strip() if path.exists() else ""
    if found.rpartition("-")[0] != agent:
        found = f"{agent}-{secrets.token_hex(6)}"
        path.write_text(found, encoding="utf-8")
    return found


class LeaseStanding(enum.Enum):
    """Whose the lease is, as far as this agent knows."""

    OURS = "this agent's"
    UNANSWERED = "not known: the API server has not answered for so long that another agent may have taken it"
    TAKEN = "another agent's"


class HeldLease:
    """The lease of this agent.

    Attributes:
        standing: Whose it is.
        trouble: Why it could not be renewed; "": it was.

    Args:
        api: The client.
        name: Of the lease.
        holder: Who this agent is.
        clock: A clock that only goes forward, in seconds.
    """

    def __init__(self, api: Api, name: str, holder: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._api, self._name, self._holder, self._clock = api, name, holder, clock
        self._path = api.path("leases", name, group=GROUP)
        self.standing, self.trouble = LeaseStanding.TAKEN, ""
        self._known = asyncio.Event()
        self._other = ""

    async def acquire(self, duration: float = DURATION) -> None:
        """Take the lease, or wait until its holder has given it up.

        Raises:
            AgentError: Another agent renews it.
            ApiAway: The API server does not answer.
            ApiRefused: It refuses.
        """
        seen: Object | None = None
        since, other = self._clock(), ""
        while not await self._try(seen if self._clock() - since > duration else None):
            found = await self._read()
            spec = (found or {}).get("spec") or {}
            if found is not None and seen is not None and spec.get("renewTime") != seen["spec"].get("renewTime"):
                raise AgentError(
                    f"another agent, {spec.get('holderIdentity')}, serves the namespace {self._api.namespace} of this "
                    f"cluster (lease {self._name}): two would start tasks twice. End it, or give this one another "
                    "--namespace"
                )
            if seen is None and found is not None:
                seen, since = found, self._clock()
            if str(spec.get("holderIdentity")) != other:
                other = str(spec.get("holderIdentity"))
                _log.info("waiting up to %d s for the lease %s of %s", duration, self._name, other)
            await asyncio.sleep(_LOOK)
        self.hold()

    def hold(self) -> None:
        """Note that the lease is this agent's."""
        self.standing, self.trouble = LeaseStanding.OURS, ""
        self._known.set()

    async def keep(self, on_change: Callable[[], None]) -> None:
        """Renew it, for ever; `on_change` is called when another agent has taken it, or has given it back."""
        renewed = self._clock()
        while True:
            await asyncio.sleep(RENEW)
            began = self._clock()
            try:
                now = LeaseStanding.OURS if await self._try(None) else LeaseStanding.TAKEN
            except (ApiAway, ApiRefused) as error:
                self._cannot(error)
                # As long as nobody can take it, nothing is started twice.
                late = self.standing is LeaseStanding.OURS and self._clock() - renewed >= DURATION
                now = LeaseStanding.UNANSWERED if late else self.standing
            else:
                renewed, self.trouble = began, ""
            if now is not self.standing:
                self._turn(now, on_change)

    async def known(self, seconds: float) -> LeaseStanding:
        """Return whose it is, once the API server has answered; after so many seconds in any case."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._known.wait()
        return self.standing

    def _cannot(self, error: Exception) -> None:
        if str(error) != self.trouble:
            _log.warning("the lease %s cannot be renewed: %s", self._name, error)
        self.trouble = str(error)

    def _turn(self, now: LeaseStanding, on_change: Callable[[], None]) -> None:
        before, self.standing = self.standing, now
        if now is LeaseStanding.UNANSWERED:
            self._known.clear()
            _log.error("lease %s: not renewed for %d s; launches wait: %s", self._name, DURATION, self.trouble)
        elif now is LeaseStanding.TAKEN:
            _log.error("lease %s: lost to another agent, %s", self._name, self._other)
        else:
            _log.info("lease %s: held again", self._name)
        if now is not LeaseStanding.UNANSWERED:
            self._known.set()
        if LeaseStanding.TAKEN in {before, now}:
            on_change()

    async def _read(self) -> Object | None:
        try:
            found: Object = await self._api.ask("GET", self._path, timeout=_ANSWER)
        except ApiRefused as error:
            if error.code == _NOT_FOUND and error.reason == "NotFound" and "namespaces" not in str(error):
                return None
            raise
        return found

    async def _try(self, given_up: Object | None) -> bool:
        """Take or renew the lease if it is free, ours, or unchanged since `given_up`."""
        found = await self._read()
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec: Object = {"holderIdentity": self._holder, "leaseDurationSeconds": DURATION, "renewTime": now}
        try:
            if found is None:
                meta, spec["acquireTime"] = {"name": self._name}, now
                made = {"apiVersion": GROUP, "kind": "Lease", "metadata": meta, "spec": spec}
                await self._api.ask("POST", self._api.path("leases", group=GROUP), made, timeout=_ANSWER)
                return True
            old = found.get("spec") or {}
            free = not old.get("holderIdentity") or old["holderIdentity"] == self._holder
            stale = given_up is not None and old.get("renewTime") == given_up["spec"].get("renewTime")
            if not free and not stale:
                self._other = str(old["holderIdentity"])[:200]
                return False
            await self._api.ask("PUT", self._path, {**found, "spec": {**old, **spec}}, timeout=_ANSWER)
        except ApiRefused as error:
            if error.code == _CONFLICT:
                return False
            raise
        return True
