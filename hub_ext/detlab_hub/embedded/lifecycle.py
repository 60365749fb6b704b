"""`det up` and `det down`, without their command lines."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from detlab.client.transport.discovery import LAST_NOTE, STARTED_NOTE, started_folders
from detlab.client.transport.logins import user_state_folder
from detlab.errors import DetlabError
from detlab.files import write_atomic
from detlab.pasted import word
from detlab.schemas.taskwire import TaskView
from detlab.schemas.wire import ClusterView
from detlab_hub.embedded import parts as names
from detlab_hub.embedded import process
from detlab_hub.embedded.front import AddressOptions, choose_front
from detlab_hub.embedded.instances import end_instances
from detlab_hub.embedded.master import MasterClient, answers
from detlab_hub.embedded.parts import make_parts
from detlab_hub.embedded.report import ClusterReport, PartState, read_report
from detlab_hub.embedded.settings import EmbeddedCluster, read_config, subdomain_host_of
from detlab_hub.embedded.sockets import ports
from detlab_hub.embedded.sockets.listeners import LOOPBACK, Listeners, listen
from detlab_hub.embedded.state import StartPlan, StateFolder

Say = Callable[[str], None]

_POLL = 0.1
_NAMED_SERVERS = 10
"""Kinds of servers and their owners that `det down` lists."""
_REMEMBERED = 100
"""State folders of clusters that this user started, at most."""
_SUPERVISOR = "supervisor"
_EXITS_THAT_CONDEMN = 2
"""A part that ends this often while we wait for it is considered failed."""


class PartFailed(DetlabError):
    """A part of the cluster does not come up.

    Attributes:
        part: Its name.
        log: Its log file.
    """

    default_code = "cluster.part_failed"

    def __init__(self, part: str, why: str, log: Path) -> None:
        lines = process.tail(log)
        shown = "\n".join(f"    {line}" for line in lines) or "    (the log is empty)"
        super().__init__(
            f"the {part} does not come up: {why}. The last lines of its log:\n{shown}", hint=f"The whole log: {log}"
        )
        self.part = part
        self.log = log


@dataclass(frozen=True)
class UpOptions:
    """The options of `det up`.

    Attributes:
        port: Public port.
        slots: CPU slots; None: the agent decides.
        config: Traitlets file beside `detlab_config.py`.
        timeout: Seconds the cluster may take to come up.
        ip: Address to listen on; None: that of the configuration.
        tls: Serve TLS, whatever the configuration says.
        behind_tls_proxy: A proxy in front of it terminates TLS.
        renew_certificate: Make a new certificate in place of the one of earlier starts.
        warm_pool: Whether to keep a warm pool, whatever the configuration says; None: as it says.
        workdir: Where the operator's notebook server opens; None: the working folder.
        take_over: Whether a copy owns the checkpoints from now on.
    """

    port: int = 8642
    slots: int | None = None
    config: Path | None = None
    timeout: float = 90.0
    ip: str | None = None
    tls: bool = False
    behind_tls_proxy: bool = False
    renew_certificate: bool = False
    warm_pool: bool | None = None
    workdir: Path | None = None
    take_over: bool = False


@dataclass(frozen=True)
class RunningCluster:
    """A cluster that is up."""

    folder: StateFolder
    plan: StartPlan
    view: ClusterView
    already: bool = False
    """Whether it was running already."""

    @property
    def password_file(self) -> Path:
        """The file with the operator's password."""
        return self.folder.password_file(self.plan.operator, self.plan.operator)


# --- up ---------------------------------------------------------------------------------------------------


def up(folder: StateFolder, options: UpOptions, say: Say) -> RunningCluster:
    """Bring the cluster up in the background; return once it is healthy and its slots are registered.

    Args:
        folder: The state folder.
        options: The options of `det up`.
        say: Called with messages about what takes long.

    Raises:
        PartFailed: A part does not come up; everything that was started is stopped again.
        DetlabError: The port is taken, a file is wrong, something is not installed.
    """
    _finish_restore(folder, say)
    fresh = not folder.root.exists()
    folder.create()
    deadline = time.monotonic() + options.timeout
    with folder.starting(patience=options.timeout):  # one of several starts the cluster, the others join
        if folder.locked:
            # a supervisor that was killed has the lock until the kernel is done with it: then nobody is to be joined
            with contextlib.suppress(SupervisorEnded):
                return _join(folder, deadline, say)
        return _start(folder, options, deadline, say, fresh=fresh)


@contextlib.contextmanager
def kept_if_started(folder: StateFolder, *, fresh: bool) -> Iterator[None]:
    """Remove a state folder that was made just now if what is inside fails: no cluster ever ran on it.

    Args:
        folder: The state folder.
        fresh: Whether it was made just now.
    """
    try:
        yield
    except BaseException:
        if fresh:
            shutil.rmtree(folder.root, ignore_errors=True)
        raise


def _start(folder: StateFolder, options: UpOptions, deadline: float, say: Say, *, fresh: bool) -> RunningCluster:
    with kept_if_started(folder, fresh=fresh), Listeners() as listeners:
        if full := folder.full:
            hint = f"df -h {word(folder)}, make room there, then det up again; nothing was touched"
            raise DetlabError(full, hint=hint)
        plan = make_plan(folder, options, listeners)
        folder.write_plan(plan)
        make_parts(folder, plan)  # says now what is not installed
        log = folder.log(_SUPERVISOR)
        argv = [sys.executable, "-m", "detlab_hub.embedded", str(folder)]
        child = process.start(argv, env=os.environ, cwd=folder.root, log=log, sockets=listeners.all())
    try:
        view = StartWatch(folder, plan, child, say).until_ready(deadline)
    except BaseException:
        child.terminate()
        child.wait()
        raise
    remember(folder)
    return RunningCluster(folder, plan, view)


def _finish_restore(folder: StateFolder, say: Say) -> None:
    """Finish an interrupted `det restore`."""
    if not folder.restore_note.exists():
        return
    from detlab_hub.embedded.moves import finish_interrupted

    if finish_interrupted(folder):
        say("A restore of this folder had been interrupted; it is finished now.")


def _join(folder: StateFolder, deadline: float, say: Say) -> RunningCluster:
    plan = folder.read_plan()
    if plan is None:
        raise DetlabError(f"{folder} is in use, but {folder.plan_file} cannot be read", hint="det down, then det up")
    view = StartWatch(folder, plan, None, say).until_ready(deadline)
    remember(folder)
    return RunningCluster(folder, plan, view, already=True)


def make_plan(folder: StateFolder, options: UpOptions, listeners: Listeners) -> StartPlan:
    """Decide on ports and users; bind the ports that no running part has.

    Args:
        folder: The state folder.
        options: The options of `det up`.
        listeners: Receives the sockets.

    Raises:
        DetlabError: A port is not free, or a configuration file is wrong.
    """
    files = [folder.config_file] if folder.config_file.exists() else []
    if options.config is not None:
        files.append(options.config.absolute())
    config = read_config(files)
    wishes = EmbeddedCluster(config=config)
    operator, others = wishes.users()
    front = choose_front(
        folder,
        wishes,
        AddressOptions(options.ip, options.tls, options.behind_tls_proxy, options.renew_certificate),
        subdomain_host_of(config),
    )
    folder.note_take_over(told=options.take_over)
    folder.make_secrets([operator, *others], operator)
    before, report = folder.read_plan(), read_report(folder)
    had = before is not None and (before.ip, before.port) == (front.ip, options.port)
    if not (had and _runs(report, names.PROXY)):
        _check_port(options.port, front.ip, had=had)
        listeners.add(listen(front.ip, options.port))
    hub, api, master = _private_ports(folder, before, report, listeners, wishes.hub_ip)
    return StartPlan(
        port=options.port,
        hub_ip=wishes.hub_ip,
        hub_port=hub,
        proxy_api_port=api,
        master_port=master,
        operator=operator,
        extra_users=others,
        slots=options.slots,
        config=str(options.config.absolute()) if options.config else None,
        workdir=str(options.workdir or Path.cwd()),
        user_map=dict(wishes.user_map),
        docker=None if wishes.docker == "auto" else bool(wishes.docker),
        docker_mounts=list(wishes.docker_mounts),
        docker_volumes=list(wishes.docker_volumes),
        agent_name=wishes.agent_name,
        warm_pool=wishes.keeps_warm_pool(options.warm_pool),
        task_network=wishes.task_network,
        task_ports=list(wishes.task_ports),
        task_memory=wishes.task_memory,
        task_pids=wishes.task_pids,
        **asdict(front),
    )


def _runs(report: ClusterReport | None, part: str) -> bool:
    found = report.parts.get(part) if report else None
    return found is not None and found.running is not None


def _check_port(port: int, ip: str, *, had: bool) -> None:
    """Refuse a port that another program has; one that this cluster had may still be its killed proxy's."""
    if ports.becomes_free(port, ip) if had else ports.is_free(port, ip):
        return
    owner = ports.owner_of(port)
    raise DetlabError(
        f"port {port} of {ip} is taken" + (f" by {owner}" if owner else ""),
        hint="Stop that program, or take another port: det up --port N",
    )


def _private_ports(
    folder: StateFolder, before: StartPlan | None, report: ClusterReport | None, listeners: Listeners, hub_ip: str
) -> list[int]:
    """Return the ports of Hub, proxy API and master, bound unless the part runs.

    They stay the same if possible, since tasks may know them. If there are no tasks, a port that every user may bind is
    replaced by one that only root may bind.
    """
    old = [(0, names.HUB), (0, names.PROXY), (0, names.MASTER)]
    if before is not None:
        old = [(before.hub_port, names.HUB), (before.proxy_api_port, names.PROXY), (before.master_port, names.MASTER)]
    privileged, known = ports.privileged_ports(), _has_tasks(folder)
    chosen = []
    for port, part in old:
        if port and _runs(report, part):
            chosen.append(port)
            continue
        ip = hub_ip if part == names.HUB else LOOPBACK
        kept = port and (known or port in privileged or not privileged) and ports.becomes_free(port, ip)
        chosen.append(listeners.add(listen(ip, port) if kept else ports.listen_privately(ip)))
    return chosen


def _has_tasks(folder: StateFolder) -> bool:
    """Whether tasks of an earlier start may still run on this machine, or have something to deliver."""
    try:
        return any((folder.root / "agent" / "tasks").iterdir())
    except OSError:
        return False


def remember(folder: StateFolder) -> None:
    """Note this cluster as the one that this user started last, and among all that were started; forget those gone."""
    notes = user_state_folder()
    notes.mkdir(parents=True, exist_ok=True)
    write_atomic(notes / LAST_NOTE, f"{folder}\n".encode(), durable=True)
    others = [path for path in started_folders(notes) if path != folder.root and path.is_dir()]
    lines = "".join(f"{path}\n" for path in (folder.root, *others[: _REMEMBERED - 1]))
    write_atomic(notes / STARTED_NOTE, lines.encode(), durable=True)


class SupervisorEnded(Exception):
    """The supervisor whose cluster was waited for is gone."""


class StartWatch:
    """Waits for a cluster to come up and finds out what keeps it from doing so.

    Args:
        folder: The state folder.
        plan: What runs there.
        supervisor: The supervisor's process, if we started it.
        say: Called with messages about what takes long.
    """

    def __init__(
        self, folder: StateFolder, plan: StartPlan, supervisor: subprocess.Popen[bytes] | None, say: Say
    ) -> None:
        self._folder = folder
        self._plan = plan
        self._supervisor = supervisor
        self._say = say
        self._answered = False
        self._upgrade_told = False
        first = None if supervisor else read_report(folder)
        self._earlier = {name: part.restarts for name, part in first.parts.items()} if first else {}

    def until_ready(self, deadline: float) -> ClusterView:
        """Return the cluster's view once the master is healthy through the proxy and slots are registered.

        While the master brings an older database up to date, time does not count: if stopped then, it would start over.

        Raises:
            PartFailed: A part ended twice, or the time ran out.
            SupervisorEnded: We did not start it, and it runs no longer.
        """
        plan = self._plan
        master = MasterClient(plan.service_url, self._folder.secret("user_token"), plan.certificate)
        try:
            looked = time.monotonic()
            while True:
                before, looked = looked, time.monotonic()
                if upgrading := self._upgrading():
                    deadline += looked - before
                ready = self._look_for_failures() and self._behind_the_proxy() and master.healthy()
                view = master.view() if ready else None
                if view is not None and view.agents and view.slots_total >= (self._plan.slots or 1):
                    return view
                if not upgrading and time.monotonic() > deadline:
                    raise self._blame()
                time.sleep(_POLL)
        finally:
            master.close()

    def _upgrading(self) -> bool:
        """Whether the running master upgrades its database; say so when it is first seen."""
        try:
            noted = self._folder.upgrade_note.read_text(encoding="ascii").strip()
        except (OSError, ValueError):
            return False
        report = read_report(self._folder)
        part = report.parts.get(names.MASTER) if report else None
        running = part.running if part else None
        if running is None or noted != str(running.pid):
            return False  # left by one that was killed
        if not self._upgrade_told:
            self._upgrade_told = True
            self._say(
                "The master brings its database to this version's schema. With much output in it that takes minutes; "
                "stopped meanwhile, it starts over."
            )
        return True

    def _behind_the_proxy(self) -> bool:
        """Whether Hub and master answer directly: before that the proxy would only fill its log with errors."""
        self._answered = self._answered or (
            answers(f"{self._plan.hub_api_url}/") and answers(f"{self._plan.master_url}health")
        )
        return self._answered

    def _look_for_failures(self) -> bool:
        """Raise if a part is not coming up; return whether the supervisor we wait for has the folder."""
        if self._supervisor is not None and self._supervisor.poll() is not None:
            code = self._supervisor.returncode
            raise PartFailed(_SUPERVISOR, f"it ended with status {code}", self._folder.log(_SUPERVISOR))
        if self._supervisor is None and not self._folder.locked:
            raise SupervisorEnded
        report = read_report(self._folder)
        if report is None or report.supervisor is None:
            return False  # it has not reported yet, or was killed and keeps its lock until the kernel is done with it
        if self._supervisor is not None and report.pid != self._supervisor.pid:
            return False  # still the one of an earlier supervisor
        for name, part in report.parts.items():
            exits = part.restarts - self._earlier.get(name, 0)
            if exits >= _EXITS_THAT_CONDEMN and part.state is PartState.WAITING:
                why = f"it ended {exits} times" + (f" (status {part.exit_code})" if part.exit_code is not None else "")
                raise PartFailed(name, why, self._folder.log(name))
        return True

    def _blame(self) -> PartFailed:
        """Return the failure of the first part that does not work, when the time has run out."""
        plan, late = self._plan, "it did not answer in time"
        if not answers(f"{plan.hub_api_url}/"):
            return PartFailed(names.HUB, late, self._folder.log(names.HUB))
        if not answers(f"{plan.master_url}health"):
            return PartFailed(names.MASTER, late, self._folder.log(names.MASTER))
        if not answers(plan.service_url, plan.certificate):
            return PartFailed(names.PROXY, late, self._folder.log(names.PROXY))
        direct = MasterClient(plan.master_url, self._folder.secret("user_token"))
        try:
            view = direct.view()
        finally:
            direct.close()
        if view is None:
            return PartFailed(names.MASTER, "it does not take the operator's token", self._folder.log(names.MASTER))
        wanted = plan.slots or 1
        why = f"{view.slots_total} of {wanted} slots are registered"
        return PartFailed(names.AGENT, why, self._folder.log(names.AGENT))


# --- down -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DownOutcome:
    """The outcome of `det down`.

    Attributes:
        was_running: Whether there was something to stop.
        drained: Whether all tasks have saved and left, or there were none.
        left: Tasks that had not left when the parts were stopped.
    """

    was_running: bool
    drained: bool = True
    left: int = 0


def down(folder: StateFolder, timeout: float, say: Say) -> DownOutcome:
    """Let running trials save and leave, then stop all parts, and agents of elastic pools on this machine.

    A second call is harmless.

    Args:
        folder: The state folder.
        timeout: Seconds that trials may take to save.
        say: Called with messages about what is waited for.

    Raises:
        DetlabError: The supervisor does not end.
    """
    report, plan = read_report(folder), folder.read_plan()
    locked = folder.root.exists() and folder.locked
    orphans = [name for name in names.STOP_ORDER if _runs(report, name)]
    if plan is None or not (locked or orphans):
        folder.cluster_file.unlink(missing_ok=True)
        return DownOutcome(was_running=stop_instances(folder, say) > 0)
    drained, left = drain(plan, folder.secret("user_token"), timeout, say)
    if locked and report is not None and report.supervisor is not None:
        _stop_supervisor(report, folder)
    asyncio.run(_stop_orphans(folder))
    stop_instances(folder, say)  # now that no master launches any more
    folder.cluster_file.unlink(missing_ok=True)
    return DownOutcome(True, drained, left)


def drain(plan: StartPlan, token: str, timeout: float, say: Say) -> tuple[bool, int]:
    """Preempt all tasks and wait until none is left, also of those without slots.

    Returns:
        Whether all have left, and how many have not.
    """
    master = MasterClient(plan.master_url, token)
    try:
        before = master.view()
        if (servers := master.servers()) and before is not None:
            say(_ending_servers(servers))
        if before is None or not master.drain(timeout):
            say(
                "The master does not answer, so running trials are not asked to save; they continue at the next det up,"
                " those of local elastic pools from their last checkpoints."
            )
            return False, 0
        # The master ends what does not leave by itself: SIGTERM at the timeout, SIGKILL a few seconds later.
        deadline = time.monotonic() + timeout + 15.0
        left = before.tasks_running
        if left:
            say(f"Waiting for {left} {'task' if left == 1 else 'tasks'} to save and leave …")
        while left and time.monotonic() < deadline:
            time.sleep(_POLL)
            now = master.view()
            left = now.tasks_running if now is not None else left
        return left == 0, left
    finally:
        master.close()


def _ending_servers(servers: list[TaskView]) -> str:
    """Return the line that says whose notebooks and shells end with the cluster."""
    counts = Counter(f"{task.kind.value} of {task.owner}" for task in servers)
    named = [what if count == 1 else f"{what} ({count})" for what, count in sorted(counts.items())]
    more = f" and {len(named) - _NAMED_SERVERS} more" if len(named) > _NAMED_SERVERS else ""
    listed = ", ".join(named[:_NAMED_SERVERS])
    return f"This ends: {listed}{more}. Files stay; what is only in the memory of their kernels is lost."


def _stop_supervisor(report: ClusterReport, folder: StateFolder) -> None:
    supervisor = report.supervisor
    assert supervisor is not None

    async def stop() -> None:
        await supervisor.stop(grace=90.0)

    asyncio.run(stop())
    if folder.locked:
        raise DetlabError(f"the supervisor of {folder} does not end", hint=f"See {folder.log(_SUPERVISOR)}")


def stop_instances(folder: StateFolder, say: Say) -> int:
    """End the agents that elastic pools started on this machine; return how many there were.

    Args:
        folder: The state folder, whose master has stopped.
        say: Called with messages about what cannot be ended.
    """
    ended, troubles = end_instances(folder)
    for trouble in troubles:
        say(f"An agent of an elastic pool was not ended: {trouble}")
    return ended


async def _stop_orphans(folder: StateFolder) -> None:
    """Stop parts whose supervisor was killed."""
    report = read_report(folder)
    for name in names.STOP_ORDER:
        part = report.parts.get(name) if report else None
        running = part.running if part else None
        if running is not None:
            await running.stop(20.0)
