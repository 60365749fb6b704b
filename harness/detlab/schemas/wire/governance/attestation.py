"""What an agent attests of the nodes that it speaks for, and what a trial reports of its pre-flight."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from detlab.schemas.wire.base import Wire
from detlab.schemas.wire.governance.evidence import Hash, RefusalView

NONCE_CHARS = 64
Capability = Annotated[str, Field(max_length=40)]


class Attestation(Wire):
    """An agent's answer to a challenge, in a `Heartbeat`."""

    nonce: str = Field("", max_length=NONCE_CHARS)
    """That of the master."""
    cluster_id: str = Field("", max_length=200)
    agent_id: str = Field("", max_length=300)
    version: str = Field("", max_length=200)
    """Of detlab."""
    enforces: list[Capability] = Field([], max_length=64)
    """What its detlab enforces."""
    code: list[Hash] = Field([], max_length=16)
    """Digests of the code that its trials load: what is installed, and what a warm process has loaded."""
    mac: str = Field("", max_length=64)
    """HMAC-SHA256 over the other fields, in hex, with the agent's own key."""


class PreflightReport(Wire):
    """PUT task/governance/preflight: what a trial found before its first step."""

    version: str = Field("", max_length=200)
    code: list[Hash] = Field(min_length=1, max_length=64)
    """Of the code that its ranks have loaded, without repetitions."""
    enforces: list[Capability] = Field([], max_length=64)
    layers: int = Field(0, ge=0, le=2**31)
    """Layers of the model that were tried."""
    untried: int = Field(0, ge=0, le=2**31)
    """Layers that are routed, and that no made-up input is known for."""
    refusals: list[RefusalView] = Field([], max_length=20)


class PreflightReply(Wire):
    """Why training may not begin there; empty: it may."""

    refusals: list[RefusalView] = []
