"""The types of single values in a pod_spec. Texts are matched as a whole, and quantities become texts."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from detlab.schemas.building import ON_FIRST_USE
from detlab.schemas.expconf.blocks.scalars import as_flag, as_int, as_text, describe, refuse
from detlab.schemas.runtimes import is_image

MOST_CHARS = 32_768
"""Of one text; the API server has limits of its own for a whole pod."""
_LABEL_NAME = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_DNS = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_DOMAIN = rf"(?=.{{1,253}}/){_DNS}(\.{_DNS})*"
_QUANTITY = r"[0-9]{1,18}(\.[0-9]{1,9})?([eE][0-9]{1,2}|[mkMGTP]|[KMGTP]i)?"


class PodBlock(BaseModel):
    """A mapping of the pod_spec, with Kubernetes' spelling: no other keys, and null is as good as nothing."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, defer_build=ON_FIRST_USE)

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, raw: object) -> object:
        return {key: value for key, value in raw.items() if value is not None} if isinstance(raw, dict) else raw


def _matching(pattern: str, what: str) -> Callable[[object], object]:
    """Return a check of texts that match a pattern from their first to their last character."""
    whole = re.compile(pattern)

    def check(value: object) -> object:
        text = as_text(value)
        if not isinstance(text, str) or whole.fullmatch(text) is None:
            refuse(f"must be {what}, not {describe(value)}")
        return text

    return check


def _quantity(value: object) -> str:
    text = str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
    if isinstance(value, bool) or not isinstance(value, str | int | float) or not re.fullmatch(_QUANTITY, text):
        refuse(f'must be an amount such as 2, "500m" or "4Gi", not {describe(value)}')
    return text


def _text(value: object) -> object:
    text = as_text(value)
    if isinstance(text, str) and (len(text) > MOST_CHARS or "\0" in text):
        refuse(f"has {len(text):,} characters; there may be {MOST_CHARS:,}, and no NUL")
    return text


def _image(value: object) -> object:
    text = as_text(value)
    if not isinstance(text, str) or not is_image(text):
        refuse(f"must be an image such as registry/name:tag, not {describe(value)}")
    return text


def _path(value: object) -> object:
    text = as_text(value)
    good = isinstance(text, str) and text.startswith("/") and not text.startswith("//") and len(text) <= 1024
    if not good or not isinstance(text, str) or ".." in text.split("/") or re.search(r"[:\0\n]", text):
        refuse(f"must be an absolute path without '..' and ':', not {describe(value)}")
    return text


def _below(value: object) -> object:
    text = as_text(value)
    bad = not isinstance(text, str) or not text or text.startswith("/") or len(text) > 1024
    if bad or not isinstance(text, str) or ".." in text.split("/") or re.search(r"[:\0\n$]", text):
        refuse(f"must be a path in the volume without '..', not {describe(value)}")
    return text


Text = Annotated[str, BeforeValidator(_text)]
Flag = Annotated[bool, BeforeValidator(as_flag)]
Count = Annotated[int, Field(ge=0, le=2**31 - 1), BeforeValidator(as_int)]
Mode = Annotated[int, Field(ge=0, le=0o777), BeforeValidator(as_int)]
Name = Annotated[str, BeforeValidator(_matching(_DNS, "a name of small letters, digits and '-', such as data-1"))]
ObjectName = Annotated[
    str, BeforeValidator(_matching(rf"(?=.{{1,253}}$){_DNS}(\.{_DNS})*", "the name of an object in the cluster"))
]
Key = Annotated[
    str, BeforeValidator(_matching(rf"({_DOMAIN}/)?{_LABEL_NAME}", "a key such as rack or example.org/rack"))
]
LabelValue = Annotated[
    str, BeforeValidator(_matching(rf"({_LABEL_NAME})?", "at most 63 letters, digits, '-', '_' and '.'"))
]
DataKey = Annotated[str, BeforeValidator(_matching(r"(?!\.\.)[-._A-Za-z0-9]{1,253}", "the key of an entry"))]
Variable = Annotated[
    str, BeforeValidator(_matching(r"[-._A-Za-z][-._A-Za-z0-9]{0,252}", "the name of an environment variable"))
]
Image = Annotated[str, BeforeValidator(_image)]
Quantity = Annotated[str, BeforeValidator(_quantity)]
MountPath = Annotated[str, BeforeValidator(_path)]
SubPath = Annotated[str, BeforeValidator(_below)]
