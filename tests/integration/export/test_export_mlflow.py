"""Exports for MLflow: its library loads them in a fresh process without detlab, and predicts what the model does."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pickle
import subprocess
import textwrap
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import save_file

from detlab.errors import CheckpointError, DetlabError
from detlab.export import exported_model
from detlab.export.mlflow import write_mlflow
from detlab.export.tracing import CannotTrace
from detlab.pytorch.checkpoint.files import write_state
from detlab.schemas.wire.registry import VersionView

MLFLOW = Path(__file__).parents[3] / ".venv-mlflow" / "bin" / "python"
TRIAL = """
    import os
    from pathlib import Path
    import torch
    from detlab.pytorch import DataLoader
    from detlab.pytorch.trial import PyTorchTrial

    Path(os.environ["RAN"]).write_text("the trial's code ran")

    class Net(torch.nn.Module):
        def __init__(self, out):
            super().__init__()
            self.layers = torch.nn.Sequential(
                torch.nn.Linear(3, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.5), torch.nn.Linear(8, out)
            )
        def forward(self, x):
            BODY
            return self.layers(x)

    class MyTrial(PyTorchTrial):
        def __init__(self, context):
            self.context = context
            self.model = context.wrap_model(Net(context.get_hparam("out")))
            self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=0.1))
        def train_batch(self, batch, epoch_idx, batch_idx): ...
        def build_training_data_loader(self):
            return DataLoader(torch.utils.data.TensorDataset(torch.randn(8, 3), torch.zeros(8)), batch_size=1)
        def build_validation_data_loader(self): ...
"""
BATCH = np.random.default_rng(3).normal(size=(5, 3)).astype(np.float32)


class Net(torch.nn.Module):
    """The trial's network, to compare with."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(3, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 2)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


@pytest.fixture
def network() -> torch.nn.Module:
    torch.manual_seed(5)
    network = Net()
    network(torch.randn(16, 3))  # running means that are not zero
    return network.eval()


@pytest.fixture
def ran(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that exists once the trial's code has run."""
    path = tmp_path_factory.mktemp("told") / "ran"
    monkeypatch.setenv("RAN", str(path))
    return path


def trial_checkpoint(tmp_path: Path, network: torch.nn.Module, body: str = "pass") -> Path:
    """The checkpoint of a PyTorchTrial with its code."""
    source, target = tmp_path / "work", tmp_path / "trial"
    source.mkdir()
    target.mkdir()
    (source / "train.py").write_text(textwrap.dedent(TRIAL).replace("BODY", body))
    facts = {"trial_type": "PyTorchTrial", "trial_class_spec": "train:MyTrial", "hparams": {"out": 2}}
    write_state(target, {"models_state_dict": [network.state_dict()]}, load_data=facts, code=source)
    return target


def in_mlflow(code: str, *arguments: object) -> Any:
    """Run code in a fresh process of MLflow's environment, without detlab, and return what it printed as JSON."""
    if not MLFLOW.exists():
        assert "CI" not in os.environ, "make setup-test makes .venv-mlflow"
        pytest.skip("no .venv-mlflow: make setup-test")
    begin = """
    import json, sys
    sys.modules["detlab"] = None  # its import is an error
    import numpy, pandas, mlflow
    assert int(mlflow.__version__.split(".")[0]) >= 3
    """
    done = subprocess.run(
        [MLFLOW, "-I", "-c", textwrap.dedent(begin) + textwrap.dedent(code), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        cwd="/",
        check=False,
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", "MLFLOW_DISABLE_TELEMETRY": "true"},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


PREDICT = """
    batch, said = numpy.array(json.loads(sys.argv[1]), dtype=numpy.float32), []
    for folder in sys.argv[2:]:
        model = mlflow.pyfunc.load_model(folder)
        said.append({
            "array": model.predict(batch).tolist(),
            "table": model.predict(pandas.DataFrame(batch)).tolist(),
            "one": model.predict(batch[:1]).tolist(),
            "metadata": model.metadata.metadata,
            "inputs": model.metadata.get_input_schema().to_dict(),
        })
    print(json.dumps(said))
"""


def graph_checkpoint(tmp_path: Path, network: torch.nn.Module) -> Path:
    """A checkpoint with a graph, as code that uses the Core API saves it."""
    folder = tmp_path / "graph"
    folder.mkdir()
    program = torch.export.export(network, (torch.zeros(2, 3),), dynamic_shapes=({0: torch.export.Dim.AUTO},))
    torch.export.save(program, folder / "model.pt2")
    (folder / "notes.txt").write_text("mine")
    return folder


@pytest.mark.soak
def test_mlflow_loads_the_models_and_predicts(
    version: VersionView, tmp_path: Path, network: torch.nn.Module, ran: Path
) -> None:
    target = write_mlflow(version, trial_checkpoint(tmp_path, network), tmp_path / "out" / "digits", run_code=True)
    assert ran.exists()
    ran.unlink()
    graph = write_mlflow(version, graph_checkpoint(tmp_path, network), tmp_path / "of-graph")
    with torch.no_grad():
        expected = network(torch.from_numpy(BATCH)).numpy()
    both = in_mlflow(PREDICT, json.dumps(BATCH.tolist()), target, graph)
    assert len(both) == 2
    for said in both:
        for given in ("array", "table"):
            np.testing.assert_allclose(said[given], expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(said["one"], expected[:1], rtol=1e-4, atol=1e-5)
        assert said["metadata"]["detlab.model"] == "digits"
        assert said["metadata"]["detlab.steps_completed"] == 200
        assert said["inputs"] == [{"type": "tensor", "tensor-spec": {"dtype": "float32", "shape": [-1, 3]}}]
    assert not ran.exists(), "the export runs without the trial's code"
    assert (target / "requirements.txt").read_text() == "torch==2.13.0\nnumpy==2.4.6\n"
    assert yaml.safe_load((target / "python_env.yaml").read_text())["python"] == "3.11.2"
    assert (target / "model-card.md").read_text().startswith("---\nlibrary_name: ")
    assert json.loads((target / "bom.cdx.json").read_text())["bomFormat"] == "CycloneDX"
    assert [path.name for path in target.parent.iterdir()] == ["digits"], "nothing is left beside it"


def test_torchscript_in_the_checkpoint_is_taken(version: VersionView, tmp_path: Path, network: torch.nn.Module) -> None:
    folder = tmp_path / "script"
    folder.mkdir()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.trace(network, torch.zeros(2, 3)).save(str(folder / "model.pt"))
        target = write_mlflow(version, folder, tmp_path / "export")
        model = exported_model.load(str(target / "data"))
    np.testing.assert_allclose(model.predict(BATCH), network(torch.from_numpy(BATCH)).detach().numpy(), rtol=1e-4)
    flavors = yaml.safe_load((target / "MLmodel").read_text())["flavors"]
    assert list(flavors) == ["python_function"], "MLflow would unpickle it"


AS_TORCH = """
    import warnings
    import mlflow.pytorch, torch
    batch, said = torch.tensor(json.loads(sys.argv[1])), []
    for folder in sys.argv[2:]:
        model = mlflow.pytorch.load_model(folder)
        assert isinstance(model, torch.nn.Module)
        said.append(model(batch).tolist())
    print(json.dumps(said))
"""


def test_mlflow_s_own_flavor_of_pytorch_loads_them_too(
    version: VersionView, tmp_path: Path, network: torch.nn.Module, ran: Path
) -> None:
    """`mlflow.pytorch.load_model` said that the model has no such flavor."""
    traced = write_mlflow(version, trial_checkpoint(tmp_path, network), tmp_path / "traced", run_code=True)
    graph = write_mlflow(version, graph_checkpoint(tmp_path, network), tmp_path / "of-graph")
    with torch.no_grad():
        expected = network(torch.from_numpy(BATCH)).numpy()
    for said in in_mlflow(AS_TORCH, json.dumps(BATCH.tolist()), traced, graph):
        np.testing.assert_allclose(said, expected, rtol=1e-4, atol=1e-5)
    flavor = yaml.safe_load((traced / "MLmodel").read_text())["flavors"]["pytorch"]
    assert flavor == {"code": "code", "model_data": "data", "pytorch_version": torch.__version__}


def test_an_example_can_be_given(version: VersionView, tmp_path: Path, network: torch.nn.Module, ran: Path) -> None:
    folder = trial_checkpoint(tmp_path, network)
    np.save(tmp_path / "example.npy", np.zeros((4, 3)))  # float64, as NumPy makes them
    (tmp_path / "example.json").write_text("[[0, 1.5, 2]]")
    for name in ("example.npy", "example.json"):
        target = write_mlflow(version, folder, tmp_path / f"of-{name}", run_code=True, example=tmp_path / name)
        model = exported_model.load(str(target / "data"))
        assert model.predict(BATCH.tolist()).shape == (5, 2)
        with pytest.raises(ValueError, match=r"wants an input of shape \[-1, 3\] \(-1: any\); given was \[5, 2\]"):
            model.predict(BATCH[:, :2])


def refused(version: VersionView, folder: Path, target: Path, match: str, **options: Any) -> DetlabError:
    """Check that an export fails with words that match, and that nothing of it is left."""
    before = sorted(target.parent.iterdir())
    with pytest.raises(DetlabError, match=match) as caught:
        write_mlflow(version, folder, target, **options)
    assert sorted(target.parent.iterdir()) == before
    return caught.value


def test_code_of_a_checkpoint_is_not_run_unasked(
    version: VersionView, tmp_path: Path, network: torch.nn.Module, ran: Path
) -> None:
    folder = trial_checkpoint(tmp_path, network)
    error = refused(version, folder, tmp_path / "export", "cannot be traced without running its code")
    assert "--run-code" in str(error.hint)
    assert isinstance(error, CannotTrace)
    assert not ran.exists()


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("x = x if x.sum() > 0 else -x", "cannot be traced with the example"),
        ("raise ValueError('wrong\\nlines')", "ValueError: wrong$"),
        ("return self.layers(x) + torch.rand(1)", "does not compute what the model does"),
        ("x = x[:, :2]", "cannot be traced with the example"),
    ],
)
def test_a_model_that_cannot_be_traced_is_an_error_that_says_why(
    body: str, words: str, version: VersionView, tmp_path: Path, network: torch.nn.Module, ran: Path
) -> None:
    refused(version, trial_checkpoint(tmp_path, network, body), tmp_path / "export", rf"(?m){words}", run_code=True)


def test_checkpoints_without_a_graph_say_what_to_save(version: VersionView, tmp_path: Path, folder: Path) -> None:
    (folder / "load_data.json").unlink()
    error = refused(version, folder, tmp_path / "export", "nothing that says how they are computed with")
    assert "torch.export.save" in str(error.hint)
    torch.save({"w": Exception("x")}, folder / "old.pt")
    refused(version, folder, tmp_path / "export", "old.pt is a pickle of torch.save: .*a pickle is not opened")
    for name in ("a.pt2", "b.pt2"):
        torch.export.save(torch.export.export(torch.nn.Linear(3, 2), (torch.zeros(1, 3),)), folder / name)
    refused(version, folder, tmp_path / "export", "holds 2 traced models: a.pt2, b.pt2")


def test_damaged_graphs_bad_examples_and_bad_folders_are_refused(
    version: VersionView, tmp_path: Path, network: torch.nn.Module, ran: Path
) -> None:
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    torch.export.save(torch.export.export(torch.nn.Linear(3, 2), (torch.zeros(1, 3),)), damaged / "m.pt2")
    data = (damaged / "m.pt2").read_bytes()
    (damaged / "m.pt2").write_bytes(data.replace(b"linear", b"lin\x00ar"))
    refused(version, damaged, tmp_path / "export", "m.pt2 cannot be read by torch")
    folder = trial_checkpoint(tmp_path, network)
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    (tmp_path / "words.json").write_text('["a"]')
    for name in ("objects.npy", "words.json", "missing.npy"):
        refused(version, folder, tmp_path / "export", "cannot be read", run_code=True, example=tmp_path / name)
        assert not ran.exists(), "the example is read first"
    refused(version, folder, tmp_path / "export", "wraps 1 models", run_code=True, model=3)
    (tmp_path / "there").mkdir()
    refused(version, folder, tmp_path / "there", "exists already")
    with pytest.raises(CheckpointError, match="is not a folder"):
        write_mlflow(version, tmp_path / "nowhere", tmp_path / "export")


OPAQUE = {"path_name": "opaque_obj_0", "is_param": False, "use_pickle": True, "tensor_meta": None}


class Touches:
    """Pickles to a call that makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("how", ["sample", "weight", "constant"])
def test_a_pickle_in_a_graph_is_not_opened_by_the_export_nor_by_the_loader(
    how: str, version: VersionView, tmp_path: Path
) -> None:
    folder, trap = tmp_path / "evil", tmp_path / "trap"
    folder.mkdir()
    torch.export.save(torch.export.export(torch.nn.Linear(3, 2), (torch.zeros(1, 3),)), tmp_path / "good.pt2")
    stream = io.BytesIO()
    torch.save(Touches(trap), stream)
    with zipfile.ZipFile(tmp_path / "good.pt2") as good, zipfile.ZipFile(folder / "m.pt2", "w") as evil:
        for name in good.namelist():
            data = good.read(name)
            if how == "sample" and "/sample_inputs/" in name:
                data = stream.getvalue()
            elif how == "weight" and name.endswith("weights_config.json"):
                data = data.replace(b'"use_pickle": false', b'"use_pickle": true')
            elif how == "weight" and "/data/weights/" in name and not name.endswith(".json"):
                data = stream.getvalue()
            elif how == "constant" and name.endswith("constants_config.json"):
                data = json.dumps({"config": {"c": OPAQUE}}).encode()
            evil.writestr(zipfile.ZipInfo(name), data)
        if how == "constant":
            evil.writestr("good/data/constants/opaque_obj_0", pickle.dumps(Touches(trap), 0))
    refused(version, folder, tmp_path / "export", "m.pt2 ")
    assert not trap.exists()
    with contextlib.suppress(Exception):
        torch.export.load(folder / "m.pt2")
    assert trap.exists(), "torch alone would have opened it"


def test_a_compiled_library_in_a_graph_is_not_loaded(version: VersionView, tmp_path: Path) -> None:
    folder = tmp_path / "native"
    folder.mkdir()
    torch.export.save(torch.export.export(torch.nn.Linear(3, 2), (torch.zeros(1, 3),)), folder / "m.pt2")
    with zipfile.ZipFile(folder / "m.pt2", "a") as archive:
        archive.writestr("m/data/aotinductor/model/x.so", b"\x7fELF")
    refused(version, folder, tmp_path / "export", "m.pt2 cannot be read by torch .* a compiled library")


def test_several_inputs_go_by_name(version: VersionView, tmp_path: Path) -> None:
    class Two(torch.nn.Module):
        def forward(self, left: torch.Tensor, right: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"sum": left + right, "both": (left, right)}  # type: ignore[dict-item]  # as models do

    folder = tmp_path / "two"
    folder.mkdir()
    save_file({"w": torch.zeros(1)}, folder / "w.safetensors")
    torch.export.save(torch.export.export(Two(), (torch.zeros(2), torch.zeros(2))), folder / "model.pt2")
    model = exported_model.load(str(write_mlflow(version, folder, tmp_path / "export") / "data"))
    given = {"left": [1.0, 2.0], "right": [3.0, 4.0]}
    assert model.predict(given)["sum"].tolist() == [4.0, 6.0]
    with pytest.raises(ValueError, match="wants the inputs left, right; given were left"):
        model.predict({"left": [1.0, 2.0]})
    with pytest.raises(ValueError, match="has 2 inputs: give a dict with left, right"):
        model.predict([1.0, 2.0])
