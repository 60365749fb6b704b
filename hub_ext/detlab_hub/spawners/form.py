"""The options form on the Hub's spawn page. All text from outside is escaped."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from html import escape
from typing import Any

from detlab.errors import Problem

_KINDS = (("notebook", "Notebook (JupyterLab)"), ("shell", "Shell (a terminal in the browser)"))
_RUNTIMES = {"process": "A process on the node", "docker": "A container"}


def render(
    *,
    pools: Sequence[str],
    images: Sequence[str],
    runtimes: Sequence[str],
    chosen: Mapping[str, Any],
    idle: bool = True,
    closed: Mapping[str, str] | None = None,
) -> str:
    """Return the fields of the form as HTML.

    Args:
        pools: Names of resource pools; a single one is not shown as a choice.
        images: Proposed for containers.
        runtimes: Names of runtimes; a single one is not shown as a choice.
        chosen: What was chosen last time, or in a form that was refused.
        idle: Whether to ask after what idle time the server ends.
        closed: Runtimes that cannot be chosen now, and why.
    """
    closed = {name: why for name, why in (closed or {}).items() if name in runtimes}
    whys = _sentence(closed.values())
    rows = [_select("kind", "Start", _KINDS, chosen.get("kind"))]
    rows.append(
        _input(
            "slots",
            "Slots",
            chosen.get("slots", 0),
            "GPUs (or CPU slots) that this server holds as long as it runs. 0 is right for most work: experiments and"
            " borrowed cells bring their own.",
            kind="number",
            more='min="0" step="1"',
        )
    )
    if len(runtimes) > 1:
        choices = [("", "The cluster's default"), *((name, _RUNTIMES.get(name, name)) for name in runtimes)]
        rows.append(_select("runtime", "Runtime", choices, chosen.get("runtime"), whys, closed))
    elif whys:
        rows.append(f'<p class="form-text">{escape(whys)}</p>')
    if "docker" in runtimes:
        help_text = "Container image. Empty: the cluster's default image."
        rows.append(_input("image", "Image", chosen.get("image", ""), help_text, more='list="det-images"'))
        rows.append(f'<datalist id="det-images">{"".join(_option(image) for image in images)}</datalist>')
    if len(pools) > 1:
        rows.append(_select("pool", "Resource pool", [(pool, pool) for pool in pools], chosen.get("pool")))
    if idle:
        help_text = (
            'The server ends after this time without use, such as "30m" or "8h"; "never": not at all.'
            " Empty: the cluster's default."
        )
        rows.append(_input("idle_timeout", "Idle timeout", chosen.get("idle_timeout", ""), help_text))
    return "\n".join(rows)


def problems_html(problems: Sequence[Problem]) -> str:
    """Return all errors as an HTML list."""
    items = "".join(f"<li>{escape(str(problem))}</li>" for problem in problems)
    return f"<p>{escape(headline(problems))}</p><ul>{items}</ul>"


def headline(problems: Sequence[Problem]) -> str:
    """Return how many errors there are."""
    return f"The options have {len(problems)} {'error' if len(problems) == 1 else 'errors'}:"


def _row(name: str, label: str, control: str, help_text: str = "") -> str:
    hint = f'<div id="det-{name}-help" class="form-text">{escape(help_text)}</div>' if help_text else ""
    return (
        f'<div class="mb-3"><label class="form-label" for="det-{name}">{escape(label)}</label>\n{control}\n{hint}</div>'
    )


def _input(name: str, label: str, value: object, help_text: str, *, kind: str = "text", more: str = "") -> str:
    shown = escape(str(value), quote=True)
    control = (
        f'<input class="form-control" type="{kind}" id="det-{name}" name="{name}" value="{shown}"'
        f' aria-describedby="det-{name}-help" {more}>'
    )
    return _row(name, label, control, help_text)


def _select(
    name: str,
    label: str,
    choices: Sequence[tuple[str, str]],
    chosen: object,
    help_text: str = "",
    closed: Collection[str] = (),
) -> str:
    options = "".join(
        _option(value, text, selected=value == chosen and value not in closed, disabled=value in closed)
        for value, text in choices
    )
    about = f' aria-describedby="det-{name}-help"' if help_text else ""
    control = f'<select class="form-select" id="det-{name}" name="{name}"{about}>{options}</select>'
    return _row(name, label, control, help_text)


def _sentence(words: Iterable[str]) -> str:
    text = "; ".join(dict.fromkeys(words))
    return f"{text[0].upper()}{text[1:]}." if text else ""


def _option(value: str, text: str | None = None, *, selected: bool = False, disabled: bool = False) -> str:
    mark = f"{' selected' if selected else ''}{' disabled' if disabled else ''}"
    return f'<option value="{escape(value, quote=True)}"{mark}>{escape(value if text is None else text)}</option>'
