"""What a cell shows of an experiment: a pure fold of snapshot and events, and its pictures."""

from detlab_magics.view.render import mimebundle
from detlab_magics.view.state import ViewState

__all__ = ["ViewState", "mimebundle"]
