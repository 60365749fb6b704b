"""What a node proves of the code that governs training there: a challenge, its answer, and when that counts.

An agent answers a nonce of the master with what its detlab enforces and digests of the code that its trials load. The
answer has a MAC with a key that both derive from the agent's own: the agent has the key, the master its SHA-256.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import hmac
import json
from collections.abc import Callable, Collection, Iterator
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from detlab.schemas.wire.governance.attestation import Attestation, PreflightReport
from detlab.schemas.wire.governance.capabilities import ENFORCED, LEVELS

PACKAGE = Path(__file__).parents[1]
_CODE = ("governance", "pytorch")
"""Folders of detlab whose code routes gradients, guards them and records what was trained."""
_PURPOSE = b"detlab agent attestation 1"


def installed_code(root: Path | None = None) -> str:
    """Return the digest of the code that governs training, as it is installed now.

    Args:
        root: Folder of the package; default: that of this process.
    """
    root = root or PACKAGE
    return _digest(root, tuple(_stamps(root)))


def _files(root: Path) -> list[Path]:
    return sorted(path for folder in _CODE for path in (root / folder).rglob("*.py"))


def _stamps(root: Path) -> Iterator[tuple[str, int, int]]:
    for path in _files(root):
        found = path.stat()
        yield str(path), found.st_mtime_ns, found.st_size


@functools.lru_cache(maxsize=4)
def _digest(root: Path, stamps: tuple[tuple[str, int, int], ...]) -> str:
    """Read the files only if one of them has changed since: agents ask every few seconds."""
    whole = hashlib.sha256()
    for name, _, _ in stamps:
        path = Path(name)
        whole.update(path.relative_to(root).as_posix().encode() + b"\0")
        whole.update(hashlib.sha256(path.read_bytes()).digest())
    return f"sha256:{whole.hexdigest()}"


@functools.cache
def loaded_code() -> str:
    """Return the digest of the code that this process has loaded.

    It is taken at the first call, and stays: a warm process calls it as soon as it has imported everything, and what it
    forks says the same, whatever was installed since.
    """
    return installed_code()


def key_of(token: str) -> bytes:
    """Return the key of an agent's attestations, from its own key (`dtagent_…`)."""
    return attestation_key(hashlib.sha256(token.encode(errors="replace")).hexdigest())


def attestation_key(token_hash: str) -> bytes:
    """Return the key of an agent's attestations, from the SHA-256 of its own key in hex."""
    return hmac.digest(token_hash.encode(), _PURPOSE, "sha256")


def mac_of(attestation: Attestation, key: bytes) -> str:
    """Return the MAC of an attestation, in hex."""
    said = attestation.model_dump(mode="json", exclude={"mac"})
    return hmac.new(key, json.dumps(said, sort_keys=True).encode(), "sha256").hexdigest()


def enforced() -> frozenset[str]:
    """Return what the detlab of this process enforces; the level `dp` only where Opacus is installed."""
    with contextlib.suppress(ImportError, ValueError):
        if find_spec("opacus") is not None:
            return ENFORCED | {LEVELS["dp"]}
    return ENFORCED


def attest(
    nonce: str, *, cluster_id: str, agent_id: str, token: str, warm: Callable[[], Collection[str]] = tuple
) -> Attestation:
    """Answer a challenge.

    Args:
        nonce: That of the master.
        cluster_id: Its cluster's.
        agent_id: Of this agent.
        token: The agent's key.
        warm: Returns the digests of code that warm processes have loaded.
    """
    code = sorted({installed_code(), *warm()})
    said = Attestation(
        nonce=nonce,
        cluster_id=cluster_id,
        agent_id=agent_id,
        version=version("detlab"),
        enforces=sorted(enforced()),
        code=code,
    )
    return said.model_copy(update={"mac": mac_of(said, key_of(token))})


def attestation_problem(said: Attestation, *, nonce: str, cluster_id: str, agent_id: str, key: bytes) -> str:
    """Return for people why an attestation does not count; empty: it does.

    Args:
        said: The attestation.
        nonce: The master's last challenge on this connection.
        cluster_id: Of this cluster.
        agent_id: Of the agent that is connected.
        key: `attestation_key` of the agent.
    """
    if not said.mac:
        return "it is not signed"
    if not hmac.compare_digest(said.mac.encode(), mac_of(said, key).encode()):
        return "its signature is not that of the agent's key"
    if not nonce or not hmac.compare_digest(said.nonce.encode(), nonce.encode()):
        return "it answers another challenge"
    if (said.cluster_id, said.agent_id) != (cluster_id, agent_id):
        return f"it is of agent {said.agent_id[:80]} of cluster {said.cluster_id[:80]}"
    if not said.code:
        return "it names no code"
    return ""


def contradictions(report: PreflightReport, *, requires: Collection[str], code: Collection[str] | None) -> list[str]:
    """Return in which ways what a trial found differs from what its node attests.

    Args:
        report: Of the trial.
        requires: What its config needs.
        code: Digests that the node attests; None: no attestation is required of it.
    """
    found = []
    if missing := sorted(set(requires) - set(report.enforces)):
        why = " (it needs Opacus in the task's image: pip install 'detlab[dp]')" if LEVELS["dp"] in missing else ""
        found.append(f"the trial's detlab {report.version[:40]} does not enforce {', '.join(missing)}{why}")
    other = sorted(set(report.code) - set(report.code if code is None else code))
    if other:
        said = ", ".join(f"{one[:23]}…" for one in sorted(code or ())) or "none"
        found.append(f"the trial has loaded the code {other[0][:23]}…, and its node attests {said}")
    return found
