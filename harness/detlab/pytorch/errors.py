"""Errors of the trainer that users can fix."""

from __future__ import annotations

from collections.abc import Sequence

from detlab.errors import DetlabError, InternalException


class TrainerError(DetlabError):
    """A trial, or a call of the trainer, that cannot work."""

    default_code = "trainer.invalid"

    @classmethod
    def of(cls, headline: str, problems: Sequence[str], *, hint: str | None = None) -> TrainerError:
        """Return one error that lists all problems."""
        return cls("\n".join([headline, *(f"  {problem}" for problem in problems)]), hint=hint)


class WorldSizeError(TrainerError):
    """The processes do not match the slots: every start would fail in the same way, so the trial is not restarted."""

    default_code = "trainer.world_size"


class DataError(TrainerError, ValueError):
    """A dataset, loader, sampler or batch that cannot be used."""

    default_code = "trainer.data"


class UncountableBatch(DataError, TypeError):
    """A batch whose samples cannot be counted: it holds no tensor or array."""


class LoaderRefused(DataError, RuntimeError):
    """What a trial built is no data loader that the trainer can shard over ranks and resume."""


class NotTraining(TrainerError, InternalException):
    """What is known while `train_batch` runs was asked for before."""


class CallbackFailed(TrainerError):
    """A hook of a callback raised; the cause is chained."""

    default_code = "trainer.callback_failed"
