"""The route of figures."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from detlab.schemas.wire import Wire
from detlab_hub.services.experiments.figures import Figures
from detlab_hub.web.base import Guarded
from detlab_hub.web.paths import route
from detlab_hub.web.scopes import needs

_MOST_NAMES = 12


class FigureQuery(Wire):
    """Options of a figure; each kind has some of them, and any other is refused."""

    against: str | None = Field(None, max_length=20)
    """The budget of `best_so_far`: `trials`, `time` or `slot_time`."""
    log_y: bool | None = None
    """Whether the metric's axis is logarithmic, of `best_so_far` and `learning_curves`."""
    metric: str | None = Field(None, max_length=1000)
    """The metric of `learning_curves`; default the searcher metric."""
    group: str | None = Field(None, max_length=200)
    """Its group; default `validation`."""
    method: str | None = Field(None, max_length=20)
    """Of `importance`: `ped_anova` or `fanova`."""
    params: list[str] = Field(default_factory=list, max_length=_MOST_NAMES)
    """Hyperparameters of `slice` and `contour`."""
    metrics: list[str] = Field(default_factory=list, max_length=_MOST_NAMES)
    """Two or three metrics of `pareto_front`."""
    maximize: list[str] = Field(default_factory=list, max_length=_MOST_NAMES)
    """Those of them of which greater values are better."""
    max_trials: int | None = Field(None, ge=1, le=1000)
    """Trials, the best and the newest."""


class FigureView(Wire):
    """A figure for plotly."""

    kind: str
    data: list[dict[str, Any]]
    layout: dict[str, Any]
    """Without a template: who shows it chooses its colours."""


@route("experiments/{experiment_id}/figures/{kind}", relayed=True)
class Figure(Guarded):
    """A figure of an experiment's search."""

    @needs("read", cross_site="xsrf")
    async def get(self, experiment_id: int, kind: str, query: FigureQuery) -> FigureView:
        """Draw a figure of the search, as JSON for plotly: `best_so_far`, `importance`, `timeline` or others."""
        options = {name: value for name, value in query.model_dump().items() if value not in (None, [])}
        figure = await self.services[Figures].draw(self.person, experiment_id, kind, options)
        return FigureView(kind=kind, data=figure["data"], layout=figure["layout"])
