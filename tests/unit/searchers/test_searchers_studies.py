"""The studies that the answer process keeps: an answer is the same with and without them."""

from __future__ import annotations

import random
from typing import Any

import pytest
from optuna.distributions import FloatDistribution
from optuna.samplers import RandomSampler

from detlab_hub.core.searchers import Question
from detlab_hub.core.searchers.model_based import samplers
from detlab_hub.core.searchers.model_based.records import Record
from detlab_hub.core.searchers.model_based.studies import MOST, Studies, StudyKind

SPACE: dict[str, Any] = {
    "act": {"type": "categorical", "vals": ["relu", "gelu"]},
    "dropout": {"type": "double", "minval": 0.0, "maxval": 0.5},
    "layers": {"type": "int", "minval": 1, "maxval": 8},
}
CONDITIONAL = SPACE | {"momentum": {"type": "double", "minval": 0.0, "maxval": 0.9, "when": {"act": "relu"}}}
CASES = [
    ("tpe", SPACE, {}),
    ("tpe", CONDITIONAL, {}),
    ("tpe", SPACE, {"constrained": True}),
    ("nsga2", SPACE, {"population": 4, "objectives": 2}),
    ("nsga2", SPACE, {"population": 4, "constrained": True}),
    ("cmaes", SPACE, {"population": 4}),
]


def record_of(rng: random.Random, options: dict[str, Any], axes: int, outcome: Any, ended: int) -> Record:
    """Draw a trial; without an activation that has a momentum, it has none."""
    act = rng.randint(0, 1)
    momentum = (None if act else rng.uniform(0, 0.9),) if axes == 4 else ()
    at = (act, rng.uniform(0, 0.5), rng.randint(1, 8), *momentum)
    loss = rng.random() if outcome == "done" else None
    others = (rng.random(),) * (options.get("objectives", 1) - 1)
    violation = max(0.0, rng.uniform(-1, 1)) if options.get("constrained") else 0.0
    return Record(at, outcome, loss, ended, 1, others, violation)


def questions_of(name: str, space: dict[str, Any], options: dict[str, Any], seed: int) -> list[Question]:
    """Return what a search asks while its trials end, some of them without a result."""
    rng = random.Random(seed)
    axes = len(space)
    ended: list[Record] = []
    asked = []
    for ticket in range(8):
        for _ in range(3):
            outcome = "failed" if rng.random() < 0.1 else "done"
            ended.append(record_of(rng, options, axes, outcome, len(ended)))
        running = [record_of(rng, options, axes, "running", len(ended)) for _ in range(2)]
        known = {"options": {"sampler": name, **options}, "startup": 3, "ended": list(ended), "running": running}
        asked.append(Question(ticket, 2, seed * 100 + ticket, space, known))
    return asked


@pytest.mark.parametrize(("name", "space", "options"), CASES)
def test_an_answer_does_not_depend_on_earlier_questions(
    name: str, space: dict[str, Any], options: dict[str, Any]
) -> None:
    one, other = (questions_of(name, space, options, seed) for seed in (1, 2))
    studies = Studies()
    for pair in zip(one, other, strict=True):  # two searches ask by turns
        for question in pair:
            assert samplers.suggest(question, studies) == samplers.suggest(question, Studies())
    for question in (one[0], one[-1], one[0]):  # results that are taken back, as after a restored backup
        assert samplers.suggest(question, studies) == samplers.suggest(question, Studies())


def test_a_study_is_told_only_the_results_that_are_new_and_no_trial_of_a_question_stays() -> None:
    rng = random.Random(1)
    ended = [Record((rng.random(),), "done", rng.random(), place) for place in range(10)]
    kind = StudyKind({"x": FloatDistribution(0.0, 1.0)}, 1, 0, False)
    studies = Studies()
    first = studies.study(kind, ended[:8], [Record((0.5,), "running", None, 8)], RandomSampler(seed=1))
    first.tell(first.ask(), 0.0)
    assert len(first.trials) == 10
    second = studies.study(kind, ended, [], RandomSampler(seed=1))
    assert [trial.value for trial in second.trials] == [record.loss for record in ended]
    shared = [one is other for one, other in zip(first.trials, second.trials, strict=True)]
    assert shared == [True] * 8 + [False] * 2


def test_other_results_or_another_space_have_a_study_of_their_own_and_the_oldest_is_dropped() -> None:
    kind = StudyKind({"x": FloatDistribution(0.0, 1.0)}, 1, 0, False)
    wider = StudyKind({"x": FloatDistribution(0.0, 2.0)}, 1, 0, False)
    ended = [Record((0.5,), "done", 1.0, 0)]
    studies = Studies()

    def told(kind: StudyKind, ended: list[Record]) -> Any:
        return studies.study(kind, ended, [], RandomSampler(seed=1)).trials[0]

    first = told(kind, ended)
    assert told(kind, ended) is first
    assert told(wider, ended) is not first
    others = [told(kind, [Record((0.5,), "done", 2.0 + place, 0)]) for place in range(MOST - 2)]
    assert [trial.value for trial in others] == [2.0 + place for place in range(MOST - 2)]
    assert told(kind, ended) is first, "asked for meanwhile"
    for place in range(MOST):
        told(kind, [Record((0.5,), "done", 20.0 + place, 0)])
    assert told(kind, ended) is not first
