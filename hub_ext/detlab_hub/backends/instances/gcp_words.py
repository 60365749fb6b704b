"""What Google says when it does not do something, in words: errors of requests, and of operations that failed later."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from detlab_hub.backends.instances.base import ProviderError, Trouble

_CAPACITY = {
    "ZONE_RESOURCE_POOL_EXHAUSTED": "the zone has no {type} left now",
    "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS": "the zone has no {type} left now",
    "RESOURCE_POOL_EXHAUSTED": "the zone has no {type} left now",
    "STOCKOUT": "the zone has no {type} left now",
    "VM_MIN_COUNT_NOT_REACHED": "the zone has no {type} left now",
    "RESERVATION_CAPACITY_EXCEEDED": "the reservation has no {type} left",
    "IP_SPACE_EXHAUSTED": "the subnetwork has no free address left for {type}",
    "IP_SPACE_EXHAUSTED_WITH_DETAILS": "the subnetwork has no free address left for {type}",
    "resourcepoolexhausted": "the zone has no {type} left now",
}
_QUOTA = {
    "QUOTA_EXCEEDED": "the project has as much as it may have of what {type} needs",
    "LIMIT_EXCEEDED": "the project has as much as it may have of what {type} needs",
    "quotaExceeded": "the project has as much as it may have of what {type} needs",
    "limitExceeded": "the project has as much as it may have of what {type} needs",
}
_CREDENTIALS = {
    "PERMISSIONS_ERROR": "the master's credentials do not allow this",
    "CONDITION_NOT_MET": "a policy of the organisation does not allow this",
    "forbidden": "the master's credentials do not allow this",
    "required": "Google wants credentials",
    "authError": "Google does not recognise the master's credentials",
    "insufficientPermissions": "the master's credentials do not allow this",
    "accessNotConfigured": "the Compute Engine API is not enabled in this project",
}
_BUSY = {
    "RESOURCE_OPERATION_RATE_EXCEEDED",
    "RATE_LIMIT_EXCEEDED",
    "INTERNAL_ERROR",
    "RESOURCE_NOT_READY",
    "backendError",
    "internalError",
    "rateLimitExceeded",
    "userRateLimitExceeded",
    "concurrentLimitExceeded",
    "operationRateExceeded",
}
_CONFIGURATION = (
    *("INVALID", "RESOURCE_NOT_FOUND", "UNSUPPORTED", "MISSING", "UNKNOWN", "BAD_", "SCOPE", "SERVICE_ACCOUNT"),
    *("invalid", "badRequest", "notFound", "parseError", "conditionNotMet", "resourceNotReady"),
)
HINTS = {
    Trouble.CAPACITY: "the launch is retried; another zone or machine_type may have some",
    Trouble.QUOTA: "ask Google for a higher quota (IAM & Admin, Quotas), or lower max_instances",
    Trouble.CREDENTIALS: "the master finds them as every Google program does (GOOGLE_APPLICATION_CREDENTIALS, or its"
    " machine's service account); they need roles/compute.instanceAdmin.v1, and roles/iam.serviceAccountUser for"
    " instances with a service_account",
    Trouble.CONFIGURATION: "correct this pool's provider in the master's configuration",
    Trouble.UNREACHABLE: "it is tried again",
}


def explain(code: str, text: str, machine: str, *, refused: bool) -> ProviderError:
    """Return the error for a code of Google's.

    Args:
        code: Of an operation (`QUOTA_EXCEEDED`) or a request (`quotaExceeded`).
        text: What Google says besides.
        machine: What was asked for, in words.
        refused: Whether Google says that it has not been done.
    """
    for trouble, known in (
        (Trouble.CAPACITY, _CAPACITY),
        (Trouble.QUOTA, _QUOTA),
        (Trouble.CREDENTIALS, _CREDENTIALS),
    ):
        if code in known:
            return ProviderError(trouble, f"{known[code].format(type=machine)}: {text} [{code}]", HINTS[trouble])
    if code in _BUSY:
        busy = f"Google is busy: {text} [{code}]"
        return ProviderError(Trouble.UNREACHABLE, busy, HINTS[Trouble.UNREACHABLE], may_be_done=not refused)
    if code.startswith(_CONFIGURATION):
        message = f"Google refuses the request: {text} [{code}]"
        return ProviderError(Trouble.CONFIGURATION, message, HINTS[Trouble.CONFIGURATION])
    return ProviderError(Trouble.OTHER, f"Google says: {text} [{code}]", may_be_done=not refused)


def failure_of(operation: Any, machine: str) -> ProviderError | None:
    """Return why an operation failed; None for one that has not failed."""
    errors: Sequence[Any] = operation.error.errors
    if errors:
        first = errors[0]
        more = "; ".join(" ".join(error.message.split()) for error in errors)
        return explain(first.code, more[:1000], machine, refused=True)
    if operation.http_error_status_code >= 400:
        return explain(f"HTTP {operation.http_error_status_code}", operation.http_error_message, machine, refused=True)
    return None


@contextmanager
def in_words(machine: str) -> Iterator[None]:
    """Convert an error of Google, or of the connection to it, to a `ProviderError`."""
    import requests
    from google.api_core import exceptions as api
    from google.auth import exceptions as auth

    try:
        yield
    except api.GoogleAPICallError as error:
        raise _explain_call(error, machine) from error
    except auth.TransportError as error:
        raise ProviderError(
            Trouble.UNREACHABLE, f"Google gives no token: {error}", HINTS[Trouble.UNREACHABLE]
        ) from error
    except auth.GoogleAuthError as error:
        text = f"the master has no credentials for Google that work: {_short(error)}"
        raise ProviderError(Trouble.CREDENTIALS, text, HINTS[Trouble.CREDENTIALS]) from error
    except requests.exceptions.RequestException as error:
        raise ProviderError(Trouble.UNREACHABLE, f"Google cannot be reached: {_short(error)}") from error
    except (api.GoogleAPIError, ValueError) as error:
        # A reply that is no JSON is a ValueError of json or of protobuf: what was asked for may have been done.
        raise ProviderError(Trouble.UNREACHABLE, f"Google's answer cannot be read: {_short(error)}") from error


def _explain_call(error: Any, machine: str) -> ProviderError:
    status = int(error.code or 0)
    said = error.errors[0] if error.errors else {}
    code = str(said.get("reason", "")) if isinstance(said, dict) else ""
    text = " ".join(str(error.message).split())[:1000]
    if "ZONE_RESOURCE_POOL_EXHAUSTED" in text:
        code = "ZONE_RESOURCE_POOL_EXHAUSTED"
    refused = 400 <= status < 500
    if not code:
        code = {401: "authError", 403: "forbidden", 404: "notFound", 429: "rateLimitExceeded"}.get(status, "")
    if not code:
        trouble = Trouble.UNREACHABLE if status >= 500 else Trouble.OTHER
        return ProviderError(trouble, f"Google says: {text} [HTTP {status}]", may_be_done=not refused)
    return explain(code, text, machine, refused=refused)


def _short(error: BaseException) -> str:
    return " ".join(str(error).split())[:500]
