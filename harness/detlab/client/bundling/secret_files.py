"""Warnings of files in a bundle whose names say that they hold secrets."""

from __future__ import annotations

from detlab.client.bundling.bundle import Bundle
from detlab.client.bundling.ignore import IGNORE_FILE
from detlab.schemas.bundles import holds_secrets
from detlab.schemas.wire import ProblemView

_NAMED = 5


def secret_warnings(bundle: Bundle | None) -> list[ProblemView]:
    """Return a warning that names these files, if there are any."""
    found = [file.path for file in bundle.files if holds_secrets(file.path)] if bundle is not None else []
    if not found:
        return []
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    message = f"uploaded with the code, for all who may see it: {', '.join(found[:_NAMED])}{more}"
    hint = f"if trials do not need it, name it in {IGNORE_FILE}"
    return [ProblemView(path="", message=message, hint=hint, level="warning")]
