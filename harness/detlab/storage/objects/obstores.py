"""`Objects` by obstore: S3 and what speaks like it, Google Cloud Storage, Azure."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from detlab.errors import StorageError
from detlab.storage.manifest import check_size
from detlab.storage.objects.aws_profiles import profile_credentials, profile_region
from detlab.storage.objects.client import Data, ObjectExists, ObjectInfo, ObjectMissing, StoreAway
from detlab.storage.objects.words import error_of, is_unimplemented

Credentials = Callable[[], Mapping[str, Any]]
"""Gives short-lived credentials, with `expires_at`; it is asked again before they expire. See obstore's providers."""

PART = 8 * 1024 * 1024
"""Bytes of a part of a large object, at least; also what is asked for at once."""
_CONCURRENT = 8
_DELETED_AT_ONCE = 1000
_SECONDS = {"quick": 15, "patient": 300}
"""For how long a request is tried again here: one that somebody waits for, and the parts of a large object."""
_CONNECTING, _ANSWERING = 10, 300
BRIEF: Mapping[str, Any] = {
    "seconds": {"quick": 5, "patient": 5}, "connecting": 3.0, "answering": 15.0, "quoting": False,
}  # fmt: skip
"""How a service opens a store for many people: nobody waits long for it, and its answers are repeated to nobody."""
_CERTIFICATES = 4 * 1024**2
"""Bytes of the largest file of certificates; that of a system has 0.3 MB."""
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
"""Where the environment names the endpoint of a block without one. obstore itself would ask it for `/KEY` without the
bucket, and not by plain HTTP."""


class ObstoreObjects:
    """Objects in a store that obstore knows; two clients with the same connections' settings, one more patient.

    Args:
        make: Makes obstore's store from `client_options` and `retry_config`.
        where: The address of the root for messages.
        ca_file: Certificates to trust besides the system's.
        plain_http: Whether the endpoint is one without TLS.
        seconds: For how long single requests are tried again.
        connecting: Seconds for a connection.
        answering: Seconds for one request, with its answer.
        quoting: Whether errors repeat the words of the store's answer; else its status and known codes only.

    Raises:
        StorageError: The block cannot be used: obstore is not installed, or does not take these settings.
    """

    def __init__(
        self,
        make: Callable[..., Any],
        where: str,
        *,
        ca_file: str | None = None,
        plain_http: bool = False,
        seconds: Mapping[str, float] = _SECONDS,
        connecting: float = _CONNECTING,
        answering: float = _ANSWERING,
        quoting: bool = True,
    ) -> None:
        self._where, self._quoting = where, quoting
        self._obstore = _import_obstore()
        options: dict[str, Any] = {
            "allow_http": plain_http,
            "connect_timeout": timedelta(seconds=connecting),
            "timeout": timedelta(seconds=answering),
        }
        if ca_file is not None:
            options["root_certificate"] = _certificates(ca_file)
        self._clients = {}
        try:
            for kind, limit in seconds.items():
                self._clients[kind] = make(client_options=options, retry_config=_retries(limit))
        except (self._obstore.exceptions.BaseError, ValueError) as error:  # nothing was asked of the store yet
            said = error_of(str(error), "use", where, quoting=quoting).message
            raise StorageError(said, hint="correct checkpoint_storage, or this node's credentials") from None
        self._conditional = True

    @property
    def where(self) -> str:
        """Return the address of the root for messages."""
        return self._where

    @property
    def conditional(self) -> bool:
        """Whether the store refuses to create what exists; False once it said that it does not know how to."""
        return self._conditional

    def put(self, key: str, data: Data, *, create: bool = False) -> None:
        """Store an object in one request; see `Objects.put`."""
        conditional = create and self._conditional
        if create and not conditional:
            self._refuse_existing(key)
        mode = "create" if conditional else "overwrite"
        try:
            with self._told("write", self._address(key)):
                self._obstore.put(self._clients["quick"], key, data, mode=mode, use_multipart=False)
        except StorageError as error:
            if not (conditional and is_unimplemented(error)):
                raise
            self._conditional = False
            self.put(key, data, create=True)

    def put_parts(self, key: str, parts: Iterator[Data]) -> None:
        """Store an object from parts; see `Objects.put_parts`. obstore cannot create in parts: it would send one."""
        first = next(parts, b"")
        size = max(len(first), PART)
        with self._told("write", self._address(key)):
            self._obstore.put(
                self._clients["patient"],
                key,
                itertools.chain([first], parts),
                use_multipart=True,
                chunk_size=size,
                max_concurrency=_CONCURRENT,
            )

    def _refuse_existing(self, key: str) -> None:
        with contextlib.suppress(ObjectMissing):
            self.head(key)
            raise ObjectExists(f"cannot write {self._address(key)}: it exists")

    def get(self, key: str) -> bytes:
        """Return a small object."""
        with self._told("read", self._address(key)):
            found = self._obstore.get(self._clients["quick"], key)
            check_size(self._address(key), found.meta["size"])
            return bytes(found.bytes())

    def get_range(self, key: str, start: int, end: int) -> memoryview:
        """Return some bytes of an object."""
        with self._told("read", self._address(key)):
            return memoryview(self._obstore.get_range(self._clients["quick"], key, start=start, end=end))

    def head(self, key: str) -> ObjectInfo:
        """Describe an object."""
        try:
            with self._told("look at", self._address(key)):
                return _info(self._obstore.head(self._clients["quick"], key))
        except (ObjectMissing, StoreAway):
            raise
        except StorageError:
            self.get_range(key, 0, 1)  # an answer to HEAD has no words: this one has
            raise

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """List objects; see `Objects.list`."""
        with self._told("list", self._address(prefix)):
            for batch in self._obstore.list(self._clients["quick"], prefix or None, chunk_size=1000):
                yield from (_info(meta) for meta in batch)

    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects; see `Objects.delete`."""
        wanted = sorted(set(keys))
        for start in range(0, len(wanted), _DELETED_AT_ONCE):
            batch = wanted[start : start + _DELETED_AT_ONCE]
            try:
                self._delete(batch)
            except ObjectMissing:  # one is gone, and obstore does not say what became of the others
                with ThreadPoolExecutor(_CONCURRENT, "detlab-delete") as pool:
                    list(pool.map(self._delete_one, batch))

    def _delete_one(self, key: str) -> None:
        with contextlib.suppress(ObjectMissing):
            self._delete([key])

    def _delete(self, keys: Sequence[str]) -> None:
        with self._told("remove", self._address(keys[0])):
            self._obstore.delete(self._clients["quick"], [*keys])

    def check(self) -> None:
        """Ask for one object that is hardly there."""
        with self._told("use", self._where):
            for _ in self._obstore.list(self._clients["quick"], ".detlab-check/", chunk_size=1):
                break

    def _address(self, key: str) -> str:
        return f"{self._where}/{key}" if key else self._where

    @contextlib.contextmanager
    def _told(self, verb: str, what: str) -> Iterator[None]:
        """Give an error of obstore the store's own words."""
        known = self._obstore.exceptions.BaseError
        try:
            yield
        except (known, FileNotFoundError) as error:
            exists = type(error).__name__ in {"AlreadyExistsError", "PreconditionError"}
            missing = isinstance(error, FileNotFoundError)
            told = error_of(str(error), verb, what, exists=exists, missing=missing, quoting=self._quoting)
            raise told from None


def s3_objects(config: Mapping[str, Any], *, credentials: Credentials | None = None, **how: Any) -> ObstoreObjects:
    """Return the objects of an `s3` block.

    Args:
        config: The block.
        credentials: Gives short-lived ones; by default those of the block, else the node's: of the environment, of
            AWS's files, or of its role.
        how: As for `ObstoreObjects`.
    """
    from obstore.store import S3Store

    bucket, prefix = config["bucket"], _prefix(config)
    endpoint = config.get("endpoint_url") or next(filter(None, map(os.environ.get, _ENDPOINTS)), None)
    settings: dict[str, Any] = {"virtual_hosted_style_request": not config.get("path_style", bool(endpoint))}
    settings |= _given(endpoint=endpoint, region=config.get("region") or profile_region())
    # A digest of the body in its signature is a second pass over all bytes: TLS protects them as well.
    settings["unsigned_payload"] = not _is_plain(endpoint) or _is_loopback(endpoint)
    if credentials is None and config.get("access_key"):
        credentials = _fixed(config)
    credentials = credentials or profile_credentials()
    if credentials is not None:
        settings["credential_provider"] = credentials
    return ObstoreObjects(
        lambda **client: S3Store(bucket, prefix=prefix, **settings, **client),
        _where("s3", bucket, prefix),
        ca_file=config.get("ca_file"),
        plain_http=_is_plain(endpoint),
        **how,
    )


def gcs_objects(config: Mapping[str, Any], *, credentials: Credentials | None = None, **how: Any) -> ObstoreObjects:
    """Return the objects of a `gcs` block; see `s3_objects`."""
    from obstore.store import GCSStore

    bucket, prefix, endpoint = config["bucket"], _prefix(config), config.get("endpoint_url")
    settings: dict[str, Any] = {}
    if credentials is not None:
        settings["credential_provider"] = credentials
    elif config.get("credential"):
        settings["service_account_key"] = config["credential"]
    elif endpoint:
        settings["service_account_key"] = _no_account(endpoint)
    return ObstoreObjects(
        lambda **client: GCSStore(bucket, prefix=prefix, **settings, **client),
        _where("gs", bucket, prefix),
        ca_file=config.get("ca_file"),
        plain_http=_is_plain(endpoint),
        **how,
    )


def azure_objects(config: Mapping[str, Any], *, credentials: Credentials | None = None, **how: Any) -> ObstoreObjects:
    """Return the objects of an `azure` block; see `s3_objects`."""
    from obstore.store import AzureStore

    container, prefix = config["container"], _prefix(config)
    settings = _azure_settings(config)
    if credentials is not None:
        settings["credential_provider"] = credentials
    return ObstoreObjects(
        lambda **client: AzureStore(container, prefix=prefix, **settings, **client),
        _where("az", container, prefix),
        ca_file=config.get("ca_file"),
        plain_http=_is_plain(settings.get("endpoint")),
        **how,
    )


def _fixed(config: Mapping[str, Any]) -> Credentials:
    """Give the keys of a block alone: a token that is in the environment belongs to other keys."""
    if not config.get("secret_key"):
        raise StorageError("checkpoint_storage has an access_key and no secret_key")
    keys = {
        "access_key_id": config["access_key"],
        "secret_access_key": config["secret_key"],
        "token": config.get("session_token") or None,
        "expires_at": None,
    }
    return lambda: keys


def _azure_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what obstore needs of a connection string, or of an account's URL and a key, SAS or nothing."""
    text = config.get("connection_string")
    if text:
        parts = dict(part.split("=", 1) for part in text.strip().strip(";").split(";") if "=" in part)
        known = {key.lower(): value for key, value in parts.items()}
        account = known.get("accountname") or _account_of(known.get("blobendpoint", ""))
        suffix = f"{known.get('defaultendpointsprotocol', 'https')}://{account}.blob.{known.get('endpointsuffix')}"
        endpoint = known.get("blobendpoint") or (suffix if known.get("endpointsuffix") else None)
        return _given(
            account_name=account,
            account_key=known.get("accountkey"),
            sas_key=known.get("sharedaccesssignature"),
            endpoint=endpoint and endpoint.rstrip("/"),
        )
    url = config.get("account_url")
    if not url:
        raise StorageError(
            "checkpoint_storage has neither connection_string nor account_url",
            hint="set one of them: account_url: https://ACCOUNT.blob.core.windows.net",
        )
    base, _, sas = url.partition("?")
    credential = config.get("credential") or sas or None
    is_sas = credential is not None and "sig=" in credential
    return _given(
        account_name=_account_of(base),
        endpoint=base.rstrip("/"),
        sas_key=credential.lstrip("?") if credential and is_sas else None,
        account_key=None if is_sas else credential,
    )


def _account_of(url: str) -> str:
    """Return the account of `https://ACCOUNT.blob…` or, as an emulator has it, `http://host:port/ACCOUNT`."""
    host, _, path = url.partition("://")[2].partition("/")
    return path.strip("/") or host.partition(".")[0]


def _no_account(endpoint: str) -> str:
    """Return the service account of nobody at an endpoint, as emulators take it."""
    nobody = dict.fromkeys(("client_email", "private_key", "private_key_id"), "")
    return json.dumps({"gcs_base_url": endpoint.rstrip("/"), "disable_oauth": True, **nobody})


def _import_obstore() -> Any:
    try:
        import obstore
        import obstore.exceptions
    except ImportError as error:
        raise StorageError(
            f"this checkpoint storage needs the package obstore, which cannot be imported: {error}",
            hint="install it where this runs: pip install 'detlab[storage]'",
        ) from error
    return obstore


def _retries(seconds: float) -> dict[str, Any]:
    return {
        "max_retries": 20 if seconds else 0,
        "retry_timeout": timedelta(seconds=seconds),
        "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=5), "base": 2},
    }


def _info(meta: Mapping[str, Any]) -> ObjectInfo:
    return ObjectInfo(meta["path"], meta["size"], meta["last_modified"].timestamp())


def _given(**settings: Any) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if value}


def _prefix(config: Mapping[str, Any]) -> str | None:
    return (config.get("prefix") or "").strip("/") or None


def _where(scheme: str, bucket: str, prefix: str | None) -> str:
    return f"{scheme}://{bucket}/{prefix}" if prefix else f"{scheme}://{bucket}"


def _is_plain(endpoint: str | None) -> bool:
    return bool(endpoint) and str(endpoint).lower().startswith("http://")


def _is_loopback(endpoint: str | None) -> bool:
    return urlsplit(endpoint or "").hostname in {"127.0.0.1", "::1", "localhost"}


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def _certificates(path: str) -> bytes:
    try:
        # A user names it, and the master reads it, too: a device or a pipe would never end.
        with open(path, "rb", opener=_without_waiting) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_size > _CERTIFICATES:
                raise StorageError(
                    f"checkpoint_storage.ca_file {path} is no file of at most {_CERTIFICATES // 1024**2} MiB"
                )
            return file.read(_CERTIFICATES)
    except (OSError, ValueError) as error:
        raise StorageError(f"checkpoint_storage.ca_file cannot be read: {error}") from error
