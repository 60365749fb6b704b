"""A master's database with many versions of models and many checkpoints, and what bench/artifacts.py asks of it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import insert

from detlab.schemas.wire.storage import GcPolicy
from detlab_hub.core.collection import CheckpointRetention, Saved, decide
from detlab_hub.services import Caller, Services, Settings
from detlab_hub.services.checkpoints.collecting import Collecting
from detlab_hub.services.cluster.storage import Storage
from detlab_hub.services.registry.versions import Versions
from detlab_hub.store import Store
from detlab_hub.store.queries.metrics import curves
from detlab_hub.store.tables import (
    CheckpointRow,
    ExperimentRow,
    ModelFact,
    ModelRow,
    ProjectRow,
    TrialRow,
    VersionMetric,
    VersionRow,
    WorkspaceRow,
)

MODELS = 100
TRIALS = 1000
"""Of the experiment about which collection decides."""
USERS = 50
QUERIES = (
    "",
    "label = vision",
    "label = vision and dataset = v3",
    "accuracy > 0.999 and hp.width < 32",
    "model = model-7",
)
_FILES = {f"shard-{number}.safetensors": {"size": 1000, "digest": "sha256:" + "0" * 64} for number in range(3)}
ROOT = Caller("root", admin=True)


@dataclass
class World:
    """The services on the database."""

    services: Services
    loop: asyncio.AbstractEventLoop
    saved: list[Saved]

    def best(self, where: str) -> Any:
        """Ask for the ten best versions."""
        return self.loop.run_until_complete(
            self.services[Versions].search(ROOT, best="accuracy", where=where, limit=10)
        )

    def decide(self) -> Any:
        """Decide what a policy keeps."""
        return decide(CheckpointRetention(5, 2, 1), self.saved, smaller_is_better=False)

    def preview(self) -> Any:
        """Decide with all that is needed from the database."""
        policy = GcPolicy(save_experiment_best=5, save_trial_best=2, save_trial_latest=1)
        return self.loop.run_until_complete(self.services[Collecting].preview(ROOT, 1, policy))

    def usage(self, by: Any) -> Any:
        """Sum up what is stored."""
        return self.loop.run_until_complete(self.services[Storage].usage(ROOT, by))


@contextmanager
def large(folder: Path, count: int) -> Iterator[World]:
    """Make the database; close it at the end."""
    store = Store.open(f"sqlite:///{folder / 'db.sqlite'}", holder="bench")
    store.write_sync(lambda s: _experiments(s, count))
    for begin in range(0, count, 10_000):
        store.write_sync(lambda s, begin=begin: _fill(s, begin, min(begin + 10_000, count), count))
    store.write_sync(lambda s: _metrics(s, count))
    rng = random.Random(1)
    saved = [Saved(_uuid(1, n), n % TRIALS, n // TRIALS, rng.random(), float(n)) for n in range(count)]
    loop = asyncio.new_event_loop()
    try:
        settings = Settings(state_dir=folder, bundles_dir=folder / "bundles")
        yield World(Services(store, settings=settings), loop, saved)
    finally:
        loop.close()
        store.close()


def _uuid(kind: int, number: int) -> str:
    return f"{kind:08d}-0000-4000-8000-{number:012d}"


def _experiments(s: Any, count: int) -> None:
    """One experiment with many trials, many with one each, and models."""
    s.add(WorkspaceRow(id=1, path="root/lab", name="lab", owner="root"))
    s.flush()
    s.add_all(
        ProjectRow(id=key + 1, workspace_id=1, key=f"project {key}", name=f"project {key}", owner="root")
        for key in range(50)
    )
    s.flush()
    many = max(1, count // 20)
    s.add(
        ExperimentRow(
            id=1, name="search", owner="user-1", state="COMPLETED", metric="accuracy", smaller_is_better=False
        )
    )
    s.flush()
    s.add_all(
        ExperimentRow(
            id=key + 2,
            name=f"run {key}",
            owner=f"user-{key % USERS}",
            state="COMPLETED",
            project_id=key % 50 + 1,
            owner_groups=[f"group-{key % 7}"],
            config={"entrypoint": "python3 train.py", "notes": "x" * 1000},
        )
        for key in range(many)
    )
    s.flush()
    trials = [{"id": key + 1, "experiment_id": 1, "idx": key} for key in range(TRIALS)]
    trials += [{"id": TRIALS + key + 1, "experiment_id": key + 2, "idx": 0} for key in range(many)]
    s.execute(insert(TrialRow), [{**one, "request_id": str(one["idx"]), "state": "COMPLETED"} for one in trials])
    s.add_all(ModelRow(id=key + 1, name=f"model-{key}", owner=f"user-{key % USERS}") for key in range(MODELS))
    s.flush()
    s.add_all(
        ModelFact(model_id=key + 1, name="label", text="vision" if key % 3 == 0 else "speech") for key in range(MODELS)
    )


def _fill(s: Any, begin: int, end: int, count: int) -> None:
    """Checkpoints of both kinds, and a version of a model for each of the second."""
    many = max(1, count // 20)
    rng = random.Random(begin)
    checkpoints, versions, metrics, facts = [], [], [], []
    for n in range(begin, end):
        common = {"state": "COMPLETED", "size": 3000, "files": _FILES, "created_at": float(n)}
        checkpoints.append(
            {
                "uuid": _uuid(1, n),
                "trial_id": n % TRIALS + 1,
                "experiment_id": 1,
                "steps_completed": n // TRIALS,
                **common,
            }
        )
        owner = n % many
        checkpoints.append(
            {
                "uuid": _uuid(2, n),
                "trial_id": TRIALS + owner + 1,
                "experiment_id": owner + 2,
                "steps_completed": n // many,
                **common,
            }
        )
        lineage = {"experiment_id": owner + 2, "hyperparameters": {"width": n % 64}, "metrics": {"accuracy": 0.5}}
        versions.append(
            {
                "id": n + 1,
                "model_id": n % MODELS + 1,
                "version": n // MODELS + 1,
                "checkpoint_uuid": _uuid(2, n),
                "lineage": lineage,
                "created_at": float(n),
            }
        )
        metrics.append({"version_id": n + 1, "name": "accuracy", "value": rng.random()})
        metrics.append({"version_id": n + 1, "name": "loss", "value": rng.random()})
        facts.append(_fact(n, "hp.width", str(n % 64), float(n % 64)))
        facts.append(_fact(n, "dataset", f"v{n % 5}", None))
    for table, rows in (
        (CheckpointRow, checkpoints),
        (VersionRow, versions),
        (VersionMetric, metrics),
        (ModelFact, facts),
    ):
        s.execute(insert(table), rows)


def _fact(n: int, name: str, text: str, number: float | None) -> dict[str, Any]:
    return {"model_id": n % MODELS + 1, "version_id": n + 1, "name": name, "text": text, "number": number}


def _metrics(s: Any, count: int) -> None:
    """The validations of the large experiment, one at each checkpoint."""
    rng = random.Random(2)
    for trial in range(TRIALS):
        steps = range((count - trial + TRIALS - 1) // TRIALS)
        reports = [
            curves.ReportedMetrics("validation", step, float(step), {"accuracy": rng.random()}) for step in steps
        ]
        if reports:
            curves.insert_reports(s, trial + 1, 0, reports)
