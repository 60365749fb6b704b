"""Users' text in pages that are made here: shown as text, and nothing in it hides or reorders what is read."""

from __future__ import annotations

import re

from tornado.escape import to_unicode, xhtml_escape

_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"
    "\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
"""Controls, invisible characters and those that change the direction: the same as `INVISIBLE` and `CONTROL` in
labextension/src/components/common/text.ts."""


def visible(text: str) -> str:
    """Write out what would not be seen, or would reorder what is: `⟨U+202E⟩`."""
    return _INVISIBLE.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩", text)


def shown(text: str | bytes) -> str:
    """Return a value of a template as HTML: for `Template(…, autoescape="shown")` and `generate(shown=shown)`."""
    return xhtml_escape(visible(to_unicode(text)))
