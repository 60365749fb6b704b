"""MLflow's directory layout: an `MLmodel` file with the flavors `python_function`, which MLflow serves, and `pytorch`.

    EXPORT/MLmodel                      what MLflow reads first
    EXPORT/data/                        the traced model, and model.json, which names its inputs
    EXPORT/code/                        the loader, one file: neither detlab nor the trial's code is needed
    EXPORT/requirements.txt, conda.yaml, python_env.yaml
    EXPORT/model-card.md, bom.cdx.json  with what the run recorded

The flavor `pytorch` is the traced graph, in MLflow's format `pt2`. TorchScript has none: MLflow would unpickle it.
The format: https://mlflow.org/docs/latest/ml/model/#storage-format
"""

from __future__ import annotations

import json
import platform
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from detlab.export import exported_model
from detlab.export.bom import BOM_NAME, bill_of_materials
from detlab.export.card import CARD_NAME, model_card
from detlab.export.contents import Contents, contents_of, new_folder
from detlab.export.tracing import Traced, specification, trace
from detlab.schemas.wire.registry import VersionView
from detlab.storage.formats import Format

LOADER = "detlab_exported_model"
_NEEDED = ("torch", "numpy")
_NAMESPACE = uuid.UUID("0a1c8a7e-6c8c-4d3b-9b0d-3f4f6b0f1c55")


def write_mlflow(
    version: VersionView,
    folder: Path,
    target: Path,
    *,
    run_code: bool = False,
    example: Path | None = None,
    model: int | None = None,
) -> Path:
    """Write a version in MLflow's layout; nothing is left behind if it cannot be done.

    Args:
        version: With its lineage.
        folder: Of its checkpoint.
        target: The folder to make.
        run_code: Whether the checkpoint's own Python code may run here, which makes the model that is traced.
        example: A file with an input for it; None takes the first batch of the trial's training data.
        model: Which of the trial's models, counted from 0.

    Raises:
        CannotTrace: The model cannot be written without its author's code.
        DetlabError: Something is at `target` already, or it cannot be written.
    """
    contents = contents_of(folder)
    with new_folder(target) as stage:
        (stage / "data").mkdir()
        traced = trace(contents, stage / "data", run_code=run_code, example=example, model=model)
        _write_json(stage / "data" / exported_model.SPECIFICATION, specification(traced))
        (stage / "code").mkdir()
        loader = Path(exported_model.__file__).read_text(encoding="utf-8")
        (stage / "code" / f"{LOADER}.py").write_text(loader, encoding="utf-8")
        (stage / CARD_NAME).write_text(model_card(version, contents), encoding="utf-8")
        (stage / BOM_NAME).write_text(bill_of_materials(version, contents), encoding="utf-8")
        python = _environment(stage, version.lineage.environment, traced)
        _write_yaml(stage / "MLmodel", _ml_model(version, traced, python, contents_of(stage)))
    return target


def _ml_model(version: VersionView, traced: Traced, python: str, written: Contents) -> dict[str, Any]:
    moment = datetime.fromtimestamp(version.created_at, UTC)
    document: dict[str, Any] = {
        "flavors": {
            "python_function": {
                "code": "code",
                "data": "data",
                "env": {"conda": "conda.yaml", "virtualenv": "python_env.yaml"},
                "loader_module": LOADER,
                "python_version": python,
            }
        },
        "metadata": _metadata(version),
        "model_size_bytes": written.size,
        "model_uuid": uuid.uuid5(_NAMESPACE, f"{version.manifest_digest}/{version.model}/{version.version}").hex,
        "utc_time_created": moment.strftime("%Y-%m-%d %H:%M:%S.%f"),
    }
    if traced.format is Format.TORCH_EXPORT:
        document["flavors"]["pytorch"] = {"code": "code", "model_data": "data", "pytorch_version": traced.torch}
    if traced.inputs:
        document["signature"] = _signature(traced)
    return document


def _metadata(version: VersionView) -> dict[str, Any]:
    """Return where the model comes from, for MLflow's `Model.metadata`."""
    made = version.lineage
    facts = {
        "model": version.model,
        "version": version.version,
        "semver": version.semver,
        "checkpoint": version.checkpoint,
        "manifest_digest": version.manifest_digest,
        "experiment_id": made.experiment_id,
        "trial_id": made.trial_id,
        "steps_completed": made.steps_completed,
    }
    return {f"detlab.{name}": value for name, value in facts.items() if value not in (None, "")}


def _signature(traced: Traced) -> dict[str, Any]:
    several = len(traced.inputs) > 1
    inputs = [_tensor(spec, spec["name"] if several else None) for spec in traced.inputs]
    outputs = [_tensor(spec, None) for spec in traced.outputs]
    found: dict[str, Any] = {"inputs": json.dumps(inputs)}
    if len(outputs) == 1:
        found["outputs"] = json.dumps(outputs)
    return found


def _tensor(spec: Mapping[str, Any], name: str | None) -> dict[str, Any]:
    tensor = {"type": "tensor", "tensor-spec": {"dtype": spec["dtype"], "shape": spec["shape"]}}
    return tensor if name is None else {"name": name, **tensor}


def _environment(stage: Path, lock: Mapping[str, str], traced: Traced) -> str:
    """Write the three files by which MLflow makes an environment; return the version of Python in them.

    The loader needs torch and numpy alone. The versions are those that the model was trained with where the run
    recorded them, else those that wrote the export; what follows a `+` names a build, which no index of packages has.
    """
    here = {"torch": traced.torch, "numpy": _numpy()}
    pins = [f"{name}=={(lock.get(name) or here[name]).partition('+')[0]}" for name in _NEEDED]
    python = lock.get("python") or platform.python_version()
    (stage / "requirements.txt").write_text("\n".join(pins) + "\n", encoding="utf-8")
    _write_yaml(stage / "python_env.yaml", {"python": python, "dependencies": ["-r requirements.txt"]})
    conda = {
        "name": "mlflow-env",
        "channels": ["conda-forge"],
        "dependencies": [f"python={python}", "pip", {"pip": pins}],
    }
    _write_yaml(stage / "conda.yaml", conda)
    return python


def _numpy() -> str:
    import numpy as np

    return np.__version__


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


def _write_yaml(path: Path, value: Any) -> None:
    path.write_text(yaml.safe_dump(value, sort_keys=False, allow_unicode=True), encoding="utf-8")
