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
    "workspace": "create edit describe list list-members list-pools list-projects archive unarchive delete",
    "project": "create edit describe list list-experiments archive unarchive delete",
    "user": "create edit rename activate deactivate change-password link-with-agent-user list login logout whoami",
    "rbac": "assign-role unassign-role list-roles describe-role list-users-roles list-groups-roles my-permissions",
    "token": "create edit list describe login revoke",
    "config-policies": "set describe delete",
    "dev": "auth-token curl",
    "deploy local": "cluster-up cluster-down master-up master-down agent-up agent-down logs",
}
OTHER_COMMANDS = {
    "deploy local cluster-up": "det up",
    "deploy local cluster-down": "det down",
    "deploy local agent-up": "det agent run",
    "experiment set priority": "det job update --priority",
    "experiment set weight": "det job update --weight",
    "master info": "det status",
    "resources aggregated": "det usage",
    "trial set log-retention": "det experiment set log-retention",
    "user login": "det login",
    "user logout": "det logout",
}
"""Commands of other names here, where a command of the same name is missing."""

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
    "Experiment": "activate add_label archive await_first_trial cancel delete delete_tensorboard_files download_code "
    "get_pachyderm_config get_trials id iter_trials kill list_checkpoints list_trials move_to_project pause reload "
    "remove_label set_description set_labels set_name set_notes top_checkpoint top_n_checkpoints unarchive wait",
    "Trial": "get_checkpoints get_experiment iter_logs iter_metrics kill list_checkpoints logs reload "
    "select_checkpoint stream_metrics stream_training_metrics stream_validation_metrics top_checkpoint",
    "Checkpoint": "add_metadata delete download get_metrics get_pachyderm_commit reload remove_files remove_metadata "
    "write_metadata_file",
}

INTRO = """
Which names of Determined 0.38.1 are in this version. What is under "not here" is refused by name: a command as unknown,
a method by `AttributeError`. [Come from Determined](../how-to/come-from-determined.md) says how what is here differs.
"""


def determined_names() -> str:
    """The page of Determined's names."""
    return page(
        "Names of Determined",
        INTRO,
        f"## Commands\n\n{table(('`det …`', 'here', 'not here'), _commands())}",
        f"## Python\n\n{table(('', 'here', 'not here'), _sdk())}",
    )


def _commands() -> list[tuple[str, ...]]:
    rows = []
    for group, leaves in COMMANDS.items():
        here, missing = [], []
        for leaf in leaves.split():
            full = f"{group} {leaf}"
            if exists(full):
                here.append(f"`{leaf}`")
            elif full in OTHER_COMMANDS:
                here.append(f"`{leaf}`: `{OTHER_COMMANDS[full]}`")
            else:
                missing.append(f"`{leaf}`")
        rows.append((f"`{group}`", ", ".join(here), ", ".join(missing)))
    return rows


def exists(words: str) -> bool:
    """Whether `det` has a command."""
    from detlab.cli.root import det

    command: click.Command | None = det
    context = click.Context(det, info_name="det")
    for word in words.split():
        if not isinstance(command, click.Group):
            return False
        command = command.get_command(context, word)
        if command is None:
            return False
        context = click.Context(command, info_name=word, parent=context)
    return True


def _sdk() -> list[tuple[str, ...]]:
    from detlab.experimental import client

    rows = []
    for owner, names in SDK.items():
        there = client if owner == "client" else getattr(client, owner)
        here = [f"`{name}`" for name in names.split() if hasattr(there, name)]
        missing = [f"`{name}`" for name in names.split() if not hasattr(there, name)]
        rows.append((f"`{owner}`", ", ".join(here), ", ".join(missing)))
    return rows
