"""A model card in Markdown, made from what was recorded of a version, with Hugging Face's block of YAML at its head.

All text of users is escaped: in a card, a name or a note is only ever text. It cannot open an element of HTML, make a
link or an image, end a table, or begin a heading.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from detlab.export.contents import Contents, title
from detlab.export.front_matter import front_matter
from detlab.governance.levels import AUDIT, level_lines
from detlab.schemas.wire.governance.evidence import EvidenceSummary
from detlab.schemas.wire.registry import VersionView, untwinned
from detlab.storage.formats import Format
from detlab.visible import visible

CARD_NAME = "model-card.md"
_MARKS = re.compile(r"[\\`*_\[\]()!|~$@#{}]")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_VALUE_CHARS = 500
_FILES = 1000


def escaped(text: object, most: int = _VALUE_CHARS) -> str:
    """Return a text of a user as one line of Markdown that shows the text itself, whatever is in it.

    Args:
        text: Anything; its `str` is taken.
        most: Characters of it to show.
    """
    shown = visible(" ".join(str(text).split()), keep="")
    shown = shown if len(shown) <= most else shown[:most] + "…"
    shown = "".join(_ENTITIES.get(char, char) for char in shown)
    shown = _MARKS.sub(r"\\\g<0>", shown)
    # Some renderers make links of bare addresses, and headings or lists of what stands first in a line.
    shown = shown.replace("://", r"\:&#47;/").replace("www.", "www&#46;")
    return re.sub(r"^([-+=:]|\d+(?=[.)]\s))", _first, shown)


def _first(found: re.Match[str]) -> str:
    return "".join(f"&#{ord(char)};" for char in found[0])


def model_card(version: VersionView, contents: Contents) -> str:
    """Return the model card of a version.

    Args:
        version: With its lineage; what is not recorded is left out, not guessed.
        contents: Its files.
    """
    parts = [
        f"# {escaped(title(version))}",
        *_summary(version, contents),
        *_notes(version),
        *_training(version),
        *_metrics(version),
        *_table("Hyperparameters", ("Name", "Value"), _flat(version.lineage.hyperparameters)),
        *_table("Data", ("Data set", "Digest or version"), version.lineage.data.items(), empty=_NO_DATA),
        *_learnt_from(version),
        *_loading(version, contents),
        *_files(contents),
        *_table("Environment", ("Package", "Version"), sorted(version.lineage.environment.items())),
    ]
    return front_matter(version, contents) + "\n\n".join(parts) + "\n"


_NO_DATA = "No data sets were declared. To have them here, declare `data: {digests: {NAME: DIGEST}}` in the config."


def _learnt_from(version: VersionView) -> list[str]:
    """Return the sources that the ledger says were trained on."""
    governed = version.lineage.governed
    if governed is None:
        return []
    rows = [
        (
            one.name if one.reached else f"{one.name} (seen, but closed to all layers)",
            *(one.level, one.samples, one.license, one.manifest or "", one.expires or ""),
        )
        for one in governed.sources
    ]
    heading = ("Source", "Level", "Samples", "Licence, as declared", "Manifest, as declared", "Last day")
    facts = [
        ("Policy", governed.policy_hash),
        ("Matrix", governed.s_hash),
        *((f"Level {name}", said) for name, said in level_lines(one.level for one in governed.sources).items()),
        ("Not enforced", AUDIT if governed.enforce == "audit" else ""),
        *_spent(governed),
        ("Ledger", f"entry {governed.ledger_index}, {governed.ledger_hash}"),
        ("Signed with the key", governed.key_id),
    ]
    return [*_table("Learnt from", heading, rows), _bullets(facts)]


def _spent(governed: EvidenceSummary) -> list[tuple[str, str]]:
    spent = governed.privacy
    if spent is None:
        return []
    said = (
        f"epsilon {spent.epsilon:.4g} at delta {spent.delta:g}, for each record; what other trials spent is not in it"
    )
    return [("Differential privacy", said)]


def _summary(version: VersionView, contents: Contents) -> list[str]:
    facts = [
        ("Semantic version", version.semver),
        ("Labels now", ", ".join(version.labels)),
        ("Called", version.name),
        ("Comment", version.comment),
        ("Registered", f"{_moment(version.created_at)} by {version.owner}" if version.owner else ""),
        ("Checkpoint", version.checkpoint),
        ("Digest of its manifest", version.manifest_digest),
        ("Format", version.format),
        ("Size", f"{contents.size:,} bytes in {len(contents.files)} files"),
    ]
    return [_bullets(facts)]


def _notes(version: VersionView) -> list[str]:
    if not version.notes.strip():
        return []
    lines = [f"> {escaped(line, 10_000)}  " if line.strip() else ">" for line in version.notes.splitlines()]
    return ["## Notes", "\n".join(lines)]


def _training(version: VersionView) -> list[str]:
    made = version.lineage
    experiment = f"{made.experiment_id} ({made.experiment_name})" if made.experiment_name else made.experiment_id
    better = "smaller is better" if made.smaller_is_better else "larger is better"
    facts: list[tuple[str, Any]] = [
        ("Experiment", experiment),
        ("Trial", made.trial_id),
        ("Steps completed", made.steps_completed),
        ("Searched by", f"{made.metric}; {better}" if made.metric else None),
        ("Code", made.bundle_digest),
        ("Started from checkpoints", ", ".join(made.parents)),
        ("Ran on", f"{made.slots} × {made.device or 'slot'}" if made.slots else made.device),
        ("Submitted by", made.submitter),
        ("Started", _moment(made.started_at)),
        ("Ended", _moment(made.ended_at)),
    ]
    shown = _bullets(facts)
    return ["## How it was made", shown or "Nothing was recorded: it was registered from files, not from a trial."]


def _metrics(version: VersionView) -> list[str]:
    made = version.lineage
    step = f", as reported at step {made.steps_completed}" if made.steps_completed is not None else ""
    rows = [(name, _number(made.metrics[name])) for name in untwinned(sorted(made.metrics))]
    return _table(f"Metrics{step}", ("Metric", "Value"), rows)


def _loading(version: VersionView, contents: Contents) -> list[str]:
    reference = json.dumps(f"{version.model}@{version.version}", ensure_ascii=True)
    lines = ["```python", "import detlab as det", "", f"model = det.load_model({reference})", "```"]
    steps = ["## How to load it", "\n".join(lines)]
    if pickled := [name for name, kind in contents.formats.items() if kind.pickled]:
        named = ", ".join(escaped(name) for name in pickled[:5]) + (" and more" if len(pickled) > 5 else "")
        steps.append(
            f"**It holds pickles** ({named}): opening one runs code that its author put into it. It is opened in a"
            " task, or with `allow_pickle=True` by somebody who trusts the author."
        )
    safe = [name for name, kind in contents.formats.items() if kind is Format.SAFETENSORS]
    if safe:
        steps.append(f"Its weights without detlab: `safetensors.torch.load_file` on {escaped(safe[0])}.")
    return steps


def _files(contents: Contents) -> list[str]:
    rows = [
        (name, contents.formats[name].value, f"{file.size:,}", file.digest)
        for name, file in sorted(contents.files.items())[:_FILES]
    ]
    more = len(contents.files) - len(rows)
    tail = [f"And {more} more."] if more else []
    return _table("Files", ("File", "Format", "Bytes", "Digest"), rows) + tail


def _table(
    heading: str, names: Sequence[str], rows: Iterable[Sequence[object]], *, empty: str | None = None
) -> list[str]:
    body = ["| " + " | ".join(escaped(value) for value in row) + " |" for row in rows]
    if not body:
        return [f"## {heading}", empty] if empty else []
    head = ["| " + " | ".join(names) + " |", "| " + " | ".join("---" for _ in names) + " |"]
    return [f"## {heading}", "\n".join(head + body)]


def _bullets(facts: Iterable[tuple[str, Any]]) -> str:
    return "\n".join(f"- {name}: {escaped(value)}" for name, value in facts if value not in (None, ""))


def _flat(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Return nested hyperparameters by dotted names."""
    rows: list[tuple[str, str]] = []
    for name, value in sorted(values.items()):
        if isinstance(value, Mapping) and value:
            rows += _flat(value, f"{prefix}{name}.")
        else:
            rows.append((f"{prefix}{name}", value if isinstance(value, str) else json.dumps(value, default=str)))
    return rows


def _number(value: float) -> str:
    return f"{value:.6g}"


def _moment(at: float | None) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC") if at else ""
