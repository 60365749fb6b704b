"""Names in any script: letters, digits and marks of every writing, and nothing that is unseen or looks like a path.

Characters written in two ways (`é` as one or as two code points) are one name: it is kept in Unicode's form NFC.
"""

from __future__ import annotations

import unicodedata

MOST_CHARS = 256
_MOST_MARKS = 4
"""Marks on one letter; scripts need fewer."""
_UNSEEN = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0\u180b\u180c\u180d\u180f")
"""Letters and marks that nobody sees."""
_UNSEEN_RANGES = (("\ufe00", "\ufe0f"), ("\U000e0100", "\U000e01ef"))
"""Variation selectors."""
_LIKE_SEPARATORS = frozenset(
    "\u01c0\u01c1\u01c3\u02d0\u02f8\ua4f8\ua4fd\u3033\u3034\u3035\u0589\u05c3\u0703\u0704\ua789"
)
"""Letters that look like `/`, `|`, `:`, `!` or `.`, which mean something in a reference."""


def normal(text: str) -> str:
    """Return a name in the form in which it is kept and looked up."""
    return unicodedata.normalize("NFC", text)


def name_problem(name: str, between: str, most: int = MOST_CHARS) -> str | None:
    """Return what is wrong with a name, in normal form; None: nothing.

    Args:
        name: It.
        between: What may stand between letters, digits and marks, such as `._-`.
        most: Characters.
    """
    shape = f"must begin and end with a letter or a digit, and have only letters, digits, {_said(between)} between them"
    if not 1 <= len(name) <= most:
        return f"{shape}, {most} characters at most"
    for char in name:
        if not (_is_written(char) or char in between):
            return f"{shape}: not {_shown(char)}"
    if not (_is_first(name[0]) and _is_written(name[-1])):
        return f"{shape}, {most} characters at most"
    marks = 0
    for before, char in zip(" " + name, name, strict=False):
        marks = marks + 1 if _is_mark(char) else 0
        if marks > _MOST_MARKS or (marks and before in between + " "):
            return f"{shape}: {_shown(char)} stands on no letter, or on one with many marks"
    return None


def _said(between: str) -> str:
    marks = [char for char in between if char != " "]
    return f"{'spaces and ' if ' ' in between else 'and '}{' '.join(marks)}"


def _is_written(char: str) -> bool:
    if char.isascii():
        return char.isalnum()
    if char in _UNSEEN or char in _LIKE_SEPARATORS or any(first <= char <= last for first, last in _UNSEEN_RANGES):
        return False
    # A wide or small form of a mark that means something here.
    wide = unicodedata.normalize("NFKC", char)
    if wide != char and not all(one.isalnum() or _is_mark(one) for one in wide):
        return False
    return unicodedata.category(char) in {"Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Nd"}


def _is_first(char: str) -> bool:
    return _is_written(char) and not _is_mark(char)


def _is_mark(char: str) -> bool:
    return unicodedata.category(char).startswith("M")


def _shown(char: str) -> str:
    name = unicodedata.name(char, "")
    seen = f"{char!r} " if char.isprintable() and not _is_mark(char) else ""
    return f"{seen}U+{ord(char):04X}{f' {name}' if name else ''}"
