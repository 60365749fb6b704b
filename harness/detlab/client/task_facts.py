"""The data of a user task, shared by the blocking and the asynchronous client."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path, PurePosixPath
from urllib.parse import quote, urlsplit

from detlab.client.facts import moment
from detlab.client.rendering import card
from detlab.client.transport.discovery import ClusterAddress
from detlab.client.transport.streaming import EventFeed
from detlab.errors import DetlabError, Forbidden, StorageError
from detlab.files import write_atomic
from detlab.schemas.taskwire import OutputView, TaskKind, TaskView
from detlab.schemas.wire import SERVICE_PREFIX, AllocationState, Event, LogLine, TrialState

KIND_WORDS = {
    TaskKind.NOTEBOOK: "notebook",
    TaskKind.SHELL: "shell",
    TaskKind.COMMAND: "command",
    TaskKind.TENSORBOARD: "TensorBoard",
    TaskKind.CELL: "cell",
    TaskKind.NOTEBOOK_RUN: "notebook run",
}

Tell = Callable[[TaskView], None]
"""Called with a task whenever the master has news of it."""


def kind_word(kind: TaskKind) -> str:
    """Return what people call a task of this kind."""
    return KIND_WORDS.get(kind, kind.value)


def kind_title(kind: TaskKind) -> str:
    """Return the same word as the first of a sentence."""
    word = kind_word(kind)
    return word[:1].upper() + word[1:]


class TaskFacts:
    """What is known about a user task, as of the last answer of the master."""

    def __init__(self, view: TaskView, address: ClusterAddress) -> None:
        self.view = view
        self.address = address
        """Of its cluster."""

    @property
    def id(self) -> str:
        """Its id."""
        return self.view.id

    @property
    def kind(self) -> TaskKind:
        """What it is."""
        return self.view.kind

    @property
    def name(self) -> str:
        """Display name."""
        return self.view.name

    @property
    def state(self) -> TrialState:
        """State as of the last answer; `reload` fetches the current one."""
        return self.view.state

    @property
    def exit_code(self) -> int | None:
        """Exit code of what it ran, once it has ended."""
        return self.view.exit_code

    @property
    def config(self) -> dict[str, object] | None:
        """The resolved config; None on an item of a list until `reload`."""
        return self.view.config

    @property
    def up(self) -> bool:
        """Whether it can be used: it runs, and has its address if it is served by the Hub."""
        view = self.view
        if view.state.terminal:
            return False
        if view.kind.served_by_hub:
            return view.url is not None
        return view.allocation_state is AllocationState.RUNNING

    def check_opens(self) -> None:
        """Check that the caller may open it, which members of its workspace may not.

        Raises:
            Forbidden: It is another user's, and the caller sees its state alone.
        """
        view = self.view
        if not view.opens:
            raise Forbidden(
                f"{kind_word(view.kind)} {view.id} is {view.owner}'s: members of its workspace see its state, and only"
                f" {view.owner} opens it",
                hint="Start your own, or ask its owner",
            )

    @property
    def url(self) -> str | None:
        """URL to open in a browser; None if it has none or is not up."""
        return hub_url(self.address, self.view.url) if self.view.url else None

    @property
    def server_url(self) -> str:
        """URL of its server at the Hub, with a trailing slash; for tasks that are servers of the Hub.

        Raises:
            DetlabError: It is not a server of the Hub.
            Forbidden: It is another user's.
        """
        self.check_opens()
        view = self.view
        if view.server_name is None:
            raise DetlabError(f"{view.id} is a {kind_word(view.kind)}, not a server of the Hub")
        parts = [quote(part, safe="@~") for part in (view.owner, view.server_name) if part]
        path = f"/user/{'/'.join(parts)}/"
        return view.server_host + path if view.server_host else hub_url(self.address, path)

    def learn(self, fresh: TaskView) -> None:
        """Keep what an answer or an event says, but the config, which only a single task carries."""
        self.view = fresh.model_copy(update={"config": fresh.config or self.view.config})

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and isinstance(other, TaskFacts) and other.id == self.id

    def __hash__(self) -> int:
        return hash((type(self).__name__, self.id))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(id={self.id!r}, kind={self.kind.value}, state={self.state.value})"

    def _repr_html_(self) -> str:
        view = self.view
        rows = {
            "name": view.name,
            "state": view.display_state or view.state.value,
            "ended": view.end_reason.value if view.end_reason else None,
            "exit code": view.exit_code,
            "slots": view.slots_needed,
            "queue": f"position {view.place}" if view.place else None,
            "pending": view.pending_reason,
            "doing": view.stage_message,
            "address": self.url,
            "started": moment(view.started_at),
            "failure": view.failure.message if view.failure else None,
        }
        return card(f"{kind_title(view.kind)} {view.id}", rows)


def hub_url(address: ClusterAddress, path: str) -> str:
    """Return the URL of a path at the Hub, such as `/user/alice/nb-1/lab`.

    Args:
        address: Of the service, which is below the Hub's own prefix.
        path: From the Hub's root; whether it repeats the Hub's own prefix makes no difference.

    Raises:
        DetlabError: It is not a path.
    """
    if not path.startswith("/") or path.startswith("//"):
        raise DetlabError(f"the master returned an address that is not a path of the Hub: {path!r}")
    parts = urlsplit(address.url)
    prefix = parts.path.removesuffix(SERVICE_PREFIX)
    below = path if prefix and path.startswith(f"{prefix}/") else f"{prefix}{path}"
    return f"{parts.scheme}://{parts.netloc}{below}"


def timed_out(view: TaskView, timeout: float | None) -> TimeoutError:
    """Return the error for waiting longer than was asked for."""
    state = view.display_state or view.state.value
    kind = kind_word(view.kind)
    what = view.id if view.id.startswith(kind) else f"{kind} {view.id}"
    return TimeoutError(f"{what} is still {state} after {timeout:g} s")


def task_log_feed(task_id: str, after: int | None) -> EventFeed[LogLine]:
    """Return the feed of a task's log lines; the master closes it when the task has ended."""
    return EventFeed(LogLine, f"tasks/{quote(task_id, safe='')}/logs/stream", cursor=after)


def all_events_feed(cursor: int) -> EventFeed[Event]:
    """Return the feed of all events that the caller may see."""
    return EventFeed(Event, "stream", cursor=cursor)


def output_target(folder: Path, output: OutputView) -> Path:
    """Return the path an output is written to, which is always below the folder.

    Raises:
        StorageError: The output's name would lead out of the folder.
    """
    name = PurePosixPath(output.name)
    if not output.name or name.is_absolute() or ".." in name.parts or "\0" in output.name or "\\" in output.name:
        raise StorageError(f"the output {output.name!r} has a name that is not valid for a file")
    return folder.joinpath(*name.parts)


def write_output(target: Path, output: OutputView, data: bytes) -> Path:
    """Check an output against its digest and write it; the file appears complete or not at all.

    Raises:
        StorageError: The bytes do not match the digest.
    """
    if f"sha256:{hashlib.sha256(data).hexdigest()}" != output.digest:
        raise StorageError(
            f"the output {output.name!r} does not match its digest after the download", hint="Try again."
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    return write_atomic(target, data, mode=None)


def chosen_outputs(task_id: str, found: list[OutputView], names: Iterable[str]) -> list[OutputView]:
    """Return the outputs of these names, or all without names.

    Raises:
        DetlabError: There is no output with one of the names.
    """
    by_name = {output.name: output for output in found}
    wanted = list(names)
    missing = [name for name in wanted if name not in by_name]
    if missing:
        known = ", ".join(by_name) or "none"
        raise DetlabError(f"{task_id} has no output {missing[0]!r}", hint=f"It has: {known}")
    return [by_name[name] for name in wanted] if wanted else found
