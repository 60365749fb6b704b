"""Users' text in pages that are made here: shown as text, and nothing in it hides or reorders what is read."""

from __future__ import annotations

from tornado.escape import to_unicode, xhtml_escape

from detlab.visible import visible


def shown(text: str | bytes) -> str:
    """Return a value of a template as HTML: for `Template(…, autoescape="shown")` and `generate(shown=shown)`."""
    return xhtml_escape(visible(to_unicode(text)))
