"""Tokens as they are read from files, variables and arguments: a stray line end is taken off, anything else is refused.

A token with a line end inside would be shown whole in the errors of HTTP libraries, which refuse it as a header.
"""

from __future__ import annotations

import re

from detlab.errors import AuthError

_ONE_WORD = re.compile(r"[\x21-\x7e]+")


def one_word(token: str, source: str) -> str:
    """Return a token without blanks and line ends around it; "" if nothing is left.

    Args:
        token: As it was read.
        source: Where it is from, for the error.

    Raises:
        AuthError: It has blanks, line ends or letters inside that no token has. The message does not show it.
    """
    word = token.strip()
    if word and _ONE_WORD.fullmatch(word) is None:
        raise AuthError(
            f"the token of {source} is no token: it has {len(word)} characters, among them a blank, a line end or a"
            " letter that no token has",
            hint="A token is one word of ASCII letters and digits: copy it anew from the Hub's page /hub/token",
        )
    return word
