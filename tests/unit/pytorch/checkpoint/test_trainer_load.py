"""`load_trial_from_checkpoint_path`: the class from the checkpoint's code or from the caller, and its weights."""

from __future__ import annotations

import json
import logging
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from detlab.errors import CheckpointError
from detlab.pytorch.checkpoint.files import StateMismatch, read_state, write_state
from detlab.pytorch.checkpoint.load import CheckpointLoadContext, load_trial_from_checkpoint_path
from detlab.pytorch.errors import TrainerError
from detlab.pytorch.trial import PyTorchTrial

torch.set_num_threads(1)

TRIAL = """
    import torch
    from detlab.pytorch.trial import PyTorchTrial
    from model import WIDTH

    class MyTrial(PyTorchTrial):
        def __init__(self, context):
            self.context = context
            import late  # a module of the trial that is imported when it is made
            self.late = late.VALUE
            self.model = context.wrap_model(torch.nn.Linear(WIDTH, context.get_hparam("out")))
            self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=0.1))

        def train_batch(self, batch, epoch_idx, batch_idx): ...
        def build_training_data_loader(self): ...
        def build_validation_data_loader(self): ...
"""
FILES = {"train.py": TRIAL, "model.py": "WIDTH = 3", "late.py": "VALUE = 'late'"}


def checkpoint(
    root: Path, files: dict[str, str], spec: str | None = "train:MyTrial", out: int = 2, **load_data: Any
) -> tuple[Path, dict[str, torch.Tensor]]:
    source, target = root / "work", root / "checkpoint"
    for name, text in files.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(textwrap.dedent(text))
    target.mkdir(parents=True)
    weights = torch.nn.Linear(3, out).state_dict()
    facts = {
        "trial_type": "PyTorchTrial",
        "trial_class_spec": spec,
        "hparams": {"out": out},
        "experiment_config": {"name": "x"},
        "is_trainer": True,
        **load_data,
    }
    tree = {"models_state_dict": [weights], "callbacks": {"a": 1}}
    write_state(target, tree, load_data=facts, code=source if files else None)
    return target, weights


@pytest.fixture(autouse=True)
def imports_are_restored() -> Iterator[None]:
    path, modules = list(sys.path), set(sys.modules)
    model = sys.modules["model"] = type(sys)("model")  # another module of the same name as one in the code
    yield
    assert sys.path == path
    assert sys.modules.pop("model") is model
    assert not {"train", "late", "deep"} & (set(sys.modules) - modules)


def same_weights(trial: Any, weights: dict[str, torch.Tensor]) -> bool:
    return all(trial.model.state_dict()[name].equal(value) for name, value in weights.items())


def test_class_and_weights_come_from_the_checkpoint(tmp_path: Path) -> None:
    path, weights = checkpoint(tmp_path, FILES)
    before = sorted(path.rglob("*"))
    trial: Any = load_trial_from_checkpoint_path(str(path))
    assert type(trial).__name__ == "MyTrial"
    assert same_weights(trial, weights)
    assert trial.late == "late"
    assert trial.context.models == [trial.model]
    assert trial.context.get_hparams() == {"out": 2}
    assert sorted(path.rglob("*")) == before, "a checkpoint must not be written to"


def test_two_checkpoints_with_modules_of_one_name_do_not_mix(tmp_path: Path) -> None:
    one, _ = checkpoint(tmp_path / "1", {**FILES, "late.py": "VALUE = 1"})
    two, _ = checkpoint(tmp_path / "2", {**FILES, "late.py": "VALUE = 2"}, out=5)
    trials: list[Any] = [load_trial_from_checkpoint_path(path) for path in (one, two, one)]
    assert [trial.late for trial in trials] == [1, 2, 1]
    assert [trial.model.out_features for trial in trials] == [2, 5, 2]


@pytest.mark.parametrize(
    ("spec", "prefix", "config"),
    [
        ("__main__:MyTrial", "", {}),
        ("train:MyTrial", "deep/scripts/", {}),
        ("__main__:MyTrial", "deep/scripts/", {"entrypoint": "python3 deep/scripts/train.py --fast"}),
    ],
    ids=["main", "stem_in_a_folder", "main_in_a_folder"],
)
def test_a_class_of_a_script_is_found(tmp_path: Path, spec: str, prefix: str, config: dict[str, Any]) -> None:
    files = {prefix + name: text for name, text in FILES.items()}
    if config:
        files["old_train.py"] = TRIAL
    path, weights = checkpoint(tmp_path, files, spec, experiment_config=config)
    assert same_weights(load_trial_from_checkpoint_path(path), weights)


def test_a_class_in_a_package_is_found(tmp_path: Path) -> None:
    files = {"deep/__init__.py": "", "deep/train.py": TRIAL, "model.py": "WIDTH = 3", "late.py": "VALUE = 0"}
    path, weights = checkpoint(tmp_path, files, "deep.train:MyTrial")
    assert same_weights(load_trial_from_checkpoint_path(path), weights)


def test_determineds_name_for_the_class_is_understood(tmp_path: Path) -> None:
    path, weights = checkpoint(tmp_path, FILES, None, trial_cls_spec="train:MyTrial")
    assert same_weights(load_trial_from_checkpoint_path(path), weights)


class Given(PyTorchTrial):
    def __init__(self, context: Any, hparams: dict[str, Any], scale: float = 1.0) -> None:
        self.context, self.hparams, self.scale = context, hparams, scale
        self.model = context.wrap_model(torch.nn.Linear(3, hparams["out"]))

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any: ...
    def build_training_data_loader(self) -> Any: ...
    def build_validation_data_loader(self) -> Any: ...


def test_a_given_class_gets_the_hyperparameters_by_name(tmp_path: Path) -> None:
    path, weights = checkpoint(tmp_path, {})
    trial: Any = load_trial_from_checkpoint_path(path, trial_class=Given, trial_kwargs={"scale": 2.0})
    assert same_weights(trial, weights)
    assert (trial.hparams, trial.scale) == ({"out": 2}, 2.0)
    assert isinstance(trial.context, CheckpointLoadContext)


def test_a_given_class_needs_no_load_data(tmp_path: Path) -> None:
    path, weights = checkpoint(tmp_path, {})
    (path / "load_data.json").unlink()
    trial = load_trial_from_checkpoint_path(path, Given, {"hparams": {"out": 2}})
    assert same_weights(trial, weights)


def test_a_checkpoint_of_determined_loads_into_a_given_class(tmp_path: Path) -> None:
    weights = torch.nn.Linear(3, 2).state_dict()
    torch.save({"models_state_dict": [{f"module.{name}": value for name, value in weights.items()}]},
               tmp_path / "state_dict.pth")  # fmt: skip
    facts = {"trial_type": "PyTorchTrial", "trial_cls_spec": "m:T", "hparams": {"out": 2}, "experiment_config": {}}
    (tmp_path / "load_data.json").write_text(json.dumps(facts))
    assert same_weights(load_trial_from_checkpoint_path(tmp_path, Given), weights)


class Old(PyTorchTrial):
    """A trial as they were before Determined 0.14: `build_model` returns the model, and others get it."""

    def __init__(self, context: Any) -> None:
        self.context = context

    def build_model(self) -> torch.nn.Module:
        return torch.nn.Linear(3, self.context.get_hparam("out"))

    def train_batch(self, batch: Any, model: Any, epoch_idx: int, batch_idx: int) -> Any: ...  # type: ignore[override]
    def build_training_data_loader(self) -> Any: ...
    def build_validation_data_loader(self) -> Any: ...


def old_checkpoint(folder: Path) -> dict[str, torch.Tensor]:
    weights = torch.nn.Linear(3, 2).state_dict()
    torch.save({"model_state_dict": weights}, folder / "state_dict.pth")
    (folder / "load_data.json").write_text(json.dumps({"trial_type": "PyTorchTrial", "hparams": {"out": 2}}))
    return weights


def test_a_checkpoint_from_before_determined_0_14_loads(tmp_path: Path) -> None:
    """As in Determined, the bare model is what one gets."""
    weights = old_checkpoint(tmp_path)
    model: Any = load_trial_from_checkpoint_path(tmp_path, Old)
    assert isinstance(model, torch.nn.Linear)
    assert torch.equal(model.weight, weights["weight"])
    assert torch.equal(model.bias, weights["bias"])
    there: Any = load_trial_from_checkpoint_path(tmp_path, Old, map_location="meta")
    assert there.weight.device.type == "meta"


def test_a_build_model_that_cannot_be_called_is_refused_by_name(tmp_path: Path) -> None:
    class Older(Old):
        def build_model(self, hparams: Any) -> torch.nn.Module:  # type: ignore[override]
            return torch.nn.Linear(3, 2)

    old_checkpoint(tmp_path)
    with pytest.raises(CheckpointError, match=r"Older is a trial from before Determined 0\.14") as caught:
        load_trial_from_checkpoint_path(tmp_path, Older)
    assert "context.wrap_model" in str(caught.value)


def test_models_stay_on_the_cpu_unless_asked(tmp_path: Path) -> None:
    path, _ = checkpoint(tmp_path, {})
    assert load_trial_from_checkpoint_path(path, Given).model.weight.device.type == "cpu"
    for options in ({"torch_load_kwargs": {"map_location": "meta"}}, {"map_location": torch.device("meta")}):
        trial: Any = load_trial_from_checkpoint_path(path, Given, **options)
        assert trial.model.weight.device.type == "meta"


# --- what can be wrong


def test_other_hyperparameters_are_a_mismatch_that_names_the_checkpoint(tmp_path: Path) -> None:
    path, _ = checkpoint(tmp_path, FILES, hparams={"out": 7})
    with pytest.raises(StateMismatch, match=rf"{path} does not fit(.|\n)*weight has shape \(2, 3\).*\(7, 3\)"):
        load_trial_from_checkpoint_path(path)


@pytest.mark.parametrize(
    ("files", "spec", "message"),
    [
        ({**FILES, "train.py": "import no_such_library"}, "train:MyTrial", "No module named 'no_such_library'"),
        ({**FILES, "train.py": "1/0"}, "train:MyTrial", "train .* ZeroDivisionError"),
        (FILES, "train:Other", "no class for 'train:Other'"),
        (FILES, "gone:MyTrial", "No module named 'gone'"),
        (FILES, "__main__:Other", "in a notebook or a script that is not in the checkpoint"),
        (FILES, "train:make.<locals>.MyTrial", "made inside a function"),
        ({**FILES, "copy.py": TRIAL}, "__main__:MyTrial", r"several files .* copy\.py, train\.py"),
        ({}, "train:MyTrial", "No module named 'train'"),
        (FILES, "python3 train.py", "as 'module:Class' but as 'python3 train.py'"),
        (FILES, None, "as 'module:Class' but as None"),
    ],
)
def test_a_class_that_cannot_be_had_says_why_and_what_to_do(
    tmp_path: Path, files: dict[str, str], spec: str | None, message: str
) -> None:
    path, _ = checkpoint(tmp_path, files, spec)
    with pytest.raises(CheckpointError, match=message) as caught:
        load_trial_from_checkpoint_path(path)
    assert "trial_class=YourTrial" in str(caught.value)


def test_missing_and_damaged_load_data(tmp_path: Path) -> None:
    path, _ = checkpoint(tmp_path, FILES)
    (path / "load_data.json").write_text('{"trial')
    with pytest.raises(CheckpointError, match=r"load_data\.json cannot be read"):
        load_trial_from_checkpoint_path(path)
    (path / "load_data.json").unlink()
    with pytest.raises(CheckpointError, match=r"has no load_data\.json"):
        load_trial_from_checkpoint_path(path)


def test_missing_arguments_of_the_class_are_named(tmp_path: Path) -> None:
    class Demanding(Given):
        def __init__(self, context: Any, data: str) -> None: ...

    path, _ = checkpoint(tmp_path, {})
    with pytest.raises(TrainerError, match=r"missing a required argument: 'data'(.|\n)*trial_kwargs"):
        load_trial_from_checkpoint_path(path, Demanding)


def test_another_kind_of_trial_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, _ = checkpoint(tmp_path, {}, trial_type="TFKerasTrial")
    with caplog.at_level(logging.WARNING):
        load_trial_from_checkpoint_path(path, Given)
    assert "is of a TFKerasTrial" in caplog.text


class Evil:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (Path.touch, (self.path,))


def test_loading_weights_unpickles_nothing(tmp_path: Path) -> None:
    path, _ = checkpoint(tmp_path, {})
    tree = {"models_state_dict": [torch.nn.Linear(3, 2).state_dict()], "callbacks": {"evil": Evil(tmp_path / "ran")}}
    write_state(path, tree)
    load_trial_from_checkpoint_path(path, Given)
    assert not (tmp_path / "ran").exists()
    read_state(path)
    assert (tmp_path / "ran").exists(), "the trap works"


def test_a_script_that_trains_on_import_is_not_trained_again(tmp_path: Path) -> None:
    unguarded = textwrap.dedent(TRIAL) + textwrap.dedent("""
        from detlab import pytorch
        with pytorch.init() as context:
            raise SystemExit("it trained")
    """)
    target, _ = checkpoint(tmp_path, {**FILES, "train.py": unguarded})
    with pytest.raises(CheckpointError, match=r"trains as soon as it is imported[\s\S]*__name__"):
        load_trial_from_checkpoint_path(str(target))
