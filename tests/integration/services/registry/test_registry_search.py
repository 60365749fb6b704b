"""The search for versions, and comparisons."""

from __future__ import annotations

import pytest
from services_scripted import ALICE, ROOT

from detlab.errors import ConfigError
from detlab.schemas.wire.registry import EditModel, EditVersion
from detlab_hub.services.registry.comparing import Comparisons
from detlab_hub.services.registry.models import Models
from detlab_hub.services.registry.versions import Versions


@pytest.fixture
async def three(place):
    """Model `digits` (vision, dataset v3) with versions of accuracy 0.1 and 0.2; `speech` (audio) with 0.3."""
    services = place.services
    await services[Models].edit(ALICE, "digits", EditModel(set_metadata={"dataset": "v3"}, add_labels=["vision"]))
    await place.model("speech", labels=["audio", "vision and more"], metadata={"dataset": "v4", "size": {"rows": 10}})
    await place.register(0, metadata={"team": "a"}, semver="1.0.0")
    await place.register(1, metadata={"team": "b c", "passed": True}, labels=["production"])
    await place.register(2, "speech", metadata={"dataset": "v3"})
    return place


async def found(place, where="", best="accuracy", **more):
    page = await place.services[Versions].search(ALICE, best=best, where=where, **more)
    return [f"{one.model}@{one.version}" for one in page.items]


async def test_best_first_and_page_after_page(three) -> None:
    assert await found(three) == ["speech@1", "digits@2", "digits@1"]
    assert await found(three, smaller_is_better=True) == ["digits@1", "digits@2", "speech@1"]
    assert await found(three, best="training.loss", smaller_is_better=True) == ["speech@1", "digits@2", "digits@1"]
    assert await found(three, best=None) == ["speech@1", "digits@2", "digits@1"]
    assert await found(three, best="nothing") == []
    first = await three.services[Versions].search(ALICE, best="accuracy", limit=2)
    rest = await three.services[Versions].search(ALICE, best="accuracy", limit=2, after=first.after)
    assert [one.model for one in (*first.items, *rest.items)] == ["speech", "digits", "digits"]
    assert rest.after is None


@pytest.mark.parametrize(
    ("where", "wanted"),
    [
        ("label = vision", "digits@2 digits@1"),
        ("label = vision and dataset = v3", "digits@2 digits@1"),
        ("label = 'vision and more'", "speech@1"),
        ("dataset = v3", "speech@1 digits@2 digits@1"),
        ("dataset != v4", "digits@2 digits@1"),
        ("not dataset = v4", "digits@2 digits@1"),
        ("label in (audio, vision) and not team = a", "speech@1 digits@2"),
        ("label not in (audio)", "digits@2 digits@1"),
        ("team = 'b c'", "digits@2"),
        ("passed = true", "digits@2"),
        ("size.rows >= 10", "speech@1"),
        ("size.rows > 10", ""),
        ("name = speech or version.label = production", "speech@1 digits@2"),
        ("owner = alice and version < 2", "speech@1 digits@1"),
        ("version in (2, 3)", "digits@2"),
        ("semver = 1.0.0", "digits@1"),
        ("semver != 1.0.0", "speech@1 digits@2"),
        ("not semver = 1.0.0", "speech@1 digits@2"),
        ("semver not in (1.0.0, 2.0.0)", "speech@1 digits@2"),
        ("semver != 2.0.0", "speech@1 digits@2 digits@1"),
        ("not (semver = 1.0.0 or label = audio)", "digits@2"),
        ("not (semver = 1.0.0 and label = vision)", "speech@1 digits@2"),
        ("version.label != production", "speech@1 digits@1"),
        ("format != safetensors", "speech@1 digits@2 digits@1"),
        ("format != pickle", ""),
        ("checkpoint != x", "speech@1 digits@2 digits@1"),
        ("not accuracy < 0.2", "speech@1 digits@2"),
        ("hp.lr = 0.1 and accuracy >= 0.2", "speech@1 digits@2"),
        ("hp.lr = 1e-1", "speech@1 digits@2 digits@1"),
        ("hp.lr < 0.1", ""),
        ("accuracy < 0.2", "digits@1"),
        ("metric.training.loss < 0.7", "speech@1"),
        ("metadata.team = a or format = safetensors", "digits@1"),
        ("no_such_key = 1", ""),
        ("label contains VIS", "speech@1 digits@2 digits@1"),
        ("name ~ SPEE or version.label ~ prod", "speech@1 digits@2"),
        ("team contains ' '", "digits@2"),
        ("not team ~ b", "speech@1 digits@1"),
        ("semver is null", "speech@1 digits@2"),
        ("semver is not null", "digits@1"),
        ("team is null", "speech@1"),
        ("label is not null and version.label is null", "speech@1 digits@1"),
        ("accuracy is null or version is null", ""),
        ("hparams.lr = 0.1 and hparams.lr is not null", "speech@1 digits@2 digits@1"),
        ("hparams.momentum is null", "speech@1 digits@2 digits@1"),
        ("no_such_key != 1", "speech@1 digits@2 digits@1"),
        ('team = "x\' or 1=1 --"', ""),
    ],
)
async def test_conditions(three, where, wanted) -> None:
    assert " ".join(await found(three, where)) == wanted


async def test_facts_follow_edits(three) -> None:
    services = three.services
    await services[Models].edit(ALICE, "digits", EditModel(remove_labels=["vision"], set_metadata={"dataset": "v9"}))
    await services[Versions].edit(ALICE, "digits", "1", EditVersion(set_metadata={"team": "z"}))
    assert await found(three, "label = vision or dataset = v3") == ["speech@1"]
    assert await found(three, "team = z and hp.lr = 0.1 and dataset = v9") == ["digits@1"]
    assert await found(three, f"experiment = {three.experiment}", best=None) == ["speech@1", "digits@2", "digits@1"]
    assert await found(three, f"checkpoint = {three.checkpoints[2]}", best=None) == ["speech@1"]


@pytest.mark.parametrize(
    ("where", "column"),
    [
        ("label vision", 7),
        ("label = vision and", 19),
        ("label < 3", 1),
        ("version = x", 1),
        ("a = 1 b = 2", 7),
        ("a < b", 5),
        ("version ~ 1", 1),
    ],
)
async def test_an_error_points_at_its_column(three, where, column) -> None:
    with pytest.raises(ConfigError) as refused:
        await found(three, where)
    assert f"column {column}:" in refused.value.message
    mark = refused.value.message.splitlines()[2]
    assert mark.index("^") - 2 == column - 1


TOGETHER = {
    "accuracy < 0.3 and accuracy > 0.1": "digits@2",
    "hp.lr = 0.1 and dataset = v3 and label = vision": "digits@2 digits@1",
    "team = a or team = 'b c'": "digits@2 digits@1",
    "team = a or not team = 'b c'": "speech@1 digits@1",
    "(team = a or label = audio) and hp.lr = 0.1": "speech@1 digits@1",
    "(team != a and dataset = v3) or team = nothing": "speech@1 digits@2",
    "(dataset = v9 or hp.lr = 9) and hp.lr < 1": "",
    "not (team = a or label = audio) and accuracy <= 0.3": "digits@2",
    "version.label = production and semver = 1.0.0": "",
}


async def test_parts_of_a_condition_together_find_what_all_of_it_finds(three, monkeypatch) -> None:
    from detlab_hub.store.queries.registry import search

    for window, few in ((0, 0), (0, 1), (0, 2), (0, 100), (1500, 100)):
        monkeypatch.setattr(search, "WINDOW", window)
        monkeypatch.setattr(search, "FEW", few)
        for where, wanted in TOGETHER.items():
            assert " ".join(await found(three, where)) == wanted, (where, window, few)


@pytest.mark.parametrize("few", [0, 1, 100])
async def test_versions_beyond_the_window_are_found(three, monkeypatch, few) -> None:
    from detlab_hub.store.queries.registry import search

    monkeypatch.setattr(search, "FEW", few)
    monkeypatch.setattr(search, "WINDOW", 1)
    assert await found(three, "label = vision") == ["digits@2", "digits@1"]
    assert await found(three, "hp.lr = 0.1", limit=1) == ["speech@1"]
    assert await found(three, "label = vision", best=None) == ["digits@2", "digits@1"]
    first = await three.services[Versions].search(ALICE, where="label = vision", limit=1)
    rest = await three.services[Versions].search(ALICE, where="label = vision", limit=1, after=first.after)
    assert [one.version for one in (*first.items, *rest.items)] == [2, 1]
    page = await three.services[Versions].search(ROOT, best="accuracy")
    assert [one.model for one in page.items] == ["speech", "digits", "digits"]


async def test_versions_are_compared(three) -> None:
    compare = three.services[Comparisons].compare
    made = await compare(ALICE, "digits", ["1.0.0", "production"])
    assert [one.version for one in made.versions] == [1, 2]
    rows = {row.name: row for row in made.metrics}
    assert (rows["accuracy"].values, rows["accuracy"].same) == ([0.1, 0.2], False)
    assert {row.name: row.same for row in made.hyperparameters}["lr"] is True
    assert made.config == made.environment == made.code == []
    assert [one.version for one in (await compare(ALICE, "digits", [])).versions] == [1, 2]
    for wrong in (["1"], ["1"] * 11):
        with pytest.raises(ConfigError, match="name 2 to 10 versions"):
            await compare(ALICE, "digits", wrong)
