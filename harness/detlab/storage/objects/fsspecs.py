"""The type `fsspec` of `checkpoint_storage`: the door for every store that has a file system for fsspec.

fsspec is imported when the first store is made. The master opens none of these: a block is a user's word, and could
name the master's own files, or have it use its own keys.
"""

from __future__ import annotations

import contextlib
import datetime
import posixpath
import uuid as uuids
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Self

from detlab.errors import StorageError
from detlab.storage.manifest import MOST_MANIFEST, check_size
from detlab.storage.objects.client import Data, ObjectExists, ObjectInfo, ObjectMissing, StoreAway, StoreRefused
from detlab.storage.objects.store import ObjectStorage

if TYPE_CHECKING:
    from detlab.schemas.expconf.blocks.storage import FsspecConfig

_RENAMES = frozenset({"file", "local", "sftp", "ssh", "ftp", "smb", "hdfs", "arrow_hdfs", "webhdfs"})
"""Protocols of file systems, where what is written is seen before it is whole, and a rename is one step."""
_TIMES = ("mtime", "LastModified", "last_modified", "updated", "created", "modify", "modificationTime")
_PACKAGES = {"sftp": "paramiko", "ssh": "paramiko", "smb": "smbprotocol", "abfs": "adlfs", "az": "adlfs", "s3": "s3fs"}


class FsspecStorage(ObjectStorage):
    """`fsspec`: whatever a URL and options say, as a client of fsspec has it."""

    @classmethod
    def config_model(cls) -> type[FsspecConfig]:
        """Return the model of the block; see `StorageType.config_model`."""
        from detlab.schemas.expconf.blocks.storage import FsspecConfig

        return FsspecConfig

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """Return the store of a block; see `StorageType.from_config`."""
        url = config.get("url")
        if not isinstance(url, str) or "://" not in url:
            raise StorageError("checkpoint_storage.url is missing or no address", hint="give one as sftp://host/folder")
        return cls(FsspecObjects(url, dict(config.get("options") or {})))


class FsspecObjects:
    """Objects as files of a file system of fsspec.

    A file is written under another name and renamed where the store has folders; where it has objects, it appears
    whole by itself. Nothing refuses to create what exists: there is a moment between look and write.

    Args:
        url: Protocol and root: `sftp://host/folder`.
        options: As the file system takes them.

    Raises:
        StorageError: A package is missing, or the options are wrong.
    """

    conditional = False

    def __init__(self, url: str, options: Mapping[str, Any]) -> None:
        self._protocol = url.partition("://")[0].lower()
        self.where = url.rstrip("/")
        self._fs, root = _opened(url, self._protocol, options)
        self._root = root.rstrip("/")
        self._renames = self._protocol in _RENAMES

    def put(self, key: str, data: Data, *, create: bool = False) -> None:
        """Store an object; see `Objects.put`."""
        self._write(key, [data], create)

    def put_parts(self, key: str, parts: Iterator[Data], *, create: bool = False) -> None:
        """Store an object from parts; see `Objects.put_parts`."""
        self._write(key, parts, create)

    def _write(self, key: str, parts: Iterable[Data], create: bool) -> None:
        path = self._path(key)
        with self._told("write", key):
            if create and self._fs.exists(path):
                raise ObjectExists(f"cannot write {self.where}/{key}: it exists")
            folder = posixpath.dirname(path)
            self._fs.makedirs(folder, exist_ok=True)
            target = f"{folder}/.{uuids.uuid4().hex}.partial" if self._renames else path
            try:
                with self._fs.open(target, "wb") as stream:
                    for part in parts:
                        stream.write(bytes(part))
                if target != path:
                    self._fs.mv(target, path)
            except BaseException:
                if target != path:
                    with contextlib.suppress(Exception):  # what failed matters more than what is left
                        self._fs.rm_file(target)
                raise

    def get(self, key: str) -> bytes:
        """Return a small object."""
        with self._told("read", key):
            data = bytes(self._fs.cat_file(self._path(key), start=0, end=MOST_MANIFEST + 1))
        check_size(f"{self.where}/{key}", len(data))
        return data

    def get_range(self, key: str, start: int, end: int) -> memoryview:
        """Return some bytes of an object."""
        with self._told("read", key):
            return memoryview(self._fs.cat_file(self._path(key), start=start, end=end))

    def head(self, key: str) -> ObjectInfo:
        """Describe an object."""
        self._fs.invalidate_cache()
        with self._told("look at", key):
            info = self._fs.info(self._path(key))
            if info.get("type") == "directory":
                raise FileNotFoundError(key)
            return _info(key, info)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """List objects; see `Objects.list`."""
        self._fs.invalidate_cache()
        folder = self._path(prefix.rpartition("/")[0])
        found: dict[str, Any] = {}
        with self._told("list", prefix), contextlib.suppress(FileNotFoundError):
            found = self._fs.find(folder, detail=True)
        for path, info in found.items():
            key = self._fs._strip_protocol(path)[len(self._root) :].lstrip("/")
            if key.startswith(prefix):
                yield _info(key, info)

    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects, and the folders that are empty then."""
        folders: set[str] = set()
        for key in sorted(set(keys)):
            with self._told("remove", key), contextlib.suppress(FileNotFoundError):
                self._fs.rm_file(self._path(key))
            folders.update(posixpath.dirname(key[:at]) for at in _ends(key))
        if self._renames:
            for folder in sorted(filter(None, folders), key=len, reverse=True):
                with contextlib.suppress(Exception):  # not empty: each client says so in its own way
                    self._fs.rmdir(self._path(folder))

    def check(self) -> None:
        """Make the root, or look at it."""
        with self._told("use", ""):
            self._fs.makedirs(self._root or "/", exist_ok=True)

    def _path(self, key: str) -> str:
        return f"{self._root}/{key}" if key else self._root or "/"

    @contextlib.contextmanager
    def _told(self, verb: str, key: str) -> Iterator[None]:
        """Turn the errors of any client into ours; their own words may hold what the options held, so few are kept."""
        what = f"{self.where}/{key}" if key else self.where
        try:
            yield
        except (StorageError, GeneratorExit):
            raise
        except FileNotFoundError as error:
            raise ObjectMissing(f"cannot {verb} {what}: it is not there") from error
        except PermissionError as error:
            raise StoreRefused(f"cannot {verb} {what}: {error.strerror or 'permission denied'}") from error
        except (ConnectionError, TimeoutError, EOFError) as error:
            raise StoreAway(f"cannot {verb} {what}: {_words(error)}") from error
        except OSError as error:
            raise StorageError(f"cannot {verb} {what}: {_words(error)}") from error
        except Exception as error:  # each file system has classes of its own
            raise _by_name(error, f"cannot {verb} {what}: {_words(error)}") from error


def _opened(url: str, protocol: str, options: Mapping[str, Any]) -> tuple[Any, str]:
    try:
        from fsspec.core import url_to_fs
    except ImportError as error:
        raise StorageError(
            "checkpoint storage of type 'fsspec' needs the package fsspec, which is not installed here",
            hint="pip install 'detlab[storage]'",
        ) from error
    try:
        found: tuple[Any, str] = url_to_fs(url, **options)
    except ImportError as error:
        known = _PACKAGES.get(protocol)
        raise StorageError(
            f"{protocol}:// needs a package that is not installed here: {error}",
            hint=f"pip install {known}" if known else "the message above names the package to install",
        ) from error
    except ValueError as error:
        raise StorageError(
            f"checkpoint_storage.url: {_words(error)}", hint="see fsspec.available_protocols() for those there are"
        ) from error
    except (TypeError, KeyError) as error:
        raise StorageError(f"checkpoint_storage.options do not fit {protocol}://: {_words(error)}") from error
    except OSError as error:
        raise StoreAway(f"cannot reach {url}: {_words(error)}") from error
    except Exception as error:  # each file system has classes of its own
        raise _by_name(error, f"cannot use {url}: {_words(error)}") from error
    return found


def _by_name(error: Exception, message: str) -> StorageError:
    name = type(error).__name__
    if any(part in name for part in ("Auth", "Permission", "Credential", "Denied", "Forbidden", "HostKey")):
        return StoreRefused(message)
    if any(part in name for part in ("Timeout", "Connect", "Unavailable", "SSHException", "Throttl")):
        return StoreAway(message)
    return StorageError(message)


def _words(error: BaseException) -> str:
    line = str(error).strip().splitlines()
    return f"{type(error).__name__}: {line[0][:300]}" if line else type(error).__name__


def _info(key: str, info: Mapping[str, Any]) -> ObjectInfo:
    when = next((info[name] for name in _TIMES if info.get(name) is not None), 0.0)
    if isinstance(when, datetime.datetime):
        when = when.timestamp()
    return ObjectInfo(key, int(info.get("size") or 0), float(when) if isinstance(when, int | float) else 0.0)


def _ends(key: str) -> Iterator[int]:
    """Give the ends of the parts of a key, so that each folder above it is named once."""
    at = len(key)
    while at > 0:
        yield at
        at = key.rfind("/", 0, at)
