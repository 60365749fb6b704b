"""The launcher: `python -m detlab.launch.task --dir DIR` runs one task and delivers its output and metrics.

It starts the entrypoint, reads its output, ships logs and metrics through the spool, renews the token, and writes
`exit.json` last. It outlives its agent and waits out any master outage. Only the standard library is imported before
the user's code runs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from detlab.files import write_atomic
from detlab.launch.delivery.media import MediaSender
from detlab.launch.delivery.output import LogSpool, OutputPump
from detlab.launch.delivery.sender import LOG_INTERVAL, Deliverer, DeliveryEnding, HttpTransport, SpoolSource
from detlab.launch.delivery.shipping import RecordRefusal, StreamShipper
from detlab.launch.delivery.spool import SpoolReader, open_regular, read_mark
from detlab.launch.delivery.tokens import TokenKeeper, life_of
from detlab.launch.entrypoint import EntrypointCommand, EntrypointProcess, Start, start_cold, with_hook
from detlab.launch.environment import entrypoint_environment
from detlab.launch.host import procfs
from detlab.launch.host.cgroup import kernel_may_have_killed, machine_oom_kills, oom_kills
from detlab.launch.python_program import KEPT, why_cold
from detlab.launch.taskdir import (
    TaskDir,
    failed_ranks,
    first_failing_rank,
    note_failing_rank,
    ranks_that_left,
    read_object,
    write_json,
)
from detlab.short_folder import short_folder

if TYPE_CHECKING:
    from detlab.core.event_files.importing import EventImport
    from detlab.launch.delivery.plain_http import PlainTransport
    from detlab.launch.ranks.judging import HangVerdict
    from detlab.launch.ranks.watchdog import HangWatch, WatchedRanks

STRAGGLER_GRACE = 1.0
"""Seconds that processes may outlive the entrypoint (data loader workers on their way out) before SIGKILL."""
STOP_GRACE = 30.0
"""Seconds that a task which was asked to stop may take although its shell is dead. The agent's SIGKILL comes earlier:
how long a stop may take is the master's to say, and this bound only counts when there is no agent."""
OUTPUT_GRACE = 5.0
"""Seconds to wait for the pipes to close once every process of the task is dead."""
EXIT_PATIENCE = 60
"""Attempts, one a second, to write the exit to a full disk."""
FOLDER_LOOK = 5.0
"""Seconds between two looks whether the task's folder is still there, once the task has ended."""
GONE_PATIENCE = 60.0
"""Seconds for which the folder must have been gone until what could not be delivered is given up: with it went what was
to be delivered, and whoever would read how the task ended."""
TOKEN_AGAIN = 5.0
"""Seconds after which writing a renewed token is tried again if the disk was full."""
MARK_AGAIN = 1.0
"""Seconds after which writing a mark is tried again: checkpoints wait for it."""
STACKS_GRACE = 1.0
"""Seconds that a rank which hangs has to print its stacks before SIGKILL."""
CANNOT_START = 127
FIRST_RUN = 1
"""Number of a trial's first attempt."""
LONGEST_TEMPORARY = 40
"""Bytes of TMPDIR to which any program can add the name of a Unix socket, of 107 in all: multiprocessing adds 32,
editors and Ray up to 60."""
REPORTS_LOST = 1
"""The exit of a task that ended well, but some of whose reports are lost: its next attempt makes them again."""


class DirMarks:
    """Note in the task's directory how far the delivery is.

    Of metrics there is a mark from the start: where there is one, a checkpoint is committed only after the reports
    before it (`CheckpointContext`).

    Args:
        task: The task's directory.
        logs: The log spool, which may be emptied once it is delivered.
    """

    def __init__(self, task: TaskDir, logs: LogSpool) -> None:
        self._task = task
        self._logs = logs
        self._newest: dict[str, int] = {}
        self._writing = threading.Lock()
        self._said: set[tuple[str, str]] = set()
        self.lost = {"metrics": 0, "logs": 0}
        """Records that were written and cannot be delivered."""
        if not task.acked("metrics").exists():
            self._write("metrics", 0)

    def committed(self, shipper: StreamShipper, reader: SpoolReader) -> None:
        """Write the `.acked` file of the stream."""
        self._write(shipper.stream, shipper.acked)
        if shipper.stream == "logs" and self._logs.committed(shipper.acked_end):
            reader.restart()

    def _write(self, stream: str, mark: int) -> None:
        with self._writing:
            if mark < self._newest.get(stream, 0):
                return  # a full disk took its time
            self._newest[stream] = mark
            try:
                write_atomic(self._task.acked(stream), b"%d\n" % mark)
            except OSError:
                again = threading.Timer(MARK_AGAIN, self._write, (stream, mark))
                again.daemon = True
                again.start()

    def damaged(self, shipper: StreamShipper, reader: SpoolReader) -> None:
        """Say it in the task's output, once for each kind; a checkpoint does not wait for reports that are lost."""
        stream, damage = shipper.stream, reader.damage
        for kind, happened in (
            ("was cut off", damage.shrunk),
            ("was replaced by another file", damage.replaced),
            ("has records with numbers of earlier ones", damage.repeated),
        ):
            if happened and (stream, kind) not in self._said:
                self._said.add((stream, kind))
                self._logs.say_at_once(
                    f"detlab: {self._task.stream(stream)} {kind} by something other than detlab; what can be read is"
                    " delivered, and nothing twice"
                )
        lost = damage.lost - self.lost[stream]
        if lost:
            self.lost[stream] = damage.lost
            noun, verb = (
                ("report" if stream == "metrics" else "line", "was")
                if lost == 1
                else ("reports" if stream == "metrics" else "lines", "were")
            )
            self._logs.say_at_once(
                f"detlab: {lost} {noun} of this task {verb} lost: {self._task.stream(stream)} was changed before the"
                " master had them"
            )
            if stream == "metrics":
                self._write(stream, reader.seq if shipper.pending == 0 else shipper.acked)

    def refused(self, refusals: Sequence[RecordRefusal]) -> None:
        """Tell the trial through `refused.jsonl`."""
        records = [{"seq": r.seq, "code": r.code, "message": r.message} for r in refusals]
        try:
            with self._task.refused.open("a", encoding="utf-8") as file:
                file.write("".join(json.dumps(record) + "\n" for record in records))
        except OSError as error:  # a full disk must not end the delivery of everything else
            sys.stderr.write(f"{self._task.refused}: {error}: {records}\n")


class Launcher:
    """Run the task whose directory this is.

    Args:
        task: The directory, made by the agent.
        start: Starts the entrypoint. It is called while the launcher has one thread.
    """

    def __init__(self, task: TaskDir, start: Start = start_cold) -> None:
        self._task = task
        self._start_entry = start
        launch = read_object(task.launch)
        if launch is None:
            raise SystemExit(f"{task.launch}: no launch message")
        self._launch: dict[str, Any] = launch
        self._child: EntrypointProcess | None = None
        self._stop_signal: int | None = None
        self._stop_at = 0.0
        self._asked: set[int] = set()
        self._killed = False
        self._port_taken = False
        self._oom_before = oom_kills()
        self._machine_oom_before = machine_oom_kills()
        self._hang_watch: HangWatch | None = None
        self._hang_limit = 0.0
        self._hung = 0
        self._logs = LogSpool(task.stream("logs"))
        self._marks = DirMarks(task, self._logs)
        self._newest_token = ""
        self._short = contextlib.ExitStack()

    def run(self) -> int:
        """Run the task to its end; return the entrypoint's exit code (negative: died by that signal)."""
        self._write_identity(None)
        if not procfs.adopt_orphans():
            sys.stderr.write("not a subreaper: daemons that the task starts may outlive it\n")
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        signal.signal(signal.SIGUSR1, self._on_kill_request)
        self._say_attempt()
        began = time.time()
        pump = self._start()
        deliverer = self._make_deliverer()
        deliverer.start()
        self._logs.set_notify(deliverer.wake)
        media = self._make_media_sender()
        media.start()
        code, events = CANNOT_START, None
        if pump is not None:
            pump.start()
            events = self._import_events(began)
            if self._hang_watch is not None:
                self._hang_watch.start()
            code = self._wait()
            if self._hang_watch is not None:
                self._hang_watch.close()
            self._end_stragglers()
            while not pump.join(OUTPUT_GRACE) and self._logs.holding and deliverer.running:
                pass  # the output waits for room in the spool, which the master makes
        if self._hung and code != 0:
            code = self._hung
        oom = code != 0 and self._out_of_memory(code)
        if code != 0 and (left := ranks_that_left(self._task.ranks)) is not None:
            self._logs.say(f"detlab: {left}")
        self._short.close()
        if events is not None:
            events.finish()
        if deliverer.running and (unsent := media.finish()):
            self._logs.say(f"detlab: {unsent} media objects were not sent: the master did not answer")
        self._deliver_rest(deliverer)
        if code == 0 and self._marks.lost["metrics"]:
            code = REPORTS_LOST
        self._write_exit(code, deliverer.ending, oom=oom)
        return code

    def _deliver_rest(self, deliverer: Deliverer) -> None:
        """Deliver what is left, however long the master is away; not once the task's folder has been removed."""
        gone_since: float | None = None
        while not deliverer.finish(FOLDER_LOOK):
            if self._is_there():
                gone_since = None
                continue
            gone_since = time.monotonic() if gone_since is None else gone_since
            if time.monotonic() - gone_since >= GONE_PATIENCE:
                sys.stderr.write(f"{self._task.root} was removed: its output is not delivered\n")
                deliverer.stop()

    def _is_there(self) -> bool:
        """Whether the task's folder has not been removed; a file system that does not answer has not lost it."""
        try:
            self._task.root.stat()
        except FileNotFoundError:
            return False
        except OSError:
            return True
        return True

    def _out_of_memory(self, code: int) -> bool:
        """Whether the kernel ended a process of our container for its limit; elsewhere the count is not ours."""
        if os.getpid() != 1 or oom_kills() <= self._oom_before:
            self._say_if_machine_ran_out(code)
            return False
        self._logs.say("detlab: the container's memory limit was reached, and the kernel ended a process of the task")
        return True

    def _say_if_machine_ran_out(self, code: int) -> None:
        """Say what speaks for the kernel as the one that killed: it is no proof, as the whole machine is counted."""
        codes = (code, *(code for _, code in failed_ranks(self._task.ranks)))
        ours = self._killed or self._stop_signal is not None
        if not ours and kernel_may_have_killed(codes, self._machine_oom_before, machine_oom_kills()):
            self._logs.say("detlab: the kernel ran out of memory and ended a process while this task ran")

    def _say_attempt(self) -> None:
        """Mark in the output of a trial where a later attempt begins, and from which step it continues."""
        told = self._launch["info"]
        run, checkpoint, step = int(told.get("run") or 0), told.get("latest_checkpoint"), told.get("resume_step")
        if run < 2 or not told.get("trial_id") or told.get("container_rank"):
            return
        begins = f"resumes at step {step}" if step is not None else "begins anew"
        where = f"from checkpoint {checkpoint}" if checkpoint else "without a checkpoint"
        self._logs.say(f"detlab: attempt {run} of trial {told['trial_id']} {begins}, {where}")

    # --- the entrypoint -----------------------------------------------------------------------------------

    def _start(self) -> OutputPump | None:
        """Start the entrypoint as a process group; None when it cannot be started."""
        entrypoint = self._launch["entrypoint"]
        words = entrypoint if isinstance(entrypoint, str) else [str(word) for word in entrypoint]
        env = entrypoint_environment(os.environ, self._launch, self._task.root)
        if self._launch.get("service") is None:  # a server's folder is a home, not code that was submitted
            words = with_hook(words, self._task.work, env)
        self._shorten_temporary(env)
        self._watch_ranks(env)
        if self._launch.get("service") is not None and not self._service_port_free(env):
            return None
        out_read, out_write = os.pipe()
        err_read, err_write = os.pipe()
        passed = (int(env["DET_SERVICE_FD"]),) if "DET_SERVICE_FD" in env else ()
        entry = EntrypointCommand(words, self._task.work, env, out_write, err_write, passed, self._say_cold)
        if (reason := why_cold(os.environ.get(KEPT), self._launch)) is not None:
            self._say_cold(reason)
        try:
            self._child = self._start_entry(entry)
        except (OSError, ValueError) as error:
            os.close(out_read)
            os.close(err_read)
            self._logs.say(f"detlab: cannot start {entry.words[0]!r}: {error}")
            return None
        finally:
            os.close(out_write)
            os.close(err_write)
        self._write_identity(self._child.pid)
        if self._killed:
            self._signal_group(signal.SIGKILL)
        if self._stop_signal is not None:  # it came before there was anybody to pass it on to
            self._stop_group(self._stop_signal)
        return OutputPump({"stdout": out_read, "stderr": err_read}, self._logs)

    def _say_cold(self, reason: str) -> None:
        """Say once per trial why the node's warm pool does not serve it."""
        if int(self._launch["run"]) == FIRST_RUN and not self._launch["info"].get("container_rank"):
            self._logs.say(f"detlab: started cold, since the warm pool cannot serve this trial: {reason}")

    def _shorten_temporary(self, env: dict[str, str]) -> None:
        """Give a TMPDIR with a long path a short name: workers of a DataLoader meet at Unix sockets in it."""
        own = env.get("TMPDIR", "")
        if own != str(self._task.tmp) or len(os.fsencode(own)) <= LONGEST_TEMPORARY:
            return
        try:
            short = self._short.enter_context(short_folder()) / "t"
            short.symlink_to(own)
        except OSError as error:
            sys.stderr.write(f"TMPDIR has no shorter name than {own}: {error}\n")
        else:
            env["TMPDIR"] = str(short)

    def _service_port_free(self, env: dict[str, str]) -> bool:
        """Whether the port is the task's: the agent's own socket, or one that is still free to the container.

        The socket stays open here, so that no other program can take the port of a server that crashes.
        """
        if "DET_SERVICE_FD" in env:
            return True
        address, port = env["DET_SERVICE_ADDRESS"], int(env["DET_SERVICE_PORT"])
        try:
            if "DET_SERVICE_SOCKET" in env:  # a container in the host's network inherits nothing
                from detlab.launch.handed import receive

                env["DET_SERVICE_FD"] = str(receive(Path(env.pop("DET_SERVICE_SOCKET"))))
                return True
            family, kind, protocol, _, where = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(where)
        except OSError as error:
            self._port_taken = True
            self._logs.say(f"detlab: port {port} of {address} cannot be used by this task: {error}")
            return False
        return True

    def _watch_ranks(self, env: dict[str, str]) -> None:
        """Make the watch over ranks that hang, of a task that may have several; tell them its limit."""
        told = self._launch["info"]
        if len(told["slot_ids"]) < 2 and len(told.get("container_addrs") or ()) < 2:
            return
        from detlab.launch.ranks.judging import LIMIT_VARIABLE  # other tasks start sooner without these
        from detlab.launch.ranks.watchdog import BUSY_FACTOR, HangWatch, limit_of

        said = env.get(LIMIT_VARIABLE)
        limit = limit_of(said)
        env[LIMIT_VARIABLE] = f"{limit or 0:g}"
        # Without a limit here, training loops are watched: they bring their own.
        self._hang_limit = limit or math.inf
        busy = math.inf if said is None else BUSY_FACTOR * self._hang_limit
        others = self._other_nodes(self._hang_limit)
        self._hang_watch = HangWatch(self._task, self._hang_limit, self._on_hang, busy, others=others)

    def _other_nodes(self, limit: float) -> WatchedRanks | None:
        """Return the ranks of the trial's other nodes; None if there are none."""
        told = self._launch["info"]
        if len(told.get("container_addrs") or ()) < 2:
            return None
        from detlab.launch.delivery.plain_http import PlainTransport
        from detlab.launch.ranks.watchdog_nodes import OtherNodes

        transport = PlainTransport(str(told["master_url"]).rstrip("/") + "/api/v1/")
        return OtherNodes(self._task.root, str(told["agent_id"]), int(told["container_rank"]), transport, limit)

    def _on_hang(self, verdict: HangVerdict) -> None:
        """Name the rank that hangs, have it print its stacks, and end the attempt."""
        from detlab.launch.ranks.watchdog import HUNG

        sign = verdict.sign
        note_failing_rank(self._task.ranks, sign.rank, HUNG)
        self._logs.say(verdict.line(self._hang_limit))
        here = sign.node in {"", self._launch["info"]["agent_id"]}  # its number may be another process's here
        ours = (process for process in procfs.descendants(os.getpid()) if here and process.pid == sign.pid)
        procfs.send_signal(ours, signal.SIGUSR1)  # `core.init()` has it print the stacks of all threads
        threading.Event().wait(STACKS_GRACE)
        self._killed, self._hung = True, HUNG
        procfs.send_signal(procfs.descendants(os.getpid()), signal.SIGKILL)

    def _wait(self) -> int:
        """Reap every child, adopted orphans included, until the entrypoint has ended."""
        child = self._child
        assert child is not None
        while child.returncode is None:
            pid, status = os.waitpid(-1, 0)
            if pid == child.pid:
                child.returncode = os.waitstatus_to_exitcode(status)
        return child.returncode

    def _end_stragglers(self) -> None:
        """End what the entrypoint left behind: no process outlives its slot.

        A shell dies of the stop that its program is still obeying (dash starts even the one command of `sh -c` as a
        child), so that what is left after a stop has the time that the stop gives, and is not asked a second time.
        """
        deadline = time.monotonic() + STRAGGLER_GRACE
        if self._stop_signal is not None:
            deadline = max(deadline, self._stop_at + STOP_GRACE)
        asked = self._asked
        while not self._childless() and (left := procfs.descendants(os.getpid())):
            if time.monotonic() < deadline and not self._killed:
                procfs.send_signal((p for p in left if p.pid not in asked), signal.SIGTERM)
                asked.update(p.pid for p in left)
            else:
                procfs.send_signal(left, signal.SIGKILL)
            self._reap(0.02)
        self._reap(0.0)

    @staticmethod
    def _childless() -> bool:
        """Whether nothing of the task is left: what it leaves behind becomes our child, or descends from one."""
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return True
        return False

    def _reap(self, pause: float) -> None:
        """Collect ended children for at least `pause` seconds."""
        threading.Event().wait(pause)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        """Pass a stop on to the entrypoint; shipping continues."""
        if self._stop_signal is None:
            self._stop_at = time.monotonic()
        self._stop_signal = number
        self._stop_group(number)

    def _on_kill_request(self, number: int, frame: FrameType | None) -> None:
        """SIGKILL everything but ourselves, deliver, end: what the agent does itself where it sees the processes."""
        self._killed = True
        procfs.send_signal(procfs.descendants(os.getpid()), signal.SIGKILL)

    def _stop_group(self, number: int) -> None:
        if self._child is not None and self._child.returncode is None:
            group = self._child.pid
            self._asked.update(p.pid for p in procfs.descendants(os.getpid()) if p.pgid == group)
        self._signal_group(number)

    def _signal_group(self, number: int) -> None:
        if self._child is not None and self._child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._child.pid, number)

    # --- delivery -----------------------------------------------------------------------------------------

    def _open_transport(self) -> HttpTransport | PlainTransport:
        from detlab.launch.delivery.plain_http import PlainTransport

        api_url = str(self._launch["info"]["master_url"]).rstrip("/") + "/api/v1/"
        # To a master without TLS the standard library speaks as well, and is there at once.
        if api_url.startswith("http:"):
            return PlainTransport(api_url)
        try:
            return HttpTransport(api_url)
        except ImportError:
            return PlainTransport(api_url)

    def _make_media_sender(self) -> MediaSender:
        return MediaSender(
            self._open_transport,
            self._task.media,
            lambda: self._task.token.read_text(encoding="ascii").strip(),
            self._logs.say,
        )

    def _import_events(self, began: float) -> EventImport | None:
        """Import what the task writes for TensorBoard, if its configuration asks for that; never fail it for that."""
        told = self._launch["info"]
        config = told.get("config") or {}
        if config.get("tensorboard") != "import" or not told.get("trial_id") or told.get("container_rank"):
            return None  # rank 0, whose files count, is on the first node
        try:
            from detlab.core.event_files.trials import import_into_trial

            events = import_into_trial(
                self._task.root,
                config,
                self._logs.say,
                since=began,
                processes=lambda: [process.pid for process in procfs.descendants(os.getpid())],
            )
            events.start()
        except Exception as error:  # a full disk, a broken environment
            self._logs.say(f"detlab: what is written for TensorBoard is not imported: {error}")
            return None
        return events

    def _make_deliverer(self) -> Deliverer:
        task = self._task

        def source(name: Any, interval: float) -> SpoolSource:
            mark = read_mark(task.acked(name))
            if name == "logs":  # ours alone: whatever is put in its place, or behind its end, is not
                logs = self._logs
                reader = SpoolReader(
                    logs.open_reader, mark, expects=mark + 1, end=lambda: logs.size, written=lambda: logs.last
                )
            else:
                written = partial(read_mark, task.spool / "metrics.seq")
                reader = SpoolReader(lambda: open_regular(task.stream(name)), mark, expects=mark + 1, written=written)
            return SpoolSource(reader, StreamShipper(name, acked=mark), interval)

        now, life = time.monotonic(), self._launch.get("token_life")
        node = int(self._launch["info"].get("container_rank", 0))  # each node's launcher counts its own records
        return Deliverer(
            self._open_transport,
            f"task/records?node={node}" if node else "task/records",
            [source("metrics", 0.0), source("logs", LOG_INTERVAL)],
            TokenKeeper(
                task.token.read_text(encoding="ascii").strip(),
                now + life_of(life, float(self._launch["token_expires_at"]), time.time()),
                now,
            ),
            self._marks,
            renew_path="task/token",
            on_token=self._keep_token,
            on_fenced=self._on_fenced,
        )

    def _keep_token(self, token: str) -> None:
        """Give a renewed token to the trial's own calls; they re-read the file when they are refused."""
        self._newest_token = token
        self._write_token(token)

    def _write_token(self, token: str) -> None:
        if token != self._newest_token:
            return
        try:
            write_atomic(self._task.token, token.encode())
        except OSError as error:  # a full disk: until it has room the trial continues with the token that it has
            sys.stderr.write(f"{self._task.token}: {error}\n")
            again = threading.Timer(TOKEN_AGAIN, self._write_token, (token,))
            again.daemon = True
            again.start()

    def _on_fenced(self, message: str) -> None:
        """End the task at once: a newer attempt is writing, so nothing this task does counts any more."""
        sys.stderr.write(f"fenced: {message}\n")
        self._signal_group(signal.SIGKILL)

    # --- what the agent reads -----------------------------------------------------------------------------

    def _write_identity(self, pgid: int | None) -> None:
        pid = os.getpid()
        identity = {"pid": pid, "start_time": procfs.start_time(pid), "pgid": pgid}
        write_json(self._task.launcher, identity)

    def _write_exit(self, code: int, ending: DeliveryEnding, *, oom: bool) -> None:
        rank = first_failing_rank(self._task.ranks) if code else None
        # What is not delivered, because the delivery broke down, the agent ships in our place.
        delivered = ending in {DeliveryEnding.DELIVERED, DeliveryEnding.FENCED}
        report = {"exit_code": code, "rank": rank, "time": time.time(), "delivered": delivered}
        report |= {name: True for name, so in (("oom", oom), ("port_taken", self._port_taken)) if so}
        for _ in range(EXIT_PATIENCE):
            try:
                write_json(self._task.exit, report, durable=True)
            except FileNotFoundError as error:  # nobody would read it
                sys.stderr.write(f"{self._task.exit}: {error}\n")
                return
            except OSError as error:  # a full disk: the trial that filled it is over, there may be room soon
                sys.stderr.write(f"{self._task.exit}: {error}\n")
                threading.Event().wait(1.0)
            else:
                return


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the launcher; return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m detlab.launch.task", description=__doc__)
    parser.add_argument("--dir", type=Path, required=True, help="the task's directory")
    options = parser.parse_args(arguments)
    code = Launcher(TaskDir(options.dir.absolute())).run()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
