"""Prefix output with the rank: `python3 -m detlab.launch.wrap_rank RANK -- CMD…`.

Every line that CMD writes to stdout or stderr gets the prefix `[rank=N] `, from which the launcher makes the rank
of a log line. RANK is a number or a comma-separated list of environment variables of which the first that is set
counts; left out, it is `RANK` (what torchrun sets). Signals are passed on; the exit status is CMD's own, and a CMD
that died by a signal makes this process die by the same.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType

from detlab.launch.delivery.lines import LineSplitter
from detlab.launch.taskdir import TaskDir

USAGE = "usage: python3 -m detlab.launch.wrap_rank [RANK] [--] CMD..."
_READ = 1 << 16


def parse_arguments(arguments: Sequence[str], env: Mapping[str, str]) -> tuple[int, list[str]]:
    """Return rank and command.

    Args:
        arguments: What follows the program's name.
        env: The environment in which rank variables are looked up.

    Raises:
        ValueError: There is no command, or no rank can be determined.
    """
    rest = list(arguments)
    if rest[:1] == ["--no-redirect-stdio"]:  # Determined's option; there is nothing to redirect here
        rest.pop(0)
    name = "RANK"
    if rest and rest[0] != "--" and (_is_rank(rest[0]) or "--" in rest[1:2]):
        name = rest.pop(0)
    if rest and rest[0] == "--":
        rest.pop(0)
    if not rest:
        raise ValueError(f"no command to wrap\n{USAGE}")
    if name.isdigit():
        return int(name), rest
    for variable in name.split(","):
        if env.get(variable, "").isdigit():
            return int(env[variable]), rest
    raise ValueError(f"no rank: none of the environment variables {name} holds a number\n{USAGE}")


def _is_rank(word: str) -> bool:
    """Whether a first word is a rank: a number, or names of variables in capitals such as RANK,PMI_RANK."""
    return word.isdigit() or all(part.isidentifier() and part.isupper() for part in word.split(","))


def _forward(source: int, target: int, prefix: bytes) -> None:
    """Copy lines from one descriptor to another with a prefix, one write per read so that ranks do not mix."""
    splitter = LineSplitter()
    while True:
        data = os.read(source, _READ)
        lines = splitter.feed(data, time.monotonic()) if data else splitter.flush()
        block = memoryview(b"".join(prefix + line + b"\n" for line in lines))
        while block:
            block = block[os.write(target, block) :]
        if not data:
            return


def _note_exit(rank: int, code: int) -> None:
    """Tell the launcher how this rank ended, so that the first failing one can be named."""
    directory = os.environ.get("DET_TASK_DIR")
    if not directory:
        return
    line = json.dumps({"rank": rank, "exit_code": code, "time": time.time()}) + "\n"
    with contextlib.suppress(OSError), TaskDir(Path(directory)).ranks.open("a", encoding="utf-8") as file:
        file.write(line)


def run(rank: int, command: Sequence[str]) -> int:
    """Run `command` as this rank; return its exit code, negative if a signal ended it."""
    stop: list[int] = []
    child: subprocess.Popen[bytes] | None = None

    def pass_on(number: int, frame: FrameType | None) -> None:
        stop.append(number)
        if child is not None:
            child.send_signal(number)
            child.send_signal(signal.SIGCONT)  # a stopped process would obey only once somebody continues it

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, pass_on)
    try:
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)
    except OSError as error:
        sys.stderr.write(f"[rank={rank}] cannot start {command[0]!r}: {error}\n")
        _note_exit(rank, 127)
        return 127
    for early in stop:
        child.send_signal(early)
    assert child.stdout is not None
    assert child.stderr is not None
    prefix = b"[rank=%d] " % rank
    copies = [
        threading.Thread(target=_forward, args=(source.fileno(), target, prefix), daemon=True)
        for source, target in ((child.stdout, 1), (child.stderr, 2))
    ]
    for copy in copies:
        copy.start()
    code = child.wait()
    _note_exit(rank, code)
    for copy in copies:
        # A grandchild may hold the pipe: the rank has ended all the same.
        copy.join(5.0)
    return code


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the wrapper; return its exit status."""
    try:
        rank, command = parse_arguments(sys.argv[1:] if arguments is None else arguments, os.environ)
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    code = run(rank, command)
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


if __name__ == "__main__":
    sys.exit(main())
