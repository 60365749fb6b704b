"""Figures of a search in a notebook: plotly's own where somebody looks, a static picture where nobody does."""

from __future__ import annotations

import base64
from html import escape
from typing import TYPE_CHECKING, Any

from detlab.viz import kinds, static
from detlab_magics.errors import MagicError
from detlab_magics.view.screen import headless

if TYPE_CHECKING:
    from detlab_magics.kernel import KernelSession


def draw(session: KernelSession, kind: str, experiment_id: int, options: dict[str, Any]) -> Any:
    """Return the figure of an experiment.

    Raises:
        MagicError: There is no such figure, or it has no such option, or not such a value of it.
    """
    if kind not in kinds.KINDS:
        raise MagicError(f"no figure {kind!r}", hint=f"choose one of {', '.join(kinds.KINDS)}")
    known = kinds.KINDS[kind].options
    odd = [name for name in options if name not in known]
    if odd:
        raise MagicError(f"{kind} has no {_flags(odd)}", hint=f"it has {_flags(known)}")
    try:
        return session.client().get_experiment(experiment_id).plot(kind, **options)
    except ValueError as problem:
        raise MagicError(str(problem)) from None


def _flags(names: Any) -> str:
    return ", ".join(f"--{name.replace('_', '-')}" for name in names)


def bundle(figure: Any) -> dict[str, Any]:
    """Return {mime type: content} of a figure: with plotly's where somebody looks, else a static picture only."""
    svg, text = static.svg(figure), static.text(figure)
    if not headless():
        drawn = figure._repr_mimebundle_()
        if drawn:
            return {**drawn, "text/plain": text}
    picture = base64.b64encode(svg.encode()).decode()
    html = f'<img alt="{escape(text, quote=True)}" style="max-width:100%" src="data:image/svg+xml;base64,{picture}">'
    return {"text/html": html, "image/svg+xml": svg, "text/plain": text}
