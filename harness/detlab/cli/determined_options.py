"""Commands and options of Determined's `det` that are not here, and what to use instead.

Whoever does not know a command or an option asks here before it says so; the page of Determined's names is made from
this.
"""

from __future__ import annotations

from collections.abc import Sequence

_PAGES = "the list is whole with --all; -n limits it"
_WHOLE = "the list is always whole"
_CONTAINER = "name the rank or the node: --rank, --node"
_LOGS = {"--container-id": _CONTAINER, "--allocation-id": "lines of all attempts are there; narrow them by --since"}
_START = {
    "--preview": "`det config resolve` prints a config with all defaults",
}
_BY_JSON = {"--yaml": "use --json", "--table": "it is what is printed without --json and --csv"}

_NAMESPACE = "the namespace of pods is the agent's: det agent run --kubernetes-settings"
_UIDS = "tasks run with uids of their users: det user uids"
_OF_WORKSPACES = {
    "--agent-uid": _UIDS,
    "--agent-gid": _UIDS,
    "--agent-user": _UIDS,
    "--agent-group": _UIDS,
    "--cluster-name": _NAMESPACE,
    "--namespace": _NAMESPACE,
    "--auto-create-namespace": _NAMESPACE,
    "--auto-create-namespace-all-clusters": _NAMESPACE,
    "--resource-quota": "det quota set --workspace NAME --slots N",
    "--default-compute-pool": "det workspace set-defaults NAME --pool POOL",
    "--default-aux-pool": "tasks without slots name their pool themselves: --config resources.resource_pool=POOL",
    "--checkpoint-storage-config": "det workspace set-defaults NAME --storage YAML",
    "--checkpoint-storage-config-file": "det workspace set-defaults NAME --storage YAML",
}

INSTEAD: dict[str, dict[str, str]] = {
    "experiment create": {
        "--git": "the code itself is kept with the experiment: det e download-model-def",
        "--local": "run the script itself: the Core API works without a cluster",
        "--test-mode": "--dry-run has the master validate it; to run it small, add --config searcher.name=single",
        "--no-archive": "experiments are never archived by themselves",
        "--publish": "ports of trials are not forwarded: start a shell or a notebook, whose ports are",
    },
    "experiment list": {
        "--offset": _PAGES,
        "--pages": _PAGES,
        "--show-project": "--json has workspace and project",
        "--show_project": "--json has workspace and project",
    },
    "experiment describe": {
        "--metrics": "of a trial: det trial describe ID --metrics",
        "--csv": "use det e list-trials ID --csv",
        "--outdir": "write --json, or det e list-trials ID --csv, into a file of your own",
    },
    "experiment list-trials": {"--limit": _WHOLE, "--offset": _WHOLE, "--pages": _WHOLE},
    "experiment list-checkpoints": {"--limit": _WHOLE, "--offset": _WHOLE},
    "experiment logs": _LOGS,
    "trial describe": {"--csv": "use --metrics --json", "--limit": _WHOLE, "--offset": _WHOLE, "--pages": _WHOLE},
    "trial logs": _LOGS,
    "checkpoint download": {"--quiet": "use --json"},
    "notebook start": _START,
    "command describe": {"--csv": "use --json"},
    "notebook logs": _LOGS,
    "shell start": _START,
    "shell logs": _LOGS,
    "command run": _START,
    "command logs": _LOGS,
    "tensorboard start": {
        **_START,
        "--context": "a TensorBoard reads the experiments' own files; it takes no code",
        "--include": "a TensorBoard reads the experiments' own files; it takes no code",
        "--trial-ids": "use --trial ID (repeatable)",
    },
    "tensorboard logs": _LOGS,
    "task logs": _LOGS,
    "task create": {"--fork": "tasks have no parents here: det task config ID > again.yaml, and create that"},
    "task kill": {"--root": "tasks have no parents here: name each"},
    "user logout": {"--all": "name each cluster: det logout URL"},
    "job list": {
        "--resource-pool": "use --pool",
        "--limit": _WHOLE,
        "--offset": _WHOLE,
        "--pages": _WHOLE,
        "--reverse": "turn the lines around yourself: det job list --csv | tac",
        **_BY_JSON,
    },
    "job update": {"--resource-pool": "use --pool"},
    "agent enable": {"--all": "name each: det agent list --json | jq -r '.[].id' | xargs -n1 det agent enable"},
    "agent disable": {
        "--all": "name each: det agent list --json | jq -r '.[].id' | xargs -n1 det agent disable",
        "--csv": "use --json",
    },
    "model create": {"--description": "use --notes"},
    "model describe": {"--version": "use det model list-versions NAME"},
    "workspace list": {"--limit": _WHOLE, "--offset": _WHOLE},
    "workspace list-projects": {"--limit": _WHOLE, "--offset": _WHOLE},
    "workspace create": _OF_WORKSPACES,
    "workspace edit": _OF_WORKSPACES,
    "project list": {"--limit": _WHOLE, "--offset": _WHOLE},
    "project list-experiments": {"--offset": _PAGES},
    "project describe": {"--all": "det project list-experiments WORKSPACE PROJECT --all"},
    "rbac list-roles": {
        "--exclude-global-roles": "all roles are those of workspaces",
        "--limit": _WHOLE,
        "--offset": _WHOLE,
    },
    "user-group list": {
        "--groups-user-belongs-to": "the Hub knows who is in which group",
        "--limit": _WHOLE,
        "--offset": _WHOLE,
    },
    "token list": {"--show-inactive": "revoked tokens are not listed", **_BY_JSON},
}
"""By command: each long option of Determined's that it lacks, and what to use instead."""

_SHORT: dict[str, dict[str, str]] = {
    "experiment create": {"-t": "--test-mode", "-g": "--git", "-p": "--publish"},
    "checkpoint download": {"-q": "--quiet"},
    "job list": {"-p": "--resource-pool"},
    "workspace create": {"-n": "--namespace"},
    "tensorboard start": {"-i": "--include"},
    "user logout": {"-a": "--all"},
}
_NAMES = {
    "cmd": "command",
    "res": "resources",
    "rp": "resource-pool",
    "tpl": "template",
    "ug": "user-group",
}

_HUB_USERS = "the Hub has the accounts: its admin page, /hub/admin, or its configuration"
_HUB_GROUPS = "the Hub has the groups: its admin page, /hub/admin, or its configuration"
COMMANDS: dict[str, str] = {
    "help": "use --help",
    "auth": "det login URL, with a token of the Hub's",
    "deploy": "det up for this machine, det agent run for a node; elastic pools launch instances on AWS and GCP",
    "deploy local cluster-up": "det up",
    "deploy local cluster-down": "det down",
    "deploy local master-up": "det up",
    "deploy local master-down": "det down",
    "deploy local agent-up": "det agent run",
    "deploy local agent-down": "end the process of det agent run, or its service; det agent drain before",
    "deploy local logs": "det status names the log files of a cluster of this machine",
    "dev bindings": "det dev curl calls any route; det dev curl openapi.json lists them",
    "experiment set max-slots": "det search concurrency ID N",
    "oauth": _HUB_USERS,
    "resource-pool": "det pool list, det pool describe",
    "resource-pool bindings": "who may use a pool is a setting of the pool: c.DetHub.pools",
    "resources": "det usage: slot hours by user and day",
    "resources allocations": "det task list --json",
    "resources raw": "det usage --json",
    "task cleanup-logs": "output is kept for c.DetHub.tasks_keep_days; det experiment set log-retention",
    "task fork": "det task config ID > again.yaml; det task create again.yaml",
    "task pause": "experiments can be paused: det experiment pause",
    "task unpause": "experiments can be paused: det experiment activate",
    "template set-value": "det template set NAME FILE replaces the whole config",
    "token describe": "det token list, or det token list --mine",
    "token edit": "det token revoke --mine ID, and det token create again",
    "token login": "det login URL asks for a token",
    "trial set": "det experiment set log-retention ID",
    "user rename": "det user edit NAME --name NEW",
    "user activate": "det user create NAME",
    "user deactivate": "det user remove NAME: their work stays",
    "user change-password": _HUB_USERS,
    "user link-with-agent-user": _HUB_USERS,
    "user-group create": _HUB_GROUPS,
    "user-group add-user": _HUB_GROUPS,
    "user-group remove-user": _HUB_GROUPS,
    "user-group change-name": _HUB_GROUPS,
    "user-group delete": _HUB_GROUPS,
    "workspace list-pools": "det pool list: pools belong to no workspace",
    "workspace bindings": "the namespace of pods is the agent's: det agent run --kubernetes-settings",
    "workspace resource-quota": "det quota set --workspace NAME --slots N",
}
"""By command, or group of commands: each of Determined's that is not here, and what to use instead."""


def instead_of_command(words: Sequence[str]) -> tuple[str, str] | None:
    """Return which command of Determined's was typed, and what to use instead.

    Args:
        words: What was typed after `det`, options and arguments too.

    Returns:
        The words that name it, and a hint; None if it is none of Determined's.
    """
    full = [_NAMES.get(word, word) if place == 0 else word for place, word in enumerate(words)]
    if full[-1:] == ["help"] or full[:1] == ["help"]:
        return " ".join(words), COMMANDS["help"]
    for count in range(min(len(full), 3), 0, -1):
        name = " ".join(full[:count])
        if name in COMMANDS:
            return name, COMMANDS[name]
    return None


def instead_of(command: str, option: str) -> str | None:
    """Return what to use instead of an option of Determined's.

    Args:
        command: The command's words after `det`, by its full names.
        option: The option as it was typed.

    Returns:
        A hint; None if the option is none of Determined's.
    """
    first, _, rest = command.partition(" ")
    command = f"{_NAMES.get(first, first)} {rest}".strip()
    name = _SHORT.get(command, {}).get(option, option)
    return INSTEAD.get(command, {}).get(name)
