"""Run a script under torchrun with one process per slot.

    python3 -m detlab.launch.torch_distributed [torchrun overrides --] SCRIPT…
    python3 -m detlab.launch.torch_distributed [torchrun overrides --] --trial MODULE:CLASS

SCRIPT is a command (`python3 train.py --lr 1`) or a Python file; `--trial` trains a PyTorchTrial as the experiment's
config says (`python3 -m detlab.pytorch`). The processes of one node meet on a free port of their own, those of several
nodes on a port of the chief's node, received from the master (`detlab.launch.ranks.rendezvous`). They are not restarted
by torchrun (the master restarts trials), and prefix every line with their rank. torch is never imported here: this
program becomes `python -m torch.distributed.run`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from detlab.errors import NotInCluster
from detlab.info import ClusterInfo, get_cluster_info

if TYPE_CHECKING:
    from detlab.launch.ranks.rendezvous import Meeting

USAGE = "usage: python3 -m detlab.launch.torch_distributed [TORCHRUN_OPTIONS... --] (SCRIPT... | --trial MODULE:CLASS)"


def split_arguments(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return (torchrun overrides, script).

    The first `--` ends the overrides; without one everything is the script. `--trial` becomes the command that trains
    the class.

    Raises:
        ValueError: There is no script.
    """
    overrides: list[str] = []
    script = list(arguments)
    if "--" in script:
        at = script.index("--")
        overrides, script = script[:at], script[at + 1 :]
    if not script:
        raise ValueError(f"no script to run\n{USAGE}")
    if script[0] == "--trial":
        if len(script) != 2:
            raise ValueError(f"--trial takes one MODULE:CLASS, not {' '.join(script[1:]) or 'nothing'}\n{USAGE}")
        return overrides, [sys.executable, "-m", "detlab.pytorch", script[1]]
    if script[0].startswith("-"):
        raise ValueError(f"{script[0]} is not a script: options of torchrun are followed by `--`\n{USAGE}")
    return overrides, script


def slot_count(env: Mapping[str, str]) -> int:
    """Return how many slots the task has; at least 1, and 1 outside of a task."""
    try:
        slots = json.loads(env.get("DET_SLOT_IDS", "[]"))
    except ValueError:
        slots = []
    return max(1, len(slots)) if isinstance(slots, list) else 1


def torchrun_command(
    overrides: Sequence[str],
    script: Sequence[str],
    env: Mapping[str, str],
    python: str = sys.executable,
    meeting: Meeting | None = None,
) -> list[str]:
    """Return the command that runs `script` in one process per slot.

    Args:
        overrides: torchrun options; given last, they win over ours.
        script: The command, or a Python file and its arguments.
        env: The environment of the task.
        python: Interpreter of torchrun and of the rank wrapper.
        meeting: The nodes of a trial over several; None for one.
    """
    command = list(script)
    if command[0].endswith(".py"):
        command.insert(0, python)
    return [
        python,
        "-m",
        "torch.distributed.run",
        f"--nproc_per_node={slot_count(env)}",
        "--max_restarts=0",
        f"--rdzv_id={env.get('DET_ALLOCATION_ID', f'local-{os.getpid()}')}",
        *(_one_node() if meeting is None else _several_nodes(meeting)),
        *overrides,
        "--no_python",
        python,
        "-m",
        "detlab.launch.wrap_rank",
        "RANK",
        "--",
        *command,
    ]


def _one_node() -> list[str]:
    # Port 0: the rendezvous binds a free port itself, so that no two tasks can race for one.
    return ["--nnodes=1", "--rdzv_backend=c10d", "--rdzv_endpoint=127.0.0.1:0", "--local_addr=127.0.0.1"]


def _several_nodes(meeting: Meeting) -> list[str]:
    # The static rendezvous keeps the master's order of nodes; that of c10d numbers them as they come.
    return [
        f"--nnodes={len(meeting.addresses)}",
        f"--node_rank={meeting.node}",
        "--rdzv_backend=static",
        f"--master_addr={meeting.chief}",
        f"--master_port={meeting.port}",
        f"--local_addr={meeting.address}",
    ]


def rank_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for torchrun: each of N processes gets its share of the task's CPU threads.

    If their number is unknown, it is one, which torchrun would choose too, with a warning.
    """
    result = {**env, "USE_TORCH_DISTRIBUTED": "True", "DET_CHIEF_IP": "127.0.0.1"}
    threads, processes = env.get("OMP_NUM_THREADS", ""), slot_count(env)
    if processes > 1 and (not threads or (threads.isdigit() and int(threads) == processes)):
        result["OMP_NUM_THREADS"] = "1"
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    """Become torchrun, which does not return; return 2 if the arguments are invalid, 1 if the nodes cannot meet."""
    try:
        overrides, script = split_arguments(sys.argv[1:] if arguments is None else arguments)
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    info = _task()
    if info is None or len(info.container_addrs) < 2:
        return _become(torchrun_command(overrides, script, os.environ), rank_environment(os.environ))
    from detlab.launch.ranks.rendezvous import MeetingError, meet_the_others, meeting_environment

    try:
        meeting = meet_the_others(info)
    except MeetingError as error:
        sys.stderr.write(f"detlab: this node cannot reach the other nodes: {error}\n")
        return 1
    env = {**rank_environment(os.environ), **meeting_environment(meeting)}
    return _become(torchrun_command(overrides, script, os.environ, meeting=meeting), env)


def _task() -> ClusterInfo | None:
    try:
        return get_cluster_info()
    except NotInCluster:
        return None  # of what is wrong with the task's directory each process speaks that needs it


def _become(command: list[str], env: dict[str, str]) -> int:
    """Become torchrun, so that signals and the exit status need not be passed on."""
    sys.stdout.flush()
    os.execve(command[0], command, env)  # noqa: S606  (argv, without a shell)


if __name__ == "__main__":
    sys.exit(main())
