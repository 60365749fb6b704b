"""Drop root privileges: `python -m detlab.launch.become --uid U --gid G [--reach PATH]… -- CMD…` becomes CMD as U.

Python itself, its packages and every `--reach PATH` (read-only) and `--reach-rw PATH` stay reachable even when a
directory above them is closed to U; see `detlab.launch.host.mounts`. The command runs in the groups that are named and
no others, without capabilities and with no_new_privs, so that no set-uid program gives anything back. With
`--network PLAN` it runs in a network namespace of its own (`detlab.launch.network`), with `--cgroup DIR` in that
control group.

On failure the status is 126, with one line of JSON `{"error": …}` on `--status-fd` (which closes silently when CMD
starts) or else the message on stderr.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from detlab.launch import network
from detlab.launch.host.accounts import give_account
from detlab.launch.host.cgroup import join
from detlab.launch.host.mounts import MountPlan, Need, Unreachable, carry_out, make_plan, trace

REFUSED = 126
_PR_SET_NO_NEW_PRIVS = 38


def python_needs() -> list[Need]:
    """Return what this very Python needs: its prefixes, its binary, every root on sys.path."""
    paths = [sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix, sys.executable, *sys.path]
    return [Need(Path(path)) for path in dict.fromkeys(paths) if path.startswith("/")]


def drop_privileges(uid: int, gid: int, groups: Sequence[int] = ()) -> None:
    """Switch this process irrevocably to `uid`, `gid` and `groups`.

    Raises:
        OSError: The kernel refused.
        ValueError: uid or gid is root's.
    """
    if uid < 1 or gid < 1 or any(group < 1 for group in groups):
        raise ValueError("a task never runs as root")
    os.setgroups(list(groups))
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_NO_NEW_PRIVS)")


def check_reach(needs: Sequence[Need]) -> None:
    """Check, as the current user, that every needed path can be used.

    Raises:
        Unreachable: A needed path cannot be used.
    """
    for need in needs:
        wanted = os.R_OK | (os.X_OK if need.path.is_dir() else 0) | (os.W_OK if need.writable else 0)
        if not os.access(need.path, wanted):
            raise Unreachable(
                f"uid {os.getuid()} cannot {'write' if need.writable else 'read'} {need.path}: "
                f"check its owner and permissions"
            )


def existing(needs: Sequence[Need]) -> list[Need]:
    """Return the needs whose path exists (sys.path lists archives that do not)."""
    found = []
    for need in needs:
        try:
            trace(need.path)
        except (FileNotFoundError, NotADirectoryError):
            continue
        found.append(need)
    return found


def settle(
    uid: int,
    gid: int,
    groups: Sequence[int],
    needs: Sequence[Need],
    plan_of_network: str | None = None,
    environment: Mapping[str, str] = os.environ,
) -> None:
    """Switch to this user, with every needed path within reach, and to a network of its own if there is a plan.

    A uid without an account on this machine gets one for this process and its children; see `host.accounts`.

    Raises:
        Unreachable: A needed path cannot be reached.
        NetworkFailed: The network cannot be made.
        OSError: The kernel refused.
        ValueError: uid or gid is root's.
    """
    if plan_of_network is not None:
        network.enter(network.NetworkPlan.decode(plan_of_network))
    give_account(uid, gid, environment)
    present = existing(needs)
    plan: MountPlan = make_plan(present, uid, [gid, *groups])
    carry_out(plan)
    if plan.covers:
        os.chdir("/")  # the old working directory may be behind a cover
    drop_privileges(uid, gid, groups)
    check_reach(present)


def become(
    uid: int,
    gid: int,
    groups: Sequence[int],
    needs: Sequence[Need],
    command: Sequence[str],
    plan_of_network: str | None = None,
) -> NoReturn:
    """Become `command` as this user.

    Raises:
        Unreachable: A needed path cannot be reached.
        NetworkFailed: The network cannot be made.
        OSError: The kernel refused, or the command cannot be executed.
        ValueError: uid or gid is root's.
    """
    settle(uid, gid, groups, needs, plan_of_network)
    os.execvp(command[0], list(command))  # noqa: S606  (argv, without a shell)


def main(arguments: Sequence[str] | None = None) -> int:
    """Become the command, which does not return; return REFUSED when that fails."""
    parser = argparse.ArgumentParser(prog="python -m detlab.launch.become", description=__doc__)
    parser.add_argument("--uid", type=int, required=True)
    parser.add_argument("--gid", type=int, required=True)
    parser.add_argument("--group", type=int, action="append", default=[], metavar="G", dest="groups")
    parser.add_argument("--reach", type=Path, action="append", default=[], metavar="PATH")
    parser.add_argument("--reach-rw", type=Path, action="append", default=[], metavar="PATH")
    parser.add_argument("--cgroup", type=Path, action="append", default=[], metavar="DIR", dest="cgroups")
    parser.add_argument("--network", metavar="PLAN")
    parser.add_argument("--status-fd", type=int, default=None)
    parser.add_argument("command", nargs="+")
    options = parser.parse_args(arguments)
    if options.status_fd is not None:
        os.set_inheritable(options.status_fd, False)
    needs = [
        *python_needs(),
        *(Need(path.absolute()) for path in options.reach),
        *(Need(path.absolute(), writable=True) for path in options.reach_rw),
    ]
    try:
        join(options.cgroups)
        become(options.uid, options.gid, options.groups, needs, options.command, options.network)
    except (Unreachable, network.NetworkFailed, OSError, ValueError) as error:
        _report(options.status_fd, str(error))
    return REFUSED


def _report(descriptor: int | None, message: str) -> None:
    if descriptor is None:
        sys.stderr.write(f"become: {message}\n")
    else:
        os.write(descriptor, json.dumps({"error": message}).encode() + b"\n")


if __name__ == "__main__":
    sys.exit(main())
