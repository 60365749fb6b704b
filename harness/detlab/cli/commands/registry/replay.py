"""`det governance replay`: what led to a checkpoint is trained anew here, and the weights are compared."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from detlab.cli.commands.download import fetch_files
from detlab.cli.invocation import Invocation, confirmed, json_option, pass_invocation, yes_option
from detlab.cli.output.printing import clean, note, say, say_json
from detlab.client.operations import experiments
from detlab.client.operations.governance import evidence as operations
from detlab.errors import DetlabError, NotFound
from detlab.visible import visible

if TYPE_CHECKING:
    from detlab.client.operations.governance.evidence import RecordedTraining
    from detlab.client.resources import Checkpoint, Experiment
    from detlab.governance.ledger import LedgerEntry
    from detlab.governance.replaying import ReplayVerdict
    from detlab.launch.offcluster.replay import ReplayedTraining

RECORDED = "recorded"
"""In the folder: the weights that are compared with."""
_STATE = "trainer.json"
_WEIGHTS = "model_*.safetensors"


@click.command(short_help="Train what led to a checkpoint anew, and compare the weights.")
@click.argument("checkpoint", metavar="CHECKPOINT")
@click.option(
    "-o", "--output-dir", type=click.Path(path_type=Path), help="Folder to create. Default: replays/CHECKPOINT."
)
@click.option(
    "--tolerance",
    type=click.FloatRange(min=0),
    metavar="NUMBER",
    default=0.0,
    help="How far off a weight may be; by default not a bit.",
)
@yes_option
@json_option
@pass_invocation
def replay(invocation: Invocation, checkpoint: str, output_dir: Path | None, tolerance: float, yes: bool) -> None:
    """Train what led to CHECKPOINT anew, and compare the weights bit by bit.

    It begins with the nearest checkpoint before it that is still there, or with new weights. The code of the experiment
    is downloaded and runs HERE, as you: you are asked first. It needs what the trial had: packages, data at the same
    paths, as many processes. Bit-equality is to be expected on the same kind of machine with as many threads, which the
    evidence names. The status is 1 if something differs; then the first parameter that differs, and likely causes, are
    named. On another kind of machine, --tolerance says how far off weights may be, as absolute difference; samples,
    their order and the matrix must be the same nevertheless. Nothing is reported to the cluster.

    \b
    Examples:
      det governance replay 3f2a…
      det governance replay 3f2a… --yes -o again/
      det governance replay 3f2a… --tolerance 1e-5
    """
    from detlab.launch.offcluster.replay import train

    client = invocation.client
    recorded = client.session.run(operations.recorded_training(checkpoint))
    refuse_private(checkpoint, recorded.segments)
    if recorded.seen.withdrawn:
        from detlab.governance import GovernanceError, Refusal

        raise GovernanceError(
            [Refusal(one.code, visible(one.message)) for one in recorded.seen.withdrawn],
            "it is not trained anew, as that is training on it again:",
        )
    target = client.get_checkpoint(recorded.seen.checkpoint)
    folder = output_dir or Path("replays") / target.uuid
    if folder.exists():
        raise DetlabError(f"{visible(str(folder))} is there already", hint="remove it, or name another: -o")
    experiment = client.get_experiment(recorded.seen.experiment_id)
    segments, parent = _begin(invocation, recorded.segments)
    training = _training(invocation, recorded, segments, experiment)
    confirmed(_question(experiment, training), yes=yes, deed="running the code of an experiment here")
    training = _fetch(invocation, folder, training, experiment, target, parent)
    if not invocation.as_json:
        note(f"training {_batches(segments)} anew; the output is in {clean(folder)}")
    verdict = _judged(recorded, segments, target, folder, train(folder, training))
    if recorded.seen.predicate.get("code", experiment.view.bundle) != experiment.view.bundle and not verdict.equal:
        verdict.causes.insert(0, "the code of the experiment was replaced since")
    _tell(invocation, segments, verdict, folder, tolerance)
    if not verdict.holds(tolerance):
        sys.exit(1)


def refuse_private(checkpoint: str, segments: Sequence[LedgerEntry]) -> None:
    """Refuse what was trained at the level `dp`.

    Raises:
        DetlabError: A segment was.
    """
    if any(one.body.get("level") == "dp" for one in segments):
        message = "it was trained at the level dp: which samples a step had, and its noise, were kept nowhere"
        raise DetlabError(
            f"checkpoint {clean(checkpoint)} cannot be trained anew bit by bit: {message}",
            hint="det governance verify UUID checks its evidence",
        )


def _begin(invocation: Invocation, segments: list[LedgerEntry]) -> tuple[list[LedgerEntry], Checkpoint | None]:
    """Return the segments to train anew, and the checkpoint to begin with; None for new weights.

    Raises:
        DetlabError: There is neither.
    """
    for first in range(len(segments) - 1, -1, -1):
        name = segments[first].body.get("parent")
        if name is None:
            return segments[first:], None
        with contextlib.suppress(NotFound):
            found = invocation.client.get_checkpoint(str(name))
            if found.view.state == "COMPLETED":
                return segments[first:], found
    message = f"it began with checkpoint {segments[0].body.get('parent')} of another trial, which is gone"
    raise DetlabError(f"there is nothing to begin with: {message}")


def _training(
    invocation: Invocation, recorded: RecordedTraining, segments: list[LedgerEntry], experiment: Experiment
) -> ReplayedTraining:
    from detlab.launch.offcluster.replay import ReplayedTraining

    trial = invocation.client.get_trial(recorded.seen.trial_id).view
    sizes = {int(one.body.get("world_size") or 1) for one in segments}
    if len(sizes) > 1:
        said = ", ".join(map(str, sorted(sizes)))
        raise DetlabError(
            f"{_batches(segments)} were trained by different numbers of processes: {said}",
            hint="replay a checkpoint whose forerunner is still there: det checkpoint list EXPERIMENT",
        )
    computed = segments[-1].body.get("versions") or {}
    return ReplayedTraining(
        cluster_id=str(recorded.seen.predicate.get("cluster")),
        master_url=invocation.client.address.url,
        experiment_id=experiment.id,
        trial_id=trial.id,
        trial_index=trial.index,
        seed=trial.seed,
        hparams=trial.hparams,
        config=dict(experiment.config or {}),
        parent=segments[0].body.get("parent"),
        stops=tuple(int(one.body["step"]) for one in segments),
        processes=sizes.pop(),
        gpus="gpu" in computed,
        threads=str(computed.get("threads") or ""),
    )


def _batches(segments: list[LedgerEntry]) -> str:
    return f"batches {segments[0].body['first_step']} to {segments[-1].body['step']}"


def _question(experiment: Experiment, training: ReplayedTraining) -> str:
    command = training.entrypoint if isinstance(training.entrypoint, str) else shlex.join(training.entrypoint)
    code = (experiment.view.bundle or "none")[:23]
    return (
        f"Experiment {experiment.id} is of {clean(experiment.view.owner)}, its code is {clean(code)}…\n"
        f"It is downloaded, and runs on this machine as you: {clean(command)}\n"
        "It can read and change all that you can. Run it?"
    )


def _fetch(
    invocation: Invocation,
    folder: Path,
    training: ReplayedTraining,
    experiment: Experiment,
    target: Checkpoint,
    parent: Checkpoint | None,
) -> ReplayedTraining:
    """Make the folder with the code, the recorded weights and what it begins with; return the training whole."""
    from detlab.launch.offcluster.replay import CHECKPOINTS, lay_out_replay, place

    digest, quiet = experiment.view.bundle, invocation.as_json
    bundle = b"" if digest is None else invocation.client.session.run(experiments.experiment_bundle(experiment.id))
    folder.mkdir(mode=0o700, parents=True)
    was = fetch_files(target, folder / RECORDED, quiet=quiet, globs=[_WEIGHTS, _STATE])
    training = dataclasses.replace(training, canaries=_canaries(was / _STATE))
    lay_out_replay(folder, training, bundle, digest)
    if parent is not None:
        before = folder / CHECKPOINTS / parent.uuid
        fetch_files(parent, before, quiet=quiet)
        place(parent.view, before)
    return training


def _canaries(path: Path) -> str | None:
    """Return the secret of a trial's canaries, which its checkpoints hold."""
    try:
        found: Any = json.loads(path.read_bytes())["tree"]["trial_state"]["canaries"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found if isinstance(found, str) else None


def _judged(
    recorded: RecordedTraining, segments: list[LedgerEntry], target: Checkpoint, folder: Path, made: list[Path]
) -> ReplayVerdict:
    from detlab.governance.replaying import judge
    from detlab.launch.offcluster.replay import manifest_of
    from detlab.schemas.wire.governance.evidence import METADATA_KEY
    from detlab.storage.manifest import MANIFEST_NAME

    if manifest_of(target.view).digest != recorded.seen.manifest_digest:
        note("warning: the list of its files could not be compared with the signed one, which names empty folders too")
    said = [json.loads((one / MANIFEST_NAME).read_bytes())["metadata"] for one in made]
    now: list[dict[str, Any]] = [one.get(METADATA_KEY) or {} for one in said]
    names = [name for name, _ in recorded.matrix.parameters]
    return judge(folder / RECORDED, made[-1], names, [one.body for one in segments], now)


def _tell(
    invocation: Invocation, segments: list[LedgerEntry], verdict: ReplayVerdict, folder: Path, tolerance: float
) -> None:
    uuid, parent, close = segments[-1].checkpoint, segments[0].body.get("parent"), verdict.holds(tolerance)
    if invocation.as_json:
        first, last = segments[0].body["first_step"], segments[-1].body["step"]
        facts = {"checkpoint": uuid, "parent": parent, "first_step": first, "step": last}
        said = {"equal": verdict.equal, "holds": close, **dataclasses.asdict(verdict), "path": str(folder)}
        say_json({**facts, **said})
        return
    before = "new weights" if parent is None else f"checkpoint {parent}"
    trained = f"checkpoint {uuid}, trained anew from {before} ({_batches(segments)})"
    if verdict.equal:
        say(f"{trained}: all {verdict.tensors} tensors of the weights are bit-equal, and so are the samples")
        say("It says that this code and data give these weights, not who trained them: docs/explanation/governance.md")
        return
    say(f"{trained}: " + (f"no weight is off by more than {tolerance:g}" if close else "it is not the same again"))
    if verdict.differing:
        say(f"  {len(verdict.differing)} of {verdict.tensors} tensors differ; the first: {visible(verdict.how)}")
    else:
        say(f"  all {verdict.tensors} tensors of the weights are bit-equal")
    say("  likely causes:")
    for one in verdict.causes:
        say(f"    {visible(one)}")
    say(f"  both are in {clean(folder)}: {RECORDED}/ and checkpoints/")
