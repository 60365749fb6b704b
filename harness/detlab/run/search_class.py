"""The process that holds the class of a custom search: `python -m detlab.run.search_class IN OUT`.

It reads one JSON line per event from the descriptor IN, calls the class, and writes one line to OUT: its operations, or
an error text. `detlab.run.search` above it has the token, watches the time, and talks to the master.
SIGUSR1 writes the current stack of the class to standard error, even while it computes.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import linecache
import os
import random
import signal
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from detlab.searcher import (
    Close,
    Create,
    ExitedReason,
    Operation,
    Progress,
    RequestId,
    SearcherState,
    SearchMethod,
    Shutdown,
    ValidateAfter,
)

_FRAMES = 8
"""Frames of a traceback in an error."""
_CHARS = 500
_HERE = str(Path(__file__).resolve())


class Wrong(Exception):
    """The class, or what it returned, is invalid; the text is for people."""


def load(entrypoint: str, options: Mapping[str, Any]) -> SearchMethod:
    """Import the class and create an instance.

    Raises:
        Wrong: There is no such class, or it is not a `SearchMethod`.
    """
    module_name, _, name = entrypoint.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name != module_name and not module_name.startswith(f"{error.name}."):
            raise
        here = sorted(one.name for one in Path().glob("*.py"))[:5]
        there = f"; the code has {', '.join(here)}" if here else "; the code has no Python file at its top"
        raise Wrong(
            f"searcher.entrypoint: there is no module {module_name!r} in the experiment's code{there}"
        ) from None
    found = getattr(module, name, None)
    if found is None:
        classes = [key for key, one in vars(module).items() if isinstance(one, type) and one.__module__ == module_name]
        has = f"; it has {', '.join(sorted(classes)[:5])}" if classes else ""
        raise Wrong(f"searcher.entrypoint: {module_name!r} has no {name!r}{has}")
    if not (isinstance(found, type) and issubclass(found, SearchMethod)):
        raise Wrong(f"searcher.entrypoint: {entrypoint} is not a subclass of detlab.searcher.SearchMethod")
    return found(**options)


class SearchClassHost:
    """The class, with the state it is given.

    Args:
        setup: `schemas.wire.SearchSetup`, as JSON values.
    """

    def __init__(self, setup: Mapping[str, Any]) -> None:
        self._setup = setup
        self._method: SearchMethod | None = None
        self._theirs: dict[str, RequestId] = {}
        """The class's ids by those of the master: they differ after a restart if the class draws them at random."""
        self._ours: dict[str, str] = {}
        self.state = SearcherState(
            hyperparameters=setup["hyperparameters"],
            seed=setup["seed"],
            metric=setup["metric"],
            smaller_is_better=setup["smaller_is_better"],
            time_metric=setup["time_metric"],
            max_trials=setup["max_trials"],
            max_concurrent_trials=setup["max_concurrent_trials"],
            require=setup.get("require") or (),
        )

    def answer(self, event: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the class says to an event: `operations`, `differs`, or a `failure`."""
        try:
            if self._method is None:
                self._seed()
                self._method = load(self._setup["entrypoint"], self._setup["options"])
            wanted = self._call(self._method, event)
            return self._settled(event, wanted)
        except Wrong as error:
            return {"failure": f"{error} ({_doing(event)})"}
        except BaseException as error:  # of the class, which may do anything: it is told to its owner
            return {"failure": failure_text(error, _doing(event))}

    def _seed(self) -> None:
        random.seed(self._setup["seed"])
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            numpy.random.seed(self._setup["seed"] % 2**32)

    def _id(self, event: Mapping[str, Any]) -> RequestId:
        key = event["request_id"]
        return self._theirs.get(key, key)

    def _call(self, method: SearchMethod, event: Mapping[str, Any]) -> list[dict[str, Any]]:
        state = self.state
        state.last_event_id = event["number"]
        said: Sequence[Operation]
        match event["type"]:
            case "initial_operations":
                said = method.initial_operations(state)
            case "trial_created":
                said = method.on_trial_created(state, self._created(event))
            case "validation_completed":
                request_id, metric = self._id(event), float(event["metric"])
                state.metrics.setdefault(request_id, []).append(metric)
                said = method.on_validation_completed(state, request_id, metric, event["train_length"])
            case "trial_exited_early":
                request_id = self._id(event)
                state.failures.add(request_id)
                said = method.on_trial_exited_early(state, request_id, ExitedReason(event["reason"]))
            case "trial_closed":
                request_id = self._id(event)
                state.trials_closed.add(request_id)
                state.trial_progress[request_id] = 1.0
                said = method.on_trial_closed(state, request_id)
            case "space_edited":
                state.hyperparameters = event["hyperparameters"]
                said = []
            case _:  # of a newer master
                said = []
        operations = [self._wire(one) for one in _listed(said, event)]
        share = method.progress(state)
        return operations if share is None else [*operations, {"type": "progress", "progress": share}]

    def _created(self, event: Mapping[str, Any]) -> RequestId:
        request_id = self._id(event)
        self.state.trials_created.add(request_id)
        self.state.trial_progress[request_id] = 0.0
        self.state.hparams[request_id] = event["hparams"]
        return request_id

    def _wire(self, one: Operation) -> dict[str, Any]:
        match one:
            case Create(hparams, request_id):
                key = str(request_id)
                self._theirs.setdefault(key, request_id)
                return {"type": "create", "request_id": key, "hparams": plain(hparams)}
            case ValidateAfter(request_id, length):
                return {"type": "validate_after", "request_id": self._key(request_id), "length": plain(length)}
            case Close(request_id):
                return {"type": "close", "request_id": self._key(request_id)}
            case Progress(share):
                return {"type": "progress", "progress": plain(share)}
            case Shutdown(cancel, failure):
                return {"type": "shutdown", "cancel": bool(cancel), "failure": bool(failure)}
        raise Wrong(
            f"the class returned {one!r:.100}; operations are Create, ValidateAfter, Close, Progress and Shutdown"
        )

    def _key(self, request_id: RequestId) -> str:
        return self._ours.get(str(request_id), str(request_id))

    def _settled(self, event: Mapping[str, Any], wanted: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the answer; if the event was answered before a restart, the earlier answer."""
        recorded = event.get("operations")
        if recorded is None:
            return {"operations": wanted}
        then = [one["request_id"] for one in recorded if one["type"] == "create"]
        now = [one["request_id"] for one in wanted if one["type"] == "create"]
        for theirs, ours in zip(now, then, strict=False):
            if theirs != ours:
                self._ours[theirs] = ours
                self._theirs[ours] = self._theirs[theirs]
        renamed = [
            {**one, "request_id": self._key(one["request_id"])} if "request_id" in one else one for one in wanted
        ]
        return {"operations": recorded, "differs": renamed != json.loads(json.dumps(recorded))}


def _listed(said: Any, event: Mapping[str, Any]) -> Sequence[Any]:
    if said is None:
        return []
    if not isinstance(said, list | tuple):
        raise Wrong(f"the class returned {said!r:.100} instead of a list of operations")
    return said


def plain(value: Any) -> Any:
    """Return a value as a JSON value; NumPy's numbers and arrays are converted.

    Raises:
        Wrong: It has no counterpart in JSON.
    """
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if type(value) in (type(None), bool, int, float, str):
        return value
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int):  # an enum, for example
        return int(value)
    raise Wrong(f"the class returned a {type(value).__name__} ({value!r:.80}), which cannot be a hyperparameter value")


def _doing(event: Mapping[str, Any]) -> str:
    about = f" of trial {event['trial']}" if event.get("trial") else ""
    return f"event {event['number']}: {event['type']}{about}"


def failure_text(error: BaseException, doing: str) -> str:
    """Return what the class raised and where, followed by the last frames."""
    frames = _frames(error.__traceback__)
    if isinstance(error, SyntaxError) and error.filename:
        where = f"{Path(error.filename).name}, line {error.lineno}: "
    else:
        where = f"{Path(frames[-1].filename).name}, line {frames[-1].lineno}, in {frames[-1].name}: " if frames else ""
    text = f"{where}{type(error).__name__}: {error}"[:_CHARS].replace("\n", " ")
    lines = [f"{text} ({doing})"]
    for frame in frames[-_FRAMES:]:
        lines.append(f"{Path(frame.filename).name}:{frame.lineno} in {frame.name}")
        source = linecache.getline(frame.filename, frame.lineno or 0).strip()
        lines += [f"    {source[:120]}"] if source else []
    return "\n".join(lines)


def _frames(trace: TracebackType | None) -> list[traceback.FrameSummary]:
    """Return the frames of a traceback from the first of the class's own on."""
    found = list(traceback.extract_tb(trace))
    while found and (found[0].filename == _HERE or found[0].filename.startswith("<frozen importlib")):
        found.pop(0)
    while found and (found[0].filename.endswith("importlib/__init__.py") or found[0].filename.startswith("<frozen")):
        found.pop(0)
    return found


def serve(read: Callable[[], str], write: Callable[[str], None]) -> None:
    """Answer events until there are no more."""
    host = SearchClassHost(json.loads(read()))
    while line := read():
        write(json.dumps(host.answer(json.loads(line)), allow_nan=True) + "\n")


def main() -> None:
    """Serve on the two descriptors that were given."""
    sys.path.insert(0, str(Path.cwd()))
    faulthandler.register(signal.SIGUSR1, file=sys.stderr, all_threads=True)
    with (
        os.fdopen(int(sys.argv[1]), "r", encoding="utf-8") as incoming,
        os.fdopen(int(sys.argv[2]), "w", encoding="utf-8") as outgoing,
    ):

        def write(line: str) -> None:
            outgoing.write(line)
            outgoing.flush()

        serve(incoming.readline, write)


if __name__ == "__main__":
    main()
