"""What an object store says when it refuses, without what must not be told: keys, signatures, long traces.

The errors of a client library are long texts around the answer of a server. An answer has a status, a code and a
sentence; those are what a person can look up, so those are kept.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime

from detlab.errors import StorageError
from detlab.storage.objects.client import ObjectExists, ObjectMissing, StoreAway, StoreRefused

_STATUS = re.compile(r"status code: (\d{3})|\(code: (\d{3})\)")
_CODE = re.compile(r"<Code>([^<]{1,80})</Code>")
_MESSAGE = re.compile(r"<Message>([^<]{1,400})")
_SECRET_PARTS = re.compile(r"(?<=\w)\?\S+|\b(?:AccountKey|SharedAccessSignature|sig|token)=\S+", re.IGNORECASE)
_TRACE = re.compile(r"\s*Debug source:", re.DOTALL)
_CAUSES = (
    (re.compile(r"InvalidCertificate\(\s*([A-Za-z]+)"), "its certificate is not trusted"),
    (re.compile(r"ConnectionRefused|[Cc]onnection refused"), "nothing listens there (connection refused)"),
    (re.compile(r"dns error|failed to lookup address"), "there is no such host"),
    (re.compile(r"TimedOut|timed out"), "it took too long"),
)
"""Of a request without an answer, in the trace of the library: its message says only that it was not sent."""
_NO_BUCKET = {"NoSuchBucket", "ContainerNotFound", "NoSuchContainer"}
_REFUSED = {
    "AccessDenied",
    "AuthenticationFailed",
    "AuthorizationFailure",
    "ExpiredToken",
    "ExpiredTokenException",
    "InvalidAccessKeyId",
    "InvalidClientTokenId",
    "InvalidToken",
    "RequestExpired",
    "SignatureDoesNotMatch",
    "TokenRefreshRequired",
}
_EXPIRED = {"ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired"}
_ANOTHER_REGION = {
    "AuthorizationHeaderMalformed",
    "IllegalLocationConstraintException",
    "PermanentRedirect",
    "TemporaryRedirect",
}
_LATER = {"SlowDown", "RequestTimeout", "ServerBusy", "InternalError", "ServiceUnavailable", "OperationTimedOut"}
_FULL = re.compile(r"Quota|StorageFull|InsufficientStorage|BucketFull", re.IGNORECASE)
_CLOCK = re.compile(
    r"RequestTimeTooSkewed|RequestInTheFuture|RequestNotYetValid|date header too old|time too skewed"
    r"|difference between the request time",
    re.IGNORECASE,
)
_UNKNOWN_KEY = {"InvalidAccessKeyId", "InvalidClientTokenId", "InvalidSecurity", "NoSuchAccount"}
_WRONG_SECRET = {"SignatureDoesNotMatch", "AuthenticationFailed"}
_NOT_ALLOWED = {
    "AccessDenied",
    "AccountProblem",
    "AllAccessDisabled",
    "AuthorizationFailure",
    "AuthorizationPermissionMismatch",
    "InsufficientAccountPermissions",
    "PERMISSION_DENIED",
}
_NO_TOKEN = ("token request", "credential", "Credential", "metadata/identity", "computeMetadata")


_KNOWN = {
    *(*_NO_BUCKET, *_REFUSED, *_ANOTHER_REGION, *_LATER, *_UNKNOWN_KEY, *_NOT_ALLOWED),
    *("NoSuchKey", "BlobNotFound", "NotImplemented", "RequestTimeTooSkewed", "QuotaExceeded", "InsufficientStorage"),
}
"""Codes that are repeated where the words of an answer are not."""


def error_of(
    text: str, verb: str, what: str, *, exists: bool = False, missing: bool = False, quoting: bool = True
) -> StorageError:
    """Return the error for what a client library said.

    Args:
        text: Its message.
        verb: What was to be done: `read`, `write`.
        what: To what: `s3://bucket/prefix/key`.
        exists: The library takes it for an object that exists already.
        missing: The library takes it for an object that is not there.
        quoting: Whether the server's own words are repeated: to whom could they tell what they may not know?
    """
    status, code, words = _answer(text)
    said = f"cannot {verb} {what}: {words if quoting else _ours(text, status, code)}"
    if code in _NO_BUCKET or "container does not exist" in words or "bucket does not exist" in words:
        return StorageError(said, hint="make the bucket (or container), or correct its name in checkpoint_storage")
    if exists and status in {None, 409, 412}:
        return ObjectExists(said)
    if code in _ANOTHER_REGION or status == 301 or "redirect without LOCATION" in words:
        return StorageError(said, hint="the bucket is in another region: set checkpoint_storage.region to that one")
    if status == 507 or (code is not None and _FULL.search(code)):
        return StorageError(
            said,
            hint="the quota of the bucket or account is full, or the store's disks are: free some (det storage usage),"
            " or have it raised; the keys are right",
        )
    if _CLOCK.search(text):
        return StoreRefused(
            said, hint=f"the clock here differs too much from the store's: set it (timedatectl); here it is {_now()}"
        )
    if code in _REFUSED or status in {401, 403}:
        return StoreRefused(said, hint=_advice(code))
    if missing or status == 404:
        return ObjectMissing(said)
    if status is None and any(part in words for part in _NO_TOKEN):
        return StoreRefused(said, hint=_advice(code))
    if status is None and "certificate is not trusted" in words:
        return StorageError(
            said, hint="if the store has certificates of its own, name them in checkpoint_storage.ca_file"
        )
    if status is None or code in _LATER or status in {408, 425, 429} or (status >= 500 and status != 501):
        return StoreAway(said)
    return StorageError(said)


def is_expired(error: StorageError) -> bool:
    """Whether a store has refused credentials only because they are too old."""
    return any(code in error.message for code in _EXPIRED)


def is_unimplemented(error: StorageError) -> bool:
    """Whether a store does not know the kind of request."""
    return "NotImplemented" in error.message or "501 Not Implemented" in error.message


def _answer(text: str) -> tuple[int | None, str | None, str]:
    """Return status, code and words of a server's answer; the words of the library if there was none."""
    found = _STATUS.search(text)
    status = int(found[1] or found[2]) if found else None
    code, message = _xml(text)
    if code is None and found:
        code, message = _json(text)
    if code is not None:
        return status, code, f"{code}: {message}" if message else code
    plain = _TRACE.split(text, maxsplit=1)[0]
    plain = plain.rpartition(" - ")[2] if status is None else plain
    if status is not None:
        plain = plain[plain.find("status code: ") + 13 :] if "status code: " in plain else plain
    words = _plain(plain) or "no reason was given"
    cause = _cause(text) if status is None else None
    return status, None, f"{words}: {cause}" if cause else words


def _ours(text: str, status: int | None, code: str | None) -> str:
    """Return what an answer was in words that are none of its own."""
    known = f" ({code})" if code in _KNOWN else ""
    if status is not None:
        return f"the store answered with status {status}{known}"
    return _cause(text) or f"the store gave no answer that can be used{known}"


def _cause(text: str) -> str | None:
    for pattern, told in _CAUSES:
        if found := pattern.search(text):
            return f"{told} ({found[1]})" if found.groups() else told
    return None


def _xml(text: str) -> tuple[str | None, str]:
    code, message = _CODE.search(text), _MESSAGE.search(text)
    return (code[1] if code else None), (_plain(message[1]) if message else "")


def _json(text: str) -> tuple[str | None, str]:
    """Read an answer of Google's services."""
    start = text.find("{")
    if start < 0:
        return None, ""
    try:
        document, _ = json.JSONDecoder().raw_decode(text[start:])
        error = document["error"]
        return str(error.get("status") or error.get("code"))[:80], _plain(str(error["message"]))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None, ""


def _plain(text: str) -> str:
    """Return a text in one line of printable characters, without what may be a signature or key."""
    line = " ".join(_SECRET_PARTS.sub("", text).split())
    return "".join(char for char in line if char.isprintable())[:400].rstrip(": ")


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")


def _advice(code: str | None) -> str:
    """Return what to do about a refusal, by what the store says is wrong."""
    whose = "those in checkpoint_storage, or, if it has none, those of the node (environment, instance role)"
    if code in _EXPIRED:
        return "the credentials have expired: get new ones, or let the node's role give them"
    if code in _UNKNOWN_KEY:
        return f"check the keys, {whose}: the store does not know the access key"
    if code in _WRONG_SECRET:
        return f"check the keys, {whose}: the secret does not belong to the access key or account"
    if code in _NOT_ALLOWED:
        return (
            "the store knows the keys, which may not do this here: allow them to list, read, write and delete below"
            f" the prefix ({whose})"
        )
    return f"check the keys, {whose}, and what they are allowed to do in this bucket"
