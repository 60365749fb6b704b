"""Models and versions: registration with lineage, numbers, semantic versions, labels, deletion."""

from __future__ import annotations

import asyncio
import itertools
import math
import unicodedata

import pytest
from pydantic import ValidationError
from services_scripted import ALICE, ROOT, config, report, training

from detlab.errors import ConfigError, Conflict, NotFound
from detlab.schemas.wire.registry import (
    CreateModel,
    CreateVersion,
    EditModel,
    EditVersion,
    MoveLabel,
    RemoveLabel,
)
from detlab_hub.services.base.audit import Audit
from detlab_hub.services.checkpoints.removals import Removals
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.registry.labels import Labels
from detlab_hub.services.registry.models import Models
from detlab_hub.services.registry.versions import Versions
from detlab_hub.store.tables import ExperimentRow


async def test_a_model_is_made_listed_edited_and_archived(place) -> None:
    models = place.services[Models]
    made = await place.model("Speech v2", labels=["audio", "audio"], metadata={"dataset": "v3"}, description="words")
    assert (made.labels, made.versions, made.latest, made.right) == (["audio"], 0, None, "own")
    assert [one.name for one in (await models.list(ALICE)).items] == ["Speech v2", "digits"]
    first = await models.list(ALICE, limit=1)
    rest = await models.list(ALICE, limit=1, after=first.after)
    assert [one.name for one in rest.items] == ["digits"]
    assert rest.after is None
    assert [one.name for one in (await models.list(ALICE, labels=["audio"])).items] == ["Speech v2"]
    assert [one.name for one in (await models.list(ALICE, name="SPEECH")).items] == ["Speech v2"]
    assert await models.words(ALICE) == ["audio"]
    edit = EditModel(
        notes="# hi", set_metadata={"a": 1}, remove_metadata=["dataset"], add_labels=["x"], remove_labels=["audio"]
    )
    edited = await models.edit(ALICE, str(made.id), edit)
    assert (edited.notes, edited.metadata, edited.labels) == ("# hi", {"a": 1}, ["x"])
    assert (await models.list(ALICE, labels=["audio"])).items == []
    again = await models.edit(ALICE, "Speech v2", edit)
    assert again == edited
    await models.edit(ALICE, "Speech v2", EditModel(archived=True))
    assert [one.name for one in (await models.list(ALICE)).items] == ["digits"]
    assert [one.name for one in (await models.list(ALICE, archived="only")).items] == ["Speech v2"]
    with pytest.raises(Conflict, match="archived"):
        await place.register(0, "Speech v2")
    await models.edit(ALICE, "Speech v2", EditModel(archived=False, name="speech"))
    assert (await models.get(ALICE, "alice/speech")).id == made.id
    with pytest.raises(Conflict, match="there is a model 'digits' already"):
        await models.edit(ALICE, "speech", EditModel(name="digits"))


@pytest.mark.parametrize("name", ["7", "007"])
async def test_a_name_that_would_be_an_id_is_refused(place, name) -> None:
    with pytest.raises(ConfigError, match="digits only"):
        await place.services[Models].create(ALICE, CreateModel(name=name))


async def test_a_version_has_the_lineage_of_its_checkpoint(place) -> None:
    made = await place.register(1, name="second", comment="c", metadata={"m": 1}, semver="1.0.0", labels=["staging"])
    assert (made.version, made.semver, made.labels, made.format) == (1, "1.0.0", ["staging"], "pickle")
    lineage = made.lineage
    assert (lineage.experiment_id, lineage.experiment_name, lineage.steps_completed) == (place.experiment, "mine", 2)
    assert lineage.metrics["accuracy"] == lineage.metrics["validation.accuracy"] == 0.2
    assert lineage.metrics["training.loss"] == 1.0
    assert lineage.hyperparameters["lr"] == 0.1
    assert lineage.config["name"] == "mine"
    assert (lineage.submitter, lineage.slots, lineage.run) == ("alice", 1, 1)
    listed = (await place.services[Versions].list(ALICE, "digits")).items
    assert [one.version for one in listed] == [1]
    assert listed[0].lineage.config == {}
    assert await place.services[Versions].get(ALICE, "digits", "1.0.0") == made
    view = await place.services[Models].get(ALICE, "digits")
    assert (view.versions, view.latest, view.moving) == (1, 1, {"staging": 1})


async def test_the_same_checkpoint_again_is_the_same_version(place) -> None:
    first = await place.register(0, semver="1.0.0")
    assert (await place.register(0)).version == first.version
    assert (await place.register(0, labels=["production"])).labels == ["production"]
    with pytest.raises(Conflict, match=r"is version 1 of model 'digits' already, with the semantic version 1\.0\.0"):
        await place.register(0, semver="2.0.0")
    made = await asyncio.gather(*(place.register(1) for _ in range(5)))
    assert {one.version for one in made} == {2}


async def test_the_best_of_an_experiment_is_registered(place) -> None:
    wanted = CreateVersion(experiment_id=place.experiment)
    made = await place.services[Versions].register(ALICE, "digits", wanted)
    assert made.checkpoint == place.checkpoints[2]
    with pytest.raises(NotFound):
        await place.services[Versions].register(ALICE, "digits", CreateVersion(experiment_id=999_999))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
async def test_no_checkpoint_of_a_search_without_a_finite_value_is_its_best(make_world, value) -> None:
    """Regression: an infinite one was registered, and of one that was NaN it was said that nothing was reported yet."""

    def script(_launch):
        yield report(1, loss=value)
        yield ("save", 1)
        yield ("exit", 0)

    world = await make_world(script)
    await world.add_agent()
    made = await world.submit(config(hyperparameters={"lr": 0.1}))
    await world.finish(made.id)
    await world.services[Models].create(ALICE, CreateModel(name="digits"))
    with pytest.raises(Conflict, match="no best checkpoint: no trial has reported a finite value of 'loss'"):
        await world.services[Versions].register(ALICE, "digits", CreateVersion(experiment_id=made.id))


async def test_registering_into_a_model_that_is_not_there_says_how_to_make_it(place) -> None:
    """Regression: it named `det model list`, which is empty for whoever registers for the first time."""
    with pytest.raises(NotFound, match="there is no model 'new'") as refused:
        await place.services[Versions].register(ALICE, "new", CreateVersion(experiment_id=place.experiment))
    assert "det model create" in refused.value.hint


@pytest.mark.parametrize("number", [0, -1, 2**63, 10**30])
def test_an_experiment_that_cannot_be_is_refused_before_the_database_is_asked(number) -> None:
    with pytest.raises(ValidationError, match="experiment_id"):
        CreateVersion(experiment_id=number)


async def test_a_page_of_large_metadata_is_cut_and_goes_on(place, monkeypatch) -> None:
    from detlab_hub.store.queries import statements

    monkeypatch.setattr(statements, "READ_BYTES", 25_000)
    services, large = place.services, {"a": "x" * 10_000}
    for n in range(5):
        await place.model(f"large-{n}", metadata=large)
    for n in range(3):
        await place.register(n, "large-0", metadata=large if n < 2 else {"a": "x" * 50_000})
    lists = {
        "models": lambda after: services[Models].list(ALICE, after=after),
        "versions": lambda after: services[Versions].list(ALICE, "large-0", after=after),
        "newest": lambda after: services[Versions].search(ALICE, after=after),
        "best": lambda after: services[Versions].search(ALICE, best="accuracy", after=after),
    }
    found = {}
    for name, ask in lists.items():
        after, pages = None, []
        while not pages or after is not None:
            page = await ask(after)
            pages.append([getattr(one, "version", one.name) for one in page.items])
            after = page.after
        found[name] = pages
    assert [len(page) for page in found["models"]] == [2, 2, 2]
    assert [*itertools.chain(*found["models"])] == ["large-4", "large-3", "large-2", "large-1", "large-0", "digits"]
    for name in ("versions", "newest", "best"):
        assert [*itertools.chain(*found[name])] == [3, 2, 1]
        assert len(found[name]) > 1


async def test_one_checkpoint_has_to_be_named(place) -> None:
    for wanted in (CreateVersion(), CreateVersion(checkpoint=place.checkpoints[0], experiment_id=place.experiment)):
        with pytest.raises(ConfigError, match="name a checkpoint, or an experiment"):
            await place.services[Versions].register(ALICE, "digits", wanted)


@pytest.mark.parametrize("state", ["DELETED", "PARTIALLY_DELETED"])
async def test_what_is_not_whole_is_not_registered(place, state) -> None:
    def spoil(unit) -> None:
        from detlab_hub.store.tables import CheckpointRow

        unit.session.get(CheckpointRow, place.checkpoints[0]).state = state

    await place.services.context.write(spoil)
    with pytest.raises(Conflict, match=r"cannot be registered: .* deleted"):
        await place.register(0)
    with pytest.raises(NotFound):
        await place.services[Versions].register(ALICE, "digits", CreateVersion(checkpoint="torn"))
    assert (await place.services[Models].get(ALICE, "digits")).versions == 0


async def test_numbers_count_from_one_and_are_never_given_again(place) -> None:
    assert [(await place.register(n)).version for n in (0, 1)] == [1, 2]
    await place.services[Versions].delete(ALICE, "digits", "2")
    assert (await place.register(1)).version == 3
    assert (await place.services[Versions].get(ALICE, "digits", "latest")).version == 3
    with pytest.raises(NotFound, match="no version '2'"):
        await place.services[Versions].get(ALICE, "digits", "2")


async def test_semantic_versions_only_go_up(place) -> None:
    versions = place.services[Versions]
    await place.register(0, semver="1.2.0")
    with pytest.raises(ConfigError, match=r"1\.1\.9 is not above 1\.2\.0, the last one"):
        await place.register(1, semver="1.1.9")
    with pytest.raises(ConfigError, match="no semantic version"):
        await place.register(1, semver="1.2")
    await place.register(1, semver="1.3.0")
    await place.register(2)
    with pytest.raises(ConfigError, match=r"not below 1\.3\.0"):
        await versions.edit(ALICE, "digits", "1", EditVersion(semver="1.4.0"))
    await versions.edit(ALICE, "digits", "1.3.0", EditVersion(semver="2.0.0-rc.1"))
    await versions.delete(ALICE, "digits", "2")
    with pytest.raises(ConfigError, match=r"not above 1\.2\.0"):
        await versions.edit(ALICE, "digits", "3", EditVersion(semver="1.2.0"))
    await versions.delete(ALICE, "digits", "3")
    with pytest.raises(ConfigError, match=r"not above 2\.0\.0-rc\.1"):
        await place.register(2, semver="1.9.0")
    assert (await place.register(2, semver="2.0.0")).version == 4


async def test_a_label_moves_and_says_who_when_and_why(place) -> None:
    labels = place.services[Labels]
    await place.register(0)
    await place.register(1)
    move = await labels.move(ALICE, "digits", "production", MoveLabel(version=1, reason="first"))
    assert (move.from_version, move.to_version, move.by, move.reason) == (None, 1, "alice", "first")
    again = await labels.move(ALICE, "digits", "production", MoveLabel(version=1))
    assert again == move
    await labels.move(ROOT, "alice/digits", "production", MoveLabel(version="latest", reason="better"))
    assert (await place.services[Versions].get(ALICE, "digits", "production")).version == 2
    await labels.remove(ALICE, "digits", "production", RemoveLabel(reason="broken"))
    history = (await labels.history(ALICE, "digits")).items
    assert [(one.by, one.from_version, one.to_version, one.reason) for one in history] == [
        ("alice", 2, None, "broken"),
        ("root", 1, 2, "better"),
        ("alice", None, 1, "first"),
    ]
    with pytest.raises(NotFound, match="no version of model 'digits' has the label"):
        await labels.remove(ALICE, "digits", "production", RemoveLabel())


@pytest.mark.parametrize("label", ["latest", "Latest", "1", "1.2.0", "a b", "-x", "ä b", "x" * 65, "", "v/1", "v\x00"])
async def test_what_cannot_be_a_label_is_refused(place, label) -> None:
    await place.register(0)
    with pytest.raises(ConfigError, match="label"):
        await place.services[Labels].move(ALICE, "digits", label, MoveLabel(version=1))


async def test_of_two_movers_at_once_one_learns_what_the_other_did(place) -> None:
    for n in range(3):
        await place.register(n)
    labels = place.services[Labels]
    await labels.move(ALICE, "digits", "production", MoveLabel(version=1))
    moves = (
        labels.move(ALICE, "digits", "production", MoveLabel(version=2, expected=1, reason="mine")),
        labels.move(ROOT, "alice/digits", "production", MoveLabel(version=3, expected=1, reason="theirs")),
    )
    found = await asyncio.gather(*moves, return_exceptions=True)
    done = [one for one in found if not isinstance(one, Exception)]
    (refused,) = [one for one in found if isinstance(one, Exception)]
    assert len(done) == 1
    assert isinstance(refused, Conflict)
    assert f"is on version {done[0].to_version}, not 1: {done[0].by} moved it ({done[0].reason})" in refused.message
    assert len((await labels.history(ALICE, "digits")).items) == 2
    with pytest.raises(Conflict, match="is on no version"):
        await labels.remove(ALICE, "digits", "staging", RemoveLabel(expected=1))


async def test_a_registration_repeated_after_a_lost_reply_moves_no_label_back(place) -> None:
    labels = place.services[Labels]
    first = await place.register(0, labels=["production"], idempotency_key="k")
    await place.register(1)
    await labels.move(ROOT, "alice/digits", "production", MoveLabel(version=2, reason="better"))
    again = await place.register(0, labels=["production"], idempotency_key="k")
    assert (again.version, again.labels) == (first.version, [])
    assert (await place.services[Versions].get(ALICE, "digits", "production")).version == 2
    meant = await place.register(0, labels=["production"], idempotency_key="another")
    assert meant.labels == ["production"]


async def test_a_move_repeated_after_a_lost_reply_moves_nothing_back(place) -> None:
    labels = place.services[Labels]
    for n in range(2):
        await place.register(n)
    wanted = MoveLabel(version=1, reason="mine", expected=0, idempotency_key="k")
    made = await labels.move(ALICE, "digits", "production", wanted)
    assert await labels.move(ALICE, "digits", "production", wanted) == made
    await labels.move(ROOT, "alice/digits", "production", MoveLabel(version=2))
    assert await labels.move(ALICE, "digits", "production", wanted) == made
    assert (await place.services[Versions].get(ALICE, "digits", "production")).version == 2
    assert len((await labels.history(ALICE, "digits")).items) == 2


async def test_who_names_a_version_that_is_not_there_is_told_which_are(place) -> None:
    versions = place.services[Versions]
    with pytest.raises(NotFound, match="no version '7'") as found:
        await versions.get(ALICE, "digits", "7")
    assert found.value.hint is not None
    assert "none yet" in found.value.hint
    await place.register(0, semver="1.0.0")
    await place.register(1, labels=["production"])
    with pytest.raises(NotFound, match="no version 'staging'") as found:
        await versions.get(ALICE, "digits", "staging")
    assert found.value.hint == "Its versions: 2, 1 (1.0.0); its labels: production"


async def test_what_a_label_points_at_is_deleted_only_by_force(place) -> None:
    services = place.services
    await place.register(0, labels=["production"])
    with pytest.raises(Conflict, match="has the labels production"):
        await services[Versions].delete(ALICE, "digits", "1")
    with pytest.raises(Conflict, match=r"production \(version 1\)"):
        await services[Models].delete(ALICE, "digits")
    await services[Versions].delete(ALICE, "digits", "1", force=True)
    assert (await services[Models].get(ALICE, "digits")).moving == {}
    assert (await services[Labels].history(ALICE, "digits")).items[0].to_version is None
    await place.register(0, labels=["production"])
    await services[Models].delete(ALICE, "digits", force=True)
    with pytest.raises(NotFound):
        await services[Models].get(ALICE, "digits")
    assert (await place.model()).versions == 0


async def test_a_registered_checkpoint_and_its_experiment_cannot_be_deleted(place) -> None:
    services = place.services
    await place.register(0)
    with pytest.raises(Conflict, match="in the registry"):
        await services[Removals].delete(ALICE, place.checkpoints[0])
    with pytest.raises(Conflict, match="in the registry"):
        await services[Removals].remove_files(ALICE, place.checkpoints[0], ["*"])
    with pytest.raises(Conflict, match=r"^1 checkpoint of experiment [0-9]+ is a version of a model in the registry"):
        await services[Experiments].delete(ALICE, place.experiment)
    await services[Versions].delete(ALICE, "digits", "1")
    await services[Removals].delete(ALICE, place.checkpoints[0])
    await services[Experiments].delete(ALICE, place.experiment)


async def test_what_a_trial_has_reported_as_used_is_in_the_lineage(place) -> None:
    first, second, _ = place.checkpoints
    told = [second, second, 7, "../x", "<b>", first]

    def report(unit) -> None:
        from detlab_hub.store.tables import CheckpointRow

        unit.session.get(CheckpointRow, first).metadata_ = {"uses_checkpoints": told}
        unit.session.get(CheckpointRow, second).metadata_ = {"uses_checkpoints": "no list"}

    await place.services.context.write(report)
    assert (await place.register(0)).lineage.parents == [second]
    assert (await place.register(1)).lineage.parents == []
    graph = await place.services[Versions].lineage(ALICE, "digits", "1")
    assert f"checkpoint:{second}" in {edge.target for edge in graph.edges}


async def test_lineage_is_drawn(place) -> None:
    await place.register(0)
    graph = await place.services[Versions].lineage(ALICE, "digits", "1")
    assert [node.kind for node in graph.nodes][:4] == ["version", "checkpoint", "trial", "experiment"]
    ids = {node.id for node in graph.nodes}
    assert {edge.source for edge in graph.edges} | {edge.target for edge in graph.edges} <= ids


async def test_actions_are_in_the_audit_log(place) -> None:
    await place.register(0, labels=["production"])
    await place.services[Models].delete(ALICE, "digits", force=True)
    actions = {item.action for item in (await place.services[Audit].page(ROOT, action="model")).items}
    assert actions == {"model.create", "model.register", "model.label", "model.delete"}


async def test_readers_of_a_model_see_no_secret_variables_of_its_experiment(make_world) -> None:
    """They need no right to the experiment; `AWS_SECRET_ACCESS_KEY` is how many give a store's keys to their trials."""
    world = await make_world(training(2))
    await world.add_agent()
    secrets = ["AWS_SECRET_ACCESS_KEY=hunter2", "AZURE_STORAGE_CONNECTION_STRING=AccountKey=hunter2", "MODE=fast"]
    storage = {"type": "azure", "container": "c", "account_url": "https://a.blob.core.windows.net?sig=hunter2"}
    block = {"environment": {"environment_variables": secrets}}
    made = await world.submit(config(**block, hyperparameters={"lr": 0.1}))
    await world.finish(made.id)

    def move(unit) -> None:
        row = unit.session.get_one(ExperimentRow, made.id)
        row.config = {**row.config, "checkpoint_storage": storage}

    await world.services.context.write(move)
    await world.services[Models].create(ALICE, CreateModel(name="digits"))
    version = await world.services[Versions].register(ALICE, "digits", CreateVersion(experiment_id=made.id))
    assert "hunter2" not in version.model_dump_json()
    shown = str(version.lineage.config["environment"]["environment_variables"])
    assert "AWS_SECRET_ACCESS_KEY=****" in shown
    assert "MODE=fast" in shown


SCRIPTS = (
    "Größe v2",
    "модель",
    "数字识别",
    "숫자",
    "हिन्दी मॉडल",
    "עברית",
    "العربية",
    "ตัวเลข",
    "モデル-1",
    "ελληνικά",
    "số",
)


@pytest.mark.parametrize("name", SCRIPTS)
async def test_a_model_may_have_a_name_in_any_script(place, name) -> None:
    """Only ASCII could be written."""
    made = await place.model(name)
    assert made.name == unicodedata.normalize("NFC", name)
    await place.register(0, name, labels=["생산"])
    services = place.services
    for form in ("NFC", "NFD"):
        written, part = (unicodedata.normalize(form, text) for text in (name, made.name[1:3]))
        assert (await services[Models].get(ALICE, written)).id == made.id
        assert (await services[Models].get(ALICE, f"alice/{written}")).id == made.id
        version = await services[Versions].get(ALICE, written, unicodedata.normalize(form, "생산"))
        assert (version.model, version.version) == (made.name, 1)
        found = await services[Versions].search(ALICE, where=f"name = '{written}' and version.label = '생산'")
        assert [one.model for one in found.items] == [made.name]
        assert [one.id for one in (await services[Models].list(ALICE, name=part)).items] == [made.id]
        with pytest.raises(Conflict, match="already"):
            await place.model(written)


async def test_names_and_labels_in_any_script_are_kept_in_one_form(place) -> None:
    await place.register(0, labels=["Größe"])
    moves = place.services[Labels]
    decomposed = unicodedata.normalize("NFD", "Größe")
    moved = await moves.move(ALICE, "digits", decomposed, MoveLabel(version=1, expected=1))
    assert moved.label == "Größe"
    await moves.remove(ALICE, "digits", decomposed, RemoveLabel())
    for label in ("latest", "LATEST", "\uff4c\uff41test"):
        with pytest.raises(ConfigError, match="cannot be moved"):
            await moves.move(ALICE, "digits", label, MoveLabel(version=1))


@pytest.mark.parametrize("name", ["\u0667", "१२", "123"])
async def test_digits_of_any_script_alone_are_no_name(place, name) -> None:
    with pytest.raises(ConfigError, match="digits only"):
        await place.services[Models].create(ALICE, CreateModel(name=name))


async def test_notes_that_somebody_has_changed_meanwhile_are_not_replaced_unseen(place) -> None:
    models, versions = place.services[Models], place.services[Versions]
    await place.register(0)
    for edit, wanted in (
        (lambda body: models.edit(ALICE, "digits", body), EditModel),
        (lambda body: versions.edit(ALICE, "digits", "1", body), EditVersion),
    ):
        await edit(wanted(notes="of alice", notes_before=""))
        with pytest.raises(Conflict, match="have been changed since you opened them"):
            await edit(wanted(name="also not done", notes="of another", notes_before=""))
        assert (await edit(wanted(notes="of both", notes_before="of alice"))).notes == "of both"
    assert (await models.get(ALICE, "digits")).name == "digits"
