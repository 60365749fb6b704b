"""The strategies of detlab keep the contract, are found by entry point, and are chosen by the number of processes."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch
from trainer_forked import context

from detlab import core, pytorch
from detlab.pytorch import TrainerError
from detlab.pytorch.parallel.data_parallel import DataParallel
from detlab.pytorch.parallel.strategy import STRATEGIES, Shard, SingleDevice, choose_strategy
from detlab.testing.strategies import StrategyContract

ROOT = Path(__file__).resolve().parents[3]


class TestSingleDevice(StrategyContract):
    strategy = "single"
    size = 1
    refused = (2, 16)

    @classmethod
    def processes(cls) -> Any:
        return context()


class TestDataParallel(StrategyContract):
    strategy = "ddp"
    size = 2
    refused = (1,)

    @classmethod
    def processes(cls) -> Any:
        return context()


def test_the_names_of_detlab_itself_are_its_entry_points() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"][STRATEGIES.group] == STRATEGIES.built_in


def test_the_number_of_processes_chooses_and_a_name_that_does_not_fit_is_refused() -> None:
    cpu, alone = torch.device("cpu"), core.DummyDistributedContext()
    assert isinstance(choose_strategy(None, cpu, alone), SingleDevice)
    with pytest.raises(TrainerError, match=r"strategy 'ddp' cannot be used: it needs several processes(.|\n)*leave"):
        choose_strategy("ddp", cpu, alone)
    with pytest.raises(TrainerError, match=r"no training strategy 'dpp' here; installed: ddp, single(.|\n)*'ddp'\?"):
        choose_strategy("dpp", cpu, alone)
    two = core.DummyDistributedContext()
    two.size = 2
    assert isinstance(choose_strategy(None, cpu, two), DataParallel)
    with pytest.raises(TrainerError, match="it trains in one process, and this trial has 2"):
        choose_strategy("single", cpu, two)


def test_a_script_may_name_its_strategy(storage: str) -> None:
    with (
        pytest.raises(TrainerError, match="it needs several processes, and this trial has one"),
        pytorch.init(strategy="ddp", checkpoint_storage=storage),
    ):
        pass
    with pytorch.init(strategy="single", checkpoint_storage=storage) as found:
        assert found.wrap_model(torch.nn.Linear(1, 1)).weight.device.type == "cpu"


class Spread(SingleDevice):
    """As one whose ranks would each write their part."""

    def state(self, models: Any, optimizers: Any) -> Shard:
        return Shard([{}], [], {"model_0": (0, 1), "model_1": (3,)})


def test_a_checkpoint_of_several_writers_is_refused_until_there_is_a_format_for_it(storage: str) -> None:
    with pytorch.init(checkpoint_storage=storage) as found:
        found._strategy = Spread(found.device, found.distributed)
        with pytest.raises(TrainerError, match=r"ranks \[0, 1, 3\] write parts of a checkpoint(.|\n)*gather the state"):
            found._shard()
