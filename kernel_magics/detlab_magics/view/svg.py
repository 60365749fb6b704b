"""The learning curves as a small static SVG: readable on light and dark, no script, text only as text nodes."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from xml.sax.saxutils import escape

from detlab.schemas.wire import TrialState, TrialView
from detlab.viz.ticks import round_ticks, tick_texts
from detlab_magics.plaintext import plain
from detlab_magics.view.state import Curve, ViewState, greyed, thin
from detlab_magics.view.text import number

WIDTH, HEIGHT = 720, 320
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 34, 40
DIGIT = 7.2
"""Width of a digit of 12 px at most."""
INK = "#7b8794"  # reads on white and on near-black: the picture lies on the page's own background
COLORS = ("#4c78a8", "#54a24b", "#b279a2", "#2a9d8f", "#9d755d", "#c9a227", "#6a5acd", "#d16ba5")
GREY = "#9aa5b1"
FAILED = "#b5656f"
BEST = "#e8590c"
STATIC_POINTS = 32
Scale = Callable[[float], float]


def color_of(trial: TrialView) -> str:
    """Return the colour of a trial's curve: stable by index, grey once it was stopped, dull red once it failed."""
    if trial.state is TrialState.ERROR:
        return FAILED
    return GREY if greyed(trial) else COLORS[trial.index % len(COLORS)]


def learning_curves(state: ViewState) -> str:
    """Draw the searcher metric of the trials against steps; the best trial on top."""
    drawn = state.drawn_curves()
    metric = plain(state.experiment.metric, 60)
    points = [(s, v) for _, c in drawn for s, v in zip(c.steps, c.values, strict=True) if math.isfinite(v)]
    if not points:
        return _frame(
            [f'<text x="{WIDTH / 2}" y="{HEIGHT / 2}" text-anchor="middle">{_empty_text(state)}</text>'],
            metric,
        )
    x0, x1 = min(0, *(s for s, _ in points)), max(s for s, _ in points)
    y0, y1 = focused([v for _, v in points], state.experiment.smaller_is_better)

    places = round_ticks(y0, y1)
    texts = tick_texts(places)
    left = max(LEFT, round(max(map(len, texts)) * DIGIT) + 16)  # a label that is cut is another number

    def px(step: float) -> float:
        return left + (step - x0) / max(x1 - x0, 1) * (WIDTH - left - RIGHT)

    def py(value: float) -> float:
        # halves, since the distance of two doubles may be more than a double holds
        return HEIGHT - BOTTOM - (value / 2 - y0 / 2) / (y1 / 2 - y0 / 2) * (HEIGHT - TOP - BOTTOM)

    parts = []
    for value, said in zip(places, texts, strict=True):
        y = py(value)
        parts.append(f'<path class="g" d="M{left} {y:.1f}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{escape(said)}</text>')
    for value in round_ticks(x0, x1, 8):
        if value == int(value):
            parts.append(
                f'<text x="{px(value):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{int(value)}</text>'
            )
    best = state.best_trial()
    box = f"M{left} {TOP}H{WIDTH - RIGHT + 4}V{HEIGHT - BOTTOM}H{left}Z"
    parts.append(f'<clipPath id="det-box"><path d="{box}"/></clipPath><g clip-path="url(#det-box)">')
    parts += [_curve(trial, curve, trial.id == best, px, py) for trial, curve in drawn]
    parts.append("</g>")
    parts.append(_best_mark(state, px, py))
    outside = sum(not y0 <= v <= y1 for _, v in points)
    return _frame(parts, f"{metric} ({outside} of the worst values not drawn)" if outside else metric)


def _curve(trial: TrialView, curve: Curve, is_best: bool, px: Scale, py: Scale) -> str:
    steps, values = thin(curve.steps, curve.values, STATIC_POINTS)
    path, pen_down, previous = [], False, None
    lone: list[tuple[int, float]] = []
    for step, value in zip(steps, values, strict=True):
        if not math.isfinite(value):
            pen_down = False
            continue
        if previous is not None and any(previous <= r < step for r in curve.resumed_at):
            pen_down = False
        path.append(f"{'L' if pen_down else 'M'}{px(step):.1f} {py(value):.1f}")
        # A line through one point has no extent; it is alone until the next one goes on from it.
        if not pen_down:
            lone.append((step, value))
        elif lone and lone[-1][0] == previous:
            lone.pop()
        pen_down, previous = True, step
    if not path:
        return ""
    color = BEST if is_best else color_of(trial)
    width = 2.6 if is_best else 1.4
    faint = ' opacity=".55"' if color in (GREY, FAILED) else ""
    word = " (failed)" if trial.state is TrialState.ERROR else ""
    title = f"trial {trial.id}{word}: {number(trial.best_validation)} after {trial.steps_completed} steps"
    if math.isfinite(values[-1]) and (steps[-1], values[-1]) not in lone:
        lone.append((steps[-1], values[-1]))
    dots = "".join(f'<circle cx="{px(step):.1f}" cy="{py(value):.1f}" r="2.2" fill="{color}"/>' for step, value in lone)
    return (
        f'<g{faint}><title>{escape(title)}</title><path d="{"".join(path)}" stroke="{color}" stroke-width="{width}" '
        f'fill="none" stroke-linejoin="round"/>{dots}</g>'
    )


def _best_mark(state: ViewState, px: Scale, py: Scale) -> str:
    best = state.experiment.best
    if best is None or not math.isfinite(best.value):
        return ""
    x, y = px(best.steps_completed), py(best.value)
    anchor = "end" if x > WIDTH * 0.6 else "start"
    dx = -8 if anchor == "end" else 8
    label = f"best {number(best.value)} · {best.told}"
    below = state.experiment.smaller_is_better
    return (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="none" stroke="{BEST}" stroke-width="2"/>'
        f'<text x="{x + dx:.1f}" y="{y + (18 if below else -9):.1f}" text-anchor="{anchor}" '
        f'style="fill:{BEST};font-weight:600">'
        f"{escape(label)}</text>"
    )


def _empty_text(state: ViewState) -> str:
    metric = plain(state.experiment.metric, 60)
    word = "no report of" if state.ended else "waiting for the first report of"
    return escape(f"{word} {metric!r}") if metric else "no searcher metric"


def _frame(parts: list[str], metric: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'role="img"><style>text{{font:12px system-ui,sans-serif;fill:{INK}}}'
        f".g{{stroke:{INK};stroke-opacity:.25}}</style>"
        f'<text x="{LEFT}" y="20" style="font-weight:600">{escape(metric)}</text>'
        f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 6}" text-anchor="end">steps</text>{"".join(parts)}</svg>'
    )


WORST_SHARE = 0.05
"""At most this share of the values may be left outside of the picture."""
FLATTENED = 4.0
"""…and only where they would make the axis this many times as long."""


def focused(values: list[float], smaller_is_better: bool) -> tuple[float, float]:
    """Return the range to draw: all finite values, or without a few hopeless ones that would flatten the rest.

    Args:
        values: Finite values of all curves, at least one.
        smaller_is_better: On which side the hopeless ones are.
    """
    ordered = sorted(values)
    low, high = ordered[0], ordered[-1]
    cut = math.floor(len(ordered) * WORST_SHARE)
    core = (low, ordered[-1 - cut]) if smaller_is_better else (ordered[cut], high)
    span = core[1] - core[0]
    if cut and 0 < FLATTENED * span < high - low:
        low, high = core
    pad = high * 0.08 - low * 0.08 or abs(high) * 0.1 or 1.0
    if pad < 1e-320:  # there doubles have hardly any digits left
        pad = 1.0
    return max(low - pad, -sys.float_info.max), min(high + pad, sys.float_info.max)
