"""What is known about models and versions, and how a notebook shows them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Any, Generic, TypeVar

from detlab.client.rendering import card, settings
from detlab.errors import ConfigError, Problem
from detlab.schemas.wire import TrialView
from detlab.schemas.wire.registry import Lineage, ModelView, VersionView


def folder_config(model: str, folder: str) -> dict[str, Any]:
    """Return the config of the experiment that saves a folder of its code as a checkpoint."""
    return {
        "name": f"register {model}",
        "entrypoint": ["python3", "-m", "detlab.run.register_folder", folder],
        "searcher": {"name": "single", "metric": "files", "smaller_is_better": False, "max_length": 1},
        "resources": {"slots_per_trial": 0},
        "max_restarts": 0,
    }


EVALUATION = "evaluation/"
"""Before the id of a trial: key of a version's metadata under which that trial's metrics are kept. Each has a key of
its own, so that two that are added at once are both there."""
EVALUATED_GROUPS = ("validation", "inference")


def evaluation_of(trial: TrialView, name: str, groups: Collection[str], at: float) -> dict[str, Any]:
    """Return what a version's metadata say of a trial that has evaluated it.

    Args:
        trial: The trial, with its summary.
        name: Of the evaluation.
        groups: The groups whose metrics are taken, each with its last value.
        at: Seconds since the epoch.

    Raises:
        ConfigError: The trial has reported nothing in these groups.
    """
    metrics: dict[str, float] = {}
    for group in groups:
        for metric, summary in trial.summary.get(group, {}).items():
            if summary.last is not None:
                metrics[metric if group == "validation" else f"{group}.{metric}"] = summary.last
    if not metrics:
        problem = f"trial {trial.id} has reported no metric in {' or '.join(groups)}"
        raise ConfigError([Problem("trial", problem)], problem, hint=f"det trial describe {trial.id}")
    return {
        "name": name,
        "experiment": trial.experiment_id,
        "steps_completed": trial.steps_completed,
        "output": trial.latest_checkpoint,
        "metrics": metrics,
        "at": at,
    }


def used_checkpoints(metadata: Mapping[str, Any]) -> set[str | None]:
    """Return the checkpoints that a trial has used, as the metadata of its own latest one say."""
    told = metadata.get("uses_checkpoints")
    progress = metadata.get("batch_process")
    found = {one for one in told if isinstance(one, str)} if isinstance(told, list) else set()
    source = progress.get("source") if isinstance(progress, Mapping) else None
    return {*found, source if isinstance(source, str) else None}


def check_used(version: VersionView, trial: int, used: Collection[str | None]) -> None:
    """Check that a trial has used the checkpoint of a version.

    Raises:
        ConfigError: It has not; the message says what it used.
    """
    if version.checkpoint in used:
        return
    others = ", ".join(sorted(one for one in used if one)) or "no checkpoint"
    problem = (
        f"trial {trial} has used {others}, and not checkpoint {version.checkpoint}, "
        f"which version {version.version} of {version.model} is"
    )
    hint = "start it with searcher.source_checkpoint_uuid, or call report_task_using_model_version in its code"
    raise ConfigError([Problem("trial", problem)], problem, hint=hint)


class ModelSortBy(StrEnum):
    """Key of a list of models."""

    NAME = "name"
    DESCRIPTION = "description"
    CREATION_TIME = "created_at"
    LAST_UPDATED_TIME = "updated_at"
    NUM_VERSIONS = "versions"


_View = TypeVar("_View", ModelView, VersionView)


class _Facts(Generic[_View]):
    """What is known about a model or a version of one."""

    def __init__(self, view: _View) -> None:
        self.view: _View = view

    @property
    def name(self) -> str:
        """Its name."""
        return self.view.name

    @property
    def username(self) -> str:
        """Its owner, or who registered it."""
        return self.view.owner

    @property
    def notes(self) -> str:
        """Its notes, Markdown."""
        return self.view.notes

    @property
    def metadata(self) -> dict[str, Any]:
        """Its metadata."""
        return self.view.metadata

    @property
    def creation_time(self) -> float:
        """When it was made, in seconds since the epoch."""
        return self.view.created_at

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and isinstance(other, _Facts) and other._key() == self._key()

    def __hash__(self) -> int:
        return hash((type(self).__name__, *self._key()))

    def _key(self) -> tuple[int, ...]:
        raise NotImplementedError


class ModelFacts(_Facts[ModelView]):
    """What is known about a registered model."""

    @property
    def model_id(self) -> int:
        """Its id."""
        return self.view.id

    @property
    def description(self) -> str:
        """What it is."""
        return self.view.description

    @property
    def labels(self) -> list[str]:
        """Words by which it is found; those that move are of its versions."""
        return self.view.labels

    @property
    def version_labels(self) -> dict[str, int]:
        """Label -> number of the version that has it."""
        return self.view.moving

    @property
    def archived(self) -> bool:
        """Whether lists leave it out."""
        return self.view.archived

    @property
    def last_updated_time(self) -> float:
        """When it was changed last, likewise."""
        return self.view.updated_at

    def __repr__(self) -> str:
        return f"{type(self).__name__}(id={self.model_id}, name={self.name!r})"

    def _repr_html_(self) -> str:
        view = self.view
        return card(
            f"Model {view.name}",
            {
                "owner": view.owner,
                "versions": view.versions,
                "labels of versions": settings(view.moving),
                "labels": ", ".join(view.labels),
                "description": view.description,
                "metadata": settings(view.metadata),
                "archived": "yes" if view.archived else None,
            },
        )

    def _key(self) -> tuple[int]:
        return (self.model_id,)


class VersionFacts(_Facts[VersionView]):
    """What is known about a version of a model."""

    @property
    def model_name(self) -> str:
        """The name of its model."""
        return self.view.model

    @property
    def model_id(self) -> int:
        """The id of its model."""
        return self.view.model_id

    @property
    def model_version(self) -> int:
        """Its number, from 1."""
        return self.view.version

    @property
    def semver(self) -> str | None:
        """Its semantic version, if it has one."""
        return self.view.semver

    @property
    def labels(self) -> list[str]:
        """Labels that it has now, such as `production`."""
        return self.view.labels

    @property
    def comment(self) -> str:
        """What it is."""
        return self.view.comment

    @property
    def checkpoint_uuid(self) -> str:
        """The checkpoint that it is."""
        return self.view.checkpoint

    @property
    def evaluations(self) -> dict[int, dict[str, Any]]:
        """What trials have found out about it since, by their ids: `metrics`, `name`, `output`, `experiment`, `at`."""
        found = {key.removeprefix(EVALUATION): value for key, value in self.metadata.items() if is_evaluation(key)}
        return {int(trial): value for trial, value in found.items() if isinstance(value, dict)}

    @property
    def lineage(self) -> Lineage:
        """Where it comes from."""
        return self.view.lineage

    @property
    def metrics(self) -> dict[str, float]:
        """What was reported at its step: `group.name`; of the group `validation` also `name` alone."""
        return self.view.lineage.metrics

    @property
    def hyperparameters(self) -> dict[str, Any]:
        """Those of its trial."""
        return self.view.lineage.hyperparameters

    @property
    def format(self) -> str:
        """What its files are: `safetensors`, `pickle` or `other`."""
        return self.view.format

    def __str__(self) -> str:
        return f"{self.model_name}@{self.model_version}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model_name!r}, version={self.model_version})"

    def _repr_html_(self) -> str:
        view = self.view
        return card(
            f"{view.model}, version {view.version}",
            {
                "semantic version": view.semver,
                "labels": ", ".join(view.labels),
                "name": view.name,
                "comment": view.comment,
                "checkpoint": view.checkpoint,
                "format": view.format,
                "experiment": view.lineage.experiment_id,
                "trial": view.lineage.trial_id,
                "step": view.lineage.steps_completed,
                "hyperparameters": settings(view.lineage.hyperparameters),
                "metrics": settings(view.lineage.metrics),
            },
        )

    def _key(self) -> tuple[int, int]:
        return self.model_id, self.model_version


def is_evaluation(key: str) -> bool:
    """Whether this key of a version's metadata is that of an evaluation."""
    number = key.removeprefix(EVALUATION)
    return key.startswith(EVALUATION) and number.isascii() and number.isdigit() and len(number) < 20
