"""`det governance replay` from end to end: code and checkpoints are fetched, the code runs, weights are compared."""

from __future__ import annotations

import json
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import httpx
import pytest
from click.testing import CliRunner, Result
from test_trainer_course_governed import POLICY
from test_trainer_governed_evidence import chain_of
from trainer_task import TrialTask

from detlab.cli.commands.governance import governance
from detlab.cli.invocation import Invocation
from detlab.client import Client
from detlab.client.bundling.bundle import Bundle
from detlab.client.submission import pack
from detlab.client.transport.calls import Retries
from detlab.errors import CheckpointError, DetlabError
from detlab.governance.ledger import SEGMENT, LedgerEntry
from detlab.governance.policy import digest
from detlab.schemas.wire import CheckpointView, ExperimentView, TrialView
from detlab.schemas.wire.governance.evidence import EvidenceView, LedgerEntryView, LedgerPage, MatrixView, RefusalView

SCRIPT = """
import detlab as det
import torch
from torch import nn
from detlab import pytorch
from detlab.governance import combine

def points(count, seed):
    generator = torch.Generator().manual_seed(seed)
    return [(torch.randn(3, generator=generator), at % 2) for at in range(count)]

class Tiny(pytorch.PyTorchTrial):
    def __init__(self, context):
        self.context = context
        self.model = context.wrap_model(nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.2), nn.Linear(4, 2)))
        lr = det.get_cluster_info().trial.hparams["lr"]
        self.optimizer = context.wrap_optimizer(torch.optim.Adam(self.model.parameters(), lr=lr))
    def build_training_data_loader(self):
        return pytorch.DataLoader(combine({"trusted": points(14, 0), "web": points(9, 1)}), batch_size=4, shuffle=True)
    def build_validation_data_loader(self):
        return pytorch.DataLoader(points(4, 9), batch_size=4)
    def train_batch(self, batch, epoch_idx, batch_idx):
        losses = nn.functional.cross_entropy(self.model(batch[0]), batch[1], reduction="none")
        self.context.backward(losses)
        self.context.step_optimizer(self.optimizer)
        return {"loss": losses.mean()}
    def evaluate_batch(self, batch, batch_idx):
        return {"val_loss": 0.0}

with pytorch.init() as context:
    pytorch.Trainer(Tiny(context), context).fit(
        checkpoint_period=pytorch.Batch(3), checkpoint_policy="none", max_length=pytorch.Batch(9)
    )
"""
Ask = Callable[..., Result]


class Recorded:
    """A cluster with one trial, whose segments were recorded."""

    def __init__(self, task: TrialTask, code: Bundle) -> None:
        self.chain = chain_of(str(task.checkpoints))
        self.views = {uuid: CheckpointView.model_validate(view) for uuid, view in task.api.checkpoints.items()}
        for view in self.views.values():
            view.storage = {"type": "shared_fs", "host_path": str(task.checkpoints)}
        self.code = self.signed_code = code
        self.config = {
            **json.loads((task.root / "info.json").read_text())["config"],
            "entrypoint": "python3 train.py",
            "environment": {"environment_variables": {"cpu": ["SAID=hello"], "cuda": []}},
        }
        self.matrix = task.api.matrices[-1]
        self.problems: list[RefusalView] = []
        self.changes: dict[str, Any] = {}
        self.asked: list[str] = []

    def entries(self) -> list[LedgerEntry]:
        found: list[LedgerEntry] = []
        for uuid, step, segment in self.chain:
            body = {**segment.model_dump(mode="json"), "step": step, **self.changes}
            found.append(LedgerEntry.after(found[-1] if found else None, 7, SEGMENT, uuid, body, 1.0))
        return found

    def evidence(self, uuid: str) -> EvidenceView:
        view = self.views[uuid]
        said = {"cluster": "c1", "trial": 7, "code": self.signed_code.digest}
        return EvidenceView(
            checkpoint=uuid,
            trial_id=7,
            experiment_id=3,
            manifest_digest=view.manifest_digest,
            predicate=said,
            problems=self.problems,
        )

    def answer(self, request: httpx.Request) -> httpx.Response:
        assert request.method == "GET"
        path = unquote(request.url.path).partition("/api/v1/")[2]
        self.asked.append(path)
        kind, _, rest = path.partition("/")
        if path == "experiments/3/bundle":
            return httpx.Response(200, content=self.code.data)
        found: Any = None
        if kind == "checkpoints" and rest.endswith("/evidence"):
            found = self.evidence(rest.removesuffix("/evidence"))
        elif kind == "checkpoints":
            found = self.views.get(rest)
        elif path == "trials/7/ledger":
            found = LedgerPage(items=[LedgerEntryView(**vars_of(one)) for one in self.entries()])
        elif path == f"trials/7/matrices/{digest(self.matrix)}":
            found = MatrixView(s_hash=digest(self.matrix), matrix=self.matrix)
        elif path == "trials/7":
            found = TrialView(
                id=7, index=0, experiment_id=3, request_id="x", state="COMPLETED", hparams={"lr": 0.01}, seed=42
            )
        elif path == "experiments/3":
            found = ExperimentView(
                id=3, owner="ada", name="x", state="COMPLETED", bundle=self.code.digest, config=self.config
            )
        if found is None:
            return httpx.Response(404, json={"code": "not_found", "message": f"there is no {path}"})
        return httpx.Response(200, json=json.loads(found.model_dump_json()))


def vars_of(entry: LedgerEntry) -> dict[str, Any]:
    return {name: getattr(entry, name) for name in entry.__slots__}


@pytest.fixture
def cluster(in_trial: TrialTask) -> Recorded:
    work = in_trial.root / "work"
    (work / "train.py").write_text(SCRIPT)
    in_trial.set_config(governance=POLICY)
    in_trial.set_info(hparams={"lr": 0.01})
    runpy.run_path(str(work / "train.py"), run_name="__main__")
    code = pack(work, ())
    assert code is not None
    return Recorded(in_trial, code)


@pytest.fixture
def det(cluster: Recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ask:
    monkeypatch.chdir(tmp_path)
    return asking(cluster)


def asking(cluster: Recorded) -> Ask:
    """Return `det governance replay` of a cluster."""

    def ask(*words: str) -> Result:
        transport = httpx.MockTransport(cluster.answer)
        with Client("http://hub.example", "t", transport=transport, backoff=Retries(attempts=0)) as client:
            return CliRunner().invoke(governance, ["replay", *words], obj=Invocation(_client=client))

    return ask


def test_a_recorded_segment_is_bit_equal_when_it_is_replayed(cluster: Recorded, det: Ask, tmp_path: Path) -> None:
    uuid = cluster.chain[2][0]
    cluster.views[cluster.chain[1][0]].state = "DELETED"  # the one before is gone: it begins with an earlier one
    result = det(uuid, "--yes", "-o", "again")
    assert result.exit_code == 0, f"{result.output}{result.exception}"
    assert "(batches 3 to 9): all 4 tensors of the weights are bit-equal" in result.output
    assert "warning" not in result.output
    assert (tmp_path / "again" / "work" / "train.py").exists()
    with pytest.raises(DetlabError, match="is there already"):
        raise det(uuid, "--yes", "-o", "again").exception or AssertionError


def test_what_differs_is_named_with_its_likely_causes(cluster: Recorded, det: Ask, tmp_path: Path) -> None:
    changed = tmp_path / "changed"
    changed.mkdir()
    (changed / "train.py").write_text(SCRIPT.replace("lr=lr", "lr=lr * 1.5"))
    code = pack(changed, ())
    assert code is not None
    cluster.code = code
    versions = {**cluster.chain[0][2].versions, "torch": "1.0", "processor": "z80"}
    cluster.changes = {"versions": versions}
    result = det(cluster.chain[0][0], "--yes")
    assert result.exit_code == 1, f"{result.output}{result.exception}"
    said = result.output
    assert "trained anew from new weights (batches 0 to 3): it is not the same again" in said
    assert "4 of 4 tensors differ; the first: 0.weight is not bit-equal: the largest difference in it is" in said
    assert said.index("the code of the experiment was replaced since") < said.index("torch: 1.0 when it was recorded")
    assert "the processor: z80 when it was recorded" in said


def test_where_nothing_is_left_to_begin_with_that_is_said(cluster: Recorded, det: Ask) -> None:
    cluster.chain = cluster.chain[1:]  # as of a trial that began with another one's checkpoint
    del cluster.views[str(cluster.chain[0][2].parent)]
    refused = det(cluster.chain[0][0], "--yes").exception
    assert isinstance(refused, DetlabError)
    assert "of another trial, which is gone" in str(refused)


def test_nothing_is_fetched_without_consent_and_refusals_name_the_next_step(cluster: Recorded, det: Ask) -> None:
    uuid = cluster.chain[1][0]
    result = det(uuid)
    assert result.exit_code == 2
    assert "add --yes" in result.output
    assert "experiments/3/bundle" not in cluster.asked
    cluster.problems = [RefusalView(code="CHAIN", message="entry 3 of the ledger was changed")]
    assert "is not in order:\n  CHAIN" in str(det(uuid, "--yes").exception)


def test_code_that_fails_or_is_not_what_was_stored_is_said(cluster: Recorded, det: Ask) -> None:
    cluster.config["entrypoint"] = "echo $SAID; exit 3"
    failed = det(cluster.chain[0][0], "--yes").exception
    assert isinstance(failed, CheckpointError)
    assert "ended with the status 3" in str(failed)
    assert str(failed).splitlines()[1] == "  hello"
    other = Bundle(cluster.code.digest, b"x", ())
    cluster.code = other
    assert "cannot be unpacked" in str(det(cluster.chain[0][0], "--yes", "-o", "other").exception)


@pytest.mark.soak
def test_two_processes_are_replayed_by_two(
    trial_task: TrialTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial_task.set_config(governance=POLICY)
    trial_task.set_info(hparams={"lr": 0.01})
    status, output = trial_task.run(SCRIPT, ranks=2)
    assert status == 0, output
    code = pack(trial_task.root / "work", ())
    assert code is not None
    cluster = Recorded(trial_task, code)
    cluster.config["entrypoint"] = "python3 -m detlab.launch.torch_distributed python3 train.py"
    monkeypatch.chdir(tmp_path)
    for uuid, _, segment in cluster.chain[:2]:
        assert segment.world_size == 2
        result = asking(cluster)(uuid, "--yes")
        assert result.exit_code == 0, f"{result.output}{result.exception}"
        assert "are bit-equal" in result.output
