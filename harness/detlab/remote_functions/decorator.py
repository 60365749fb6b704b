"""`@det.remote`: a function whose calls run on the cluster."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from detlab.client.bundling.search_path import own_folders
from detlab.client.singleton import current_client
from detlab.info import get_cluster_info
from detlab.remote_functions.calls import RemoteCall, RemoteCalls, print_line
from detlab.remote_functions.failures import FunctionNotShipped
from detlab.remote_functions.packing import OWN, pack_cell
from detlab.remote_functions.source import MARK, ShippedFunction, check_function, ship_function
from detlab.run.values import EncodedVariable, ValueProblem, encode
from detlab.schemas.taskwire import DEFAULT_ENTRYPOINTS, TaskKind

RESULT = "result"
"""The variable that comes back."""
_ARGUMENT = "the_argument_"


@dataclass(frozen=True)
class RemoteOptions:
    """What a call asks the cluster for.

    Attributes:
        slots: GPUs or CPU slots, on one node.
        pool: Resource pool.
        environment: Image (a text), or the block `environment` of a task's config.
        runtime: `process`, `docker`, or another that agents have.
        priority: 1 to 99; lower goes first.
        name: Display name.
        workspace: Workspace to put it in.
        project: Project of the workspace.
        context: Folder to upload whole; None: what the function imports.
        max_time: Longest time it may run, in seconds or as `"2h"`.
        config: Further keys of a task's config, under these.
        trust: Whether results that are pickles may be read here, which runs code.
    """

    slots: int = 1
    pool: str | None = None
    environment: str | Mapping[str, Any] | None = None
    runtime: str | None = None
    priority: int | None = None
    name: str | None = None
    workspace: str | int | None = None
    project: str | int | None = None
    context: str | Path | None = None
    max_time: float | str | None = None
    config: Mapping[str, Any] | None = None
    trust: bool = False

    def task_config(self) -> dict[str, Any]:
        """Return the config of the task; the master checks it."""
        config = dict(self.config or {})
        given = {
            "slots": self.slots,
            "resource_pool": self.pool,
            "priority": self.priority,
            "max_time": self.max_time,
        }
        said = {key: value for key, value in given.items() if value is not None}
        config["resources"] = {**(config.get("resources") or {}), **said}
        image = self.environment if isinstance(self.environment, str) else None
        if self.environment is not None:
            config["environment"] = {"image": image} if image is not None else dict(self.environment)  # type: ignore[arg-type]  # no text
        runtime = self.runtime or ("docker" if image is not None else None)
        if runtime is not None:
            config["runtime"] = runtime
        config["entrypoint"] = DEFAULT_ENTRYPOINTS[TaskKind.CELL]
        return config


class RemoteFunction:
    """A function that runs on the cluster when its `remote` is called; made by `remote`.

    Args:
        function: The function.
        options: What each call asks for.
    """

    __name__: str
    __qualname__: str
    is_detlab_remote = True

    def __init__(self, function: Callable[..., Any], options: RemoteOptions) -> None:
        check_function(function)
        functools.update_wrapper(self, function)
        self.function = function
        self._options = options

    def remote(self, *args: Any, **kwargs: Any) -> RemoteCall:
        """Run it on the cluster, in a task of its own; return at once.

        Returns:
            The call: `result()` waits for it, shows what it prints, and returns what it returns.

        Raises:
            FunctionNotShipped: The function or an argument cannot travel; nothing was submitted.
            TypeError: The arguments are not those of the function.
            ConfigError: The cluster cannot run it, such as for want of slots.
        """
        return self._send(self._prepare(args, kwargs), f"{self.__name__}()")

    def map(self, *iterables: Iterable[Any]) -> RemoteCalls:
        """Run it once for each item of an iterable, or for each pair, triple … of several, all at the same time.

        Returns:
            The calls, in order: `results()` waits for all of them.

        Raises as `remote` does, once all arguments were looked at; nothing was submitted then.
        """
        rows = list(zip(*iterables, strict=False))
        prepared = [self._prepare(row, {}) for row in rows]
        names = [f"{self.__name__}() {number}/{len(rows)}" for number in range(1, len(rows) + 1)]
        return RemoteCalls([self._send(one, name) for one, name in zip(prepared, names, strict=True)])

    def local(self, *args: Any, **kwargs: Any) -> Any:
        """Run it here, as an ordinary function."""
        return self.function(*args, **kwargs)

    def options(self, **changes: Any) -> RemoteFunction:
        """Return the same function with other options of `remote`: `train.options(slots=4).remote(3)`."""
        return RemoteFunction(self.function, _options(self._options, changes))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse, but in a task of such a call, or a trial: where it runs has to be said.

        Raises:
            TypeError: Always, elsewhere.
        """
        info = get_cluster_info()
        if info is not None and info.task_type in {"CELL", "TRIAL"}:
            return self.function(*args, **kwargs)
        name = self.__name__
        raise TypeError(f"say where it is to run: {name}.remote(…) on the cluster, {name}.local(…) here")

    def __repr__(self) -> str:
        return f"<remote function {self.__module__}.{self.__qualname__}>"

    # --- submitting

    def _prepare(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[ShippedFunction, Any]:
        inspect.signature(self.function).bind(*args, **kwargs)
        shipped = ship_function(self.function)  # type: ignore[arg-type]  # checked when it was made
        values, call = _arguments(self.function, args, kwargs)
        values |= {name: (f"the global {name}", value) for name, value in shipped.values.items()}
        variables = encoded(self.__name__, values)
        awaited = "await " if inspect.iscoroutinefunction(inspect.unwrap(self.function)) else ""
        text = f"{shipped.text}{RESULT} = {awaited}{shipped.called}({call})\n"
        context = None if self._options.context is None else Path(self._options.context).expanduser()
        bundle = pack_cell(
            text,
            shipped.name,
            variables,
            [RESULT],
            hidden=OWN,
            folders=own_folders(),
            context=context,
            too_large="Arguments are for small values; the largest: {largest}. Put data on storage that tasks read",
        )
        return shipped, bundle

    def _send(self, prepared: tuple[ShippedFunction, Any], name: str) -> RemoteCall:
        shipped, bundle = prepared
        options = self._options
        submitted = current_client().submit_task(
            TaskKind.CELL,
            options.task_config(),
            bundle=bundle,
            name=options.name or name,
            source={"client": "det.remote", "where": shipped.name},
            workspace=options.workspace,
            project=options.project,
        )
        for warning in submitted.warnings:
            print_line(f"warning: {warning.message}" + (f" ({warning.hint})" if warning.hint else ""))
        assert submitted.task is not None  # only a dry run has none
        return RemoteCall(submitted.task, name, RESULT, trust=options.trust)


def remote(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Make a function one whose calls run on the cluster: `@det.remote` or `@det.remote(slots=2, pool="gpu")`.

    `f.remote(x)` submits a call and returns at once; its `result()` waits, streams the output, and returns the value or
    raises with the traceback of the task. `f.map(xs)` submits many, `f.local(x)` runs here; a plain `f(x)` is refused,
    as in Ray and Modal, since it does not say where.

    Args:
        function: The function; None where options are given.
        options: `slots` (1), `pool`, `environment` (an image, or the block of a task's config), `runtime`, `priority`,
            `name`, `workspace`, `project`, `context` (a folder to upload), `max_time`, `config`, `trust`.

    Raises:
        FunctionNotShipped: It is not a function made by def.
        TypeError: An option is unknown.
    """
    chosen = _options(RemoteOptions(), options)
    if function is None:
        return functools.partial(RemoteFunction, options=chosen)
    return RemoteFunction(function, chosen)


setattr(remote, MARK, True)


def _options(before: RemoteOptions, changes: Mapping[str, Any]) -> RemoteOptions:
    known = [one.name for one in fields(RemoteOptions)]
    unknown = sorted(set(changes) - set(known))
    if unknown:
        raise TypeError(f"det.remote has no option {', '.join(unknown)}; it has {', '.join(known)}")
    return replace(before, **changes)


def _arguments(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[dict[str, tuple[str, Any]], str]:
    """Return the arguments as variables, each with what it is called in errors, and the text between the brackets."""
    parameters = list(inspect.signature(function).parameters.values())
    values: dict[str, tuple[str, Any]] = {}
    words = []
    for place, value in enumerate(args):
        known = parameters[place].name if place < len(parameters) else f"number {place + 1}"
        values[f"{_ARGUMENT}{place}"] = (f"the argument {known}", value)
        words.append(f"{_ARGUMENT}{place}")
    for name, value in kwargs.items():
        values[f"{_ARGUMENT}{name}"] = (f"the argument {name}", value)
        words.append(f"{name}={_ARGUMENT}{name}")
    return values, ", ".join(words)


def encoded(name: str, values: Mapping[str, tuple[str, Any]]) -> dict[str, EncodedVariable]:
    """Return values as they travel.

    Args:
        name: Of the function.
        values: By the variable, what errors call it, and the value.

    Raises:
        FunctionNotShipped: Some cannot travel; all of them are named.
    """
    found: dict[str, EncodedVariable] = {}
    problems = []
    for variable, (called, value) in values.items():
        try:
            found[variable] = encode(value, called)
        except ValueProblem as problem:
            problems.append(str(problem))
    if problems:
        hint = "Make it inside the function, or pass what it is made of: paths, numbers, arrays"
        raise FunctionNotShipped.of(f"{name}() cannot be sent:", problems, hint=hint)
    return found
