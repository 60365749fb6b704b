"""The task of a custom search: a real class in its real process, against a search in memory."""

from __future__ import annotations

import os
import signal
import sys
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from detlab.errors import ConfigError, Problem
from detlab.run.search import CustomSearchClient, Errors, run
from detlab.run.search_class import Wrong, plain
from detlab.schemas import expconf
from detlab.schemas.wire import FeedEvent
from detlab_hub.core.searchers import (
    Answered,
    CreateTrial,
    Decision,
    OperationsRefused,
    PauseTrial,
    ResumeTrial,
    Started,
    StopTrial,
    TrialCreated,
    TrialExited,
    ValidationReported,
    make_searcher,
)

GUIDE = Path(__file__).parents[3] / "docs" / "how-to" / "write-your-own-search-method.md"
EXAMPLE = Path(__file__).parents[3] / "examples" / "custom_search"
SPACE = {
    "x": {"type": "double", "minval": -2.0, "maxval": 2.0},
    "y": {"type": "double", "minval": -1.0, "maxval": 3.0},
}
HEAD = "import os, random, time, uuid\nfrom detlab.searcher import *\n"


def valley(hparams: Mapping[str, Any]) -> float:
    x, y = hparams["x"], hparams["y"]
    return float((1 - x) ** 2 + 100 * (y - x**2) ** 2)


class InMemory(CustomSearchClient):
    """A search without a cluster; each trial reports its epochs when it is created or resumed, in order.

    Args:
        searcher: Further fields of the `searcher` block.
        epochs: Reports of a trial.
    """

    def __init__(
        self,
        searcher: Mapping[str, Any],
        *,
        space: Mapping[str, Any] = SPACE,
        epochs: int = 1,
        loss: Callable[..., float] = valley,
    ) -> None:
        self.block = {
            "name": "custom",
            "metric": "loss",
            "max_trials": 12,
            "max_concurrent_trials": 4,
            "answer_timeout": 20.0,
            **searcher,
        }
        self.space = dict(space)
        self.search = make_searcher(self.block, self.space, 5)
        self.epochs, self.loss = epochs, loss
        self.trials: dict[str, CreateTrial] = {}
        self.trained: dict[str, int] = {}
        self.off: set[str] = set()
        self.ended: set[str] = set()
        self.failure = ""
        self.stop_after: int | None = None
        self.tell(Started())

    def tell(self, event: Any) -> None:
        self.carry_out(self.search.step(event))

    def carry_out(self, decisions: list[Decision]) -> None:
        for decision in decisions:
            match decision:
                case CreateTrial(request_id):
                    self.trials[request_id] = decision
                    self.trained[request_id] = 0
                    self.tell(TrialCreated(request_id))
                case PauseTrial(request_id):
                    self.off.add(request_id)
                case ResumeTrial(request_id):
                    self.off.discard(request_id)
                case StopTrial(request_id):
                    self.end(request_id)

    def end(self, request_id: str) -> None:
        if request_id not in self.ended:
            self.ended.add(request_id)
            self.tell(TrialExited(request_id))

    def train(self) -> bool:
        """Let the first trial that can train one epoch; False if there is none."""
        for request_id, trial in self.trials.items():
            if request_id in self.ended or request_id in self.off:
                continue
            if self.trained[request_id] == self.epochs:
                self.end(request_id)
                return True
            self.trained[request_id] += 1
            self.tell(ValidationReported(request_id, self.loss(trial.hparams), float(self.trained[request_id])))
            return True
        return False

    def feed(self, after: int, wait: float) -> dict[str, Any]:
        number = self.search.waits_for
        while number is None and self.search.shutdown is None and self.train():
            number = self.search.waits_for
        over = self.search.shutdown is not None or self.search.method.verdict is not None
        events = [] if over else self.search.method.feed(after, 500)
        told = [FeedEvent.model_validate(one).model_dump() for one in events]
        setup = {"entrypoint": "", "options": {}, **self.block, "seed": 5, "hyperparameters": self.space}
        setup |= {"smaller_is_better": True, "time_metric": self.block.get("time_metric")}
        return {"setup": setup, "events": told, "over": over, "why": "it is over"}

    def answer(self, number: int, **said: Any) -> dict[str, Any]:
        if said.get("failure"):
            self.failure = said["failure"]
            return {"over": True, "why": "it is paused"}
        if self.stop_after == number:
            raise KeyboardInterrupt  # the node is switched off
        try:
            self.tell(Answered(number, tuple(said["operations"])))
        except OperationsRefused as error:
            raise ConfigError([Problem("operations", one) for one in error.mistakes]) from error
        return {"over": False}


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """The folder of the code, which the task runs in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def failed(folder: Path, body: str, name: str = "Mine", **more: Any) -> str:
    (folder / "mine.py").write_text(HEAD + body)
    master = InMemory({"entrypoint": f"mine:{name}", **more})
    assert run(master, wait=0.0) == 1
    assert not master.trials
    return master.failure


def test_example_finds_the_valley(monkeypatch) -> None:
    monkeypatch.chdir(EXAMPLE)
    master = InMemory({"entrypoint": "evolution:Evolution", "options": {"offspring": 4}, "max_trials": 120})
    assert run(master, wait=0.0) == 0
    assert len(master.trials) == 120
    losses = [valley(trial.hparams) for trial in master.trials.values()]
    assert min(losses[100:]) < 0.3 * min(losses[:20])


@pytest.mark.slow
def test_class_and_config_of_the_guide_work_together(folder: Path) -> None:
    pytest.importorskip("optuna")
    page = GUIDE.read_text(encoding="utf-8")
    code, config = (
        textwrap.dedent(page[page.index(f"    # {name}") : page.index(end)])
        for name, end in (("my_search.py", "    # search.yaml"), ("search.yaml", "    det experiment create"))
    )
    (folder / "my_search.py").write_text(code)
    raw = yaml.safe_load(config)
    assert expconf.errors_of(expconf.check(raw)) == []
    master = InMemory(raw["searcher"], space=raw["hyperparameters"], loss=lambda hparams: hparams["lr"])
    assert run(master, wait=0.0) == 0, master.failure
    assert len({trial.hparams["lr"] for trial in master.trials.values()}) == 60


def test_halving_by_hand_pauses_trials_and_trains_the_better_half_on(folder: Path) -> None:
    (folder / "mine.py").write_text(
        HEAD
        + """
class Halving(SearchMethod):
    def initial_operations(self, state):
        self.told = {}
        made = [Create(state.sample(), uuid.uuid4()) for _ in range(4)]
        return made + [ValidateAfter(one.request_id, 2) for one in made]

    def on_validation_completed(self, state, request_id, metric, train_length):
        assert isinstance(request_id, uuid.UUID)
        if train_length > 2:
            return [Close(request_id)]
        self.told[request_id] = metric
        if len(self.told) < 4:
            return []
        best = sorted(self.told, key=self.told.get)
        return [ValidateAfter(one, 6) for one in best[:2]] + [Close(one) for one in best[2:]]

    def progress(self, state):
        return len(state.trials_closed) / 4
"""
    )
    master = InMemory({"entrypoint": "mine:Halving", "time_metric": "epochs"}, epochs=9)
    assert run(master, wait=0.0) == 0
    assert sorted(master.trained.values()) == [2, 2, 6, 6]
    losses = {request_id: valley(trial.hparams) for request_id, trial in master.trials.items()}
    assert {key for key, epochs in master.trained.items() if epochs == 6} == set(sorted(losses, key=losses.get)[:2])  # type: ignore[arg-type]


def test_class_that_raises_is_named_with_file_and_line(folder: Path) -> None:
    said = failed(folder, "class Mine(SearchMethod):\n    def initial_operations(self, state):\n        return 1 / 0\n")
    assert said.startswith(
        "mine.py, line 5, in initial_operations: ZeroDivisionError: division by zero (event 1: initial_operations)"
    )
    assert "    return 1 / 0" in said.splitlines()


@pytest.mark.slow
def test_class_that_hangs_is_ended_after_its_time_and_says_where_it_was(folder: Path) -> None:
    body = (
        "class Mine(SearchMethod):\n    def initial_operations(self, state):\n        while True:\n            state\n"
    )
    said = failed(folder, body, answer_timeout=4.0)
    assert said.startswith("no answer within searcher.answer_timeout (4 s); it was at mine.py, line ")
    assert ", in initial_operations (event 1: initial_operations)" in said


def test_class_that_ends_its_process_says_with_which_code(folder: Path) -> None:
    body = "class Mine(SearchMethod):\n    def initial_operations(self, state):\n        os._exit(3)\n"
    assert failed(folder, body) == "the process of the class ended with exit code 3 (event 1: initial_operations)"


def test_class_that_dies_and_leaves_a_helper_process_does_not_hold_its_task(folder: Path) -> None:
    body = (
        "import subprocess, sys\nclass Mine(SearchMethod):\n    def initial_operations(self, state):\n"
        "        helper = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "        open('helper', 'w').write(str(helper.pid))\n"
        "        os.write(2, b'no licence\\n')\n        os._exit(3)\n"
    )
    try:
        said = failed(folder, body)
    finally:
        left_over = int((folder / "helper").read_text())
        alive = Path(f"/proc/{left_over}/stat").read_text().split()[2] != "Z"
        os.kill(left_over, signal.SIGKILL)
    assert alive  # so it was not waited for
    assert said.splitlines() == [
        "the process of the class ended with exit code 3 (event 1: initial_operations)",
        "no licence",
    ]


def test_line_without_an_end_is_passed_on_and_remembered_in_part(capfdbinary) -> None:
    there, here = os.pipe()
    with os.fdopen(there, "rb", buffering=0) as pipe:
        errors = Errors(pipe)
        for _ in range(64):
            os.write(here, b"\r 50%" * 8000)
            errors.read()
        os.write(here, b"\nlast\n")
        os.close(here)
        errors.drain()
    long, last = errors.tail(6)
    assert (len(long), last) == (1 << 16, "last")
    assert len(capfdbinary.readouterr().err) == 64 * 40_000 + 6


@pytest.mark.parametrize(
    ("body", "name", "said"),
    [
        ("class Other(SearchMethod):\n    pass\n", "Mine", "searcher.entrypoint: 'mine' has no 'Mine'; it has Other"),
        ("class Mine:\n    pass\n", "Mine", "is not a subclass of detlab.searcher.SearchMethod"),
        ("class Mine(SearchMethod)\n    pass\n", "Mine", "mine.py, line 3: SyntaxError: expected ':'"),
        ("import nowhere\n", "Mine", "mine.py, line 3, in <module>: ModuleNotFoundError: No module named 'nowhere'"),
        ("class Mine(SearchMethod):\n    pass\n", "Mine", "TypeError: Can't instantiate abstract class Mine"),
    ],
)
def test_class_that_cannot_be_made_is_explained(folder: Path, body: str, name: str, said: str) -> None:
    assert said in failed(folder, body, name)


def test_module_that_is_not_there_is_explained(folder: Path) -> None:
    (folder / "mine.py").write_text("")
    master = InMemory({"entrypoint": "yours:Mine"})
    assert run(master, wait=0.0) == 1
    assert "there is no module 'yours' in the experiment's code; the code has mine.py" in master.failure


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        ("3", "the class returned 3 instead of a list of operations"),
        ("['go']", "the class returned 'go'; operations are Create, ValidateAfter"),
        ("[Create({'x': object(), 'y': 0})]", "which cannot be a hyperparameter value"),
        ("[Create({'x': 99, 'y': 0}), Close('nobody')]", "the answer of the class is impossible: operation 1 (create)"),
        ("[]", "no trial is created"),
    ],
)
def test_answer_that_is_none_or_impossible_is_explained(folder: Path, returned: str, said: str) -> None:
    body = f"class Mine(SearchMethod):\n    def initial_operations(self, state):\n        return {returned}\n"
    assert said in failed(folder, body)


RANDOM_IDS = """
class Mine(AskTell):
    def ask(self, state):
        return {"x": random.uniform(-2, 2), "y": SOURCE}

    def tell(self, state, request_id, hyperparameters, metric):
        assert isinstance(request_id, uuid.UUID)
        assert hyperparameters == state.hparams[request_id]
"""


def restarted(folder: Path, capfd: pytest.CaptureFixture[str], source: str) -> str:
    """Stop a task in the middle of a search, and begin another that ends it; return what that one wrote."""
    (folder / "mine.py").write_text(HEAD + RANDOM_IDS.replace("SOURCE", source))
    master = InMemory({"entrypoint": "mine:Mine", "max_trials": 9})
    master.stop_after = 12
    with pytest.raises(KeyboardInterrupt):
        run(master, wait=0.0)
    master.stop_after = None
    capfd.readouterr()
    assert run(master, wait=0.0) == 0, master.failure
    assert len(master.trials) == 9
    return capfd.readouterr().err


def test_restarted_class_knows_its_trials_although_it_draws_their_ids_anew(folder: Path, capfd) -> None:
    assert "otherwise" not in restarted(folder, capfd, "1.0")


def test_restarted_class_that_answers_otherwise_is_told_of_in_the_log(folder: Path, capfd) -> None:
    said = restarted(folder, capfd, "random.SystemRandom().uniform(0, 1)")
    assert "now answers event 1 (initial_operations) differently from before its restart" in said


def test_values_of_numpy_are_plain_and_others_are_refused() -> None:
    numpy = pytest.importorskip("numpy")
    assert plain(
        {"a": numpy.float64(1.5), "b": [numpy.int64(2)], "c": numpy.array([1, 2]), "d": (True, None, "x")}
    ) == {
        "a": 1.5,
        "b": [2],
        "c": [1, 2],
        "d": [True, None, "x"],
    }
    with pytest.raises(Wrong, match="cannot be a hyperparameter value"):
        plain(sys)
