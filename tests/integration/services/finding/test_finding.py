"""Trials and experiments found by filters, through the services: rights, orders, columns, mistakes, completion."""

from __future__ import annotations

import math

import pytest
from services_scripted import ALICE, BOB, ROOT, config, report

from detlab.errors import ConfigError, NotFound
from detlab.schemas.wire import EditExperiment, GrantRequest
from detlab_hub.core.filters.fields import FilterTable
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.experiments.edits import Edits
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.experiments.grants import Grants
from detlab_hub.services.finding.finding import RunFinder

TRIALS, EXPERIMENTS = FilterTable.TRIALS, FilterTable.EXPERIMENTS


def scoring(launch):
    """Validates three times: the loss is best at the second; `recall` is reported once, before that."""
    rate = launch.info.hparams["lr"]
    yield ("metrics", "validation", 1, {"loss": 3.0 * rate, "acc": 0.1, "recall": 0.7})
    yield ("metrics", "training", 1, {"loss": 9.0})
    yield ("metrics", "validation", 2, {"loss": 1.0 * rate, "acc": 0.9})
    yield ("metrics", "training", 2, {"loss": 8.0, "odd": math.nan})
    yield ("metrics", "validation", 3, {"loss": 2.0 * rate, "acc": 0.5})
    yield ("metrics", "training", 3, {"loss": 7.0})
    yield ("exit", 0)


@pytest.fixture
async def world(make_world):
    """Alice's experiment `mine` of one trial with the label `paper`; Bob's `theirs` with `secret`."""
    world = await make_world(scoring)
    await world.add_agent()
    for caller, name, label, rate in ((ALICE, "mine", "paper", 0.1), (BOB, "theirs", "secret", 0.01)):
        made = await world.submit(config(name=name, hyperparameters={"lr": rate, "opt": {"name": "adam"}}), caller)
        await world.finish(made.id)
        await world.services[Edits].edit(caller, made.id, EditExperiment(labels=[label]))
    return world


async def found(world, text="", caller=ALICE, **more):
    page = await world.services[RunFinder].trials(caller, filter=text, **more)
    return [one.name for one in page.items]


CONDITIONS = [
    ("", "theirs mine"),
    ("acc = 0.9", "theirs mine"),
    ("acc.best = 0.9 and acc.last = 0.5 and acc.min = 0.1 and acc.max = 0.9", "theirs mine"),
    ("recall = 0.7", "theirs mine"),
    ("training.loss = 8 and training.loss.last = 7", "theirs mine"),
    ("training.odd = nan", "theirs mine"),
    ("loss < 0.05", "theirs"),
    ("hparams.lr > 0.05 and hp.opt.name = adam", "mine"),
    ("label = paper or name = theirs", "theirs mine"),
    ("label != paper", "theirs"),
    ("state = completed and created > -7d and duration < 1h", "theirs mine"),
    ("created < -7d or state = running", ""),
    ("owner = me", ""),
    ("owner = alice", "mine"),
]


async def test_conditions(world):
    for text, names in CONDITIONS:
        assert " ".join(await found(world, text, ROOT)) == names, text


async def test_each_user_finds_what_they_may_read(world):
    assert await found(world, "acc > 0") == ["mine"]
    assert await found(world, "acc > 0", BOB) == ["theirs"]
    assert await found(world, "owner = me") == ["mine"]
    assert await found(world, "acc > 0", Caller("mallory")) == []
    theirs = (await world.services[Experiments].list(BOB))[0][0]
    await world.services[Grants].put(BOB, theirs.id, GrantRequest(kind="user", name="alice"))
    assert await found(world, "acc > 0") == ["theirs", "mine"]
    assert await found(world, "owner = me") == ["mine"]
    experiments = await world.services[RunFinder].experiments(ALICE, filter="label = secret and loss < 0.05")
    assert [one.name for one in experiments.items] == ["theirs"]


async def test_orders_columns_and_pages(world):
    finding = world.services[RunFinder]
    columns = ["acc", "loss.min", "hparams.lr", "training.odd", "label", "nothing"]
    page = await finding.trials(ROOT, sort=["-hparams.lr"], column=columns, limit=1)
    assert [one.values for one in page.items] == [[0.9, 0.1, 0.1, "NaN", ["paper"], None]]
    assert [column.kind for column in page.columns] == ["number", "number", "any", "number", "labels", "number"]
    assert page.notes == ["nothing that you may see has a metric 'nothing' in the group 'validation'"]
    rest = await finding.trials(ROOT, sort=["-hparams.lr"], column=columns, limit=1, after=page.next)
    assert [one.name for one in rest.items] == ["theirs"]
    assert (rest.next, rest.notes) == (None, [])
    experiments = await finding.experiments(ROOT, sort=["loss"], column=["acc.last", "hp.lr", "trials"])
    assert [(one.name, one.values) for one in experiments.items] == [
        ("theirs", [0.5, 0.01, 1]),
        ("mine", [0.5, 0.1, 1]),
    ]
    with pytest.raises(NotFound):
        await finding.trials(ALICE, after=rest.items[0].id)


async def test_archived_ones_are_left_out_unless_they_are_asked_for(world):
    mine = (await world.services[Experiments].list(ALICE))[0][0]
    await world.services[Edits].edit(ALICE, mine.id, EditExperiment(archived=True))
    assert await found(world) == []
    assert await found(world, archived="only") == ["mine"]
    assert await found(world, "archived = true") == ["mine"]
    assert await found(world, "archived = false") == []


async def test_trials_of_one_experiment(world):
    service, mine = world.services[Experiments], (await world.services[Experiments].list(ALICE))[0][0]
    for text, count in (("acc > 0.8", 1), ("acc > 0.95", 0)):
        assert len((await service.trials(ALICE, mine.id, filter=text))[0]) == count
        assert len((await service.trials(ALICE, mine.id, filter=text, sort="-validation.acc"))[0]) == count
        assert len((await service.trials(ALICE, mine.id, filter=text, sort="validation.no"))[0]) == 0
    with pytest.raises(NotFound):
        await service.trials(BOB, mine.id, filter="acc > 0")
    with pytest.raises(ConfigError, match="cannot come together"):
        await service.trials(ALICE, mine.id, filter="acc > 0", where=["lr<1"])


MISTAKES = [
    ("best = loss", 8, "`best` is a number; = compares numbers, and 'loss' is none"),
    ("acc >", 6, "the filter ends where a value after > is expected"),
    ("acc > 0.9 label = x", 11, "`and` or `or` is missing before 'label'"),
    ("hp.lr > 'a'", 9, "> compares numbers, and 'a' is none"),
    ("lable = paper", 9, "did you mean `label`?"),
    ("state = runing", 9, "'runing' is no state; they are ACTIVE"),
    ("created > yesteryear", 11, "is no time: write 2026-11-29"),
    ("created > 2026-13-01", 11, "is no date"),
    ("duration > long", 12, "is no duration: write 90s"),
    ("owner < bob", 1, "`owner` is a text: use =, !=, in or contains"),
    ("archived = perhaps", 12, "is true or false"),
    ("acc < nan", 7, "nan is neither less nor greater"),
    ("acc < 1e999", 7, "is beyond what a number can be"),
    ("acc contains x", 1, "contains is for texts"),
    ("hp..lr = 1", 1, "a part of the name"),
    (f"label = {'x' * 10_000}", 4001, "the filter has 10,008 characters; 4,000 is the most"),
]


async def test_a_mistake_is_shown_with_a_caret(world):
    for text, column, said in MISTAKES:
        with pytest.raises(ConfigError) as refused:
            await found(world, text)
        shown = refused.value.message.splitlines()
        assert f"column {column}: " in shown[0], text
        assert said in shown[0]
        assert shown[2].index("^") - 2 <= len(text)
        assert refused.value.problems[0].path == "filter"


async def test_all_mistakes_are_told_at_once(world):
    with pytest.raises(ConfigError) as refused:
        await world.services[RunFinder].trials(ALICE, filter="a >", sort=["b c"], column=["", "ok", "d."])
    assert [one.path for one in refused.value.problems] == ["filter", "sort.0", "column.0", "column.2"]
    with pytest.raises(ConfigError, match="51 of them are given"):
        await world.services[RunFinder].trials(ALICE, column=["a"] * 51)


async def test_a_name_that_nothing_has_is_told_with_one_that_is_alike(world):
    page = await world.services[RunFinder].trials(ALICE, filter="recal > 0.1")
    assert page.items == []
    assert page.notes == [
        "nothing that you may see has a metric 'recal' in the group 'validation'; did you mean recall?"
    ]
    hidden = await world.services[RunFinder].trials(Caller("mallory"), filter="recal > 0.1")
    assert hidden.notes == ["nothing that you may see has a metric 'recal' in the group 'validation'"]


async def test_completion(world):
    complete = world.services[RunFinder].complete

    async def offered(text, caller=ALICE, table=TRIALS):
        return [one.text for one in (await complete(caller, table, text)).items]

    assert {"acc", "hparams.lr", "hparams.opt.name", "state", "training.loss"} <= set(await offered(""))
    assert (await offered("rec"))[:1] == ["recall"]
    assert await offered("hparams.o") == ["hparams.opt.name"]
    assert await offered("label = ") == ["paper"]
    assert await offered("label = sec") == []
    assert await offered("label = sec", BOB) == ["secret"]
    assert await offered("owner = ") == ["me", "alice"]
    assert await offered("state = comp") == ["COMPLETED", "STOPPING_COMPLETED"]
    assert await offered("acc > 0.9 ") == ["and", "or"]
    assert "contains" in await offered("name ")
    assert "training.loss" not in await offered("", Caller("mallory"))
    broken = await complete(ALICE, TRIALS, "acc > ")
    assert (broken.begin, broken.column) == (6, 6)
    assert "^" in broken.problem
    assert (await complete(ALICE, EXPERIMENTS, "acc > 1")).problem == ""


async def test_the_best_validation_of_a_trial_that_goes_back_is_that_of_what_is_left(make_world):
    """An attempt resumes before the best step of the one before it: filters read where the best is now."""

    def script(launch):
        if launch.run == 1:
            yield report(1, loss=0.5, acc=0.1)
            yield ("save", 1)
            yield report(2, loss=0.1, acc=0.9)
            yield ("exit", 1)
        yield report(3, loss=0.4, acc=0.3)
        yield ("exit", 0)

    world = await make_world(script)
    await world.add_agent()
    made = await world.submit(config(name="back", max_restarts=1))
    await world.finish(made.id)
    values = await world.services[RunFinder].trials(ALICE, column=["loss", "acc"])
    assert [one.values for one in values.items] == [[0.4, 0.3]]


async def test_a_member_finds_by_a_filter_what_lies_in_their_workspace(world):
    """Lists showed it, and filters, which had their own condition without roles, did not."""
    await world.workspace("lab", bob="viewer", at_vision="editor")
    made = await world.submit(config(name="shared", workspace="lab", hyperparameters={"lr": 0.5}))
    await world.finish(made.id)
    await world.services[Edits].edit(ALICE, made.id, EditExperiment(labels=["team"]))
    for caller in (BOB, Caller("carol", groups=frozenset({"vision"}))):
        assert await found(world, "label = team", caller) == ["shared"]
        page = await world.services[RunFinder].experiments(caller, filter="label = team")
        assert [one.name for one in page.items] == ["shared"]
        told = await world.services[RunFinder].trials(caller, filter="label = team and acc > 5")
        assert told.notes == []  # the metric is known to them
    assert await found(world, "label = team", Caller("mallory")) == []


async def test_a_workspace_is_named_with_its_owner_too(world):
    """Lists show OWNER/NAME of another's; a filter by it matched nothing, and by the name alone all of that name."""
    await world.workspace("lab", bob="viewer")
    made = await world.submit(config(name="shared", workspace="lab", hyperparameters={"lr": 0.5}))
    await world.finish(made.id)
    for text in ("workspace = alice/lab", "workspace in ['alice/lab', 'other/lab']", "workspace = lab"):
        assert await found(world, text, BOB) == ["shared"]
    assert await found(world, "workspace = bob/lab", BOB) == []
    assert "shared" not in await found(world, "workspace != alice/lab", BOB)


async def test_a_name_alone_is_the_askers_own_workspace(world):
    """It was all workspaces of that name, so that a batch by a filter reached what lay in another's, too."""
    await world.workspace("lab", bob="viewer")
    made = await world.submit(config(name="of-alice", workspace="lab", hyperparameters={"lr": 0.5}))
    await world.finish(made.id)
    assert await found(world, "workspace = lab", BOB) == ["of-alice"]  # bob has made none of that name
    await world.workspace("Lab", caller=BOB)
    other = await world.submit(config(name="of-bob", workspace="Lab", hyperparameters={"lr": 0.5}), caller=BOB)
    await world.finish(other.id)
    for text in ("workspace = Lab", "workspace = lab", "workspace = bob/Lab"):
        assert await found(world, text, BOB) == ["of-bob"], text
    assert await found(world, "workspace = alice/lab", BOB) == ["of-alice"]
    assert await found(world, "workspace in (lab, alice/lab)", BOB) == ["of-bob", "of-alice"]
    assert await found(world, "workspace = lab") == ["of-alice"]
    offered = await world.services[RunFinder].complete(BOB, FilterTable.TRIALS, "workspace = ")
    assert [one.text for one in offered.items] == ["Lab", "Uncategorized", "alice/lab"]


async def test_a_value_that_nothing_has_is_said(world):
    """`workspace = nowhere` found nothing, and nothing said why; what one may not see is said in the same words."""
    await world.workspace("lab")
    made = await world.submit(config(name="hidden", workspace="lab", hyperparameters={"lr": 0.5}))
    await world.finish(made.id)
    await world.services[Edits].edit(ALICE, made.id, EditExperiment(labels=["secrets"]))
    finder = world.services[RunFinder]
    for text, said in (
        ("workspace = nowhere", ["nothing that you may see has the workspace 'nowhere'"]),
        ("label = papr and loss < 1", ["nothing that you may see has the label 'papr'; did you mean paper?"]),
        ("label = paper and loss > 1e9", []),
        ("loss < 1e9", []),
    ):
        assert (await finder.trials(ALICE, filter=text)).notes == said, text
    told = await finder.experiments(BOB, filter="label = secrets")
    assert told.notes == ["nothing that you may see has the label 'secrets'; did you mean secret?"]
