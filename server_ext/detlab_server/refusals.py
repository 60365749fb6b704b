"""Errors as answers: the same bodies that the master gives, so that a front end shows all errors in one way."""

from __future__ import annotations

from typing import Any

from detlab import errors

_STATUS: tuple[tuple[type[errors.DetlabError], int], ...] = (
    (errors.ClusterNotFound, 503),
    (errors.ClusterUnreachable, 503),
    (errors.AuthError, 403),
    (errors.BundleTooLarge, 413),
    (errors.BundleError, 422),
    (errors.ConfigError, 422),
    (errors.ResourcesError, 422),
)


def status_of(error: errors.DetlabError) -> int:
    """Return the HTTP status of an error. 401 becomes 403: the browser is logged in here, the token is the server's."""
    found = next((number for cls, number in _STATUS if isinstance(error, cls)), None)
    if found is not None:
        return found
    return error.status if isinstance(error, errors.ApiError) else 400


def body_of(error: errors.DetlabError) -> dict[str, Any]:
    """Return the `ErrorView` of an error."""
    problems = getattr(error, "problems", ())
    message = error.headline if isinstance(error, errors.ConfigError) else error.message
    found = [problem.to_dict() for problem in problems]
    return {"code": error.code, "message": message, "hint": error.hint, "problems": found}
