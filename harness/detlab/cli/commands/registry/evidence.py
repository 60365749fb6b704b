"""`det governance verify`, `who` and `keys`: what a checkpoint was learnt from, and who has signed it."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from detlab.cli.commands.registry.keying import given_keys, listed_key, public_bytes
from detlab.cli.invocation import Invocation, json_option, pass_invocation
from detlab.cli.output.printing import moment, say, say_json, table
from detlab.client.operations.governance import evidence as operations
from detlab.errors import DetlabError
from detlab.governance.levels import AUDIT, level_lines, named_with_level
from detlab.visible import visible

if TYPE_CHECKING:
    from detlab.governance import Refusal
    from detlab.schemas.wire.governance.evidence import EvidenceView


@click.command(short_help="Check the signed evidence of a checkpoint.")
@click.argument("uuid", metavar="UUID")
@click.option(
    "--key",
    metavar="HEX",
    help="Check the signature here, too, with this public key that you trust, or the one with this id; repeatable.",
    multiple=True,
)
@click.option(
    "--profile",
    metavar="FILE",
    help="Compare this profile of a converted model with the one that was signed; - is standard input.",
)
@json_option
@pass_invocation
def verify(invocation: Invocation, uuid: str, key: tuple[str, ...], profile: str | None) -> None:
    """Check the evidence of a checkpoint: its signature, its manifest and its ledger. The status is 1 if one is wrong,
    or if a source that has trained it is withdrawn.

    The cluster checks with its own keys. With --key the signature is also checked here, with a key that you have from
    elsewhere: its public key or its id, all 64 digits, as det governance keys prints both. That needs the package
    cryptography. With --profile weights that were cast, exported or converted are
    compared by what they make of the probe that the checkpoint keeps, which detlab.pytorch.load_probe reads.

    \b
    Examples:
      det governance verify 3f2a…
      det governance verify 3f2a… --key 9c81…
      det governance verify 3f2a… --profile profile.json
    """
    trusted = given_keys(key)
    found = invocation.client.session.run(operations.evidence(uuid))
    problems = [f"{one.code}: {one.message}" for one in [*found.problems, *found.withdrawn]]
    if trusted:
        problems += signed_by(found, trusted)
    compared = None
    if profile is not None:
        compared, off = compared_with(found, profile)
        problems += [f"{one.code}: {one.message}" for one in off]
    if invocation.as_json:
        say_json({**found.model_dump(mode="json"), "found": problems})
    elif problems:
        for one in problems:
            say(visible(one))
    else:
        said = found.predicate
        say(f"checkpoint {found.checkpoint}: the evidence is in order")
        facts = {
            "signed with": said.get("key_id"),
            "trial": said.get("trial"),
            "step": said.get("step"),
            "policy": said.get("policy_hash"),
            "matrix": said.get("s_hash"),
            "learnt from": ", ".join(named_with_level(one, found.levels.get(one, "")) for one in found.learnt_from)
            or "nothing",
            **level_lines(found.levels.values()),
            **_spent(said.get("segment") or {}),
        }
        if said.get("enforce") == "audit":
            facts["not enforced"] = AUDIT
        if seen := set(said.get("taint") or {}) - set(found.learnt_from):
            facts["seen, but closed to all layers"] = _names(seen)
        if compared is not None:
            facts["profile"] = compared
        for name, value in facts.items():
            say(f"  {name}: {visible(str(value))}")
        say("It says what was recorded, not that the weights came from it: docs/explanation/governance.md")
    if problems:
        sys.exit(1)


def compared_with(found: EvidenceView, name: str) -> tuple[str, list[Refusal]]:
    """Return what a profile in a file has in common with the one that was signed, and what is out of tolerance.

    Raises:
        DetlabError: There is none in one of them.
    """
    from detlab.governance.profiles import differences, distance
    from detlab.schemas.wire.governance.evidence import ModelProfile, RecordedProfile

    said = (found.predicate.get("segment") or {}).get("profile")
    if said is None:
        raise DetlabError(
            f"no profile was signed with checkpoint {visible(found.checkpoint)}",
            hint="a trial records one if its config has `governance: {profile: {}}`",
        )
    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
        measured, recorded = ModelProfile.model_validate_json(text), RecordedProfile.model_validate(said)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no profile"
        hint = "detlab.pytorch.load_probe(FOLDER).profile(model).model_dump_json() makes one"
        raise DetlabError(f"{visible(name)} cannot be read: {reason}", hint=hint) from error
    signed = next((one for one in recorded.models if one.model == measured.model), None)
    if signed is None:
        raise DetlabError(
            f"no profile of model {measured.model} was signed with checkpoint {visible(found.checkpoint)}"
        )
    off = differences(signed, measured, recorded.rtol)
    if off:
        return "", off
    apart = distance(signed.output, measured.output)
    layers = f"{len(signed.layers.keys() & measured.layers)} of {len(signed.layers)} layers compared"
    return f"outputs within {apart:.2g} of what was signed ({recorded.rtol:g} is allowed), {layers}", []


def _spent(segment: Mapping[str, Any]) -> dict[str, str]:
    """Return what a segment has spent at the level `dp`."""
    spent = segment.get("privacy")
    if not isinstance(spent, Mapping):
        return {}
    said = (
        f"epsilon {float(spent.get('epsilon', 0)):.4g} of {spent.get('target_epsilon')} spent at delta"
        f" {spent.get('delta')}, for each record, by this trial alone"
    )
    return {"privacy": said}


def _names(sources: Iterable[str]) -> str:
    return ", ".join(sorted(name or "(no declared source)" for name in sources)) or "nothing"


def signed_by(found: EvidenceView, keys: Sequence[str]) -> list[str]:
    """Return what is wrong with a signature by the keys that somebody trusts.

    Args:
        found: The evidence.
        keys: 64 digits each, from `given_keys`: public keys, or ids of them.
    """
    from detlab.governance.evidence import PublicKey, ed25519_check, key_id, opened

    raw = [public_bytes(one, found.keys) for one in keys]
    trusted = {key_id(one): PublicKey(key_id(one), one) for one in raw}
    named = _named_key(found)
    if named not in trusted:
        by = f"with the key {visible(named[:16])}…" if named else "by nobody"
        return [f"SIG: it is signed {by}, which is none of those that --key names, neither by its id nor by itself"]
    try:
        said = opened(found.envelope, trusted, ed25519_check)
    except ImportError as error:
        raise DetlabError(f"{error.name} is not installed here", hint="pip install cryptography") from error
    except ValueError as error:
        return [f"SIG: {error}"]
    digest = {"sha256": found.manifest_digest.removeprefix("sha256:")}
    if said.get("subject") != [{"name": found.checkpoint, "digest": digest}]:
        return ["SIG: what is signed is of another checkpoint"]
    return []


def _named_key(found: EvidenceView) -> str:
    """Return the id that an envelope names, whoever has signed it; empty: it cannot be read."""
    signatures = found.envelope.get("signatures")
    first = signatures[0] if isinstance(signatures, list) and signatures else None
    return str(first.get("keyid", "")) if isinstance(first, dict) else ""


@click.command(short_help="Say which source has trained which layers, and when.")
@click.argument("uuid", metavar="UUID")
@click.option("--source", metavar="NAME", help="Only this source.")
@click.option("--layer", metavar="NAME", help="Only this module or parameter.")
@json_option
@pass_invocation
def who(invocation: Invocation, uuid: str, source: str | None, layer: str | None) -> None:
    """Say which source has trained which layers of a checkpoint, in which batches and at which level.

    \b
    Examples:
      det governance who 3f2a… --source web
      det governance who 3f2a… --layer blocks.0
    """
    from detlab.governance.ledger import joined
    from detlab.governance.ledger import who as touched

    found = invocation.client.session.run(operations.learnt_from(uuid))
    touches = touched(found.segments, found.matrices, source=source, layer=layer)
    if invocation.as_json:
        say_json([dataclasses.asdict(one) for one in touches])
        return
    rows = [
        [one.source or "(none)", f"{one.first}-{one.last}", str(one.samples), one.level, ", ".join(one.layers)]
        for one in joined(touches)
    ]
    table(["source", "batches", "samples", "level", "layers"], rows)
    facts = level_lines(one.level for one in touches)
    if facts.keys() & {"dp"}:
        facts |= _spent(found.segments[-1].body)
    for name, value in facts.items():
        say(f"{name}: {visible(value)}")
    if found.unknown is not None:
        say(f"It began with a checkpoint of trial {found.unknown}, whose ledger you cannot read.")


@click.command(short_help="List the keys that sign evidence, or change them.")
@click.option("--rotate", is_flag=True, help="Sign with a new key from now on (administrators).")
@click.option(
    "--revoke",
    metavar="KEY",
    help="Declare that nothing which this key has signed holds (administrators): its id, or how that begins.",
)
@click.option("--reason", default="", help="Why, for the audit log.")
@json_option
@pass_invocation
def keys(invocation: Invocation, rotate: bool, revoke: str | None, reason: str) -> None:
    """List the public keys of the cluster, with which anyone can check the evidence of a checkpoint.

    \b
    Examples:
      det governance keys
      det governance keys --rotate
    """
    if rotate and revoke:
        raise click.UsageError("give either --rotate or --revoke KEY")
    run = invocation.client.session.run
    if revoke is not None:
        revoke = listed_key(revoke, run(operations.keys()).items)
    found = run(operations.rotate() if rotate else operations.revoke(revoke, reason) if revoke else operations.keys())
    if invocation.as_json:
        say_json(found.model_dump(mode="json"))
        return
    rows = [[one.state, one.id, one.public_key, moment(one.made_at)] for one in found.items]
    table(["state", "id", "public key", "made"], rows)
