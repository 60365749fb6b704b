"""The checkpoints of batch inference: how far all ranks are, their reducers' values, and the output since the last one.

metadata                steps_completed, and under `batch_process` what `RunProgress` has
rank<r>/…               output files of a rank that are new since the parts that stay
progress/rank<r>.json   the reducers' values of a rank (with progress/rank<r>.safetensors, their tensors)
outputs.json            of the last one, which has all files: whose they are, and that they are complete
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from detlab import core
from detlab.core.checkpoint.context import DownloadMode
from detlab.errors import DetlabError
from detlab.pytorch.checkpoint import codec, tensor_files
from detlab.pytorch.experimental.outputs import RankOutputs, summary
from detlab.pytorch.experimental.shards import StoredPart, fold

logger = logging.getLogger("detlab.pytorch")

KEY = "batch_process"
FORMAT = 1
FOLDER = "progress"
SUMMARY = "outputs.json"


@dataclass(frozen=True, slots=True)
class RunProgress:
    """How far a run is, over all its attempts; the same on all ranks.

    Attributes:
        samples: Of the dataset.
        batch_size: Samples of a batch.
        max_batches: The most that each rank processes; None for all.
        batches: To process in all.
        done: Batches that are processed, the first ones of the dataset.
        steps: Steps of each rank so far, by which `batch_idx` counts.
        ranks: Ranks of the attempt that stored this.
        trial: Id of the trial; None off-cluster.
        source: The checkpoint that the experiment starts from.
        parts: Checkpoints with the output so far, oldest first.
        weight: Of the checkpoint that holds this itself; see `StoredPart`.
        replaced: Checkpoints whose content the one that holds this has too: they are deleted after it is stored.
        removed: Output files that were stored in a part and removed since.
        finished: Whether all is done and stored.
    """

    samples: int
    batch_size: int
    max_batches: int | None
    batches: int
    done: int = 0
    steps: int = 0
    ranks: int = 1
    trial: int | None = None
    source: str | None = None
    parts: tuple[StoredPart, ...] = ()
    weight: int = 1
    replaced: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    finished: bool = False

    def as_metadata(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {"format": FORMAT, **asdict(self), "parts": [asdict(part) for part in self.parts]}

    @classmethod
    def read(cls, uuid: str, metadata: Mapping[str, Any]) -> RunProgress | None:
        """Return what a checkpoint's metadata say, the checkpoint itself among the parts.

        Returns:
            None for a checkpoint that no batch inference has stored, such as that of a model.
        """
        found = metadata.get(KEY)
        if not isinstance(found, Mapping) or found.get("format") != FORMAT:
            return None
        fields = {key: value for key, value in found.items() if key in cls.__dataclass_fields__}
        earlier = tuple(StoredPart(str(part["uuid"]), int(part["weight"])) for part in found["parts"])
        own = StoredPart(uuid, int(found["weight"]))
        lists = {name: tuple(found.get(name) or ()) for name in ("replaced", "removed")}
        return cls(**{**fields, **lists, "parts": (*earlier, own)})

    def differences(self, other: RunProgress) -> list[str]:
        """Return in which ways the code asks for other batches than those that this counts."""
        names = {"samples": "samples in the dataset", "batch_size": "batch_size", "max_batches": "max_batches"}
        return [
            f"{name}: {getattr(other, key)} now, {getattr(self, key)} before"
            for key, name in names.items()
            if getattr(self, key) != getattr(other, key)
        ]


class ProgressStore:
    """Stores and restores the progress of all ranks; each of them has one, and they call it in step.

    Args:
        core_context: The Core API of this process.
        outputs: This rank's files.
    """

    def __init__(self, core_context: core.Context, outputs: RankOutputs) -> None:
        self._core = core_context
        self._ranks = core_context.distributed
        self._outputs = outputs
        self._folder = outputs.root / FOLDER
        self._folder.mkdir()

    def find(self, uuid: str | None) -> RunProgress | None:
        """Return the progress that a checkpoint holds; None if there is none to resume."""
        if uuid is None:
            return None
        found = RunProgress.read(uuid, self._core.checkpoint.get_metadata(uuid)) if self._ranks.rank == 0 else None
        progress: RunProgress | None = self._ranks.broadcast(found)
        return progress

    def clear_up(self, progress: RunProgress) -> None:
        """Delete what the checkpoint of a progress has taken in, unless it was done before; the chief does."""
        if self._ranks.rank == 0:
            for uuid in progress.replaced:
                with contextlib.suppress(DetlabError):  # somebody has bookmarked it
                    self._core.checkpoint.delete(uuid)

    def restore(self, progress: RunProgress) -> list[list[Any]]:
        """Fetch the output so far; return the reducers' values of those ranks whose part this one takes over."""
        for place, part in enumerate(progress.parts):
            self._fetch(part.uuid, self._outputs.root, self._outputs.is_mine)
            self._outputs.restored(place)
        self._outputs.forget(list(progress.removed))
        mine = range(self._ranks.rank, progress.ranks, self._ranks.size)
        names = {f"{FOLDER}/rank{rank}{suffix}" for rank in mine for suffix in (".json", ".safetensors")}
        self._fetch(progress.parts[-1].uuid, self._outputs.root, names.__contains__)
        return [self._read_values(rank) for rank in mine]

    def _fetch(self, uuid: str, folder: Path, wanted: Any) -> None:
        self._core.checkpoint.download(uuid, folder, DownloadMode.NoSharedDownload, selector=wanted)

    def _read_values(self, rank: int) -> list[Any]:
        path = self._folder / f"rank{rank}.json"
        reader = tensor_files.TensorReader(path.with_suffix(".safetensors"))
        tensors = {name: reader.tensor(name) for name in reader.names}
        # The trial's own checkpoint: what is pickled in it was made by the same code.
        values = codec.decode(json.loads(path.read_bytes()), tensors, allow_pickle=True)
        return list(values)

    def save(self, progress: RunProgress, values: list[Any]) -> RunProgress:
        """Store a checkpoint with what is new; return the progress with that checkpoint as its last part.

        The last one, of a progress that is finished, holds all files. Parts whose content it has too are deleted.

        Args:
            progress: How far all ranks are; its parts are those that are stored.
            values: Of this rank's reducers.
        """
        kept, replaced, weight = fold(progress.parts)
        if progress.finished:
            kept, replaced = [], list(progress.parts)
            weight = 1 + sum(part.weight for part in replaced)
        files: set[str] = {SUMMARY} if progress.finished else self._write_values(values)
        wanted = self._outputs.collect(len(kept))
        self._write_summary(progress)
        removed = sorted(set().union(*self._ranks.allgather(self._outputs.removed))) if kept else []
        now = replace(
            progress,
            parts=tuple(kept),
            weight=weight,
            replaced=tuple(part.uuid for part in replaced),
            removed=tuple(removed),
            ranks=self._ranks.size,
        )
        metadata = {"steps_completed": now.steps, KEY: now.as_metadata()}
        files |= wanted
        uuid = self._core.checkpoint.upload(
            self._outputs.root,
            metadata if self._ranks.rank == 0 else None,
            shard=True,
            selector=files.__contains__,
        )
        self.clear_up(now)
        return replace(now, parts=(*kept, StoredPart(uuid, weight)))

    def _write_values(self, values: list[Any]) -> set[str]:
        structure, tensors = codec.encode(values)
        path = self._folder / f"rank{self._ranks.rank}.json"
        path.write_text(json.dumps(structure), encoding="utf-8")
        tensor_files.write(path.with_suffix(".safetensors"), tensors)
        return {f"{FOLDER}/{path.name}", f"{FOLDER}/{path.stem}.safetensors"}

    def _write_summary(self, progress: RunProgress) -> None:
        if not progress.finished:
            return
        listed = self._ranks.gather(self._outputs.listed())
        if listed is not None:
            counted = {name: getattr(progress, name) for name in ("samples", "batch_size", "batches", "source")}
            content = json.dumps(summary(counted, listed), indent=1) + "\n"
            (self._outputs.root / SUMMARY).write_text(content, encoding="utf-8")
