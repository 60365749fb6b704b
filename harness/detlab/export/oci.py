"""An OCI artifact of a version, as CNCF's ModelPack specification has it, pushed by oras to any registry of containers.

Each file is a layer of its own, not packed: a registry has each but once, and a runtime mounts it as it is. Beside the
files of the checkpoint are the model card and the bill of materials.
The specification: https://github.com/modelpack/model-spec/blob/main/docs/spec.md
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from detlab.export.bom import BOM_NAME, bill_of_materials
from detlab.export.card import CARD_NAME, model_card
from detlab.export.contents import Contents, contents_of, title
from detlab.schemas.wire.registry import VersionView
from detlab.storage.formats import Format
from detlab.visible import visible

if TYPE_CHECKING:
    from detlab.export.oci_registry import Login

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
ARTIFACT = "application/vnd.cncf.model.manifest.v1+json"
CONFIG = "application/vnd.cncf.model.config.v1+json"
WEIGHT = "application/vnd.cncf.model.weight.v1.raw"
WEIGHT_CONFIG = "application/vnd.cncf.model.weight.config.v1.raw"
DOC = "application/vnd.cncf.model.doc.v1.raw"
CODE = "application/vnd.cncf.model.code.v1.raw"
_FILE_PATH = "org.cncf.model.filepath"
_FILE_METADATA = "org.cncf.model.file.metadata+json"
_TITLE = "org.opencontainers.image.title"
"""By which `oras pull` names files."""
_CODE_ENDINGS = {".py", ".sh", ".ipynb", ".cu", ".cpp"}
_DOC_NAMES = re.compile(r"(readme|license|licence|notice|copying|citation)([._-].*)?", re.IGNORECASE)
_CONFIG_ENDINGS = {".yaml", ".yml", ".toml", ".ini", ".cfg", ".txt"}


@dataclasses.dataclass(frozen=True)
class Pushed:
    """What a registry has now.

    Attributes:
        reference: With its tag: `registry.example/models/digits:3`.
        digest: Of the manifest: `registry.example/models/digits@DIGEST` never moves.
        layers: How many files.
    """

    reference: str
    digest: str
    layers: int


@dataclasses.dataclass(frozen=True)
class Layer:
    """A file that becomes a layer."""

    name: str
    path: Path
    media_type: str
    size: int
    digest: str
    mode: int

    def descriptor(self, at: float) -> dict[str, Any]:
        """Return its entry in the manifest."""
        moment = datetime.fromtimestamp(at, UTC).isoformat()
        facts = {"name": self.name, "mode": self.mode, "uid": 0, "gid": 0, "size": self.size, "mtime": moment}
        return {
            "mediaType": self.media_type,
            "digest": self.digest,
            "size": self.size,
            "annotations": {
                _TITLE: self.name,
                _FILE_PATH: self.name,
                _FILE_METADATA: json.dumps({**facts, "typeflag": ord("0")}, sort_keys=True),
            },
        }


def push_oci(
    version: VersionView, folder: Path, reference: str, login: Login | None = None, *, replace: bool = False
) -> Pushed:
    """Push a version to a registry of containers; its manifest comes last, so nobody sees a part of it.

    Labels that move are not in it: the same version has the same digest whatever they stand at now.

    Args:
        version: With its lineage.
        folder: Of its checkpoint.
        reference: `REGISTRY/REPOSITORY[:TAG]`; without a tag, the version's number is the tag.
        login: How to reach the registry; Docker's own configuration if None.
        replace: Whether the tag may be taken from another artifact that has it.

    Raises:
        DetlabError: Another artifact has the tag, and `replace` is false; oras is not installed, the reference is no
            name for an artifact, or the registry refuses or does not answer; the message has its own words.
    """
    from detlab.export.oci_registry import Login, Registry

    contents = contents_of(folder)
    version = version.model_copy(update={"labels": []})
    with tempfile.TemporaryDirectory(prefix="detlab-oci-") as scratch:
        layers = _layers(version, contents, Path(scratch))
        config = _written(Path(scratch) / "config.json", _config(version, layers))
        registry = Registry(reference, str(version.version), login or Login())
        manifest = encoded(_manifest(version, layers, config.read_bytes()))
        if not replace:
            registry.check_tag(_digest(manifest))
        for layer in layers:
            registry.upload(layer.path, layer.digest, layer.size)
        registry.upload(config, _digest(config.read_bytes()), config.stat().st_size)
        return Pushed(registry.reference, registry.put_manifest(manifest, MANIFEST), len(layers))


def _layers(version: VersionView, contents: Contents, scratch: Path) -> list[Layer]:
    layers = [
        Layer(
            name,
            contents.folder / name,
            media_type(name, contents.formats[name]),
            file.size,
            file.digest,
            _mode(file.mode),
        )
        for name, file in sorted(contents.files.items())
    ]
    for name, text in ((CARD_NAME, model_card(version, contents)), (BOM_NAME, bill_of_materials(version, contents))):
        free = name if name not in contents.files else f"detlab/{name}"
        path = scratch / name
        path.write_text(text, encoding="utf-8")
        data = text.encode()
        layers.append(Layer(free, path, DOC, len(data), _digest(data), 0o644))
    return layers


def _mode(of_file: int) -> int:
    """Return the mode of a layer: whether a file can be run, and nothing of who downloads it here."""
    return 0o755 if of_file & 0o100 else 0o644


def media_type(name: str, kind: Format) -> str:
    """Return what a file is in ModelPack's terms: weights, their configuration, documents or code."""
    path = PurePosixPath(name)
    ending = path.suffix.lower()
    if path.parts[0] == "code" or ending in _CODE_ENDINGS:
        return CODE
    if ending in {".md", ".rst", ".pdf"} or _DOC_NAMES.fullmatch(path.name):
        return DOC
    if kind is Format.JSON or (kind in {Format.TEXT, Format.EMPTY} and ending in _CONFIG_ENDINGS):
        return WEIGHT_CONFIG
    return WEIGHT


def _config(version: VersionView, layers: list[Layer]) -> dict[str, Any]:
    descriptor: dict[str, Any] = {
        "createdAt": datetime.fromtimestamp(version.created_at, UTC).isoformat(),
        "name": _text(version.model),
        "version": version.semver or str(version.version),
        "title": _text(version.name) or _text(title(version)),
    }
    if version.comment:
        descriptor["description"] = _text(version.comment)
    if version.owner:
        descriptor["authors"] = [_text(version.owner)]
    config = {"format": version.format} if version.format not in ("", "other") else {}
    return {
        "descriptor": descriptor,
        "config": config,
        "modelfs": {"type": "layers", "diffIds": [layer.digest for layer in layers]},
    }


def _manifest(version: VersionView, layers: list[Layer], config: bytes) -> dict[str, Any]:
    annotations = {
        "org.opencontainers.image.created": datetime.fromtimestamp(version.created_at, UTC).isoformat(),
        "org.opencontainers.image.title": _text(title(version)),
        "org.opencontainers.image.version": version.semver or str(version.version),
    }
    if version.checkpoint:
        annotations["detlab.checkpoint"] = version.checkpoint
    if version.lineage.bundle_digest:
        annotations["detlab.code"] = version.lineage.bundle_digest
    return {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "artifactType": ARTIFACT,
        "config": {"mediaType": CONFIG, "digest": _digest(config), "size": len(config)},
        "layers": [layer.descriptor(version.created_at) for layer in layers],
        "annotations": annotations,
    }


def encoded(document: Mapping[str, Any]) -> bytes:
    """Return JSON in one form, so that the same version has the same digest wherever it is pushed from."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def _written(path: Path, document: Mapping[str, Any]) -> Path:
    path.write_bytes(encoded(document))
    return path


def _digest(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def _text(value: str) -> str:
    return visible(value, keep="")
