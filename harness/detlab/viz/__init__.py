"""Plotly figures of a search or of one trial, from the SDK's objects or from plain views.

Nothing here speaks HTTP, keeps state or draws the live view of notebooks; plotly is imported when a figure is made.
"""

from detlab.viz.ancestry import lineage
from detlab.viz.budget import best_so_far, timeline
from detlab.viz.importances import importance
from detlab.viz.landscape import contour, slice_plot
from detlab.viz.pareto import pareto_front
from detlab.viz.search import learning_curves, metric_by_hyperparameter, parallel_coordinates
from detlab.viz.trial import trial_metrics

__all__ = [
    "best_so_far",
    "contour",
    "importance",
    "learning_curves",
    "lineage",
    "metric_by_hyperparameter",
    "parallel_coordinates",
    "pareto_front",
    "slice_plot",
    "timeline",
    "trial_metrics",
]
