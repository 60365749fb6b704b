"""`det trial support-bundle`: one file with what people who help need to know of a trial."""

from __future__ import annotations

import io
import json
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import click

from detlab.cli.invocation import Invocation, json_option, pass_invocation
from detlab.cli.output.logs import line_text
from detlab.cli.output.printing import clean
from detlab.client.resources import Trial
from detlab.client.transport.version import client_version
from detlab.errors import DetlabError
from detlab.schemas.wire.base import encode_floats


@click.command(name="support-bundle")
@click.argument("trial_id", metavar="ID", type=int)
@click.option(
    "-o", "--output-dir", type=click.Path(file_okay=False, path_type=Path), default=Path(), help="Folder to write to."
)
@json_option
@pass_invocation
def support_bundle(invocation: Invocation, trial_id: int, output_dir: Path) -> None:
    """Write what is known of a trial into one file, for whoever helps: its output, state, config, metrics, versions.

    The secrets of the config are masked; what the code itself printed is in it, so read output.txt before you send it.

    \b
    Example:
      det trial support-bundle 31 -o /tmp
    """
    trial = invocation.client.get_trial(trial_id)
    path = output_dir / f"trial-{trial_id}-support.tar.gz"
    told = {
        "trial.json": trial.view.model_dump(mode="json"),
        "experiment.json": trial.get_experiment().view.model_dump(mode="json"),
        "versions.json": {"client": client_version(), "master": invocation.client.get_cluster().version},
    }
    try:
        output_dir.mkdir(parents=True, exist_ok=True)
        with tarfile.open(path, "w:gz") as archive:
            for name, value in told.items():
                _add(archive, f"trial-{trial_id}/{name}", _json(value))
            _add(archive, f"trial-{trial_id}/metrics.json", _json([_report(one) for one in trial.iter_metrics()]))
            _add_output(archive, f"trial-{trial_id}/output.txt", trial)
    except OSError as error:
        raise DetlabError(f"{path} cannot be written: {error.strerror or error}") from error
    invocation.tell({"path": str(path)}, f"Support bundle of trial {trial_id}: {clean(path)}")


def _json(value: Any) -> bytes:
    return json.dumps(encode_floats(value), indent=2, ensure_ascii=False).encode()


def _report(one: Any) -> dict[str, Any]:
    return {
        "group": one.group, "steps_completed": one.steps_completed, "time": one.report_time, "metrics": one.metrics
    }  # fmt: skip


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(data)
    archive.addfile(entry, io.BytesIO(data))


def _add_output(archive: tarfile.TarFile, name: str, trial: Trial) -> None:
    """Add the output; it may be larger than the memory."""
    with tempfile.TemporaryFile() as file:
        for line in trial.iter_logs():
            file.write(f"{line.time:.3f} {line.level or '-'} {line_text(line, trial=False, node=True)}\n".encode())
        entry = tarfile.TarInfo(name)
        entry.size = file.tell()
        file.seek(0)
        archive.addfile(entry, file)
