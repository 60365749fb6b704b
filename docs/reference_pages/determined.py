"""The page of Determined's names: its lists as facts, and what of them is in this tree."""

from __future__ import annotations

import click

from reference_pages.markdown import page, table

# Leaf commands of `det` in Determined 0.38.1, by group.
COMMANDS: dict[str, str] = {
    "experiment": "create list describe list-trials list-checkpoints logs config download download-model-def wait "
    "activate pause cancel kill continue archive unarchive delete delete-tb-files move",
    "experiment label": "add remove",
    "experiment set": "name description priority weight max-slots gc-policy log-retention",
    "trial": "describe download kill logs support-bundle",
    "trial set": "log-retention",
    "checkpoint": "describe download delete rm",
    "notebook": "start open list logs config kill",
    "notebook set": "priority",
    "shell": "start open show-ssh-command list logs config kill",
    "shell set": "priority",
    "command": "run describe list logs config kill",
    "command set": "priority",
    "tensorboard": "start open list logs config kill",
    "tensorboard set": "priority",
    "task": "create fork list logs config kill pause unpause cleanup-logs",
    "job": "list update update-batch",
    "agent": "list enable disable",
    "slot": "list enable disable",
    "resource-pool bindings": "add remove replace list-workspaces",
    "resources": "raw aggregated allocations",
    "master": "info logs",
    "master config": "show set",
    "master cluster-message": "set get clear",
    "model": "create list describe list-versions register-version move delete",
    "template": "create list describe set remove",
    "template set-value": "config",
    "workspace": "create edit describe list list-members list-pools list-projects archive unarchive delete",
    "workspace bindings": "list set delete",
    "workspace resource-quota": "set",
    "project": "create edit describe list list-experiments archive unarchive delete",
    "user": "create edit rename activate deactivate change-password link-with-agent-user list login logout whoami",
    "user-group": "create list describe add-user remove-user change-name delete",
    "auth": "login list-providers",
    "oauth client": "add list remove",
    "rbac": "assign-role unassign-role list-roles describe-role list-users-roles list-groups-roles my-permissions",
    "token": "create edit list describe login revoke",
    "config-policies": "set describe delete",
    "dev": "auth-token curl",
    "dev bindings": "list call",
    "deploy local": "cluster-up cluster-down master-up master-down agent-up agent-down logs",
}
_LOGS = "follow head tail json agent-id container-id rank-id timestamp-before timestamp-after level source stdtype"
_TASK_LOGS = f"{_LOGS} allocation-id"
_LIST = "all quiet workspace-name sort-by order-by csv json"
_START = "config-file volume context include config template workspace-name detach"

# Long options of those commands in Determined 0.38.1 that are commands here, too; read from its own parser.
OPTIONS: dict[str, str] = {
    "experiment create": "include local template config follow-first-trial paused test-mode project_id publish",
    "experiment list": "all show_project csv limit offset pages",
    "experiment describe": "metrics csv json outdir",
    "experiment list-trials": "csv limit offset pages",
    "experiment list-checkpoints": "best csv",
    "experiment logs": _LOGS,
    "experiment download": "output-dir top-n sort-by smaller-is-better quiet",
    "experiment download-model-def": "output-dir",
    "experiment wait": "polling-interval",
    "experiment delete": "yes",
    "experiment set gc-policy": "save-experiment-best save-trial-best save-trial-latest yes",
    "experiment set log-retention": "days forever",
    **dict.fromkeys(
        (
            "experiment activate",
            "experiment archive",
            "experiment cancel",
            "experiment config",
            "experiment delete-tb-files",
            "experiment kill",
            "experiment label add",
            "experiment label remove",
            "experiment pause",
            "experiment set description",
            "experiment set name",
            "experiment set priority",
            "experiment set weight",
            "experiment unarchive",
            "trial kill",
            "checkpoint describe",
            "workspace archive",
            "workspace unarchive",
            "project archive",
            "project unarchive",
        ),
        "",
    ),
    "trial support-bundle": "output-dir",
    "workspace list-members": "json",
    "trial describe": "metrics-summary metrics csv json limit offset pages",
    "trial download": "best latest uuid output-dir sort-by smaller-is-better quiet",
    "trial logs": _LOGS,
    "checkpoint download": "output-dir quiet mode",
    "checkpoint delete": "yes",
    "checkpoint rm": "yes glob",
    "notebook start": f"{_START} preview no-browser",
    "notebook list": _LIST,
    "notebook logs": _TASK_LOGS,
    "notebook kill": "force",
    "shell start": f"{_START} show-ssh-command",
    "shell open": "show-ssh-command",
    "shell list": _LIST,
    "shell logs": _TASK_LOGS,
    "shell kill": "force",
    "command run": _START,
    "command list": _LIST,
    "command logs": _TASK_LOGS,
    "command kill": "force",
    "tensorboard start": "config-file context include config workspace-name detach no-browser trial-ids",
    "tensorboard list": _LIST,
    "tensorboard logs": _TASK_LOGS,
    "tensorboard kill": "force",
    "task create": "include project_id config follow fork",
    "task list": "csv json",
    "task logs": _TASK_LOGS,
    "job list": "resource-pool limit offset reverse json yaml table csv pages",
    "job update": "priority weight resource-pool",
    "agent list": "csv json",
    "agent enable": "all",
    "agent disable": "all drain csv json",
    "slot list": "csv json",
    "model create": "json description workspace-name",
    "model list": "json sort-by order-by workspace-names",
    "model describe": "json version",
    "model list-versions": "json",
    "model register-version": "json",
    "model move": "",
    "experiment move": "",
    "experiment continue": "config config-file follow-first-trial",
    "workspace list": "sort-by order-by limit offset json",
    "workspace list-projects": "sort-by order-by limit offset json",
    "workspace create": "agent-uid agent-gid agent-user agent-group checkpoint-storage-config "
    "checkpoint-storage-config-file default-compute-pool default-aux-pool cluster-name namespace "
    "auto-create-namespace auto-create-namespace-all-clusters resource-quota json",
    "workspace edit": "name agent-uid agent-gid agent-user agent-group checkpoint-storage-config "
    "checkpoint-storage-config-file default-compute-pool default-aux-pool json",
    "workspace describe": "json",
    "workspace delete": "yes",
    "project list": "sort-by order-by limit offset json",
    "project list-experiments": "all sort-by order-by limit offset json",
    "project create": "description json",
    "project edit": "new_name description json",
    "project describe": "all json",
    "project delete": "yes",
    "rbac my-permissions": "json",
    "rbac list-roles": "exclude-global-roles limit offset json",
    "rbac list-users-roles": "json",
    "rbac list-groups-roles": "json",
    "rbac describe-role": "json",
    "rbac assign-role": "workspace-name username-to-assign group-name-to-assign",
    "rbac unassign-role": "workspace-name username-to-assign group-name-to-assign",
    "user-group list": "groups-user-belongs-to limit offset json",
    "user-group describe": "json",
    "token list": "json yaml show-inactive",
    "command describe": "csv json",
    "task config": "json",
    "task kill": "root",
    "user logout": "all",
}

# Public methods of the SDK's classes, and functions and classes of `determined.experimental.client`, in 0.38.1.
SDK: dict[str, str] = {
    "client": "Checkpoint CheckpointOrderBy CheckpointSortBy CheckpointState Determined DownloadMode Experiment "
    "ExperimentOrderBy ExperimentSortBy ExperimentState Model ModelOrderBy ModelSortBy ModelVersion Oauth2ScimClient "
    "OrderBy Project ResourcePool TrainingMetrics Trial TrialMetrics TrialOrderBy TrialSortBy TrialState User "
    "ValidationMetrics Workspace add_oauth_client create_experiment create_model create_user create_workspace "
    "delete_workspace get_checkpoint get_experiment get_model get_model_by_id get_model_labels get_models "
    "get_session_username get_trial get_user_by_id get_user_by_name get_workspace iter_trials_metrics "
    "list_experiments list_models list_oauth_clients list_users list_workspaces login logout remove_oauth_client "
    "stream_trials_metrics stream_trials_training_metrics stream_trials_validation_metrics whoami",
    "Determined": "add_oauth_client create_experiment create_model create_user create_workspace delete_workspace "
    "get_checkpoint get_experiment get_model get_model_by_id get_model_labels get_models get_session_username "
    "get_trial get_user_by_id get_user_by_name get_workspace iter_trials_metrics list_experiments list_models "
    "list_oauth_clients list_users list_workspaces logout remove_oauth_client stream_trials_metrics "
    "stream_trials_training_metrics stream_trials_validation_metrics whoami",
    "Workspace": "list_pools reload",
    "Project": "archive reload set to_json unarchive",
    "Experiment": "activate add_label archive await_first_trial cancel delete delete_tensorboard_files download_code "
    "get_pachyderm_config get_trials id iter_trials kill list_checkpoints list_trials move_to_project pause reload "
    "remove_label set_description set_labels set_name set_notes top_checkpoint top_n_checkpoints unarchive wait",
    "Trial": "get_checkpoints get_experiment iter_logs iter_metrics kill list_checkpoints logs reload "
    "select_checkpoint stream_metrics stream_training_metrics stream_validation_metrics top_checkpoint",
    "Checkpoint": "add_metadata delete download get_metrics get_pachyderm_commit reload remove_files remove_metadata "
    "write_metadata_file",
}

INTRO = """
Which names of Determined 0.38.1 are in this version. What is not here is refused by name: a command with what to use
instead, a method by `AttributeError`. [Come from Determined](../how-to/come-from-determined.md) says how what is here
differs.
"""


OPTIONS_INTRO = """
## Options

Long options of these commands. One that is not here is refused by its name, and the message says what to use instead.
"""


def determined_names() -> str:
    """The page of Determined's names."""
    return page(
        "Names of Determined",
        INTRO,
        f"## Commands\n\n{table(('`det …`', 'here', 'refused: what to use instead'), _commands())}",
        OPTIONS_INTRO,
        table(("`det …`", "here", "refused: what to use instead"), _options()),
        f"## Python\n\n{table(('', 'here', 'not here'), _sdk())}",
    )


def _commands() -> list[tuple[str, ...]]:
    from detlab.cli.determined_options import instead_of_command

    rows = []
    for group, leaves in COMMANDS.items():
        here = [f"`{leaf}`" for leaf in leaves.split() if exists(f"{group} {leaf}")]
        refused: dict[str, list[str]] = {}
        for leaf in leaves.split():
            if not exists(f"{group} {leaf}"):
                found = instead_of_command([*group.split(), leaf])
                assert found is not None, (group, leaf)
                refused.setdefault(found[1], []).append(f"`{leaf}`")
        rows.append((f"`{group}`", ", ".join(here), ". ".join(f"{', '.join(v)}: {k}" for k, v in refused.items())))
    return rows


def exists(words: str) -> bool:
    """Whether `det` has a command."""
    return command_of(words) is not None


def command_of(words: str) -> click.Command | None:
    """Return a command of `det`; None if there is none."""
    from detlab.cli.root import det

    command: click.Command | None = det
    context = click.Context(det, info_name="det")
    for word in words.split():
        if not isinstance(command, click.Group):
            return None
        command = command.get_command(context, word)
        if command is None:
            return None
        context = click.Context(command, info_name=word, parent=context)
    return command


def options_of(words: str) -> set[str]:
    """Return the options of a command of `det`."""
    command = command_of(words)
    assert command is not None, words
    options = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
    return {name for option in options for name in (*option.opts, *option.secondary_opts)}


def _options() -> list[tuple[str, ...]]:
    from detlab.cli.determined_options import instead_of

    rows = []
    for words, names in OPTIONS.items():
        own = options_of(words)
        here = [f"`--{name}`" for name in names.split() if f"--{name}" in own]
        refused = [(name, instead_of(words, f"--{name}")) for name in names.split() if f"--{name}" not in own]
        rows.append((f"`{words}`", ", ".join(here), ". ".join(f"`--{name}`: {text}" for name, text in refused)))
    return rows


def _sdk() -> list[tuple[str, ...]]:
    from detlab.experimental import client

    rows = []
    for owner, names in SDK.items():
        there = client if owner == "client" else getattr(client, owner)
        here = [f"`{name}`" for name in names.split() if hasattr(there, name)]
        missing = [f"`{name}`" for name in names.split() if not hasattr(there, name)]
        rows.append((f"`{owner}`", ", ".join(here), ", ".join(missing)))
    return rows
