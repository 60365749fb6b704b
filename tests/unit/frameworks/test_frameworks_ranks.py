"""Several ranks agree on when to stop, whoever of them asks the master, and exchange few messages for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from detlab import core
from detlab.frameworks import TrialControl
from detlab.storage import DirectoryStorage
from testbed.rank_threads import RankThreads, rank_threads

QUESTIONS = 4


class StopsLater(core.DummyPreemptContext):
    """Is told to stop when it asks for the fourth time."""

    asked = 0

    def _ask(self, auto_ack: bool) -> bool:
        self.asked += 1
        return self.asked >= QUESTIONS


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RankThreads]:
    with rank_threads((3,), tmp_path_factory.mktemp("ranks")) as groups:
        yield groups[3]


@pytest.mark.parametrize("mode", core.PreemptMode)
def test_all_ranks_stop_at_the_same_step(mode: core.PreemptMode, ranks: RankThreads, tmp_path: Path) -> None:
    def train(distributed: core.DistributedContext) -> tuple[int, int]:
        preempt = StopsLater(distributed, mode)
        context = core.Context(
            core.DummyCheckpointContext(distributed, DirectoryStorage(tmp_path)),
            distributed,
            preempt.start(),
            core.DummyTrainContext(distributed),
            core.DummySearcherContext(distributed),
        )
        trial = TrialControl(context)
        step = 1
        while not trial.should_stop(step):
            step += 1
        return step, preempt.asked

    found = ranks.each(train)
    assert len({step for step, _ in found}) == 1
    assert 4 <= found[0][0] <= 1 + 1 + 10 + 110
    assert [asked for _, asked in found] == [
        QUESTIONS if rank == 0 or mode is core.PreemptMode.WorkersAskMaster else 0 for rank in range(3)
    ]
