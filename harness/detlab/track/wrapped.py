"""A command whose run is kept as it is: `det track -- python train.py`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import IO, Any

from detlab.schemas.wire.runs import ExitStatus
from detlab.track.current import ID_VARIABLE, MODE_VARIABLE, OUTPUT_VARIABLE, PROJECT_VARIABLE, init
from detlab.track.folder import FOLDER_VARIABLE
from detlab.track.output import OutputLines, Stream
from detlab.track.this_run import Run

PIPE_SECONDS = 5.0
"""After the command's end, until the pipes of its output are closed: what it has left behind may hold them."""
_CHUNK = 64 * 1024


def run_command(words: Sequence[str], **settings: Any) -> int:
    """Run a command as a run; its output appears here, too. Returns its exit code, or 128 + N after signal N.

    What in it calls `detlab.init` becomes a process of the same run, unless it names an id of its own.

    Args:
        words: The command.
        **settings: Of `detlab.init`.

    Raises:
        OSError: The command cannot be started.
    """
    script = next((word for word in words if word.endswith(".py") and Path(word).is_file()), "")
    run = init(**settings, output=False, program=os.path.realpath(script) if script else "")
    try:
        process = subprocess.Popen(
            list(words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=_environment(run, settings)
        )
    except OSError as error:
        run.end("FAILED", f"cannot be started: {error}")
        raise
    copies = [_copy(run, "stdout", process.stdout, sys.stdout), _copy(run, "stderr", process.stderr, sys.stderr)]
    with _Signals(process):
        code = process.wait()
    for copy in copies:
        copy.join(PIPE_SECONDS)
    run.end(*ending(code))
    return code if code >= 0 else 128 - code


def ending(code: int) -> tuple[ExitStatus, str]:
    """Return how a run has ended by the exit code of its command; below 0 it is a signal."""
    if code == 0:
        return "FINISHED", ""
    if code > 0:
        return "FAILED", f"exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = str(-code)
    return "KILLED" if name in {"SIGINT", "SIGTERM", "SIGHUP"} else "FAILED", f"ended by {name}"


def _environment(run: Run, settings: Mapping[str, Any]) -> dict[str, str]:
    told = {**os.environ, ID_VARIABLE: run.id, OUTPUT_VARIABLE: "0", MODE_VARIABLE: run.mode}
    told.setdefault("PYTHONUNBUFFERED", "1")  # the output is a pipe, and somebody watches it
    if settings.get("project"):
        told[PROJECT_VARIABLE] = str(settings["project"])
    if run.folder is not None:
        told[FOLDER_VARIABLE] = str(run.folder.path.resolve().parent)
    return told


def _copy(run: Run, name: Stream, pipe: IO[bytes] | None, shown: Any) -> threading.Thread:
    """Copy a stream of the command to ours, as it comes, and line by line into the run."""
    assert pipe is not None
    lines = OutputLines()
    out = getattr(shown, "buffer", None)

    def copy() -> None:
        while chunk := os.read(pipe.fileno(), _CHUNK):
            if out is not None:
                out.write(chunk)
                out.flush()
            for line in lines.add(chunk.decode(errors="replace")):
                run.print_line(name, line)
        for line in lines.end():
            run.print_line(name, line)

    thread = threading.Thread(target=copy, name=f"copy {name}", daemon=True)
    thread.start()
    return thread


class _Signals:
    """Hands signals on to the command: Ctrl-C reaches it by itself, and is its to decide about."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._before: dict[int, Any] = {}

    def __enter__(self) -> None:
        self._before[signal.SIGINT] = signal.signal(signal.SIGINT, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGHUP):
            self._before[number] = signal.signal(number, self._hand_on)

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def _hand_on(self, number: int, _: FrameType | None) -> None:
        self._process.send_signal(number)
