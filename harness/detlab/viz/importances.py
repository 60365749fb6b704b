"""Which hyperparameters mattered: their importance as Optuna computes it from the trials."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from detlab.errors import DetlabError
from detlab.schemas.wire import CurvesView, TrialView
from detlab.viz.data import ExperimentLike, HyperparameterAxis, SearchData, search_of, trials_wanted
from detlab.viz.drawing import COLOURS, empty, number, plotly_module, safe
from detlab.viz.marks import MOST_TRIALS, nothing_to_compare

METHODS = ("ped_anova", "fanova")
LEAST_TRIALS = 10
"""With fewer values the result would be noise."""
_NAMES = {"ped_anova": "PED-ANOVA", "fanova": "fANOVA"}
_NO_FOREST = "fANOVA needs scikit-learn, which is not installed (pip install scikit-learn): this is PED-ANOVA"


def importance(source: ExperimentLike | CurvesView, *, method: str = "ped_anova", max_trials: int = MOST_TRIALS) -> Any:
    """Draw the share of each hyperparameter in the differences between the trials' values of the searcher metric.

    PED-ANOVA (Watanabe et al., 2023, arXiv:2304.10255) asks what sets the best tenth of the trials apart from all;
    fANOVA (Hutter et al., 2014) fits a random forest to all values. Both are Optuna's. Trials without a finite
    value, and hyperparameters that some trials lack, do not count.

    Args:
        source: An experiment, or a snapshot that its `curves()` returned.
        method: `ped_anova` or `fanova`; the latter needs scikit-learn, without which PED-ANOVA is drawn and says so.
        max_trials: How many trials to ask an experiment for.

    Returns:
        A `plotly.graph_objects.Figure`: a bar per hyperparameter, the most important on top.

    Raises:
        ValueError: There is no such method.
        DetlabError: plotly or Optuna is not installed.
    """
    search = search_of(source, trials_wanted(max_trials)).by_point()
    title = f"Importance for {safe(search.metric)} in experiment {search.experiment.id}"
    if reason := nothing_to_compare(search, search.axes()):
        _checked(method)
        return empty(title, reason)
    count, kind = len(search.ranked()), "points" if search.points else "trials"
    if count < LEAST_TRIALS:
        _checked(method)
        return empty(title, f"Importance needs {LEAST_TRIALS} {kind} with a value; there are {count}.")
    found, used = importances(search, method)
    if not found:
        return empty(title, "No hyperparameter differs between the trials with a value.")
    shares = sorted(found.items(), key=lambda item: item[1])
    figure = plotly_module("graph_objects").Figure()
    figure.add_bar(
        x=[share for _, share in shares],
        y=list(range(len(shares))),
        orientation="h",
        marker={"color": COLOURS[0]},
        text=[number(round(share, 3)) for _, share in shares],
        textposition="outside",
        cliponaxis=False,
        customdata=[safe(name) for name, _ in shares],
        hovertemplate="%{customdata}: %{x:.3f}<extra></extra>",
    )
    about = _NO_FOREST if used != method else f"{_NAMES[used]} of {count} {kind}"
    figure.update_layout(title={"text": title, "subtitle": {"text": about}}, height=max(320, 170 + 34 * len(shares)))
    figure.update_xaxes(title="share of the differences", range=[0, max(1e-9, shares[-1][1]) * 1.15])
    texts = [safe(name, 28) for name, _ in shares]
    figure.update_yaxes(tickvals=list(range(len(shares))), ticktext=texts, automargin=True)
    return figure


def importances(search: SearchData, method: str = "ped_anova") -> tuple[dict[str, float], str]:
    """Return the share of each hyperparameter that all trials with a value have, and the method that computed them.

    Raises:
        ValueError: There is no such method.
        DetlabError: Optuna is not installed.
    """
    _checked(method)
    used = method if method != "fanova" or find_spec("sklearn") is not None else "ped_anova"
    optuna = _optuna()
    values = search.ranked()
    trials = [trial for trial in search.snapshot.trials if trial.id in values]
    axes = [axis for axis in search.axes() if _varies(axis, trials)]
    if not axes:
        return {}, used
    with _quiet(optuna):
        study = _study(optuna, search, axes, trials, values)
        if used == "fanova":
            evaluator = optuna.importance.FanovaImportanceEvaluator(seed=0)
        else:
            evaluator = optuna.importance.PedAnovaImportanceEvaluator()
        shares = optuna.importance.get_param_importances(study, evaluator=evaluator)
    return {axes[int(key)].name: float(share) for key, share in shares.items()}, used


def _checked(method: str) -> None:
    if method not in METHODS:
        raise ValueError(f"no method {method!r} of importance: choose one of {', '.join(METHODS)}")


def _varies(axis: HyperparameterAxis, trials: list[TrialView]) -> bool:
    seen = {axis.values[trial.id] for trial in trials}
    return None not in seen and len(seen) > 1


def _optuna() -> Any:
    try:
        return import_module("optuna")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "optuna":
            raise
        raise DetlabError(
            "the importance of hyperparameters needs Optuna, which is not installed in this Python",
            hint="Install it: pip install optuna",
            code="optuna_missing",
        ) from error


def _study(
    optuna: Any,
    search: SearchData,
    axes: list[HyperparameterAxis],
    trials: list[TrialView],
    values: Mapping[int, float],
) -> Any:
    """Make an in-memory study whose parameters are named by the number of their axis."""
    study = optuna.create_study(direction="minimize" if search.experiment.smaller_is_better else "maximize")
    kinds = {str(at): _distribution(optuna, axis, trials) for at, axis in enumerate(axes)}
    study.add_trials(
        [
            optuna.trial.create_trial(
                params={str(at): _value(axis, trial) for at, axis in enumerate(axes)},
                distributions=kinds,
                value=values[trial.id],
            )
            for trial in trials
        ]
    )
    return study


def _value(axis: HyperparameterAxis, trial: TrialView) -> float | str:
    value = axis.values[trial.id]
    assert value is not None
    return value if axis.kind == "category" else float(value)


def _distribution(optuna: Any, axis: HyperparameterAxis, trials: list[TrialView]) -> Any:
    if axis.kind == "category":
        return optuna.distributions.CategoricalDistribution(list(axis.choices))
    numbers = [float(value) for trial in trials if (value := axis.values[trial.id]) is not None]
    return optuna.distributions.FloatDistribution(min(numbers), max(numbers), log=axis.kind == "log")


@contextlib.contextmanager
def _quiet(optuna: Any) -> Iterator[None]:
    """Keep Optuna from telling of studies and of what is experimental in it."""
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        optuna.logging.set_verbosity(level)
