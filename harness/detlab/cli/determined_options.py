"""Options of Determined's `det` that are not here, by command, and what to use instead.

A command that does not know an option asks here before it says so; the page of Determined's names is made from this.
"""

from __future__ import annotations

_WORKSPACE = "lists are not narrowed by workspace; `workspace` and `project` are keys of a config"
_TEMPLATE = "the master has no templates: keep the file and give it to --config-file, or merge it yourself"
_PAGES = "the list is whole with --all; -n limits it"
_WHOLE = "the list is always whole"
_CONTAINER = "name the rank or the node: --rank, --node"
_METRIC = "it sorts by the searcher's metric; of another: Experiment.top_n_checkpoints(sort_by=...) of the client"
_LOGS = {"--container-id": _CONTAINER, "--allocation-id": "lines of all attempts are there; narrow them by --since"}
_LIST = {"--workspace-name": _WORKSPACE}
_START = {
    "--template": _TEMPLATE,
    "--workspace-name": "user tasks are in no workspace",
    "--project-name": "user tasks are in no project",
    "--preview": "`det config resolve` prints a config with all defaults",
    "--detach": "leave --wait out, and add --no-open: the command then returns at once",
}
_BY_JSON = {"--yaml": "use --json", "--table": "it is what is printed without --json and --csv"}

INSTEAD: dict[str, dict[str, str]] = {
    "experiment create": {
        "--git": "the code itself is kept with the experiment: det e download-model-def",
        "--local": "run the script itself: the Core API works without a cluster",
        "--test-mode": "--dry-run has the master validate it; to run it small, add --config searcher.name=single",
        "--project-id": "set `workspace` and `project` in the config, or by --config project=NAME",
        "--project_id": "set `workspace` and `project` in the config, or by --config project=NAME",
        "--no-archive": "experiments are never archived by themselves",
        "--publish": "ports of trials are not forwarded: start a shell or a notebook, whose ports are",
    },
    "experiment list": {
        "--offset": _PAGES,
        "--show-project": "--json has workspace and project",
        "--show_project": "--json has workspace and project",
    },
    "experiment describe": {
        "--metrics": "of a trial: det trial describe ID --metrics",
        "--csv": "use det e list-trials ID --csv",
        "--outdir": "write --json, or det e list-trials ID --csv, into a file of your own",
    },
    "experiment list-trials": {"--limit": _WHOLE, "--offset": _WHOLE},
    "experiment list-checkpoints": {"--limit": _WHOLE, "--offset": _WHOLE},
    "experiment logs": _LOGS,
    "experiment download": {"--sort-by": _METRIC, "--smaller-is-better": _METRIC},
    "trial describe": {"--csv": "use --metrics --json", "--limit": _WHOLE, "--offset": _WHOLE},
    "trial download": {"--sort-by": _METRIC, "--smaller-is-better": _METRIC},
    "trial logs": _LOGS,
    "checkpoint download": {"--quiet": "use --json"},
    "notebook start": _START,
    "notebook list": _LIST,
    "notebook logs": _LOGS,
    "shell start": {**_START, "--passphrase": "your own key is used, with the passphrase that it has"},
    "shell list": _LIST,
    "shell logs": _LOGS,
    "command run": {key: text for key, text in _START.items() if key != "--detach"},
    "command list": _LIST,
    "command logs": _LOGS,
    "tensorboard start": {
        **_START,
        "--context": "a TensorBoard reads the experiments' own files; it takes no code",
        "--include": "a TensorBoard reads the experiments' own files; it takes no code",
        "--trial-ids": "use --trial ID (repeatable)",
    },
    "tensorboard list": _LIST,
    "tensorboard logs": _LOGS,
    "task logs": _LOGS,
    "job list": {
        "--resource-pool": "use --pool",
        "--limit": _WHOLE,
        "--offset": _WHOLE,
        "--reverse": "turn the lines around yourself: det job list --csv | tac",
        **_BY_JSON,
    },
    "job update": {"--resource-pool": "use --pool"},
    "agent enable": {"--all": "name each: det agent list --json | jq -r '.[].id' | xargs -n1 det agent enable"},
    "agent disable": {
        "--all": "name each: det agent list --json | jq -r '.[].id' | xargs -n1 det agent disable",
        "--csv": "use --json",
    },
    "model create": {"--description": "use --notes", "--workspace-name": "models are in no workspace"},
    "model list": {
        "--workspace-names": "models are in no workspace",
        "--limit": "the list is whole",
        "--offset": _WHOLE,
    },
    "model describe": {"--version": "use det model list-versions NAME"},
    "token list": {"--show-inactive": "revoked tokens are not listed", **_BY_JSON},
}
"""By command: each long option of Determined's that it lacks, and what to use instead."""

_SHORT = {"experiment create": {"-t": "--test-mode", "-g": "--git"}, "job list": {"-p": "--resource-pool"}}
_NAMES = {"cmd": "command"}


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
