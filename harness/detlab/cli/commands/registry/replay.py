"""`det governance replay`: a segment of a trial trained anew here, and its weights compared with what was recorded."""

from __future__ import annotations

import dataclasses
import json
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from detlab.cli.commands.download import fetch_files
from detlab.cli.invocation import Invocation, confirmed, json_option, pass_invocation, yes_option
from detlab.cli.output.printing import clean, note, say, say_json
from detlab.client.operations import experiments
from detlab.client.operations.governance import evidence as operations
from detlab.errors import DetlabError
from detlab.visible import visible

if TYPE_CHECKING:
    from detlab.client.operations.governance.evidence import RecordedSegment
    from detlab.client.resources import Checkpoint, Experiment
    from detlab.governance.replaying import ReplayVerdict
    from detlab.launch.offcluster.replay import TrialSegment

RECORDED = "recorded"
"""In the folder: the weights that are compared with."""
_STATE = "trainer.json"
_WEIGHTS = "model_*.safetensors"


@click.command(short_help="Train a segment anew, and compare the weights with the recorded ones.")
@click.argument("checkpoint", metavar="CHECKPOINT")
@click.option(
    "-o", "--output-dir", type=click.Path(path_type=Path), help="Folder to create. Default: replays/CHECKPOINT."
)
@click.option(
    "--tolerance", type=click.FloatRange(min=0), default=0.0, help="How far off a weight may be; by default not a bit."
)
@yes_option
@json_option
@pass_invocation
def replay(invocation: Invocation, checkpoint: str, output_dir: Path | None, tolerance: float, yes: bool) -> None:
    """Train what led to CHECKPOINT anew, from the checkpoint before it, and compare the weights bit by bit.

    The code of the experiment is downloaded and runs HERE, as you: it is asked for first. It needs what the trial had:
    packages, data at the same paths, as many processes. Bit-equality is to be expected on the same kind of machine with
    as many threads, which the evidence names. The status is 1 if something differs; then the first parameter that
    differs, and likely causes, are named. On another kind of machine, --tolerance says how far off weights may be, as
    absolute difference; samples, their order and the matrix must be the same nevertheless. Nothing is reported to the
    cluster.

    \b
    Examples:
      det governance replay 3f2a…
      det governance replay 3f2a… --yes -o again/
      det governance replay 3f2a… --tolerance 1e-5
    """
    from detlab.launch.offcluster.replay import train

    client = invocation.client
    recorded = client.session.run(operations.segment(checkpoint))
    target = client.get_checkpoint(recorded.seen.checkpoint)
    folder = output_dir or Path("replays") / target.uuid
    if folder.exists():
        raise DetlabError(
            f"{visible(str(folder))} is there already", hint="remove it, or name another with --output-dir"
        )
    experiment = client.get_experiment(recorded.seen.experiment_id)
    parent = _parent(invocation, recorded)
    segment = _segment(invocation, recorded, experiment)
    confirmed(_question(experiment, segment), yes=yes, deed="running the code of an experiment here")
    segment = _fetch(invocation, folder, segment, experiment, target, parent)
    if not invocation.as_json:
        note(f"training up to batch {segment.until} anew; its output is in {clean(folder)}")
    verdict = _judged(recorded, target, folder, train(folder, segment))
    if recorded.seen.predicate.get("code", experiment.view.bundle) != experiment.view.bundle and not verdict.equal:
        verdict.causes.insert(0, "the code of the experiment was replaced since")
    _tell(invocation, recorded, segment, verdict, folder, tolerance)
    if not verdict.holds(tolerance):
        sys.exit(1)


def _fetch(
    invocation: Invocation,
    folder: Path,
    segment: TrialSegment,
    experiment: Experiment,
    target: Checkpoint,
    parent: Checkpoint | None,
) -> TrialSegment:
    """Make the folder with the code, the recorded weights and what it begins with; return the segment whole."""
    from detlab.launch.offcluster.replay import CHECKPOINTS, lay_out_replay, place

    digest, quiet = experiment.view.bundle, invocation.as_json
    bundle = b"" if digest is None else invocation.client.session.run(experiments.experiment_bundle(experiment.id))
    folder.mkdir(mode=0o700, parents=True)
    was = fetch_files(target, folder / RECORDED, quiet=quiet, globs=[_WEIGHTS, _STATE])
    segment = dataclasses.replace(segment, canaries=_canaries(was / _STATE))
    lay_out_replay(folder, segment, bundle, digest)
    if parent is not None:
        before = folder / CHECKPOINTS / parent.uuid
        fetch_files(parent, before, quiet=quiet)
        place(parent.view, before)
    return segment


def _parent(invocation: Invocation, recorded: RecordedSegment) -> Checkpoint | None:
    """Return the checkpoint that the segment begins with; None for new weights.

    Raises:
        DetlabError: It was deleted.
    """
    name = recorded.entry.body.get("parent")
    if name is None:
        return None
    found = invocation.client.get_checkpoint(str(name))
    if found.view.state != "COMPLETED":
        message = f"the checkpoint before, {found.uuid}, is {found.view.state}: there is nothing to begin with"
        raise DetlabError(message, hint="replay another segment: det governance who CHECKPOINT lists them")
    return found


def _segment(invocation: Invocation, recorded: RecordedSegment, experiment: Experiment) -> TrialSegment:
    from detlab.launch.offcluster.replay import TrialSegment

    body, said = recorded.entry.body, recorded.seen.predicate
    trial = invocation.client.get_trial(recorded.seen.trial_id).view
    computed = body.get("versions") or {}
    return TrialSegment(
        cluster_id=str(said.get("cluster")),
        master_url=invocation.client.address.url,
        experiment_id=experiment.id,
        trial_id=trial.id,
        trial_index=trial.index,
        seed=trial.seed,
        hparams=trial.hparams,
        config=dict(experiment.config or {}),
        parent=body.get("parent"),
        until=int(body["step"]),
        processes=int(body.get("world_size") or 1),
        gpus="gpu" in computed,
        threads=str(computed.get("threads") or ""),
    )


def _question(experiment: Experiment, segment: TrialSegment) -> str:
    command = segment.entrypoint if isinstance(segment.entrypoint, str) else shlex.join(segment.entrypoint)
    code = (experiment.view.bundle or "none")[:23]
    return (
        f"Experiment {experiment.id} is of {clean(experiment.view.owner)}, its code is {clean(code)}…\n"
        f"It is downloaded, and runs on this machine as you: {clean(command)}\n"
        "It can read and change all that you can. Run it?"
    )


def _canaries(path: Path) -> str | None:
    """Return the secret of a trial's canaries, which its checkpoints hold."""
    try:
        found: Any = json.loads(path.read_bytes())["tree"]["trial_state"]["canaries"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found if isinstance(found, str) else None


def _judged(recorded: RecordedSegment, target: Checkpoint, folder: Path, made: Path) -> ReplayVerdict:
    from detlab.governance.replaying import judge
    from detlab.launch.offcluster.replay import manifest_of
    from detlab.schemas.wire.governance.evidence import METADATA_KEY
    from detlab.storage.manifest import MANIFEST_NAME

    if manifest_of(target.view).digest != recorded.seen.manifest_digest:
        note("warning: the list of its files could not be compared with the signed one, which names empty folders too")
    metadata = json.loads((made / MANIFEST_NAME).read_bytes())["metadata"]
    now: Mapping[str, Any] = metadata.get(METADATA_KEY) or {}
    names = [name for name, _ in recorded.matrix.parameters]
    return judge(folder / RECORDED, made, names, recorded.entry.body, now)


def _tell(
    invocation: Invocation,
    recorded: RecordedSegment,
    segment: TrialSegment,
    verdict: ReplayVerdict,
    folder: Path,
    tolerance: float,
) -> None:
    first, uuid = recorded.entry.body["first_step"], recorded.seen.checkpoint
    if invocation.as_json:
        said = dataclasses.asdict(verdict)
        facts = {"checkpoint": uuid, "parent": segment.parent, "first_step": first, "step": segment.until}
        say_json({**facts, "equal": verdict.equal, "holds": verdict.holds(tolerance), **said, "path": str(folder)})
        return
    before = "new weights" if segment.parent is None else f"checkpoint {segment.parent}"
    trained = f"checkpoint {uuid}, trained anew from {before} (batches {first} to {segment.until})"
    if verdict.equal:
        say(f"{trained}: all {verdict.tensors} tensors of the weights are bit-equal, and so are the samples")
        say("It says that this code and data give these weights, not who trained them: docs/explanation/governance.md")
        return
    close = verdict.holds(tolerance)
    say(f"{trained}: " + (f"no weight is off by more than {tolerance:g}" if close else "it is not the same again"))
    if verdict.differing:
        say(f"  {len(verdict.differing)} of {verdict.tensors} tensors differ; the first: {visible(verdict.how)}")
    else:
        say(f"  all {verdict.tensors} tensors of the weights are bit-equal")
    say("  likely causes:")
    for one in verdict.causes:
        say(f"    {visible(one)}")
    say(f"  both are in {clean(folder)}: {RECORDED}/ and checkpoints/")
