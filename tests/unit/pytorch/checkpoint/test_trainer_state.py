"""The files of a trial's state: what is in them, what comes back, and what is said when they do not fit."""

from __future__ import annotations

import copy
import hashlib
import json
import logging
import pickletools
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn

from detlab.errors import CheckpointError
from detlab.pytorch.checkpoint import rng as _rng
from detlab.pytorch.checkpoint import source_code
from detlab.pytorch.checkpoint.files import (
    StateMismatch,
    check_state,
    load_models,
    load_optimizers,
    read_state,
    write_state,
)

torch.set_num_threads(1)


class Tied(nn.Module):
    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.encoder = nn.Embedding(7, width)
        self.norm = nn.BatchNorm1d(width)
        self.decoder = nn.Linear(width, 7)
        self.decoder.weight = self.encoder.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.decoder(self.norm(self.encoder(ids)))


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> list[float]:
    losses = []
    for step in range(steps):
        ids = torch.arange(step, step + 5) % 7
        loss = nn.functional.cross_entropy(model(ids), ids)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def state_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    return {
        "models_state_dict": [model.state_dict()],
        "optimizers_state_dict": [optimizer.state_dict()],
        "callbacks": {"best": {"value": float("inf"), "history": np.arange(3)}},
        "ranks": [{"rng": _rng.capture(), "gradients": [torch.ones(2), None]}],
        "trial_state": {"steps": 5},
    }


@pytest.fixture
def written(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    model = Tied()
    optimizer = torch.optim.Adam(model.parameters())
    train(model, optimizer, 3)
    write_state(tmp_path, state_of(model, optimizer), load_data={"trial_type": "PyTorchTrial"})
    return tmp_path


OPTIMIZERS = {
    "adam": lambda p: torch.optim.Adam(p, lr=1e-2),
    "amsgrad": lambda p: torch.optim.AdamW(p, lr=1e-2, amsgrad=True),
    "sgd": lambda p: torch.optim.SGD(p, lr=1e-2, momentum=0.9, nesterov=True),
    "plain_sgd": lambda p: torch.optim.SGD(p, lr=1e-2),
    "adadelta": torch.optim.Adadelta,
    "adagrad": torch.optim.Adagrad,
    "rprop": torch.optim.Rprop,
    "asgd": torch.optim.ASGD,
    "radam": torch.optim.RAdam,
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_continues_to_the_bit_from_what_was_read(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Tied()
    optimizer = OPTIMIZERS[name](model.parameters())
    train(model, optimizer, 3)
    write_state(tmp_path, state_of(model, optimizer))
    calm = train(model, optimizer, 4)

    other = Tied()
    resumed = OPTIMIZERS[name](other.parameters())
    tree = read_state(tmp_path, allow_pickle=False)
    load_models([other], tree["models_state_dict"])
    load_optimizers([resumed], tree["optimizers_state_dict"])
    assert train(other, resumed, 4) == calm
    assert other.decoder.weight is other.encoder.weight


def test_a_model_file_is_what_safetensors_and_torch_expect(written: Path) -> None:
    weights = safetensors.torch.load_file(written / "model_0.safetensors")
    model = Tied()
    assert weights.keys() == model.state_dict().keys()
    model.load_state_dict(weights)  # strict
    assert weights["encoder.weight"].equal(weights["decoder.weight"])
    saved = read_state(written)["models_state_dict"][0]
    assert all(model.state_dict()[name].equal(value) for name, value in saved.items())


def test_tied_weights_come_back_as_one_tensor(written: Path) -> None:
    saved = read_state(written)["models_state_dict"][0]
    assert saved["encoder.weight"] is saved["decoder.weight"]


def test_models_that_share_weights_each_have_a_full_file(tmp_path: Path) -> None:
    body = nn.Linear(2, 2)
    models = [nn.Sequential(body, nn.Linear(2, 1)), nn.Sequential(body)]
    write_state(tmp_path, {"models_state_dict": [model.state_dict() for model in models]})
    for index, model in enumerate(models):
        model.load_state_dict(safetensors.torch.load_file(tmp_path / f"model_{index}.safetensors"))


def test_a_model_without_parameters_and_one_with_extra_state(tmp_path: Path) -> None:
    class Extra(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2))
            self.seen: Any = {"ids": torch.arange(3), "names": ["a"]}

        def get_extra_state(self) -> Any:
            return self.seen

        def set_extra_state(self, state: Any) -> None:
            self.seen = state

    write_state(tmp_path, {"models_state_dict": [nn.ReLU().state_dict(), Extra().state_dict()]})
    assert safetensors.torch.load_file(tmp_path / "model_0.safetensors") == {}
    assert safetensors.torch.load_file(tmp_path / "model_1.safetensors").keys() == {"weight"}
    other = Extra()
    other.seen = None
    load_models([nn.ReLU(), other], read_state(tmp_path)["models_state_dict"])
    assert other.seen["names"] == ["a"]
    assert other.seen["ids"].tolist() == [0, 1, 2]


def test_other_layouts_and_devices_of_memory_are_written_in_order(tmp_path: Path) -> None:
    state = {"conv": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last), "t": torch.arange(6).view(2, 3).T}
    write_state(tmp_path, {"models_state_dict": [state]})
    weights = safetensors.torch.load_file(tmp_path / "model_0.safetensors")
    assert all(weights[name].equal(value) for name, value in state.items())


def test_no_file_of_a_plain_trial_holds_a_pickle(written: Path) -> None:
    names = sorted(path.name for path in written.iterdir())
    assert names == ["load_data.json", "model_0.safetensors", "trainer.json", "trainer.safetensors"]
    for name in ("trainer.json", "load_data.json"):
        assert '"$": "pickle"' not in (written / name).read_text()
        json.loads((written / name).read_text())
    for path in written.iterdir():
        content = path.read_bytes()
        assert b"\x80\x04\x95" not in content
        assert b"\x80\x05\x95" not in content
        assert b"PK\x03\x04" not in content
        with pytest.raises((ValueError, IndexError)):
            list(pickletools.genops(content))
    read_state(written, allow_pickle=False)


@pytest.mark.parametrize("name", ["model_0.safetensors", "trainer.safetensors", "trainer.json"])
def test_a_missing_file_is_named(written: Path, name: str) -> None:
    (written / name).unlink()
    with pytest.raises(CheckpointError, match=name.replace(".", r"\.")):
        read_state(written)


@pytest.mark.parametrize("name", ["model_0.safetensors", "trainer.safetensors", "trainer.json"])
def test_a_file_cut_off_anywhere_is_named(written: Path, name: str) -> None:
    content = (written / name).read_bytes()
    for end in sorted({0, 1, 7, 8, 9, len(content) // 2, len(content) - 1}):
        (written / name).write_bytes(content[:end])
        with pytest.raises(CheckpointError, match=name.replace(".", r"\.")):
            read_state(written)


@pytest.mark.parametrize("name", ["model_0.safetensors", "trainer.safetensors", "trainer.json"])
def test_a_damaged_header_never_crashes(written: Path, name: str) -> None:
    content = (written / name).read_bytes()
    chosen = random.Random(7)
    refused = 0
    for _ in range(150):
        damaged = bytearray(content)
        for _ in range(3):
            damaged[chosen.randrange(min(len(content), 400))] = chosen.randrange(256)
        (written / name).write_bytes(damaged)
        try:
            read_state(written, allow_pickle=False)
        except CheckpointError:
            refused += 1
    assert refused > 75


def test_a_structure_that_names_files_elsewhere_is_refused(written: Path) -> None:
    document = (written / "trainer.json").read_text().replace('"model_0/', '"../model_0/')
    (written / "trainer.json").write_text(document)
    with pytest.raises(CheckpointError, match="names a file"):
        read_state(written)


def test_a_newer_format_says_who_wrote_it(written: Path) -> None:
    document = json.loads((written / "trainer.json").read_text())
    (written / "trainer.json").write_text(json.dumps({**document, "format": 99, "detlab": "7.0"}))
    with pytest.raises(CheckpointError, match=r"format 99(.|\n)*detlab 7\.0"):
        read_state(written)


def test_a_directory_of_something_else_says_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "weights.bin").write_bytes(b"x")
    with pytest.raises(CheckpointError, match=r"weights\.bin"):
        read_state(tmp_path)


def test_reading_a_part_touches_no_other_file(written: Path) -> None:
    (written / "trainer.safetensors").unlink()
    assert read_state(written, only={"models_state_dict"}).keys() == {"models_state_dict"}


def test_what_was_read_lives_on_when_the_files_are_gone(written: Path) -> None:
    saved = read_state(written)["models_state_dict"][0]
    before = {name: value.clone() for name, value in saved.items()}
    with (written / "model_0.safetensors").open("r+b") as stream:
        stream.truncate(0)  # a window on the file would now be a bus error
    assert all(saved[name].equal(value) for name, value in before.items())


# --- what does not fit


def digest(modules: list[Any]) -> str:
    parts = [value.numpy().tobytes() for module in modules for value in module.state_dict().values()]
    return hashlib.sha256(b"".join(parts)).hexdigest()


def test_a_model_of_another_shape_gets_one_error_with_every_difference() -> None:
    saved = [nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1)).state_dict()]
    model = nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 1), nn.Linear(1, 1, bias=False))
    before = digest([model])
    with pytest.raises(StateMismatch) as caught:
        load_models([model], saved, checkpoint="checkpoint 0b8d")
    assert str(caught.value).splitlines() == [
        "checkpoint 0b8d does not fit this trial:",
        "  model 0: 0.weight has shape (4, 3) in the checkpoint, (5, 3) in the trial",
        "  model 0: 0.bias has shape (4,) in the checkpoint, (5,) in the trial",
        "  model 0: 1.weight has shape (1, 4) in the checkpoint, (1, 5) in the trial",
        "  model 0: 2.weight (1, 1) is missing from the checkpoint",
        "Likely it was written with other hyperparameters or by another model class. "
        "Use those again, or start without the checkpoint.",
    ]
    assert digest([model]) == before, "nothing may be half-loaded"


def test_when_the_second_model_does_not_fit_the_first_is_not_loaded() -> None:
    models = [nn.Linear(2, 2), nn.Linear(2, 2)]
    before = digest(models)
    assert issubclass(StateMismatch, RuntimeError)  # what torch raises for the same
    with pytest.raises(StateMismatch, match="model 1: extra"):
        load_models(models, [nn.Linear(2, 2).state_dict(), {**nn.Linear(2, 2).state_dict(), "extra": torch.ones(1)}])
    assert digest(models) == before


def test_many_differences_are_counted_beyond_twenty_lines() -> None:
    model = nn.Sequential(*(nn.Linear(2, 2) for _ in range(30)))
    with pytest.raises(StateMismatch) as caught:
        load_models([model], [{}])
    lines = caught.value.message.splitlines()
    assert len(lines) == 21
    assert lines[-1] == "  … and 41 more"
    assert len(caught.value.differences) == 60


def test_other_numbers_of_models_and_optimizers_are_said_together() -> None:
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    states = [model.state_dict()] * 2
    with pytest.raises(StateMismatch) as caught:
        check_state([model], states, [optimizer], [])
    assert caught.value.differences == [
        "2 models in the checkpoint, 1 in the trial",
        "0 optimizers in the checkpoint, 1 in the trial",
    ]


def test_an_optimizer_over_other_parameters_is_refused_before_loading() -> None:
    small, large = nn.Linear(2, 2), nn.Linear(3, 3)
    saved = torch.optim.Adam(small.parameters())
    small(torch.ones(1, 2)).sum().backward()
    saved.step()
    other = torch.optim.Adam(large.parameters())
    with pytest.raises(StateMismatch) as caught:
        load_optimizers([other], [saved.state_dict()])
    assert caught.value.differences == [
        f"optimizer 0, group 0, parameter {place}: {name} has shape {was} in the checkpoint, the parameter {now}"
        for place, was, now in ((0, "(2, 2)", "(3, 3)"), (1, "(2,)", "(3,)"))
        for name in ("exp_avg", "exp_avg_sq")
    ]
    assert not other.state


def test_other_groups_or_fewer_parameters_are_refused() -> None:
    model = nn.Linear(2, 2)
    one = torch.optim.SGD(model.parameters(), lr=0.1)
    two = torch.optim.SGD([{"params": [model.weight]}, {"params": [model.bias]}], lr=0.1)
    weight_only = torch.optim.SGD([model.weight], lr=0.1)
    with pytest.raises(StateMismatch, match=r"2 parameter group\(s\) in the checkpoint, 1 in the trial"):
        load_optimizers([one], [two.state_dict()])
    with pytest.raises(StateMismatch, match=r"1 parameter\(s\) in the checkpoint, 2 in the trial"):
        load_optimizers([one], [weight_only.state_dict()])


def test_another_class_of_optimizer_is_named() -> None:
    model = nn.Linear(2, 2)
    with pytest.raises(StateMismatch, match=r"of another optimizer than Adam: it has momentum.*lacks betas"):
        load_optimizers(
            [torch.optim.Adam(model.parameters())], [torch.optim.SGD(model.parameters(), lr=0.1).state_dict()]
        )


def test_an_older_release_of_the_same_optimizer_and_scheduled_groups_are_no_mismatch() -> None:
    model = nn.Linear(2, 2)
    saved = torch.optim.Adam(model.parameters())
    torch.optim.lr_scheduler.OneCycleLR(saved, 0.1, total_steps=5)
    state = copy.deepcopy(saved.state_dict())
    del state["param_groups"][0]["decoupled_weight_decay"]  # torch 2.6 had no such option
    load_optimizers([torch.optim.Adam(model.parameters())], [state])


def test_compiled_models_and_names_of_ddp_are_seen_through() -> None:
    model, source = nn.Sequential(nn.Linear(2, 2)), nn.Sequential(nn.Linear(2, 2))
    load_models([torch.compile(model, backend="eager")], [source.state_dict()])
    assert digest([model]) == digest([source])
    inner, other = nn.Sequential(nn.Linear(2, 2)), nn.Sequential(nn.Linear(2, 2))
    inner[0] = torch.compile(inner[0], backend="eager")
    load_models([inner], [other.state_dict()])
    assert digest([inner]) == digest([other])
    third = nn.Sequential(nn.Linear(2, 2))
    load_models([third], [{f"module.{name}": value for name, value in source.state_dict().items()}])
    assert digest([third]) == digest([source])


def test_a_model_whose_own_part_is_called_module_keeps_its_names() -> None:
    class Wrapper(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = nn.Linear(2, 2)

    one, other = Wrapper(), Wrapper()
    load_models([other], [one.state_dict()])
    assert digest([one]) == digest([other])


# --- Determined's checkpoints


def determined_state(**changes: Any) -> dict[str, Any]:
    model = Tied()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    train(model, optimizer, 1)
    return {
        "models_state_dict": [model.state_dict()],
        "optimizers_state_dict": [optimizer.state_dict()],
        "lr_schedulers_state_dict": [],
        "callbacks": {"best": {"a": 1}},
        "rng_state": {
            "cpu_rng_state": torch.get_rng_state(),
            "np_rng_state": np.random.get_state(),
            "rand_rng_state": random.getstate(),
        },
        **changes,
    }


def test_a_checkpoint_of_determined_is_read_into_the_same_keys(tmp_path: Path) -> None:
    state = determined_state()
    torch.save(state, tmp_path / "state_dict.pth")
    drawn = (random.random(), np.random.rand(), torch.rand(1).item())
    tree = read_state(tmp_path, allow_pickle=False)
    load_models([Tied()], tree["models_state_dict"])
    assert tree["callbacks"] == {"best": {"a": 1}}
    assert tree["optimizers_state_dict"][0]["param_groups"][0]["momentum"] == 0.9
    _rng.restore(tree["ranks"][0]["rng"])
    assert (random.random(), np.random.rand(), torch.rand(1).item()) == drawn


def test_the_oldest_checkpoints_of_determined_have_one_of_each(tmp_path: Path) -> None:
    state = determined_state()
    old = {"model_state_dict": state["models_state_dict"][0], "optimizer_state_dict": state["optimizers_state_dict"][0]}
    torch.save(old, tmp_path / "state_dict.pth")
    tree = read_state(tmp_path)
    assert len(tree["models_state_dict"]) == len(tree["optimizers_state_dict"]) == 1


class Custom:
    pass


def test_foreign_classes_in_a_checkpoint_of_determined_say_what_to_do(tmp_path: Path) -> None:
    torch.save(determined_state(callbacks={"mine": Custom()}), tmp_path / "state_dict.pth")
    with pytest.raises(CheckpointError, match=r"Custom(.|\n)*weights_only.: False"):
        read_state(tmp_path)
    tree = read_state(tmp_path, torch_load_kwargs={"weights_only": False})
    assert isinstance(tree["callbacks"]["mine"], Custom)


def test_a_damaged_checkpoint_of_determined_is_an_error(tmp_path: Path) -> None:
    torch.save(determined_state(), tmp_path / "state_dict.pth")
    content = (tmp_path / "state_dict.pth").read_bytes()
    for end in (0, 10, len(content) // 2):
        (tmp_path / "state_dict.pth").write_bytes(content[:end])
        with pytest.raises(CheckpointError, match=r"state_dict\.pth"):
            read_state(tmp_path)
    torch.save({"weights": 1}, tmp_path / "state_dict.pth")
    with pytest.raises(CheckpointError, match="not of a PyTorchTrial: it holds weights"):
        read_state(tmp_path)


# --- random number generators


def test_generators_continue_where_they_were_captured(tmp_path: Path) -> None:
    def draw() -> tuple[float, ...]:
        return random.random(), random.gauss(0, 1), np.random.randn(), torch.randn(1).item()

    _rng.seed(3)
    draw()
    write_state(tmp_path, {"ranks": [{"rng": _rng.capture()}]})
    expected = draw()
    _rng.seed(99)
    _rng.restore(read_state(tmp_path)["ranks"][0]["rng"])
    assert draw() == expected


# --- source files


def test_only_source_files_of_a_directory_go_along(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    root = tmp_path / "work"
    for name in ("train.py", "conf/a.yaml", "conf/b.json", "x.toml", "notes.txt", "setup.cfg", "data.csv", "w.pth",
                 ".secret.json", ".git/x.py", "__pycache__/x.py", "venv/lib/y.py", "venv/pyvenv.cfg"):  # fmt: skip
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    (root / "huge.json").write_bytes(b" " * (1024 * 1024 + 1))
    (root / "loop").symlink_to(root)
    (root / "gone.py").symlink_to(root / "nowhere.py")
    target = tmp_path / "checkpoint"
    target.mkdir()
    write_state(target, {"models_state_dict": []}, code=root)
    found = sorted(path.relative_to(target / "code").as_posix() for path in (target / "code").rglob("*.*"))
    assert found == ["conf/a.yaml", "conf/b.json", "notes.txt", "setup.cfg", "train.py", "x.toml"]
    assert (target / "code/train.py").read_text() == "train.py"
    assert not caplog.records


def test_python_files_come_first_when_there_is_too_much(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(12):
        (tmp_path / f"a{number:02}.json").write_bytes(b" " * 1024 * 1024)
    (tmp_path / "z.py").write_text("x = 1")
    with caplog.at_level(logging.WARNING):
        found = source_code.collect(tmp_path)
    assert "z.py" in found
    assert sum(map(len, found.values())) <= 10 * 1024 * 1024
    assert "3 files" in caplog.text
