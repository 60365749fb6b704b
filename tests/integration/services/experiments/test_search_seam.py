"""The search seam in the master: the journal's decisions are read back, suggestions are made outside of turns."""

from __future__ import annotations

import asyncio
import importlib
import sys
from pathlib import Path

import pytest
from services_scripted import ALICE, BOB, World, asha, config, training
from sqlalchemy import select, update
from stream_reading import until

from detlab.errors import ConfigError, Conflict
from detlab.schemas import expconf
from detlab.schemas.expconf.blocks import searchers as blocks
from detlab.schemas.wire import ExperimentState, SteerSearch
from detlab_hub.core.searchers import Extended, Question, StopRequested, event_to_json, registry
from detlab_hub.services.base.searches import UNDECIDED
from detlab_hub.services.experiments.answer_process import AnswerProcess
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.experiments.steering import SearchSteering
from detlab_hub.services.experiments.suggestions import Suggestions
from detlab_hub.store.tables import ExperimentRow, SearcherJournal, TrialRow

PLUGIN = '''
from typing import ClassVar, Literal

from detlab.schemas.expconf import SearcherBlock
from detlab_hub.core.searchers import SearchMethod, Suggest


BROKEN = set()
"""Methods that raise an error."""


class AskingConfig(SearcherBlock):
    """Asks for each point."""

    name: Literal["asking"] = "asking"
    max_trials: int = 3
    fails: bool = False


class Asking(SearchMethod):
    """Asks for each point, one trial after the other; each starts from the checkpoint of the one before."""

    name = "asking"
    Config = AskingConfig
    suggests = True
    wants_checkpoints = True

    def __init__(self, trials, fails):
        self.trials, self.fails, self.asked, self.newest = trials, fails, 0, None

    @classmethod
    def from_config(cls, fields, space):
        return cls(fields.count("max_trials"), fields.get("fails", False))

    @property
    def budget(self):
        return self.trials

    def _ask(self):
        if self.asked == self.trials:
            return []
        self.asked += 1
        return [Suggest(self.asked - 1, 1)]

    def start(self, factory):
        if "start" in BROKEN:
            raise KeyError("no point")
        return self._ask()

    def known(self, ticket):
        return {"ticket": ticket, "fails": self.fails}

    @classmethod
    def suggest(cls, question):
        if question.known["fails"]:
            raise ValueError("no <idea>")
        return [{"lr": 10.0 ** -(question.known["ticket"] + 1)}]

    def suggested(self, factory, ticket, points):
        return [factory.at(point, self.newest) for point in points]

    def checkpointed(self, factory, request_id, uuid, steps_completed):
        self.newest = uuid
        return []

    def exited(self, factory, request_id):
        made = self._ask()
        if "exited" in BROKEN:
            raise TypeError("unsupported operand: <b>")
        return made

    def extended(self, factory, trials, units):
        self.trials += trials
        if "extended" in BROKEN:
            raise KeyError(trials)
        return []

    def progress(self, shares, closed):
        return len(closed) / self.trials

    def state(self):
        return {"asked": self.asked, "newest": self.newest}
'''


def forget_methods() -> None:
    blocks.SEARCHERS.forget()
    registry.method_class.cache_clear()
    blocks.MEMBERS.of_plugin.cache_clear()


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """A search method of somebody else's, installed as any package is."""
    folder = tmp_path / "site"
    info = folder / "detlab_asking-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: detlab-asking\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[detlab.searchers]\nasking = detlab_asking:Asking\n")
    (folder / "detlab_asking.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", str(folder))
    forget_methods()
    yield folder
    sys.modules.pop("detlab_asking", None)
    monkeypatch.undo()
    forget_methods()


def asking(**more):
    return {"name": "asking", "metric": "loss", "max_trials": 3, **more}


async def answer(world: World) -> None:
    await asyncio.gather(*world.services[Suggestions].take())


async def finish(world: World, experiment_id: int):
    async def ended() -> bool:
        await answer(world)
        return (await world.view(experiment_id)).state.terminal

    await world.until(ended)
    return await world.view(experiment_id)


def journal(world: World, experiment_id: int) -> list[SearcherJournal]:
    query = select(SearcherJournal).where(SearcherJournal.experiment_id == experiment_id).order_by(SearcherJournal.seq)
    return list(world.store.read_sync(lambda s: s.scalars(query).all()))


# --- suggestions


async def test_a_plugin_searches_by_suggestions_that_a_process_makes(make_world, plugin):
    world = await make_world(training(3))
    await world.add_agent()
    made = await world.submit(config(asking()))
    assert await world.trials(made.id) == []
    view = await finish(world, made.id)
    assert view.state is ExperimentState.COMPLETED
    points = [trial.hparams["lr"] for trial in await world.trials(made.id)]
    assert points == [0.1, 0.01, 0.001]
    assert view.warnings == []


async def test_a_trial_starts_from_its_parents_checkpoint(make_world, plugin):
    world = await make_world(training(3))
    agent = await world.add_agent()
    seen = []
    hear = agent._hear

    async def heard(message):
        if message.type == "launch":
            seen.append(message.info.latest_checkpoint)
        await hear(message)

    agent._hear = heard
    made = await world.submit(config(asking()))
    await finish(world, made.id)
    parents = world.store.read_sync(lambda s: list(s.scalars(select(TrialRow.parent_checkpoint).order_by(TrialRow.id))))
    first, second, third = parents
    assert first is None
    assert second is not None
    assert seen[:3] == [None, second, third]


async def test_a_suggestion_that_fails_is_drawn_at_random_and_told_once(make_world, plugin):
    world = await make_world(training(1))
    await world.add_agent()
    made = await world.submit(config(asking(fails=True)))
    view = await finish(world, made.id)
    assert view.state is ExperimentState.COMPLETED
    [warning] = view.warnings
    assert "suggestions: asking failed: ChildProcessError: ValueError: no <idea>" in warning
    assert all(1e-4 <= trial.hparams["lr"] <= 1e-1 for trial in await world.trials(made.id))


async def test_a_question_that_a_dead_master_left_is_asked_again(make_world, plugin):
    world = await make_world(training(1))
    await world.add_agent()
    made = await world.submit(config(asking(max_trials=1)))
    await world.reboot()  # before any answer
    view = await finish(world, made.id)
    assert view.state is ExperimentState.COMPLETED
    assert [trial.hparams["lr"] for trial in await world.trials(made.id)] == [0.1]


async def test_questions_of_several_users_are_answered_in_turn(make_world, plugin):
    world = await make_world(training(1))
    for _ in range(3):
        await world.submit(config(asking()), caller=BOB)
    await world.submit(config(asking(fails=True)), caller=ALICE)  # `fails` marks her question: nothing fails here
    answered, asked = [], asyncio.Event()

    async def note(searcher: str, question: Question) -> list[dict[str, float]]:
        answered.append("alice" if question.known["fails"] else "bob")
        asked.set()
        await slow.wait()
        return [{"lr": 0.1}]

    slow = asyncio.Event()
    begun = Suggestions(world.services.context, note).take()
    await asyncio.wait_for(asked.wait(), 10)
    assert (len(begun), len(answered)) == (4, 1)
    slow.set()
    await asyncio.gather(*begun)
    assert sorted(answered) == ["alice", "bob", "bob", "bob"]
    assert answered[-1] == "bob"  # she waits for one of his at a time, not for all


async def test_a_second_answer_to_one_question_changes_nothing(make_world, plugin):
    world = await make_world(training(1))
    made = await world.submit(config(asking()))
    [asked] = world.services.context.questions
    await answer(world)
    world.services.context.questions.append(asked)
    await answer(world)
    assert len(await world.trials(made.id)) == 1
    assert [entry.event["type"] for entry in journal(world, made.id)].count("suggested") == 1


async def test_an_answer_that_takes_too_long_is_killed_and_the_next_one_comes(plugin):
    slow = PLUGIN.replace(
        '        if question.known["fails"]:', "        import time; time.sleep(60)\n        if False:"
    )
    (plugin / "detlab_asking.py").write_text(slow)
    asks = AnswerProcess(patience=0.5)
    with pytest.raises(TimeoutError):
        await asks("asking", Question(0, 1, 0, {}, {"ticket": 0, "fails": False}))
    (plugin / "detlab_asking.py").write_text(PLUGIN)
    asks.patience = 30.0
    assert await asks("asking", Question(0, 1, 0, {}, {"ticket": 0, "fails": False})) == [{"lr": 0.1}]
    await asks.close()


async def test_one_process_answers_many_questions_and_ends_when_idle(plugin):
    answer = '        return [{"lr": 10.0 ** -(question.known["ticket"] + 1)}]'
    assert answer in PLUGIN
    process = '        import os; print("to standard error"); return [{"process": os.getpid()}]'
    (plugin / "detlab_asking.py").write_text(PLUGIN.replace(answer, process))
    asks = AnswerProcess(idle=0.1)
    questions = [Question(ticket, 1, 0, {}, {"ticket": ticket, "fails": ticket == 1}) for ticket in range(3)]
    found = await asyncio.gather(*(asks("asking", one) for one in questions), return_exceptions=True)
    assert str(found[1]) == "ValueError: no <idea>"
    assert found[0] == found[2], "the same process"
    pid = found[0][0]["process"]
    await until(lambda: not Path(f"/proc/{pid}").exists())
    assert await asks("asking", questions[0]) != found[0]
    await asks.close()


def test_a_plugins_block_is_checked_like_any_other(plugin):
    assert expconf.check(config(asking())) == []
    [problem] = expconf.check(config(asking(max_trails=3)))
    assert problem.path == "searcher.max_trails"
    assert "max_trials" in (problem.hint or "")
    [problem] = expconf.check(config({"name": "asking2", "metric": "loss"}))
    assert "asking" in (problem.hint or "") + problem.message


# --- replay reads the decisions back


def damage(world: World, experiment_id: int) -> SearcherJournal:
    """Change a decision of the journal: another version of the algorithm wrote it."""
    entry = next(one for one in journal(world, experiment_id) if one.decisions and one.seq > 1)
    place = SearcherJournal.experiment_id == experiment_id, SearcherJournal.seq == entry.seq
    world.store.write_sync(lambda s: s.execute(update(SearcherJournal).where(*place).values(decisions=[])))
    return entry


def mend(world: World, entry: SearcherJournal) -> None:
    place = SearcherJournal.experiment_id == entry.experiment_id, SearcherJournal.seq == entry.seq
    decisions = entry.decisions
    world.store.write_sync(lambda s: s.execute(update(SearcherJournal).where(*place).values(decisions=decisions)))


async def until_it_decided(world: World, experiment_id: int) -> None:
    async def decided() -> bool:
        return any(one.decisions and one.seq > 1 for one in journal(world, experiment_id))

    await world.until(decided)


async def test_I8_a_journal_that_this_version_does_not_decide_pauses_the_experiment_and_loses_nothing(
    make_world, tmp_path
):
    calm = World(f"sqlite:///{tmp_path}/calm.sqlite", tmp_path, script=training(9))
    await calm.boot()
    await calm.add_agent()
    first = await calm.submit(config(asha(concurrent=1)))
    await calm.finish(first.id)
    expected = [(one.request_id, one.state, one.steps_completed) for one in await calm.trials(first.id)]
    calm.close()

    world = await make_world(training(9))
    await world.add_agent()
    made = await world.submit(config(asha(concurrent=1)))
    await until_it_decided(world, made.id)
    entry = damage(world, made.id)
    await world.reboot()

    async def paused() -> bool:
        return (await world.view(made.id)).state is ExperimentState.PAUSED

    await world.until(paused)
    view = await world.view(made.id)
    assert view.failure is not None
    assert view.failure.kind == "searcher"
    assert f"event {entry.seq} of its journal" in view.failure.message
    await world.steps(10)  # what its trials say until they have left is kept
    assert any(one.decisions == [{"type": "undecided"}] for one in journal(world, made.id))

    with pytest.raises(Conflict, match="its search cannot continue under this version"):
        await world.services[Experiments].activate(ALICE, made.id)
    assert (await world.view(made.id)).state is ExperimentState.PAUSED

    mend(world, entry)
    await world.reboot()
    await world.services[Experiments].activate(ALICE, made.id)
    view = await world.finish(made.id)
    assert view.state is ExperimentState.COMPLETED
    assert view.failure is None
    assert [(one.request_id, one.state, one.steps_completed) for one in await world.trials(made.id)] == expected
    assert all(one.decisions != [{"type": "undecided"}] for one in journal(world, made.id))


async def test_an_event_that_the_search_refuses_when_it_catches_up_does_not_break_its_journal(make_world):
    world = await make_world(training(9))
    await world.add_agent()
    made = await world.submit(config(asha(concurrent=1)))
    await until_it_decided(world, made.id)
    entry = damage(world, made.id)
    await world.reboot()
    await world.steps(10)
    event = event_to_json(StopRequested("no trial of it", "alice"))
    place = {"experiment_id": made.id, "seq": len(journal(world, made.id)) + 1, "at": world.now}
    undecided = SearcherJournal(**place, event=event, decisions=[{"type": "undecided"}])
    world.store.write_sync(lambda s: s.add(undecided))
    mend(world, entry)
    await world.reboot()
    await world.services[Experiments].activate(ALICE, made.id)
    assert [{"type": "refused"}] in [one.decisions for one in journal(world, made.id)]
    await world.reboot()
    assert (await world.finish(made.id)).state is ExperimentState.COMPLETED
    replay = await world.services[SearchSteering].replay(ALICE, made.id, None)
    assert replay.events == len(journal(world, made.id))


async def test_a_method_that_raises_pauses_its_experiment_and_loses_nothing(make_world, plugin):
    """Its agent reports the end of a trial once, keeps its connection, and serves others meanwhile."""
    world = await make_world(training(3))
    await world.add_agent()
    made = await world.submit(config(asking()))
    await answer(world)
    broken = importlib.import_module("detlab_asking").BROKEN
    broken.add("exited")

    async def paused() -> bool:
        return (await world.view(made.id)).state is ExperimentState.PAUSED

    await world.until(paused)
    failure = (await world.view(made.id)).failure
    assert failure is not None
    assert failure.message == ("asking: the search method failed at TrialExited: TypeError: unsupported operand: <b>")
    assert (failure.kind, failure.command) == ("searcher", f"det experiment activate {made.id}")
    assert journal(world, made.id)[-1].decisions == UNDECIDED
    other = await world.submit(config(asha(2), name="other"))
    await finish(world, other.id)
    with pytest.raises(Conflict, match="cannot continue yet: the search method failed at TrialExited"):
        await world.services[Experiments].activate(ALICE, made.id)
    broken.clear()
    await world.services[Experiments].activate(ALICE, made.id)
    view = await finish(world, made.id)
    assert view.state is ExperimentState.COMPLETED
    assert [trial.hparams["lr"] for trial in await world.trials(made.id)] == [0.1, 0.01, 0.001]


CHAIN = (
    PLUGIN.replace("asking", "chain")
    .replace("Asking", "Chain")
    .replace("SearchMethod, Suggest", "SearchMethod, StopTrial")
    + """
    suggests = False
    wants_checkpoints = False

    def start(self, factory):
        made = [factory.at({"lr": 0.1}), factory.at({"lr": 0.01})]
        self.second = made[1].request_id
        return made

    def exited(self, factory, request_id):
        if "exited" in BROKEN:
            raise TypeError("broken")
        self.asked += 1
        if self.asked == 1:
            return [StopTrial(self.second, finished=False)]
        return [factory.at({"lr": 0.0001})] if self.asked == 2 else []

    def extended(self, factory, trials, units):
        return [factory.at({"lr": 0.001})]
"""
)


async def test_what_follows_from_a_decision_that_was_caught_up_waits_until_all_are_carried_out(make_world, plugin):
    """The end of the trial that the first one stops came before the second one: out of the order of the journal."""
    (plugin / "detlab_chain.py").write_text(CHAIN)
    (plugin / "detlab_asking-1.0.dist-info" / "entry_points.txt").write_text(
        "[detlab.searchers]\nchain = detlab_chain:Chain\n"
    )
    forget_methods()
    world = await make_world(training(1))
    await world.add_agent(slots=1)
    importlib.import_module("detlab_chain").BROKEN.add("exited")
    made = await world.submit(config({"name": "chain", "metric": "loss"}))

    async def paused() -> bool:
        return (await world.view(made.id)).state is ExperimentState.PAUSED

    await world.until(paused)
    event = event_to_json(Extended(1, 0, "alice"))
    place = {"experiment_id": made.id, "seq": len(journal(world, made.id)) + 1, "at": world.now}
    world.store.write_sync(lambda s: s.add(SearcherJournal(**place, event=event, decisions=UNDECIDED)))
    await world.reboot()
    importlib.import_module("detlab_chain").BROKEN.clear()
    await world.services[Experiments].activate(ALICE, made.id)
    assert [trial.hparams["lr"] for trial in await world.trials(made.id)] == [0.1, 0.01, 0.001, 0.0001]
    kinds = [one.event["type"] for one in journal(world, made.id)]
    assert kinds.index("extended") < kinds.index("continued") < len(kinds) - 1 - kinds[::-1].index("trial_exited")
    await world.reboot()
    assert (await world.finish(made.id)).state is ExperimentState.COMPLETED
    sys.modules.pop("detlab_chain", None)


async def test_a_method_that_raises_at_a_users_act_refuses_it_and_goes_on(make_world, plugin):
    world = await make_world(training(3))
    await world.add_agent()
    made = await world.submit(config(asking()))
    broken = importlib.import_module("detlab_asking").BROKEN
    broken.add("extended")
    with pytest.raises(Conflict, match="the search method failed at Extended: KeyError: 5"):
        await world.services[SearchSteering].steer(ALICE, made.id, SteerSearch(act="extend", trials=5))
    broken.clear()
    await finish(world, made.id)
    assert len(await world.trials(made.id)) == 3


async def test_a_method_that_raises_at_the_start_is_told_at_submit(make_world, plugin):
    world = await make_world(training(3))
    importlib.import_module("detlab_asking").BROKEN.add("start")
    with pytest.raises(ConfigError, match="KeyError: 'no point'"):
        await world.submit(config(asking()))
    assert world.store.read_sync(lambda s: s.scalars(select(ExperimentRow)).all()) == []


async def test_an_experiment_whose_search_cannot_be_replayed_can_be_killed(make_world):
    world = await make_world(training(9))
    await world.add_agent()
    made = await world.submit(config(asha(concurrent=1)))
    await until_it_decided(world, made.id)
    damage(world, made.id)
    await world.reboot()
    await world.steps(5)
    await world.services[Experiments].kill(ALICE, made.id)
    assert (await world.finish(made.id)).state is ExperimentState.CANCELED


async def test_a_method_that_was_uninstalled_pauses_its_experiment_until_it_is_back(make_world, plugin: Path):
    world = await make_world(training(1))
    await world.add_agent()
    made = await world.submit(config(asking()))
    await answer(world)
    points = plugin / "detlab_asking-1.0.dist-info" / "entry_points.txt"
    installed = points.read_text()
    points.write_text("")
    forget_methods()
    await world.reboot()

    async def paused() -> bool:
        return (await world.view(made.id)).state is ExperimentState.PAUSED

    await world.until(paused)
    view = await world.view(made.id)
    assert view.failure is not None
    assert "there is no search method 'asking' here; installed: adaptive_asha" in view.failure.message
    points.write_text(installed)
    forget_methods()
    await world.services[Experiments].activate(ALICE, made.id)
    assert (await finish(world, made.id)).state is ExperimentState.COMPLETED


async def test_a_search_of_an_earlier_version_is_replayed(make_world):
    """Journals that were written before `evidence` and `parent` were there."""
    world = await make_world(training(9))
    await world.add_agent()
    made = await world.submit(config(asha(concurrent=1)))
    await until_it_decided(world, made.id)
    for entry in journal(world, made.id):
        for decision in entry.decisions:
            assert decision.keys() <= {"type", "request_id", "trial_seed", "hparams", "index", "finished"}
    await world.reboot()
    assert (await world.finish(made.id)).state is ExperimentState.COMPLETED
    row = world.store.read_sync(lambda s: s.get(ExperimentRow, made.id))
    assert row.failure is None
