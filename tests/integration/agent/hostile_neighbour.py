"""What a hostile task does to the processes of others: every way to read, steer or end them.

It runs as a task of a user; `VICTIMS` are process ids by name, `PATHS` are files and folders to read. For each action
it prints the error's name, or `done`. Nothing of it imports detlab: it is what anybody may write.
"""

import contextlib
import ctypes
import errno
import json
import os
import resource
import signal
import socket
import struct
from pathlib import Path

libc = ctypes.CDLL(None, use_errno=True)
PTRACE_ATTACH, PTRACE_SEIZE = 16, 0x4206
PROCESS_VM_READV, PROCESS_VM_WRITEV, PIDFD_GETFD = 310, 311, 438
CLONE_NEWNS = 0x00020000
READ = ("environ", "mem", "maps", "smaps", "auxv", "io", "stack", "syscall", "pagemap", "personality")
LISTED = ("fd", "fdinfo", "map_files", "ns", "task/{pid}/fd", "cwd/", "root/")
LINKS = ("cwd", "root", "exe", "fd/0", "ns/mnt")
WRITTEN = ("mem", "oom_score_adj", "clear_refs", "comm", "coredump_filter", "uid_map")
MACHINE = (
    *("/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname", "/proc/kcore", "/dev/mem"),
    *(
        "/dev/kmsg",
        "/dev/sda",
        "/dev/vda",
        "/sys/kernel/uevent_helper",
        "/sys/power/state",
        "/sys/fs/cgroup/cgroup.procs",
    ),
)


def call(function, *arguments):
    ctypes.set_errno(0)
    result = function(*arguments)
    if result == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def read(path):
    with Path(path).open("rb") as file:
        file.read(1)


def look(path):
    if Path(path).is_socket():
        with socket.socket(socket.AF_UNIX) as client:
            return client.connect(path)
    try:
        read(path)
    except IsADirectoryError:
        list(Path(path).iterdir())


def write(path):
    os.close(os.open(path, os.O_WRONLY))


def vm(number, pid):
    buffer, one = ctypes.create_string_buffer(8), ctypes.c_long(1)
    local = struct.pack("QQ", ctypes.addressof(buffer), 8)
    remote = struct.pack("QQ", 0x400000, 8)
    call(libc.syscall, *map(ctypes.c_long, (number, pid)), local, one, remote, one, ctypes.c_long(0))


def steal_a_descriptor(pid):
    call(libc.syscall, *map(ctypes.c_long, (PIDFD_GETFD, os.pidfd_open(pid), 0, 0)))


def enter_its_namespaces(pid):
    call(libc.setns, os.pidfd_open(pid), CLONE_NEWNS)


def actions(pid):
    proc = f"/proc/{pid}"
    for name in READ:
        yield f"read {name}", lambda name=name: read(f"{proc}/{name}")
    for name in LISTED:
        yield f"list {name}", lambda name=name: list(Path(f"{proc}/{name.format(pid=pid)}").iterdir())
    for name in LINKS:
        yield f"follow {name}", lambda name=name: Path(f"{proc}/{name}").readlink()
    for name in WRITTEN:
        yield f"write {name}", lambda name=name: write(f"{proc}/{name}")
    for name, request in (("trace", PTRACE_ATTACH), ("seize", PTRACE_SEIZE)):
        yield name, lambda request=request: call(libc.ptrace, *map(ctypes.c_long, (request, pid, 0, 0)))
    yield "read its memory", lambda: vm(PROCESS_VM_READV, pid)
    yield "write its memory", lambda: vm(PROCESS_VM_WRITEV, pid)
    yield "steal a descriptor", lambda: steal_a_descriptor(pid)
    yield "enter its namespaces", lambda: enter_its_namespaces(pid)
    yield "bound its time", lambda: resource.prlimit(pid, resource.RLIMIT_CPU, (1, 1))
    yield "slow it down", lambda: os.setpriority(os.PRIO_PROCESS, pid, 19)
    yield "move it to one core", lambda: os.sched_setaffinity(pid, {0})
    for number in (signal.SIGSTOP, signal.SIGUSR1, signal.SIGTERM, signal.SIGKILL):
        yield number.name, lambda number=number: os.kill(pid, number)
        yield f"{number.name} to its group", lambda number=number: os.killpg(os.getpgid(pid), number)
    yield "signal by descriptor", lambda: signal.pidfd_send_signal(os.pidfd_open(pid), signal.SIGKILL)


def outcome(action):
    try:
        action()
    except OSError as error:
        return errno.errorcode[error.errno]
    return "done"


def main():
    for name, pid in json.loads(os.environ["VICTIMS"]).items():
        said = {what: outcome(action) for what, action in actions(pid)}
        with contextlib.suppress(FileNotFoundError):
            said["cmdline"] = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
        print(json.dumps({name: said}), flush=True)
    for path in json.loads(os.environ["PATHS"]):  # of folders what they hold, of sockets whether somebody answers
        print(json.dumps({path: outcome(lambda path=path: look(path))}), flush=True)
    launcher = os.getppid()
    print(json.dumps({"the machine": {path: outcome(lambda path=path: write(path)) for path in MACHINE}}), flush=True)
    own = Path(f"/proc/{launcher}/environ").read_text()
    print(json.dumps({"launcher": [pair for pair in own.split("\0") if pair]}), flush=True)
    held = [where for pid in (launcher, "self") for where in open_files(pid)]
    print(json.dumps({"held": held}), flush=True)
    if os.environ.get("THEN") == "kill all" and os.geteuid() != 0:  # else it would end the machine
        os.kill(-1, signal.SIGKILL)


def open_files(pid):
    for entry in list(Path(f"/proc/{pid}/fd").iterdir()):
        with contextlib.suppress(FileNotFoundError):
            yield str(entry.readlink())


main()
