"""`det status`, without its command line: which parts run, and whether they work."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from detlab.client.transport.discovery import ClusterAddress, Discovery
from detlab.client.transport.logins import user_state_folder
from detlab.launch import welcome
from detlab.launch.host import procfs
from detlab.pasted import word
from detlab.schemas.wire import ClusterView
from detlab_hub.embedded import parts as names
from detlab_hub.embedded import process
from detlab_hub.embedded.master import MasterClient, answers
from detlab_hub.embedded.report import ClusterReport, PartState, read_report
from detlab_hub.embedded.settings import has_torch
from detlab_hub.embedded.state import StartPlan, StateFolder, read_json

_WORDS = 500
"""Characters of a log's last line that are shown."""
_WARM_NOTE = "agent/warm_pool.json"
_WARM_USUAL = "about 0.3 GiB"


@dataclass(frozen=True)
class PartStatus:
    """One part, for people."""

    name: str
    state: str
    pid: int | None
    uptime: float | None
    restarts: int


@dataclass(frozen=True)
class ClusterStatus:
    """The output of `det status`.

    Attributes:
        problem: Why the cluster is not healthy; None if it is.
        advice: The next command.
        fingerprint: Fingerprint of the proxy's certificate; None without TLS.
        warm_pool: Whether there is one, and what it costs now.
    """

    folder: str
    parts: list[PartStatus]
    url: str | None = None
    user: str | None = None
    view: ClusterView | None = None
    problem: str | None = None
    advice: str | None = None
    fingerprint: str | None = None
    warm_pool: str = ""

    @property
    def healthy(self) -> bool:
        """Whether all parts work."""
        return self.problem is None


def meant(folder: Path | None, invocation: object) -> tuple[Path, ClusterAddress | None]:
    """Return the state folder of a command, and the cluster of other commands run here if that one is a guess.

    Args:
        folder: What `--dir` says; None: by the order in which all commands look for their cluster.
        invocation: Of `det`, with what `--master` says.

    Raises:
        DetlabError: The cluster that is named has no state folder on this machine.
    """
    if folder is not None:
        return folder, None
    return Discovery.default().state_folder_of(getattr(invocation, "master", None))


def guess_line(folder: Path, guessed: ClusterAddress) -> str:
    """Return the line that says which cluster was guessed, for this command or for others run here."""
    what = "Cluster:" if guessed.folder == folder else "Other commands run here read from"
    return f"{what} {guessed.url} (a guess: {guessed.guess})"


def status(folder: StateFolder) -> ClusterStatus:
    """Inspect the cluster of a state folder."""
    plan, report = folder.read_plan(), read_report(folder)
    where = str(folder)
    parts = _part_states(report)
    up_again = f"det up --dir {word(where)}"
    if plan is None or report is None or not (report.supervisor or any(part.pid for part in parts)):
        return ClusterStatus(where, parts, problem=f"no cluster runs on {where}", advice=up_again)
    master = MasterClient(plan.service_url, folder.secret("user_token"), plan.certificate)
    try:
        view = master.view()
    finally:
        master.close()
    problem, advice = _diagnose(folder, plan, report, parts, view)
    next_command = advice or (up_again if problem else None)
    fingerprint, pool = plan.fingerprint or None, warm_pool_state(folder, plan)
    return ClusterStatus(where, parts, plan.url, plan.operator, view, problem, next_command, fingerprint, pool)


def _diagnose(
    folder: StateFolder, plan: StartPlan, report: ClusterReport, parts: list[PartStatus], view: ClusterView | None
) -> tuple[str | None, str | None]:
    if report.supervisor is None:
        return "the supervisor has ended: its parts still run, but would not be restarted", None
    if full := folder.full:
        return (
            f"{full}; parts that end now restart when there is room",
            f"df -h {word(folder)}, and make room there",
        )
    for part in parts:
        if part.pid is None:
            return (
                f"the {part.name} is {part.state}{_last_words(folder, part.name)}",
                f"tail {word(folder.log(part.name))}",
            )
    # The master remembers for a while who a token belongs to, so that its answer says nothing of the Hub.
    if not answers(f"{plan.hub_api_url}/"):
        return "the hub does not answer", f"tail {word(folder.log(names.HUB))}"
    if view is None:
        said = _last_words(folder, names.MASTER)
        return f"the master does not answer through the proxy{said}", f"tail {word(folder.log(names.MASTER))}"
    if view.agents == 0 or view.slots_total == 0:
        return "no agent with slots is connected", f"tail {word(folder.log(names.AGENT))}"
    return None, None


def _last_words(folder: StateFolder, part: str) -> str:
    """Return the last line of a part's log, which usually says why it does not work."""
    lines = process.tail(folder.log(part), 1)
    return f"; it said last: {lines[0][:_WORDS]}" if lines else ""


def _part_states(report: ClusterReport | None) -> list[PartStatus]:
    found = []
    for name in names.NAMES:
        part = report.parts.get(name) if report else None
        running = part.running if part else None
        if part is None or running is None:
            state = PartState.STOPPED if part is None or part.state is PartState.RUNNING else part.state
            found.append(PartStatus(name, str(state), None, None, part.restarts if part else 0))
        else:
            # by a monotonic clock
            began = running.ticks / os.sysconf("SC_CLK_TCK")
            uptime = max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - began)
            found.append(PartStatus(name, str(part.state), running.pid, uptime, part.restarts))
    return found


def open_first(folder: StateFolder, plan: StartPlan) -> str | None:
    """Return what a newcomer is to open first in their file browser; None if they have files of their own there."""
    root, notes = Path(plan.workdir), user_state_folder() / welcome.NOTES
    if os.getuid() == 0:  # their servers run as somebody else, who has a home here, or an account of this machine
        if plan.operator in plan.user_map:
            return None
        root = folder.root / "homes" / plan.operator
        notes = root / ".local" / "state" / "detlab" / welcome.NOTES
    name = f"{welcome.FOLDER}/{welcome.NOTEBOOK}"
    new = not root.exists() or welcome.is_newcomers(root, notes)
    return name if new or (root / name).exists() else None


# --- the warm pool (decision 9)


def warm_pool_promise(folder: StateFolder, plan: StartPlan) -> str:
    """Return what `det up` says of it: the process is being loaded at that time."""
    if not plan.warm_pool:
        return _no_pool()
    pid, reason = _zygote(folder)
    if pid is None:
        return f"none now: {reason}"
    return f"on: plain Python trials start with torch loaded; keeps {_WARM_USUAL} (det up --no-warm-pool: none)"


def warm_pool_state(folder: StateFolder, plan: StartPlan) -> str:
    """Return what `det status` says of it, with the memory that its process has to itself now."""
    if not plan.warm_pool:
        return _no_pool()
    pid, reason = _zygote(folder)
    if pid is None:
        return f"none now: {reason}"
    taken = proportional_memory(pid)
    return f"on, process {pid}" + ("" if taken is None else f" takes {taken / 2**20:.0f} MiB")


def _no_pool() -> str:
    return "off" if has_torch() else "off: torch is not installed here"


def _zygote(folder: StateFolder) -> tuple[int | None, str]:
    """Return the pid of the pool's process, or None and the reason why there is none."""
    told = read_json(folder.root / _WARM_NOTE)
    if told is None:
        return None, "the agent has not started it yet"
    pid, started = told.get("pid"), told.get("started")
    if isinstance(pid, int) and procfs.is_alive(pid, started if isinstance(started, int) else None):
        return pid, ""
    return None, str(told.get("reason") or "it ended; the next trial has it started again")


def proportional_memory(pid: int) -> int | None:
    """Return the bytes of a process, with its share of what it has in common with others; None if unknown."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))
    except (OSError, ValueError, StopIteration):
        return None


def since_last_time(last: StartPlan | None, plan: StartPlan) -> str | None:
    """Return what is different from the last start where people, bookmarks and agents would notice; None if nothing is.

    Args:
        last: The plan of the last start; None if this is the first.
        plan: The plan of this one.
    """
    if last is None:
        return None
    changes = [
        f"{what} (last time {then})"
        for what, now, then in (
            (f"port {plan.port}", plan.port, last.port),
            (f"address {plan.ip}", plan.ip, last.ip),
            ("TLS" if plan.fingerprint else "no TLS", _tls(plan), _tls(last)),
        )
        if now != then
    ]
    return f"Not as last time: {', '.join(changes)}." if changes else None


def _tls(plan: StartPlan) -> str:
    return "TLS" if plan.fingerprint else "none"
