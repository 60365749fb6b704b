"""The checkpoint_storage block: a union on `type`, with how many checkpoints to keep."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Discriminator, Field, SerializeAsAny, Tag, WrapValidator
from pydantic.json_schema import SkipJsonSchema

from detlab.schemas.expconf.blocks.scalars import (
    Block,
    FilledText,
    Flag,
    NonNegativeInt,
    Text,
    as_text,
    ignored,
    needed,
    refuse,
)
from detlab.schemas.storage_types import STORAGES

COMMON = ("save_experiment_best", "save_trial_best", "save_trial_latest")
"""Keys that every store has; a merge keeps them across different stores."""

REMOVED: dict[str, str] = {"hdfs": "'hdfs' checkpoint storage was removed from Determined and is not available"}

_LEGACY_PATH = "`storage_path` under `host_path` decides where checkpoints are"


def _no_parent_steps(value: object) -> object:
    text = as_text(value)
    if isinstance(text, str) and ".." in text.split("/"):
        refuse("must not contain /../")
    return text


Prefix = Annotated[Text, BeforeValidator(_no_parent_steps)]


class StorageBlock(Block):
    """What all stores have."""

    save_experiment_best: NonNegativeInt = Field(0, description="Best checkpoints of the whole experiment to keep.")
    save_trial_best: NonNegativeInt = Field(1, description="Best checkpoints of each trial to keep.")
    save_trial_latest: NonNegativeInt = Field(1, description="Latest checkpoints of each trial to keep.")


class S3Config(StorageBlock):
    """Checkpoints in an S3 bucket."""

    OMITS_NULL: ClassVar[frozenset[str]] = frozenset({"session_token", "region", "path_style", "ca_file"})

    type: Literal["s3"] = "s3"
    bucket: FilledText | None = needed("Name of the bucket.")
    access_key: Text | None = Field(None, description="Access key; by default the environment's credentials.")
    secret_key: Text | None = Field(None, description="Secret key.")
    endpoint_url: Text | None = Field(None, description="Endpoint of an S3-compatible store.")
    prefix: Prefix | None = Field(None, description="Prefix of all keys.")
    session_token: Text | None = Field(None, description="Token that belongs to temporary keys.")
    region: Text | None = Field(None, description="Region of the bucket; by default the environment's, or us-east-1.")
    path_style: Flag | None = Field(
        None, description="Bucket in the path, not in the host name, as MinIO has it; by default with `endpoint_url`."
    )
    ca_file: Text | None = Field(None, description="File with certificates to trust besides the system's.")


class GCSConfig(StorageBlock):
    """Checkpoints in a Google Cloud Storage bucket."""

    OMITS_NULL: ClassVar[frozenset[str]] = frozenset({"credential", "endpoint_url", "ca_file"})

    type: Literal["gcs"] = "gcs"
    bucket: FilledText | None = needed("Name of the bucket.")
    prefix: Prefix | None = Field(None, description="Prefix of all keys.")
    credential: Text | None = Field(
        None, description="JSON of a service account's key; by default the environment's credentials."
    )
    endpoint_url: Text | None = Field(None, description="Another endpoint, as an emulator's.")
    ca_file: Text | None = Field(None, description="File with certificates to trust besides the system's.")


class AzureConfig(StorageBlock):
    """Checkpoints in an Azure blob container."""

    OMITS_NULL: ClassVar[frozenset[str]] = frozenset(
        {"connection_string", "account_url", "credential", "prefix", "ca_file"}
    )

    type: Literal["azure"] = "azure"
    container: FilledText | None = needed("Name of the container.")
    connection_string: Text | None = Field(None, description="Connection string; or else `account_url`.")
    account_url: Text | None = Field(None, description="URL of the account; or else `connection_string`.")
    credential: Text | None = Field(None, description="Account key or SAS token for `account_url`.")
    prefix: Prefix | None = Field(None, description="Prefix of all names.")
    ca_file: Text | None = Field(None, description="File with certificates to trust besides the system's.")


class SharedFSConfig(StorageBlock):
    """Checkpoints in a directory that every node mounts."""

    OMITS_NULL: ClassVar[frozenset[str]] = frozenset({"container_path", "checkpoint_path", "tensorboard_path"})

    type: Literal["shared_fs"] = "shared_fs"
    host_path: FilledText | None = needed("Absolute path of the shared directory on every node.")
    storage_path: Text | None = Field(None, description="Folder for checkpoints: relative, or below `host_path`.")
    propagation: Text = Field("rprivate", description="Mount propagation.")
    container_path: Text | None = ignored(None, "Legacy.", _LEGACY_PATH)
    checkpoint_path: Text | None = ignored(None, "Legacy.", _LEGACY_PATH)
    tensorboard_path: Text | None = ignored(None, "Legacy.", _LEGACY_PATH)


class DirectoryConfig(StorageBlock):
    """Checkpoints in a directory as the task sees it."""

    type: Literal["directory"] = "directory"
    container_path: FilledText | None = needed("Path of the directory inside the task.")


def _plain_url(value: object) -> object:
    text = as_text(value)
    if isinstance(text, str):
        scheme, separator, rest = text.partition("://")
        if not separator or not scheme:
            refuse("must be an address", "as sftp://host/folder")
        if "::" in text:
            refuse("must not chain addresses with ::")
        if "@" in rest.partition("/")[0] and ":" in rest.partition("@")[0]:
            refuse("must not hold a password", "put it into options: {username: …, password: …}")
    return text


class FsspecConfig(StorageBlock):
    """Checkpoints in any store that fsspec has a file system for."""

    OMITS_NULL: ClassVar[frozenset[str]] = frozenset({"options"})

    type: Literal["fsspec"] = "fsspec"
    url: Annotated[FilledText, BeforeValidator(_plain_url)] | None = needed("Where: `sftp://host/folder`.")
    options: dict[str, Any] | None = Field(None, description="What the file system takes: user, password, endpoint.")


class UntypedStorage(StorageBlock):
    """A storage block without a `type`, which the cluster supplies: any store's keys are fine."""

    OMITS_NULL: ClassVar[frozenset[str]] = frozenset(
        {
            "type",
            "bucket",
            "access_key",
            "secret_key",
            "session_token",
            "endpoint_url",
            "region",
            "path_style",
            "ca_file",
            "prefix",
            "container",
            "connection_string",
            "account_url",
            "credential",
            "host_path",
            "storage_path",
            "propagation",
            "container_path",
            "checkpoint_path",
            "tensorboard_path",
            "url",
            "options",
        }
    )

    type: None = Field(None, description="Which store: shared_fs, directory, s3, gcs or azure.")
    bucket: FilledText | None = Field(None, description="s3, gcs.")
    access_key: Text | None = Field(None, description="s3.")
    secret_key: Text | None = Field(None, description="s3.")
    session_token: Text | None = Field(None, description="s3.")
    endpoint_url: Text | None = Field(None, description="s3, gcs.")
    region: Text | None = Field(None, description="s3.")
    path_style: Flag | None = Field(None, description="s3.")
    ca_file: Text | None = Field(None, description="s3, gcs, azure.")
    prefix: Prefix | None = Field(None, description="s3, gcs, azure.")
    container: FilledText | None = Field(None, description="azure.")
    connection_string: Text | None = Field(None, description="azure.")
    account_url: Text | None = Field(None, description="azure.")
    credential: Text | None = Field(None, description="gcs, azure.")
    host_path: FilledText | None = Field(None, description="shared_fs.")
    storage_path: Text | None = Field(None, description="shared_fs.")
    propagation: Text | None = Field(None, description="shared_fs.")
    container_path: FilledText | None = Field(None, description="directory.")
    url: Annotated[FilledText, BeforeValidator(_plain_url)] | None = Field(None, description="fsspec.")
    options: dict[str, Any] | None = Field(None, description="fsspec.")
    checkpoint_path: Text | None = ignored(None, "Legacy.", _LEGACY_PATH)
    tensorboard_path: Text | None = ignored(None, "Legacy.", _LEGACY_PATH)


MEMBERS: dict[str, type[StorageBlock]] = {
    "s3": S3Config,
    "gcs": GCSConfig,
    "azure": AzureConfig,
    "shared_fs": SharedFSConfig,
    "directory": DirectoryConfig,
    "fsspec": FsspecConfig,
}


"""The types whose keys are known here; a type that another package brings has its keys from there."""


class _Types(Mapping[str, type[StorageBlock]]):
    """The models of all types: those above, and those of installed storages, which are imported when one is used."""

    def __getitem__(self, name: str) -> type[StorageBlock]:
        if name in MEMBERS:
            return MEMBERS[name]
        if name not in STORAGES.names():
            raise KeyError(name)
        model: type[StorageBlock] = STORAGES.load(name).config_model()
        return model

    def __contains__(self, name: object) -> bool:
        return name in MEMBERS or name in STORAGES.names()

    def __iter__(self) -> Iterator[str]:
        yield from MEMBERS
        yield from (name for name in STORAGES.names() if name not in MEMBERS)

    def __len__(self) -> int:
        return len(list(iter(self)))


TYPES: Mapping[str, type[StorageBlock]] = _Types()


def member_of(value: Any) -> type[StorageBlock] | None:
    """Return the model that judges a raw storage block; None if its type is unknown or removed.

    Raises:
        StorageError: The package that brings the type cannot be imported.
    """
    if not isinstance(value, dict) or value.get("type") is None:
        return UntypedStorage
    name = value["type"]
    return TYPES.get(name) if isinstance(name, str) else None


def _judge_installed(value: Any, _handler: object) -> StorageBlock:
    """Validate a block of a type that another package brings."""
    if isinstance(value, StorageBlock):
        return value
    return TYPES[value["type"]].model_validate(value)


InstalledStorage = Annotated[SerializeAsAny[StorageBlock], WrapValidator(_judge_installed)]


def _tag(value: Any) -> str | None:
    if isinstance(value, StorageBlock):
        name = getattr(value, "type", None) or ""
    elif member_of(value) is None:
        return None
    else:
        name = (value.get("type") or "") if isinstance(value, dict) else ""
    return f"::{name}" if not name or name in MEMBERS else "::installed"


CheckpointStorage = Annotated[
    Annotated[S3Config, Tag("::s3")]
    | Annotated[GCSConfig, Tag("::gcs")]
    | Annotated[AzureConfig, Tag("::azure")]
    | Annotated[SharedFSConfig, Tag("::shared_fs")]
    | Annotated[DirectoryConfig, Tag("::directory")]
    | Annotated[FsspecConfig, Tag("::fsspec")]
    | Annotated[UntypedStorage, Tag("::")]
    | SkipJsonSchema[Annotated[InstalledStorage, Tag("::installed")]],
    Discriminator(_tag),
]
