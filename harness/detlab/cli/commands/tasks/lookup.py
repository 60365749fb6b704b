"""Finding a user task by its id, a prefix or its name, and completing ids in the shell."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from detlab.cli.invocation import Invocation
from detlab.cli.output.printing import clean
from detlab.client.task_facts import kind_word
from detlab.errors import DetlabError, NotFound
from detlab.schemas.taskwire import TaskKind

if TYPE_CHECKING:
    from detlab.client.tasks import Task

_log = logging.getLogger(__name__)
MOST_LOOKED_AT = 200
COMPLETION_SECONDS = 2.0
LEAST_TYPED = 4
MOST_NAMED = 3
GROUPS = {
    TaskKind.NOTEBOOK: "notebook",
    TaskKind.SHELL: "shell",
    TaskKind.COMMAND: "cmd",
    TaskKind.TENSORBOARD: "tensorboard",
}
"""The group of commands of each kind that has one; for the others it is `det task`."""


def group_of(kind: TaskKind | None) -> str:
    """Return the words before a sub-command for tasks of a kind: `det shell`."""
    return f"det {GROUPS.get(kind, 'task') if kind else 'task'}"


class TaskId(click.types.StringParamType):
    """The id of a user task; Tab offers those that exist."""

    name = "task"

    def __init__(self, kind: TaskKind | None = None, *, live: bool = False) -> None:
        self.kind = kind
        self.live = live

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the ids with this beginning; none if the cluster does not answer at once."""
        try:
            found = _quick_list(ctx.find_object(Invocation) or Invocation(), self.kind)
        except Exception:  # whatever is wrong, a Tab key is no place to say it: a traceback would end up in the prompt
            _log.debug("no ids to complete", exc_info=True)
            return []
        return [
            CompletionItem(word, help=clean(item.name))
            for item in found
            if not (self.live and item.state.terminal) and (word := _word_of(item, incomplete)) is not None
        ]


def _word_of(item: Task, incomplete: str) -> str | None:
    """Return what names a task and begins like that: its id, else the name of its server at the Hub."""
    names = (item.id, item.view.server_name)
    return next((name for name in names if name and name.startswith(incomplete)), None)


def _quick_list(invocation: Invocation, kind: TaskKind | None) -> list[Task]:
    from detlab.client.client import Client
    from detlab.client.transport.calls import Retries

    with Client(invocation.master, timeout=COMPLETION_SECONDS, backoff=Retries(attempts=0, refused=0)) as client:
        return client.list_tasks(limit=MOST_LOOKED_AT, kind=kind)


def find(invocation: Invocation, word: str, kind: TaskKind | None = None) -> Task:
    """Return the task of this id or server, or the only one whose id begins so, or the only living one of this name.

    The beginning is of the whole id or of its last part, and has at least four of that part's characters.

    Raises:
        NotFound: There is no such task; the hint lists similar ids and names.
        DetlabError: The task is of another kind.
    """
    try:
        task = invocation.client.get_task(word)
    except NotFound as error:
        task = _guess(invocation, word, kind, error)
    if kind is not None and task.kind is not kind:
        other = group_of(task.kind)
        raise DetlabError(
            f"{clean(task.id)} is a {kind_word(task.kind)}, not a {kind_word(kind)}",
            hint=f"See its commands: {other} --help",
        )
    return task


def find_all(
    invocation: Invocation,
    words: Iterable[str],
    kind: TaskKind | None = None,
    *,
    missing: Callable[[DetlabError], None] | None = None,
) -> list[Task]:
    """Return the tasks of these ids, each once; nothing has been done to any if one is unknown.

    Args:
        invocation: Has the client.
        words: Ids, beginnings of ids, or names.
        kind: What they must be; None: of any kind.
        missing: Receives the error of each that does not exist, which is then left out; None raises it.
    """
    found: dict[str, Task] = {}
    for word in words:
        try:
            task = find(invocation, word, kind)
        except NotFound as error:
            if missing is None:
                raise
            missing(error)
            continue
        found.setdefault(task.id, task)
    return list(found.values())


def _guess(invocation: Invocation, word: str, kind: TaskKind | None, error: NotFound) -> Task:
    known = invocation.client.list_tasks(limit=MOST_LOOKED_AT, kind=kind)
    meant = [task for task in known if _begins(task.id, word)]
    meant = meant or [task for task in known if task.name == word and not task.state.terminal]
    if len(meant) == 1:
        return meant[0].reload()
    what = kind_word(kind) if kind else "task"
    listing = f"List them: {group_of(kind)} list"
    if meant:
        ids = ", ".join(clean(task.id) for task in meant[:MOST_NAMED])
        problem = f"{clean(word)!r} is ambiguous: it matches {len(meant)} {what}s: {ids}"
        raise NotFound(problem, hint="Name one by its id.") from error
    near = _near(word, known)
    hint = f"Did you mean {' or '.join(near)}?\n{listing}" if near else listing
    raise NotFound(f"there is no {what} {clean(word)!r} of yours", hint=hint, code=error.code) from error


def _begins(task_id: str, word: str) -> bool:
    prefix, _, last = task_id.rpartition("-")
    said = word.removeprefix(f"{prefix}-")
    return len(said) >= LEAST_TYPED and last.startswith(said)


def _near(word: str, known: Iterable[Task]) -> list[str]:
    ids: dict[str, str] = {}
    for task in known:
        ids.setdefault(task.name, task.id)
        ids[task.id] = task.id
        ids.setdefault(task.id.rpartition("-")[2], task.id)
    near = get_close_matches(word, list(ids), n=MOST_NAMED, cutoff=0.75)
    return list(dict.fromkeys(clean(ids[text]) for text in near))


def task_argument(kind: TaskKind | None = None, *, several: bool = False, live: bool = False) -> Any:
    """Return the argument `ID`, or `ID...`, given to the function as `task_id` or `task_ids`."""
    kind_of_id = TaskId(kind, live=live)
    if several:
        return click.argument("task_ids", metavar="ID...", type=kind_of_id, nargs=-1, required=True)
    return click.argument("task_id", metavar="ID", type=kind_of_id)
