"""Figures of a search as plotly's JSON, for front ends that draw and do not compute.

The data come from one read of the database; a separate process draws, since plotly and Optuna would take too much time
and memory in the master's own.
"""

from __future__ import annotations

import asyncio
from typing import Any, Self

from detlab.errors import ConfigError, NotFound, Problem, Unavailable
from detlab.schemas.wire import CurvesView, ExperimentView
from detlab.viz import kinds
from detlab.viz.__main__ import to_json
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.context import Service, ServiceContext, ServiceLookup
from detlab_hub.services.base.threads import FairPlaces
from detlab_hub.services.experiments.answer_process import LineProcess
from detlab_hub.services.experiments.experiments import Experiments

PATIENCE = 30.0
"""Seconds that one figure may take."""
IDLE = 120.0
"""Seconds without a figure after which the process ends."""
MOST_TRIALS = 1000
"""Trials of one figure, the best and the newest."""


class Figures(Service):
    """Draws figures, one at a time, for users in turn.

    Args:
        experiments: The source of the data.
        process: Draws the figures.
    """

    def __init__(self, context: ServiceContext, experiments: Experiments, process: LineProcess | None = None) -> None:
        super().__init__(context)
        self._experiments = experiments
        self._process = process or LineProcess("detlab.viz", PATIENCE, IDLE)
        self._places = FairPlaces(1)

    @classmethod
    def made_for(cls, services: ServiceLookup) -> Self:
        """Make the one of a master."""
        return cls(services.context, services[Experiments])

    async def draw(self, caller: Caller, experiment_id: int, kind: str, options: dict[str, Any]) -> dict[str, Any]:
        """Return a figure as plotly's JSON, `data` and `layout`.

        Args:
            caller: Who asks.
            experiment_id: The experiment.
            kind: One of `detlab.viz.kinds.KINDS`.
            options: Options of that kind's function.

        Raises:
            ConfigError: The kind has no such option, or the value is invalid.
            NotFound: There is no such experiment for the caller, or no such figure.
            Unavailable: It took too long, or a library that draws is missing or failed.
        """
        experiment = await self._experiments.get(caller, experiment_id)
        if kind not in kinds.KINDS:
            raise NotFound(f"there is no figure {kind!r}", hint=f"There are {', '.join(kinds.KINDS)}.")
        known = kinds.KINDS[kind].options
        odd = [Problem(name, f"{kind} has no such option", _options(known)) for name in options if name not in known]
        if odd:
            raise ConfigError(odd, f"{kind} cannot be drawn like this")
        async with self._places.of(caller.name):
            snapshot = await self._snapshot(caller, experiment, kind, options)
            raw = await asyncio.to_thread(to_json, snapshot, kind, options)
            told = await self._told(kind, raw)
        if "refused" in told:
            raise ConfigError([Problem(kind, told["refused"])], f"{kind} cannot be drawn like this")
        figure: dict[str, Any] = told["figure"]
        return figure

    async def _snapshot(
        self, caller: Caller, experiment: ExperimentView, kind: str, options: dict[str, Any]
    ) -> CurvesView:
        wanted = kinds.request(kind, experiment.metric, config=experiment.config, **options)
        names = wanted.pop("name", None)
        snapshot = await self._experiments.curves(
            caller,
            experiment.id,
            names=None if names is None else names.split(","),
            **{**wanted, "max_trials": min(wanted["max_trials"], MOST_TRIALS)},
        )
        return snapshot.model_copy(update={"experiment": experiment})

    async def _told(self, kind: str, raw: bytes) -> dict[str, Any]:
        try:
            return await self._process.ask(raw)
        except TimeoutError:
            raise Unavailable(
                f"{kind} took more than {PATIENCE:g} s to draw", hint="Try again, or draw it in a notebook: %det_plot."
            ) from None
        except ChildProcessError as error:
            raise Unavailable(f"{kind} was not drawn: {error}") from None

    async def close(self) -> None:
        """End the process."""
        await self._process.close()


def _options(known: tuple[str, ...]) -> str:
    return f"It has {', '.join(known)}."
