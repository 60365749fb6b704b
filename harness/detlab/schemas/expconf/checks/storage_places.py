"""Names, addresses and paths of `checkpoint_storage` that can never work, with the right spelling.

What is judged is the spelling alone: whether a bucket exists or keys are right is asked in a task (`det storage`).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

from detlab.errors import Problem
from detlab.schemas.expconf.blocks import storage
from detlab.schemas.expconf.blocks.scalars import describe

_WHERE = "checkpoint_storage"
_BUCKET = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_CONTAINER = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*|\$(root|web|logs)")
_REGION = re.compile(r"[A-Za-z0-9._-]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_HOST_PORT = re.compile(r"(?P<host>[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(:(?P<port>[0-9]{1,5}))?(?P<path>/[^\s?#]*)?")
_SECRETS = ("access_key", "secret_key", "session_token", "connection_string", "credential")
_TYPE_OF = {"s3": "s3", "s3a": "s3", "s3n": "s3", "gs": "gcs", "gcs": "gcs", "az": "azure", "abfs": "azure"}
"""Schemes of addresses that people write where a name is asked for -> the type of the store."""
_CONTAINERS = {"azure": "container"}
_Found = Iterator[tuple[str, str | None]]
"""What is wrong, and what to write instead."""


def places(raw: dict[str, Any]) -> Iterator[Problem]:
    """Yield a problem for each setting of the storage block that cannot work."""
    block = raw.get(_WHERE)
    if not isinstance(block, dict) or not isinstance(block.get("type"), str | None):
        return
    if block.get("type") is not None and block["type"] not in storage.MEMBERS:
        return  # another package's: its keys may mean something else
    for key, judge in _JUDGES.items():
        value = block.get(key)
        if not isinstance(value, str) or not value:
            continue
        spaced = _spaces(value) if key in _SECRETS else _blanks(key, value)
        for message, hint in spaced or judge(key, value):
            yield Problem(f"{_WHERE}.{key}", message, hint)
    prefix = block.get("prefix")
    if isinstance(prefix, str) and prefix.startswith("/") and _clean(prefix) == prefix.strip("/"):
        hint = f"prefix: {_clean(prefix)}"
        yield Problem(f"{_WHERE}.prefix", "begins with '/', which is left out: keys have none", hint, "warning")


def _spaces(value: str) -> list[tuple[str, str | None]]:
    """Judge a secret without repeating it; JSON of a key file may end with a line end."""
    if value == value.strip() or value.lstrip().startswith("{"):
        return []
    return [("begins or ends with white space or a line end, which is no part of a key", "copy it again without it")]


def _blanks(key: str, value: str) -> list[tuple[str, str | None]]:
    if value != value.strip():
        return [(f"begins or ends with white space: {describe(value)}", f"{key}: {value.strip()}")]
    if _CONTROL.search(value):
        return [("holds a control character", None)]
    return []


def _bucket(key: str, value: str) -> _Found:
    if _BUCKET.fullmatch(value) and ".." not in value:
        return
    yield from _name(key, value, "letters, digits, '-', '_' and '.'")


def _container(key: str, value: str) -> _Found:
    if _CONTAINER.fullmatch(value):
        return
    if _CONTAINER.fullmatch(value.lower()):
        yield f"must be lower case, not {describe(value)}", f"{key}: {value.lower()}"
        return
    yield from _name(key, value, "lower-case letters, digits and single '-'")


def _name(key: str, value: str, allowed: str) -> _Found:
    """Say how the name, and the folders that stand behind it, are written."""
    scheme, separator, rest = value.partition("://") if _ADDRESS.match(value) else ("", "", value)
    name, _, folders = rest.strip("/").partition("/")
    inner = _clean(folders)
    if separator and scheme.lower() in _TYPE_OF:
        kind = _TYPE_OF[scheme.lower()]
        spelled = f"type: {kind}, {_CONTAINERS.get(kind, 'bucket')}: {name}"
        yield f"must be a name, not the address {describe(value)}", spelled + (f", prefix: {inner}" if inner else "")
        return
    if name and "/" in value and not separator:
        yield (
            f"must be a name without a path, not {describe(value)}",
            f"{key}: {name}" + (f", prefix: {inner}" if inner else ""),
        )
        return
    yield f"must be a name of {allowed}, not {describe(value)}", "give the name alone; folders go into prefix"


def _prefix(key: str, value: str) -> _Found:
    parts = value.strip("/").split("/")
    if ".." in parts:  # said by the field itself
        return
    if _ADDRESS.match(value):
        yield f"must be folders in the store, not the address {describe(value)}", "such as prefix: team/checkpoints"
    elif any(part in {"", "."} for part in parts):
        cleaned = _clean(value)
        hint = f"{key}: {cleaned}" if cleaned else f"leave {key} out for the top of the store"
        yield f"has an empty part or '.': {describe(value)}", hint
    elif parts[0].startswith("~"):
        yield f"must be folders in the store: ~ is no home there, as in {describe(value)}", "prefix: team/checkpoints"


def _clean(folders: str) -> str:
    return "/".join(part for part in folders.split("/") if part not in {"", ".", ".."})


def _url(key: str, value: str) -> _Found:
    """Judge an address of http or https; an account's may end with a SAS token of Azure."""
    bare = _HOST_PORT.fullmatch(value)
    if bare is not None and not _ADDRESS.match(value):
        host = value if "." in value or ":" in value or key != "account_url" else f"{value}.blob.core.windows.net"
        plain = bare["port"] not in {None, "443"}
        yield (
            f"must be an address with http:// or https://, not {describe(value)}",
            (f"{key}: {'http' if plain else 'https'}://{host}" + (" (https:// where it has TLS)" if plain else "")),
        )
        return
    wrong = _wrong_url(value, queries=key == "account_url")
    if wrong is not None:
        # Not repeated: an address may hold a password or a token.
        yield wrong, f"such as {key}: {_EXAMPLES[key]}"


_EXAMPLES = {"endpoint_url": "https://minio.example.org:9000", "account_url": "https://ACCOUNT.blob.core.windows.net"}


def _wrong_url(value: str, *, queries: bool) -> str | None:
    try:
        parts = urlsplit(value)
        port = parts.port
    except ValueError:
        return "is no address: its host or its port cannot be read"
    if parts.scheme.lower() not in {"http", "https"}:
        return f"must begin with http:// or https://, not {describe(parts.scheme + ':') if parts.scheme else 'a name'}"
    if not parts.hostname or port == 0 or re.search(r"\s", value):
        return "is no address: it has no host, or white space in it"
    if parts.username is not None or parts.password is not None:
        return "must not hold a user or a password: keys have fields of their own"
    if parts.fragment or (parts.query and not queries):
        return "must end with the host or a path, without ? and #"
    return None


def _path(key: str, value: str) -> _Found:
    """Judge an absolute path, as the node or the task has it."""
    scheme, separator, rest = value.partition("://") if _ADDRESS.match(value) else ("", "", "")
    if separator and scheme.lower() in _TYPE_OF:
        kind = _TYPE_OF[scheme.lower()]
        name, _, folders = rest.strip("/").partition("/")
        spelled = f"type: {kind}, {_CONTAINERS.get(kind, 'bucket')}: {name}"
        inner = _clean(folders)
        yield (
            f"must be a directory, not the address {describe(value)}",
            spelled + (f", prefix: {inner}" if inner else ""),
        )
    elif separator:
        yield f"must be a directory, not the address {describe(value)}", f"such as {key}: /{rest.strip('/') or 'data'}"
    elif value.startswith("~"):
        yield (
            f"must be an absolute path: ~ is another home on each node, so {describe(value)} is no place",
            f"write the path out, such as {key}: /home/YOU{value.partition('/')[1]}{value.partition('/')[2]}",
        )
    elif "$" in value:
        yield f"must be a path as it is: variables are not replaced in {describe(value)}", f"write out {key}"
    elif not posixpath.isabs(value):
        yield f"must be an absolute path, not {describe(value)}", f"such as {key}: /{_clean(value) or 'data'}"
    elif ".." in value.split("/"):
        yield f"must not contain '..': {describe(value)}", f"{key}: {posixpath.normpath(value)}"


def _folder(key: str, value: str) -> _Found:
    """Judge a folder below `host_path`; whether it stays below is judged elsewhere."""
    if _ADDRESS.match(value) or value.startswith("~") or "$" in value:
        yield f"must be a folder below host_path, not {describe(value)}", f"such as {key}: team/checkpoints"


def _region(key: str, value: str) -> _Found:
    if not _REGION.fullmatch(value):
        yield f"must be the name of a region, not {describe(value)}", f"such as {key}: eu-central-1"


def _certificates(key: str, value: str) -> _Found:
    if value.startswith("~") or _ADDRESS.match(value):
        yield f"must be the path of a file on each node, not {describe(value)}", f"{key}: /etc/ssl/certs/lab.pem"


def _any(key: str, value: str) -> _Found:
    return iter(())


_JUDGES: dict[str, Callable[[str, str], _Found]] = {
    "bucket": _bucket,
    "container": _container,
    "prefix": _prefix,
    "endpoint_url": _url,
    "account_url": _url,
    "host_path": _path,
    "container_path": _path,
    "storage_path": _folder,
    "region": _region,
    "ca_file": _certificates,
    "connection_string": _any,
    "access_key": _any,
    "secret_key": _any,
    "session_token": _any,
    "credential": _any,
}
