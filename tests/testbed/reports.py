"""Reports of views that are made up: a usual one, and one whose every text is hostile."""

from __future__ import annotations

import base64
from enum import Enum
from types import UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel

from detlab.reports import ReportedExperiment, ReportedRun, ReportFacts, ReportImage
from detlab.schemas.wire import (
    BestView,
    CheckpointView,
    ClusterView,
    CurvesView,
    EndReason,
    ExperimentState,
    ExperimentView,
    SeriesView,
    TrialView,
)
from detlab.schemas.wire.artifacts.artifacts import ArtifactVersionView, RunArtifact
from detlab.schemas.wire.media import MediaView
from detlab.schemas.wire.projects import ProjectView
from detlab.schemas.wire.registry import Lineage, VersionView
from detlab.schemas.wire.runs import LastPoint, RunCurve, RunView

DIGEST = "sha256:" + "ab" * 32
PIXEL = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNoAAAAggCBd81ytgAAAABJRU5ErkJggg==")
"""A grey PNG."""


def trial(number: int, best: float) -> TrialView:
    hparams = {"lr": 0.1 / number, "layers": number, "optimizer": {"name": "adam"}}
    return TrialView(
        id=10 + number,
        index=number,
        experiment_id=7,
        request_id=str(number),
        state="COMPLETED",
        hparams=hparams,
        best_validation=best,
        steps_completed=300,
    )


def experiment() -> ReportedExperiment:
    view = ExperimentView(
        id=7,
        name="digits, wide",
        owner="ada",
        workspace="ada/vision",
        project="digits",
        state=ExperimentState.COMPLETED,
        searcher="adaptive_asha",
        metric="loss",
        best=BestView(trial_id=12, trial_index=2, steps_completed=300, value=0.25, checkpoint="c-12"),
        trials={"COMPLETED": 2},
        started_at=1_790_000_000.0,
        ended_at=1_790_003_723.0,
        cost=3.5,
        bundle=DIGEST,
        forked_from=3,
        labels=["paper"],
        warnings=["trial 11 restarted once"],
        notes="# Why\n\nIt **works**.",
        config={"name": "digits", "searcher": {"name": "adaptive_asha", "metric": "loss"}},
    )
    trials = [trial(1, 0.5), trial(2, 0.25)]
    curves = [
        SeriesView(trial_id=one.id, group="validation", name="loss", steps=[100, 200, 300], values=[0.9, 0.6, at])
        for one, at in zip(trials, (0.5, 0.25), strict=True)
    ]
    used = ArtifactVersionView(artifact_id=1, artifact="cats", kind="dataset", version=2, digest=DIGEST, size=4096)
    seen = MediaView(
        id=1, trial_id=12, step=300, key="confusion", kind="image", media_type="image/png", size=len(PIXEL)
    )
    return ReportedExperiment(
        view=view,
        curves=CurvesView(cursor=1, experiment=view, trials=trials, curves=curves),
        checkpoints=[
            CheckpointView(
                uuid="c-12", trial_id=12, experiment_id=7, steps_completed=300, size=2048, manifest_digest=DIGEST
            )
        ],
        versions=[
            VersionView(model_id=1, model="digits", version=3, labels=["production"], lineage=Lineage(experiment_id=7))
        ],
        artifacts=[RunArtifact(role="used", at=1.0, version=used)],
        images=[ReportImage(seen, PIXEL)],
        media_left_out=5,
    )


def compared() -> ReportedExperiment:
    """A search by two objectives under a constraint, with two seeds of each point; one trial is invalid."""
    searcher = {
        "name": "nsga2",
        "metrics": [{"name": "loss"}, {"name": "accuracy", "smaller_is_better": False}],
        "constraints": {"latency": {"max": 5}},
        "seeds": 2,
    }
    view = ExperimentView(
        id=8,
        name="digits, fast",
        owner="ada",
        state=ExperimentState.COMPLETED,
        searcher="nsga2",
        metric="loss",
        best=BestView(trial_id=21, trial_index=1, steps_completed=1, value=0.1),
        trials={"COMPLETED": 7},
        config={"searcher": searcher},
    )
    at = {21: (1, 0.1, 0.5, 9.0), 22: (1, 0.3, 0.5, 9.0), 23: (2, 0.4, 0.7, 2.0), 24: (2, 0.6, 0.9, 2.0)}
    at |= {25: (3, 0.9, 0.6, 1.0), 26: (3, 0.9, 0.6, 1.0)}
    trials = [
        trial(number - 10, values[1]).model_copy(update={"hparams": {"lr": float(values[0])}})
        for number, values in at.items()
    ]
    refused = trial(17, 0.0).model_copy(update={"best_validation": None, "end_reason": EndReason.INVALID_HP})
    curves = [
        SeriesView(trial_id=number, group="validation", name=name, steps=[1], values=[values[place]])
        for number, values in at.items()
        for place, name in enumerate(("loss", "accuracy", "latency"), 1)
    ]
    known = CurvesView(cursor=1, experiment=view, trials=[*trials, refused], curves=curves)
    own = [one for one in curves if one.name != "latency"]
    return ReportedExperiment(view=view, curves=known.model_copy(update={"curves": own}), results=known)


def failed() -> ReportedExperiment:
    view = ExperimentView(
        id=9, name="digits, deep", owner="ada", state=ExperimentState.ERROR, started_at=1_790_000_000.0
    )
    return ReportedExperiment(view=view)


def run() -> ReportedRun:
    view = RunView(
        id="6f0c" * 8,
        name="baseline",
        owner="ada",
        status="FINISHED",
        workspace="ada/vision",
        project="digits",
        started_at=1_790_000_000.0,
        ended_at=1_790_000_065.0,
        config={"lr": "0.1"},
        tags={"mlflow.source.git.commit": "deadbeef", "detlab.git.changed": "2", "detlab.command": "train.py --lr 0.1"},
        metrics={"loss": LastPoint(value=0.25, step=9)},
        notes="The *first* one.",
    )
    return ReportedRun(view=view, curves=[RunCurve(name="loss", steps=[1, 2, 3], values=[0.9, 0.5, 0.25])])


def project() -> ReportFacts:
    """A project of two experiments and a run."""
    return ReportFacts(
        title="Digits",
        maker="ada",
        made_at=1_790_010_000.0,
        cluster=ClusterView(cluster_id="c-1", version="0.1.0"),
        address="https://hub.example/services/detlab/",
        command="det report --project vision/digits -o digits.html",
        notes="We tried *two* things.",
        project=ProjectView(
            id=1, name="digits", workspace_id=2, workspace="ada/vision", description="Handwritten digits"
        ),
        experiments=[experiment(), failed()],
        runs=[run()],
        left_out=["Only the newest 2 experiments are here."],
    )


def everywhere(thing: Any, text: str) -> Any:
    """The same with a text in the place of each text that people, code or files have chosen."""
    if isinstance(thing, BaseModel):
        fields = type(thing).model_fields
        changed = {name: _changed(fields[name].annotation, getattr(thing, name), text) for name in fields}
        return thing.model_copy(update=changed)
    if isinstance(thing, list | tuple):
        return [everywhere(one, text) for one in thing]
    if isinstance(thing, dict) and any(isinstance(one, str) for one in thing.values()):
        return {f"{key}{text}": everywhere(one, text) for key, one in thing.items()} | {text: text}
    if isinstance(thing, dict):
        return {f"{key}{text}": everywhere(one, text) for key, one in thing.items()}
    return text if isinstance(thing, str) and not isinstance(thing, Enum) else thing


def _changed(annotation: Any, value: Any, text: str) -> Any:
    optional = get_origin(annotation) in {Union, UnionType} and str in get_args(annotation)
    if annotation is str or (optional and not isinstance(value, int | float)):
        return text
    return everywhere(value, text) if isinstance(value, BaseModel | list | dict) else value


def hostile(facts: ReportFacts, text: str) -> ReportFacts:
    """A report in which that text is everywhere, but for the types of pictures, which the master knows."""

    def image(one: ReportImage) -> ReportImage:
        return ReportImage(everywhere(one.view, text).model_copy(update={"media_type": "image/png"}), one.data)

    def both(one: Any) -> dict[str, Any]:
        return {
            "view": everywhere(one.view, text),
            "versions": everywhere(one.versions, text),
            "artifacts": everywhere(one.artifacts, text),
            "images": [image(each) for each in one.images],
        }

    experiments = [
        ReportedExperiment(
            **both(one),
            curves=everywhere(one.curves, text),
            results=one.results and everywhere(one.results, text),
            checkpoints=everywhere(one.checkpoints, text),
        )
        for one in facts.experiments
    ]
    return ReportFacts(
        title=text,
        maker=text,
        made_at=facts.made_at,
        cluster=everywhere(facts.cluster, text),
        address=facts.address,
        command=text,
        notes=text,
        project=everywhere(facts.project, text),
        experiments=experiments,
        runs=[ReportedRun(**both(one), curves=everywhere(one.curves, text)) for one in facts.runs],
        left_out=[text],
    )
