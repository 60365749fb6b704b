"""Users' text made fit to be read: nothing in it is unseen, reorders what is around it, or controls a terminal."""

from __future__ import annotations

import re
from collections.abc import Callable

INVISIBLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff"
    "\ufff9-\ufffb\ufffe\uffff\U000e0000-\U000e007f]"
)
"""Controls, invisible characters, those that change the direction of text, and those that no XML may hold: the same as
`INVISIBLE` and `CONTROL` in labextension/src/components/common/text.ts, and lone surrogates."""


FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""What a spreadsheet begins a formula with; the last four are the wide forms of the first four."""


def code_point(character: str) -> str:
    """Return `⟨U+202E⟩` for a character."""
    return f"⟨U+{ord(character):04X}⟩"


def visible(text: str, *, keep: str = "\t\n", write: Callable[[str], str] = code_point) -> str:
    """Write out each character that would not be seen, or would reorder what is seen.

    Args:
        text: Text of a user.
        keep: Characters that stay as they are.
        write: From such a character to the text in its place.
    """
    return INVISIBLE.sub(lambda found: found[0] if found[0] in keep else write(found[0]), text)


def is_formula(text: str) -> bool:
    """Return whether a spreadsheet may take a cell of a CSV file for a formula."""
    return text.startswith(FORMULAS) or text.lstrip(" '\"\t\r\n").startswith(FORMULAS)


def no_formula(text: str) -> str:
    """Return the cell for a text: an apostrophe is put before what could be a formula; a number stays as it is."""
    if not is_formula(text):
        return text
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return text
