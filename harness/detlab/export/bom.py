"""A measured bill of materials: CycloneDX 1.6 with a component of the type `machine-learning-model`.

It says what was recorded while the model was trained and what its files are: nothing else. Uses, limits and risks of a
model (`considerations`) are for people to write; they are left out.

The library has no classes for `modelCard` yet, so that one object is added to its JSON as the specification has it:
https://cyclonedx.org/docs/1.6/json/#components_items_modelCard
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from importlib.metadata import version as installed
from typing import TYPE_CHECKING, Any

from detlab.errors import DetlabError
from detlab.export.contents import Contents
from detlab.governance.levels import SAID
from detlab.schemas.wire import CheckpointFile
from detlab.schemas.wire.governance.evidence import SourceSummary
from detlab.schemas.wire.registry import Lineage, VersionView
from detlab.visible import visible

if TYPE_CHECKING:
    from cyclonedx.model.bom import Bom
    from cyclonedx.model.component import Component

BOM_NAME = "bom.cdx.json"
_NOT_PACKAGES = {"python", "platform"}
"""What an environment lock holds beside packages."""
_PACKAGE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_SHA256 = re.compile(r"sha256:([0-9a-f]{64})")
_NAMESPACE = uuid.UUID("6f2c1d60-7a55-4c5a-8f3e-0d5ea1d4b0a7")


def bill_of_materials(version: VersionView, contents: Contents) -> str:
    """Return the bill of materials as JSON; the same version and files give the same text.

    Args:
        version: With its lineage.
        contents: Its files.

    Raises:
        DetlabError: The library is not installed.
    """
    try:
        from cyclonedx.output.json import JsonV1Dot6  # takes a tenth of a second, for this alone
    except ImportError as error:
        raise DetlabError(
            f"a bill of materials needs cyclonedx-python-lib, which is not installed here ({error})",
            hint="Install it: pip install 'detlab[registry]'",
        ) from error
    document = json.loads(JsonV1Dot6(_bom(version, contents)).output_as_string())
    document["metadata"]["component"]["modelCard"] = _model_card(version.lineage)
    return json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def _bom(version: VersionView, contents: Contents) -> Bom:
    from cyclonedx.model.bom import Bom, BomMetaData
    from cyclonedx.model.component import Component, ComponentType

    model = _model(version, contents)
    made_with = [*_packages(version.lineage.environment), *_code(version.lineage)]
    tool = Component(name="detlab", version=installed("detlab"), type=ComponentType.APPLICATION)
    identity = f"{version.manifest_digest}/{version.model}/{version.version}/{_digest_of(contents.files)}"
    bom = Bom(
        serial_number=uuid.uuid5(_NAMESPACE, identity),
        metadata=BomMetaData(
            component=model, timestamp=datetime.fromtimestamp(version.created_at, UTC), tools=_tools([tool])
        ),
        components=made_with,
    )
    bom.register_dependency(model, made_with)
    return bom


def _tools(components: Iterable[Component]) -> Any:
    from cyclonedx.model.tool import ToolRepository

    return ToolRepository(components=components)


def _model(version: VersionView, contents: Contents) -> Component:
    from cyclonedx.model.component import Component, ComponentType

    facts: dict[str, object] = {
        "checkpoint": version.checkpoint,
        "manifest": version.manifest_digest,
        "semver": version.semver,
        "labels": ", ".join(version.labels),
        "format": version.format,
        "bytes": contents.size,
    }
    return Component(
        name=_text(version.model),
        version=str(version.version),
        type=ComponentType.MACHINE_LEARNING_MODEL,
        bom_ref=f"model/{version.model_id}/{version.version}",
        description=_text(version.comment) or None,
        properties=_properties(facts),
        components=[_file(name, file, contents) for name, file in sorted(contents.files.items())],
    )


def _file(name: str, file: CheckpointFile, contents: Contents) -> Component:
    from cyclonedx.model.component import Component, ComponentType

    return Component(
        name=_text(name),
        type=ComponentType.FILE,
        bom_ref=f"file/{name}",
        hashes=_hashes(file.digest),
        properties=_properties({"bytes": file.size, "format": contents.formats[name].value}),
    )


def _packages(environment: Mapping[str, str]) -> list[Component]:
    """Return the packages of the environment lock, with Python and the platform that they ran on."""
    from cyclonedx.model.component import Component, ComponentType
    from packageurl import PackageURL

    found = []
    for name, version in sorted(environment.items()):
        kind = ComponentType.PLATFORM if name in _NOT_PACKAGES else ComponentType.LIBRARY
        named = kind is ComponentType.LIBRARY and _PACKAGE.fullmatch(name)
        purl = PackageURL("pypi", None, re.sub(r"[-_.]+", "-", name).lower(), version) if named else None
        found.append(
            Component(name=_text(name), version=_text(version), type=kind, purl=purl, bom_ref=f"environment/{name}")
        )
    return found


def _code(made: Lineage) -> list[Component]:
    from cyclonedx.model.component import Component, ComponentType

    if not made.bundle_digest:
        return []
    facts = {"digest": made.bundle_digest, "experiment": made.experiment_id}
    return [
        Component(
            name="code of the experiment",
            type=ComponentType.FILE,
            bom_ref="code",
            hashes=_hashes(made.bundle_digest),
            properties=_properties(facts),
        )
    ]


def _model_card(made: Lineage) -> dict[str, Any]:
    facts: dict[str, object] = {
        "experiment": made.experiment_id,
        "experiment_name": made.experiment_name,
        "trial": made.trial_id,
        "steps_completed": made.steps_completed,
        "metric": made.metric,
        "smaller_is_better": json.dumps(made.smaller_is_better) if made.metric else None,
        "parents": ", ".join(made.parents),
        "slots": made.slots or None,
        "device": made.device,
    }
    rows = [*_named(facts), *_named(made.hyperparameters, "hyperparameter:")]
    card: dict[str, Any] = {}
    sets = [_data_set(*entry) for entry in sorted(made.data.items())]
    if made.governed is not None:
        sets += [_source(one) for one in made.governed.sources if one.samples and one.reached]
        rows += _named(made.governed.model_dump(exclude={"sources"}), "evidence:")
    if sets:
        card["modelParameters"] = {"datasets": sets}
    if made.metrics:
        metrics = [{"type": _text(name), "value": repr(value)} for name, value in sorted(made.metrics.items())]
        card["quantitativeAnalysis"] = {"performanceMetrics": metrics}
    if rows:
        card["properties"] = [{"name": name, "value": value} for name, value in rows]
    return card


def _data_set(name: str, digest: str) -> dict[str, Any]:
    facts = [{"name": "detlab:digest", "value": _text(digest)}]
    return {"type": "dataset", "name": _text(name), "contents": {"properties": facts}}


def _source(source: SourceSummary) -> dict[str, Any]:
    """Return a source that the ledger says was trained on, as a data set."""
    facts: dict[str, object] = {
        "samples": source.samples,
        "level": source.level,
        "not promised": SAID.get(source.level, "").partition("not promised: ")[2],
        "license": source.license,
        "manifest": source.manifest,
        "expires": source.expires,
    }
    listed = [{"name": name, "value": value} for name, value in _named(facts)]
    return {"type": "dataset", "name": _text(source.name), "contents": {"properties": listed}}


def _named(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    rows = []
    for name, value in sorted(values.items()):
        if value not in (None, ""):
            shown = value if isinstance(value, str) else json.dumps(value, default=str, sort_keys=True)
            rows.append((f"detlab:{prefix}{_text(name)}", _text(shown)))
    return rows


def _properties(facts: Mapping[str, Any]) -> Any:
    from cyclonedx.model import Property

    return [Property(name=name, value=value) for name, value in _named(facts)]


def _hashes(digest: str) -> Any:
    from cyclonedx.model import HashAlgorithm, HashType

    found = _SHA256.fullmatch(digest)
    return [HashType(alg=HashAlgorithm.SHA_256, content=found[1])] if found else []


def _digest_of(files: Mapping[str, CheckpointFile]) -> str:
    return hashlib.sha256(json.dumps({name: file.digest for name, file in sorted(files.items())}).encode()).hexdigest()


def _text(value: object) -> str:
    return visible(str(value), keep="\n\t")
