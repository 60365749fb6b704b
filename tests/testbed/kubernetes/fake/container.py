"""Starts one container of a pod: `python container.py SPEC`, where SPEC is a file that `kubelet.py` has written.

The container sees this machine's files, but what it writes stays its own; processes, the host name, /tmp, /dev and
/run are its own too, and what its pod mounts. The network is the machine's. Without root, a namespace of users gives
the rights.
"""

import ctypes
import json
import os
import sys
from pathlib import Path

NEWNS, NEWUTS, NEWIPC, NEWUSER, NEWPID = 0x00020000, 0x04000000, 0x08000000, 0x10000000, 0x20000000
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 32, 4096, 16384, 1 << 18
NOT_STARTED = 128
KILL_WITH_PARENT = 1

libc = ctypes.CDLL(None, use_errno=True)


def check(result, what):
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def mount(source, target, kind=None, flags=0, options=None):
    words = [None if word is None else str(word).encode() for word in (source, target, kind)]
    text = None if options is None else options.encode()
    check(libc.mount(*words, ctypes.c_ulong(flags), text), f"mount {source} on {target}")


def own_root(spec):
    """Make the container's file system and enter it."""
    mount(None, "/", None, MS_REC | MS_PRIVATE)
    base = Path(spec["base"])
    base.mkdir(parents=True, exist_ok=True)
    # What is mounted from the pod's folder is opened now: the folder may be hidden in a moment.
    held = [(os.open(source, os.O_PATH), target, ro) for source, target, ro in spec["mounts"]]
    mount("tmpfs", base, "tmpfs")
    for name in ("upper", "work", "root"):
        (base / name).mkdir()
    root = base / "root"
    mount("overlay", root, "overlay", 0, f"lowerdir=/,upperdir={base}/upper,workdir={base}/work")
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        where = line.split()[4]
        if where != "/" and not where.startswith(("/proc", "/sys", "/dev", "/tmp", "/run", "/var/lib", str(base))):
            (root / where.lstrip("/")).exists() and mount(where, f"{root}{where}", None, MS_BIND | MS_REC)
    mount("proc", root / "proc", "proc")
    mount("/sys", root / "sys", None, MS_BIND | MS_REC)
    own_devices(root)
    for name, mode in (("tmp", 0o1777), ("run", 0o755)):
        mount("tmpfs", root / name, "tmpfs", 0, f"mode={mode:o}")
    for path in spec["hidden"]:
        inside = root / path.lstrip("/")
        if inside.is_dir():
            mount("tmpfs", inside, "tmpfs")
    for number, target, read_only in held:
        inside = root / target.lstrip("/")
        source = Path(f"/proc/self/fd/{number}")
        if source.is_dir():
            inside.mkdir(parents=True, exist_ok=True)
        else:
            inside.parent.mkdir(parents=True, exist_ok=True)
            inside.touch()
        mount(source, inside, None, MS_BIND | MS_REC)
        if read_only:
            mount(None, inside, None, MS_BIND | MS_REMOUNT | MS_RDONLY)
        os.close(number)
    os.chroot(root)


def own_devices(root):
    mount("tmpfs", root / "dev", "tmpfs", 0, "mode=755")
    for name in ("null", "zero", "full", "random", "urandom", "tty"):
        (root / "dev" / name).touch()
        mount(f"/dev/{name}", root / "dev" / name, None, MS_BIND)
    for name in ("shm", "pts"):
        (root / "dev" / name).mkdir()
    mount("tmpfs", root / "dev/shm", "tmpfs", 0, "mode=1777")
    mount("devpts", root / "dev/pts", "devpts", 0, "newinstance,ptmxmode=0666,mode=0620")
    (root / "dev" / "ptmx").symlink_to("pts/ptmx")
    for name, to in (("fd", "/proc/self/fd"), ("stdout", "/proc/self/fd/1"), ("stderr", "/proc/self/fd/2")):
        (root / "dev" / name).symlink_to(to)


def enter(spec, failed):
    try:
        own_root(spec)
        name = spec["hostname"].encode()
        check(libc.sethostname(name, len(name)), "sethostname")
        folder = spec["cwd"] or "/"
        Path(folder).mkdir(parents=True, exist_ok=True)
        os.chdir(folder)
        if spec["gid"] is not None:
            os.setgroups(spec["groups"])
            os.setgid(spec["gid"])
        if spec["uid"] is not None:
            os.setuid(spec["uid"])
        try:
            os.execvpe(spec["argv"][0], spec["argv"], spec["env"])
        except FileNotFoundError:
            os.write(failed, f'exec: "{spec["argv"][0]}": executable file not found in $PATH'.encode())
    except OSError as error:
        os.write(failed, str(error).encode())
    os._exit(NOT_STARTED)


def main():
    spec = json.loads(Path(sys.argv[1]).read_text())
    check(libc.prctl(KILL_WITH_PARENT, 9), "prctl")
    failed = os.open(spec["failed"], os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    flags = NEWNS | NEWUTS | NEWIPC | NEWPID
    uid, gid = os.getuid(), os.getgid()
    check(libc.unshare(flags if uid == 0 else flags | NEWUSER), "unshare")
    if uid != 0:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
        Path("/proc/self/gid_map").write_text(f"0 {gid} 1")
    child = os.fork()
    if child == 0:
        check(libc.prctl(KILL_WITH_PARENT, 9), "prctl")
        enter(spec, failed)
    # Its own standard files would keep the pipe open; the kubelet reads the container's output to its end.
    for number in (0, 1, 2):
        os.close(number)
    _, status = os.waitpid(child, 0)
    os._exit(os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status))


if __name__ == "__main__":
    main()
