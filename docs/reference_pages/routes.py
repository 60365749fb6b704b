"""What others repeat of the table of routes: the architecture page, and the Jupyter Server extension's relay."""

from __future__ import annotations

from pathlib import Path

from reference_pages.markdown import table

ARCHITECTURE = Path(__file__).parents[1] / "explanation" / "architecture.md"
BEGIN, END = "<!-- routes: made by `python docs/generate.py` -->", "<!-- end of routes -->"


def architecture() -> str:
    """The page of the architecture, with the table of routes by module as it is now."""
    from detlab_hub.web.routes import API, PAGES, PROTOCOLS
    from detlab_hub.web.scopes import operation_of

    calls: dict[str, list[str]] = {}
    for prefix, routes in (("", API), ("/services/detlab/", PAGES + PROTOCOLS)):
        for path, handler in routes:
            verbs = " ".join(
                f"{verb} [{' or '.join(sorted(operation.scopes))}]"
                for verb in handler.SUPPORTED_METHODS
                if (operation := operation_of(handler, verb)) is not None
            )
            module = handler.__module__.removeprefix("detlab_hub.").replace(".", "/")
            calls.setdefault(f"`{module}.py`", []).append(f"`{prefix}{path}` {verbs}")
    rows = [(module, ", ".join(calls[module])) for module in sorted(calls)]
    before, _, rest = ARCHITECTURE.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    return "\n\n".join([f"{before}{BEGIN}", table(("module", "paths, verbs and scopes"), rows), f"{END}{after}"])


def relayed() -> str:
    """The module with the paths that the Jupyter Server extension passes on."""
    from detlab_hub.web.routes import RELAYED

    paths = "".join(f'    "{path}",\n' for path in sorted(RELAYED))
    return f'''"""The paths that the relay passes on: those of routes of the master that say `relayed=True`.

Made by `python docs/generate.py`; do not edit.
"""

PATHS = (
{paths})
'''
