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
