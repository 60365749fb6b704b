"""The contract of training strategies: subclass `StrategyContract` in your tests, and name the strategy.

    class TestMine(StrategyContract):
        strategy = "mine"
        size = 2

It trains a small network in `size` processes as the trainer does, and compares with a plain loop of torch in one
process on whole batches: same losses and weights for a fixed seed, whatever is accumulated, clipped or scaled.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
import torch

from detlab.pytorch.parallel.optimizer_step import OptimizerFacts, drop_gradients
from detlab.pytorch.parallel.strategy import STRATEGIES, Shard, Strategy, choose_strategy
from detlab.testing.ranks import Contexts, Ranks

if TYPE_CHECKING:
    from detlab.core import DistributedContext

__all__ = ["Course", "StrategyContract", "join", "plain"]

BATCHES = 6
_SAMPLES = 8


@dataclasses.dataclass(frozen=True)
class Course:
    """How a network is trained.

    Attributes:
        aggregation: Batches whose gradients make one step.
        average: Whether they are averaged, or summed.
        clip: Largest norm of the gradients of a step; None clips nothing.
        scale: Loss scale; None trains without a scaler.
        overflow: A batch whose loss is infinite on the last rank.
    """

    aggregation: int = 1
    average: bool = True
    clip: float | None = None
    scale: float | None = None
    overflow: int | None = None


class StrategyContract:
    """What every strategy keeps; subclasses name it and the number of ranks.

    Attributes:
        strategy: Name of its entry point.
        size: Ranks to train with.
        refused: Numbers of ranks that it cannot train with.
        tolerance: By how much weights and losses may differ from those of the plain loop, which is in float64.
    """

    strategy: ClassVar[str]
    size: ClassVar[int] = 2
    refused: ClassVar[tuple[int, ...]] = ()
    tolerance: ClassVar[float] = 1e-12

    @classmethod
    def processes(cls) -> Any:
        """Return the context of `multiprocessing` that starts the ranks; None starts new interpreters."""
        return None

    @pytest.fixture(scope="class")
    @classmethod
    def ranks(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
        """Start the processes that the tests of the class share."""
        found = Ranks(__name__, tmp_path_factory.mktemp("ranks"), size=cls.size, processes=cls.processes())
        yield found
        found.close()

    def test_strategy_is_found_by_its_entry_point(self) -> None:
        """The entry point's name and the class's are one."""
        assert self.strategy in STRATEGIES.names()
        assert STRATEGIES.load(self.strategy).name == self.strategy

    def test_numbers_of_ranks_that_it_cannot_train_are_refused(self) -> None:
        """With a reason, which is shown to the user."""
        found = STRATEGIES.load(self.strategy)
        assert found.refusal(self.size) is None
        for size in self.refused:
            assert found.refusal(size)

    @pytest.mark.parametrize(
        "course",
        [
            Course(),
            Course(aggregation=3),
            Course(aggregation=2, average=False),
            Course(clip=0.05),
            Course(aggregation=2, clip=0.05),
            Course(scale=1024.0),
            Course(aggregation=2, clip=0.05, scale=1024.0),
        ],
        ids=["plain", "accumulated", "summed", "clipped", "accumulated-clipped", "scaled", "all"],
    )
    def test_losses_and_weights_are_those_of_a_plain_loop(self, ranks: Ranks, course: Course) -> None:
        """After each batch, and the same on all ranks to the bit."""
        expected = plain(course)
        found = ranks.run("on_rank_course", self.strategy, course)
        assert all(other == found[0] for other in found[1:])
        for (loss, weights), (loss_there, weights_there) in zip(found[0], expected, strict=True):
            assert loss == pytest.approx(loss_there, abs=self.tolerance)
            assert weights == pytest.approx(weights_there, abs=self.tolerance)
        assert found[0][-1][1] != found[0][0][1], "nothing was trained"

    def test_a_step_that_overflows_on_one_rank_is_skipped_on_all(self, ranks: Ranks) -> None:
        """The scaler must see the same on all ranks."""
        found = ranks.run("on_rank_course", self.strategy, Course(scale=1024.0, overflow=2))
        courses = [[weights for _, weights in course] for course in found]
        assert all(other == courses[0] for other in courses[1:])
        assert courses[0][2] == courses[0][1] != courses[0][3]

    def test_resumed_training_continues_to_the_bit(self, ranks: Ranks) -> None:
        """From the joined shards, in newly created models and optimizers."""
        for resumed, straight in ranks.run("on_rank_resume", self.strategy):
            assert resumed == straight

    def test_each_entry_of_the_state_is_written_once_under_its_plain_name(self, ranks: Ranks) -> None:
        """The chief tells from `written_by` whose shards a checkpoint needs."""
        shards = ranks.run("on_rank_names", self.strategy)
        written_by = shards[0][2]
        assert set(written_by) == {"model_0", "optimizer_0"}
        assert all(shard[2] == written_by for shard in shards)
        written = [(name, rank) for rank, shard in enumerate(shards) for name in shard[0]]
        assert sorted(name for name, _ in written) == sorted(Network().state_dict())
        assert {rank for _, rank in written} == set(written_by["model_0"])
        assert {rank for rank, shard in enumerate(shards) if shard[1]} == set(written_by["optimizer_0"])

    def test_ranks_evaluate_the_same_model(self, ranks: Ranks) -> None:
        """Also where its statistics are of each rank's own batches."""
        found = ranks.run("on_rank_evaluate", self.strategy)
        assert all(other == found[0] for other in found[1:])

    def test_the_users_module_is_found_in_what_was_prepared(self, ranks: Ranks) -> None:
        """Checkpoints, autocast and users see that one, be it compiled or not."""
        assert ranks.run("on_rank_unwrap", self.strategy) == [[True, True]] * self.size

    def test_what_cannot_be_trained_is_said_before_the_first_batch(self, ranks: Ranks) -> None:
        """A parameter of no model would not be shared, a model that was moved not be found."""
        for orphan, moved in ranks.run("on_rank_problems", self.strategy):
            assert len(orphan) == 1
            assert "belong to no wrapped model" in orphan[0]
            assert len(moved) == 1
            assert "meta" in moved[0]


# --- the reference


class Network(torch.nn.Module):
    """Two layers, in float64."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Tanh())
        self.head = torch.nn.Linear(7, 2)
        self.double()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return two numbers for each sample."""
        found: torch.Tensor = self.head(self.trunk(x))
        return found


def plain(course: Course) -> list[tuple[float, list[float]]]:
    """Return loss and weights after each batch, trained by a plain loop on whole batches."""
    model, optimizer = _made(11)
    seen = []
    for index in range(BATCHES):
        loss = _loss(model(_data(index)))
        torch.autograd.backward(loss)
        if (index + 1) % course.aggregation == 0:
            if course.average:
                for parameter in model.parameters():
                    assert parameter.grad is not None
                    parameter.grad /= course.aggregation
            if course.clip is not None:
                torch.nn.utils.clip_grad_norm_(model.parameters(), course.clip)
            optimizer.step()
            optimizer.zero_grad()
        seen.append((loss.item(), _weights(model)))
    return seen


def _made(seed: int) -> tuple[Network, torch.optim.Optimizer]:
    torch.manual_seed(seed)
    model = Network()
    return model, torch.optim.Adam(model.parameters(), lr=0.01)


def _data(index: int, rank: int = 0, size: int = 1) -> torch.Tensor:
    x = torch.randn(_SAMPLES, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(100 + index))
    return x[rank * _SAMPLES // size : (rank + 1) * _SAMPLES // size]


def _loss(output: torch.Tensor) -> torch.Tensor:
    return output.square().mean() + output.sin().mean()


def _weights(model: torch.nn.Module) -> list[float]:
    return [value for parameter in model.parameters() for value in parameter.detach().reshape(-1).tolist()]


# --- on each rank


class _Training:
    """A network under a strategy, trained as the trainer does."""

    def __init__(self, name: str, distributed: DistributedContext, course: Course, seed: int = 11) -> None:
        self._distributed, self._course = distributed, course
        self.strategy: Strategy = choose_strategy(name, torch.device("cpu"), distributed)
        module, self.optimizer = _made(seed)
        self.model = self.strategy.prepare_model(module)
        self.facts = OptimizerFacts.check(self.optimizer, 1, False, course.average, ())
        self.strategy.prepare_optimizer(self.facts)
        assert self.strategy.ready([self.model], [self.facts]) == []
        self._scaler = None if course.scale is None else torch.amp.GradScaler("cpu", init_scale=course.scale)
        self.model.train()

    def batch(self, index: int) -> tuple[float, list[float]]:
        """Return the loss of all ranks and the weights after it."""
        distributed, course = self._distributed, self._course
        steps = (index + 1) % course.aggregation == 0
        self.strategy.begin_batch(step=steps)
        loss = _loss(self.model(_data(index, distributed.rank, distributed.size)))
        if course.overflow == index and distributed.rank == distributed.size - 1:
            loss = loss * torch.inf
        self.strategy.backward(loss, None, retain_graph=False, create_graph=False, scaler=self._scaler)
        if steps:
            self._step()
        losses = distributed.allgather(loss.item())
        return sum(losses) / len(losses), _weights(self.strategy.unwrap(self.model))

    def _step(self) -> None:
        strategy, clip = self.strategy, self._course.clip
        strategy.reduce_gradients(self.facts, self._course.aggregation)
        if clip is not None:
            strategy.clip(self.facts, lambda them: torch.nn.utils.clip_grad_norm_(them, clip), self._scaler)
        strategy.step(self.facts, self._scaler)
        drop_gradients(self.optimizer)
        if self._scaler is not None:
            self._scaler.update()

    def shard(self) -> Shard:
        """Return this rank's part of the state."""
        return self.strategy.state([self.model], [self.optimizer])


def on_rank_course(contexts: Contexts, name: str, course: Course) -> list[tuple[float, list[float]]]:
    """Return loss and weights after each batch."""
    training = _Training(name, contexts.core_context.distributed, course)
    return [training.batch(index) for index in range(BATCHES)]


def on_rank_resume(contexts: Contexts, name: str) -> tuple[list[Any], list[Any]]:
    """Return the course after a resume, and the same part of an uninterrupted one."""
    distributed, middle = contexts.core_context.distributed, BATCHES // 2
    training = _Training(name, distributed, Course())
    for index in range(middle):
        training.batch(index)
    models, optimizers = join(_copied(distributed.allgather(training.shard())))
    straight = [training.batch(index) for index in range(middle, BATCHES)]
    later = _Training(name, distributed, Course(), seed=99)
    later.strategy.load([later.model], [later.optimizer], models, optimizers)
    return [later.batch(index) for index in range(middle, BATCHES)], straight


def join(shards: Iterable[Shard]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the whole states of models and optimizers, from the shards of all ranks."""
    models: list[dict[str, Any]] = []
    optimizers: list[dict[str, Any]] = []
    for shard in shards:
        for whole, parts in ((models, shard.models), (optimizers, shard.optimizers)):
            whole.extend({} for _ in range(len(parts) - len(whole)))
            for state, part in zip(whole, parts, strict=True):
                for key, value in part.items():
                    merges = isinstance(value, dict) and key in state
                    state[key] = {**state[key], **value} if merges else value
    return models, optimizers


def _copied(shards: Iterable[Shard]) -> list[Shard]:
    import copy

    return [copy.deepcopy(shard) for shard in shards]


def on_rank_names(contexts: Contexts, name: str) -> tuple[list[str], bool, dict[str, tuple[int, ...]]]:
    """Return the names of this rank's shard, whether it has state of the optimizer, and who writes what."""
    training = _Training(name, contexts.core_context.distributed, Course())
    training.batch(0)
    shard = training.shard()
    return list(shard.models[0]), bool(shard.optimizers[0]), dict(shard.written_by)


def on_rank_evaluate(contexts: Contexts, name: str) -> list[float]:
    """Return what a model with batch norm gives, after training on different batches."""
    distributed = contexts.core_context.distributed
    strategy = choose_strategy(name, torch.device("cpu"), distributed)
    torch.manual_seed(2)
    model = strategy.prepare_model(torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.BatchNorm1d(4)).double())
    model.train()
    strategy.begin_batch(step=True)
    loss = model(_data(0, distributed.rank, distributed.size)).square().mean()
    strategy.backward(loss, None, retain_graph=False, create_graph=False, scaler=None)
    model.eval()
    strategy.begin_evaluation(model)
    with torch.no_grad():
        found: list[float] = model(_data(1)).reshape(-1).tolist()
    return found


def on_rank_unwrap(contexts: Contexts, name: str) -> list[bool]:
    """Return whether the module is found, as it was given and compiled."""
    strategy = choose_strategy(name, torch.device("cpu"), contexts.core_context.distributed)
    one, two = Network(), Network()
    compiled: Any = torch.compile(two, backend="eager")
    return [
        strategy.unwrap(strategy.prepare_model(one)) is one,
        strategy.unwrap(strategy.prepare_model(compiled)) is two,
    ]


def on_rank_problems(contexts: Contexts, name: str) -> tuple[list[str], list[str]]:
    """Return what is wrong with a parameter of no model, and with a model that was moved."""
    training = _Training(name, contexts.core_context.distributed, Course())
    training.optimizer.add_param_group({"params": [torch.nn.Parameter(torch.zeros(1))]})
    orphan = training.strategy.ready([training.model], [training.facts])
    training.strategy.unwrap(training.model).to("meta")
    return orphan, training.strategy.misplaced([training.model])
