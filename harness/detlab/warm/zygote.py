"""The zygote: `python -c "from detlab.warm.zygote import main; main()"`, started by the agent with one socket.

It has one thread, takes no request itself and knows nothing of any task: when a message waits, it forks, and the fork
reads it. That one forks once more and ends, so that the launcher becomes a child of the agent (which is a subreaper,
as it is for its other launchers). The zygote ends with its agent.

The stack unwinds to `main` in every fork, so that a trial's interpreter ends as any other does.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import socket
import sys
import time
import traceback
from dataclasses import dataclass

from detlab.governance.attestation import loaded_code
from detlab.launch.warm_wire import CONTROL, DESCRIPTORS, MAX_MESSAGE, ROOM, ForkRequest
from detlab.warm.child import run_launcher
from detlab.warm.ending import WarmEnding
from detlab.warm.fresh import blas_libraries, set_oom_score
from detlab.warm.hugepages import use_large_pages
from detlab.warm.interpreter import Interpreter
from detlab.warm.preload import Unfit, check_single, loaded_names, noting_variables, preload
from detlab.warm.title import Title, set_environment

FIRST_TO_END = "1000"
"""The highest score that the kernel knows."""


@dataclass(frozen=True)
class Forked:
    """What a launcher's process knows when it begins.

    Attributes:
        request: What the agent asked for.
        descriptors: The launcher's log, the status pipe, and the pipe on which the agent gives the signal to continue.
    """

    request: ForkRequest
    descriptors: list[int]


def main() -> None:
    """Be a zygote; in a fork, be a launcher, and in a fork of that the trial."""
    control = socket.socket(fileno=int(os.environ[CONTROL]))
    control.set_inheritable(False)
    ending = WarmEnding.prepare()
    interpreter = _warm_up(control, ending)
    title = Title.find()
    forked = _serve(control, title)
    program = run_launcher(forked.request, forked.descriptors, interpreter, title)
    # Only the trial's process comes here; the launcher has ended itself.
    del forked, control
    try:
        program.run()
    except SystemExit as end:
        ending.note(end)
        raise
    ending.note()


def _warm_up(control: socket.socket, ending: WarmEnding) -> Interpreter:
    """Import everything, and tell the agent."""
    began = time.monotonic()
    if sys.path[:1] == [""]:
        del sys.path[0]
    for name in (CONTROL, ROOM):
        os.environ.pop(name, None)
    interpreter = Interpreter.remember()
    try:
        with noting_variables() as read:
            missing = preload()
    except Exception as error:  # the agent says it; there is no zygote then
        _say(control, {"error": f"{type(error).__name__}: {error}"})
        raise SystemExit(1) from error
    interpreter = interpreter.knowing(loaded_names(), frozenset(read))
    ending.know()
    blas_libraries()
    # What is there now stays: the collector of a fork would else touch, and so copy, every page of it.
    gc.collect()
    gc.freeze()
    use_large_pages()
    with contextlib.suppress(OSError):  # when memory is short, the kernel ends this process before any task
        set_oom_score(FIRST_TO_END)
    _say(control, {"ready": True, "code": loaded_code()})
    without = f" without {', '.join(missing)}" if missing else ""
    sys.stderr.write(f"zygote {os.getpid()} is ready after {time.monotonic() - began:.1f} s{without}\n")
    return interpreter


def _serve(control: socket.socket, title: Title) -> Forked:
    """Fork for every message; return in the forks, never in the zygote."""
    while True:
        if not _message_waits(control):
            os._exit(0)
        try:
            check_single()
            pid = os.fork()
        except (Unfit, OSError) as error:
            control.recv(1)  # a message left unread would be all that the agent hears of our end
            _say(control, {"error": f"it cannot be forked: {error}"})
            os._exit(1)
        if pid == 0:
            return _second_fork(control, title)
        _, status = os.waitpid(pid, 0)
        if status != 0:  # nobody knows whether the message was taken: end, and be started afresh
            _say(control, {"error": "a fork of the zygote failed"})
            os._exit(1)


def _message_waits(control: socket.socket) -> bool:
    """Wait for a message, without reading it; False when the agent is gone."""
    select.select([control], [], [])
    try:
        return bool(control.recv(1, socket.MSG_PEEK))
    except ConnectionError:
        return False


def _second_fork(control: socket.socket, title: Title) -> Forked:
    """Read the message, fork the launcher's process and tell its pid; return in that one."""
    try:
        data, descriptors, _, _ = socket.recv_fds(control, MAX_MESSAGE, DESCRIPTORS)
        request = ForkRequest.decode(data)
        # Before the second fork, so that no process of the task is ever seen without its directory.
        set_environment(request.env)
        title.write(request.command, request.env)
        pid = os.fork()
        if pid:
            _say(control, {"pid": pid})
            os._exit(0)
    except BaseException:  # a fork that must not go on as the zygote
        traceback.print_exc()
        os._exit(1)
    control.close()
    return Forked(request, list(descriptors))


def _say(control: socket.socket, message: dict[str, object]) -> None:
    with contextlib.suppress(OSError):  # the agent is gone
        control.send(json.dumps(message).encode())
