"""Warnings of files in a bundle whose names say that they hold secrets."""

from __future__ import annotations

from collections.abc import Iterable

from detlab.client.bundling.bundle import Bundle
from detlab.client.bundling.ignore import IGNORE_FILE
from detlab.schemas.bundles import holds_secrets
from detlab.schemas.wire import ProblemView

_NAMED = 5


def secret_warnings(bundle: Bundle | None) -> list[ProblemView]:
    """Return a warning that names these files, if there are any."""
    found = secret_files(file.path for file in bundle.files) if bundle is not None else ""
    if not found:
        return []
    message = f"uploaded with the code, for all who may see it: {found}"
    hint = f"if trials do not need it, name it in {IGNORE_FILE}"
    return [ProblemView(path="", message=message, hint=hint, level="warning")]


def secret_files(paths: Iterable[str]) -> str:
    """Return the first of these files, as text; empty if there are none."""
    found = [path for path in paths if holds_secrets(path)]
    return ", ".join(found[:_NAMED]) + (f" and {len(found) - _NAMED} more" if len(found) > _NAMED else "")
