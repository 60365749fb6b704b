"""Takes secrets out of what is handed to others: by the names that they have, by their form, and where they recur.

What is masked in a config is looked for in all texts: a password of an environment variable is often printed by the
code. Only what is at least `SHORTEST` long is, else every "1" would go. It cannot know every secret: a text that says
"the password is swordfish" goes through.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from detlab.schemas.expconf.raw.secret_keys import MASK, SECRET_KEYS

SHORTEST = 6
_NAME = (
    r"(?:token(?!s|i[sz])|secret|passw(?:or)?d|passphrase|credential|private[_-]?key|api[_-]?key|access[_-]?key"
    r"|account[_-]?key|signature|authorization|cookie|connection[_-]?string|registry[_-]?auth)"
)
"""What the names of secrets have in them; `tokens` and `tokenizer` are words of language models."""
_SECRET_NAME = re.compile(_NAME, re.IGNORECASE)
_NO_SECRET = re.compile(r"_(?:file|files|path|dir|certificate|count|limit|ttl|expires|id|at)$", re.IGNORECASE)
"""Names that end so say where a secret is, or until when it counts, and are none."""
_NO_VALUES = frozenset({MASK, "", "null", "None", "true", "false"})
_ALL_BELOW = frozenset({"secrets", "registry_auth"})
"""All that is below these keys is secret."""
_ASSIGNED = re.compile(
    rf"""([\w.-]{{0,64}}{_NAME}[\w-]{{0,64}}["']?\s*(?:=>|=|:)\s*(?:(?:Bearer|Basic|token)\s+)?)"""
    r"""("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|\S+)""",
    re.IGNORECASE,
)
_OPTION = re.compile(rf"-{{1,2}}[\w.-]{{0,64}}{_NAME}[\w-]{{0,64}}|-p", re.IGNORECASE)
"""An option of a command that is given a secret; `-p` is also that of ports, which are left."""
_GIVEN = re.compile(
    rf"""((?<![\w-])(?:{_OPTION.pattern})["']?,?\s+)("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|[^\s-]\S*)""",
    re.IGNORECASE,
)
_PORT = re.compile(r"\d{1,5}(?::\d{1,5})*")
_IN_URL = re.compile(r"(?<=://)([^/@\s:]{0,200}):?([^/@\s]{0,500})(?=@)")
_FORMS = (
    (re.compile(r"-----BEGIN ([A-Z ]*PRIVATE KEY)-----.*?(?:-----END \1-----|\Z)", re.DOTALL), MASK),
    (re.compile(r"([?&](?:sig|signature|token|key|x-amz-[\w-]+|x-goog-[\w-]+)=)[^&\s\"']+", re.I), rf"\1{MASK}"),
    (re.compile(r"\b((?:Bearer|Basic)\s+)[\w.~+/=-]{6,}", re.IGNORECASE), rf"\1{MASK}"),
    (re.compile(r"\b(?:gh[pousr]_|github_pat_|glpat-|hf_|sk-|xox[abprs]-|AIza)[\w-]{10,}"), MASK),
    (re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"), MASK),
    (re.compile(r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"), MASK),
    (re.compile(r"(?<=hooks\.slack\.com/)[^\s\"']+"), MASK),
)


class Redactor:
    """Masks secrets, and remembers those that it has seen.

    Args:
        known: Secrets that are known, such as the caller's token.
    """

    def __init__(self, known: Iterable[str] = ()) -> None:
        self._known = {one for one in known if len(one) >= SHORTEST}

    def value(self, value: Any, name: str = "", *, secret: bool = False) -> Any:
        """Return a JSON value with secrets masked.

        Args:
            value: The value.
            name: The key that it is under.
            secret: Whether all of it is one.
        """
        if isinstance(value, Mapping):
            named = value.get("name") if "value" in value else None  # as variables of a pod have it
            return {
                key: self.value(
                    item,
                    named if key == "value" and isinstance(named, str) else str(key),
                    secret=secret or key in _ALL_BELOW,
                )
                for key, item in value.items()
            }
        if isinstance(value, list | tuple):
            options = [None, *value]
            return [
                self.value(item, name, secret=secret or _is_given(options[at], item)) for at, item in enumerate(value)
            ]
        if value is None or isinstance(value, bool):
            return value
        if secret or is_secret_name(name):
            return self._mask(value)
        if not isinstance(value, str):
            return value
        variable, given, assigned = value.partition("=")
        if given and variable.isidentifier() and is_secret_name(variable):
            return f"{variable}={self._mask(assigned)}"
        return self.text(value)

    def text(self, text: str) -> str:
        """Return a text with secrets masked: those that were seen, and what has their form."""
        for secret in sorted(self._known, key=lambda one: (-len(one), one)):
            text = text.replace(secret, MASK)
        text = _IN_URL.sub(self._mask_user, text)
        for form, mask in _FORMS:
            text = form.sub(mask, text)
        return _GIVEN.sub(_masked, _ASSIGNED.sub(_masked, text))

    def _mask_user(self, found: re.Match[str]) -> str:
        """Mask who is named in a URL, and look for the password elsewhere too."""
        self._mask(found[2])
        return MASK

    def _mask(self, value: Any) -> Any:
        if value in ("", 0, MASK):
            return value
        if isinstance(value, str) and len(value) >= SHORTEST:
            self._known.add(value)
        return MASK


def is_secret_name(name: str) -> bool:
    """Whether what has this name is a secret."""
    if _NO_SECRET.search(name):
        return False
    return name in SECRET_KEYS or _SECRET_NAME.search(name) is not None


def _is_given(option: Any, value: Any) -> bool:
    """Whether a word of a command is the secret that the word before it asks for."""
    if not (isinstance(option, str) and isinstance(value, str)) or value.startswith("-"):
        return False
    return _OPTION.fullmatch(option) is not None and not _is_plain(option, value)


def _is_plain(name: str, value: str) -> bool:
    """Whether a value is none that is worth a mask."""
    port = name == "-p" and _PORT.fullmatch(value) is not None
    return port or _NO_SECRET.search(name.replace("-", "_")) is not None or value in _NO_VALUES


def _masked(found: re.Match[str]) -> str:
    name, value = found[1], found[2]
    if _is_plain(re.split(r"[\"'\s=:]", name, maxsplit=1)[0], value.strip("\"'")):
        return found[0]
    quote = value[0] if value[0] in "\"'" else ""
    return f"{name}{quote}{MASK}{quote}"
