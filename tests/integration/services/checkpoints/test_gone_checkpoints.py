"""A trial whose checkpoint is gone goes on from an earlier one, uncounted, or ends at once: no restart is burned."""

from __future__ import annotations

import pytest
from services_scripted import ALICE, BOB, ROOT, config, report

from detlab.schemas.wire import TrialState
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.experiments.trials import Trials

TRACE = ("Traceback (most recent call last):", '  File "/w/train.py", line 3, in <module>')


def step_of(uuid):
    """The world numbers checkpoints; those of the trial below are saved at each second step."""
    return 2 * int(uuid.replace("-", "")[:12], 16)


class Trial:
    """Saves at steps 2, 4 and 6, then dies; its later attempts find the checkpoints of some steps only."""

    def __init__(self, *there, told=True):
        self.there, self.told = there, told
        self.given = []

    def __call__(self, launch):
        info = launch.info
        if launch.run == 1:
            yield from self.train(0, 6)
            yield ("exit", 1)
        latest = info.latest_checkpoint
        self.given.append((step_of(latest), [step_of(uuid) for uuid in info.earlier_checkpoints]))
        if step_of(latest) in self.there:
            yield from self.train(step_of(latest), 8)
            yield ("exit", 0)
        if self.told:
            yield self.look(info.earlier_checkpoints, [latest])
        error = (
            f"detlab.errors.CheckpointMissing: there is no complete checkpoint {latest} in /s: it has no manifest.json"
        )
        for line in (*TRACE, error):
            yield ("log", 0, line)
        yield ("exit", 1)

    def train(self, start, end):
        for step in range(start + 1, end + 1):
            yield report(step, loss=10.0 - step)
            if step in (2, 4, 6):
                yield ("save", step)

    def look(self, earlier, gone):
        """What `CheckpointContext` reports."""
        for uuid in earlier:
            if step_of(uuid) in self.there:
                return ("gone", gone, uuid)
            gone.append(uuid)
        return ("gone", gone, None)


async def ended(make_world, trial, **more):
    world = await make_world(trial)
    await world.add_agent()
    made = await world.submit(config(**more))
    await world.finish(made.id)
    (found,) = await world.trials(made.id)
    return world, found


@pytest.mark.parametrize("max_restarts", [1, 5])
@pytest.mark.parametrize(("there", "given"), [((4, 2), [(6, [4, 2]), (4, [2])]), ((2,), [(6, [4, 2]), (2, [])])])
async def test_an_earlier_checkpoint_serves_and_burns_no_restart(make_world, there, given, max_restarts):
    trial = Trial(*there)
    world, view = await ended(make_world, trial, max_restarts=max_restarts)
    assert trial.given == given
    assert (view.state, view.restarts) == (TrialState.COMPLETED, 1), "the first attempt failed by itself"
    series = await world.services[Trials].metrics(ALICE, view.id, group="validation", names=["loss"])
    assert series[0].steps == [1, 2, 3, 4, 5, 6, 7, 8], "no gap and no point twice"
    full = await world.services[Trials].get(ALICE, view.id)
    (warning, *more) = full.warnings
    assert "step 6" in warning
    assert f"an earlier checkpoint is used, of step {there[0]}" in warning
    assert len(more) == 2 - len(there)
    found = await world.services[Trials].checkpoints(ALICE, view.id)
    assert {step_of(one.uuid) for one in found if one.state == "DELETED"} == {2, 4, 6} - set(there)


async def test_where_none_is_left_it_ends_at_once_with_a_card_and_nothing_is_taken_for_gone(make_world):
    """The storage may just not be mounted there: the checkpoints can be used once it is."""
    trial = Trial()
    world, view = await ended(make_world, trial)
    assert trial.given == [(6, [4, 2])], "one attempt, not five"
    assert (view.state, view.restarts) == (TrialState.ERROR, 1)
    card = (await world.services[Trials].get(ALICE, view.id)).failure
    assert card.kind == "checkpoint"
    assert "CheckpointMissing" in card.message
    assert all(word in card.hint for word in ("step 6", "mounted", "source_checkpoint_uuid", "Not restarted"))
    assert str(world.settings.state_dir) in card.hint, "which storage"
    assert {one.state for one in await world.services[Trials].checkpoints(ALICE, view.id)} == {"COMPLETED"}


async def test_a_harness_that_says_nothing_of_earlier_ones_ends_it_as_well(make_world):
    trial = Trial(2, told=False)
    _, view = await ended(make_world, trial)
    assert (view.state, view.restarts, len(trial.given)) == (TrialState.ERROR, 1, 1)


async def test_nobody_declares_anothers_checkpoint_gone(make_world):
    """Nor one that is older than what serves: what a task says is about its own trial's newest."""
    uuids = [f"00000000-0000-4000-8000-{number:012d}" for number in range(1, 7)]

    def script(launch):
        if launch.run == 1:
            yield from Trial().train(0, 6)
            yield ("exit", 1)
        if launch.owner == "alice":
            while True:
                yield ("wait",)
        own = [launch.info.latest_checkpoint, *launch.info.earlier_checkpoints]
        theirs = [uuid for uuid in uuids if uuid not in own]
        yield ("gone", theirs, own[-1])
        yield ("gone", own[1:], own[0])
        yield ("gone", own, theirs[0])
        yield ("exit", 0)

    world = await make_world(script)
    await world.add_agent(slots=2)
    alices = await world.submit(config())

    async def saved():
        (view,) = await world.trials(alices.id)
        return view.restarts == 1

    await world.until(saved)
    bobs = await world.submit(config(), BOB)
    await world.finish(bobs.id)
    for experiment in (alices.id, bobs.id):
        found = await world.services[Experiments].checkpoints(ROOT, experiment)
        assert {one.state for one in found} == {"COMPLETED"}
        assert len(found) == 3
