"""Plotly figures of a search or of one trial, from the SDK's objects or from plain views.

Nothing here speaks HTTP, keeps state or draws the live view of notebooks; plotly is imported when a figure is made.
"""

from detlab.viz.search import learning_curves, metric_by_hyperparameter, parallel_coordinates
from detlab.viz.trial import trial_metrics

__all__ = ["learning_curves", "metric_by_hyperparameter", "parallel_coordinates", "trial_metrics"]
