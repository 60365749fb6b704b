"""Signed evidence of a checkpoint: an in-toto statement about its manifest, in a DSSE envelope.

Formats: in-toto Statement v1, DSSE v1.0.2 (https://github.com/secure-systems-lab/dsse), Ed25519 (RFC 8032). What is
signed is the text of the payload as it lies there, so that nobody needs to write JSON in the same way again.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

STATEMENT = "https://in-toto.io/Statement/v1"
CHECKPOINT_PREDICATE = "https://detlab.dev/governed-checkpoint/v1"
ENTRY_PREDICATE = "https://detlab.dev/ledger-entry/v1"
PAYLOAD = "application/vnd.in-toto+json"
FORMAT = 1
"""Of predicates; a reader refuses later ones (ENV)."""

Check = Callable[[bytes, bytes, bytes], bool]
"""`check(public_key, message, signature)`: whether a signature of 64 bytes is by a key of 32 bytes."""


@dataclasses.dataclass(frozen=True, slots=True)
class PublicKey:
    """A key that has signed, or may sign.

    Attributes:
        id: `key_id(raw)`.
        raw: 32 bytes.
        state: `ACTIVE`, `RETIRED` (what it has signed holds), `REVOKED` (nothing of it holds).
    """

    id: str
    raw: bytes
    state: str = "ACTIVE"


def key_id(raw: bytes) -> str:
    """Return the id of a public key: the SHA-256 of its 32 bytes, in hex."""
    return hashlib.sha256(raw).hexdigest()


def statement(name: str, digest: str, predicate_type: str, predicate: Mapping[str, Any]) -> bytes:
    """Return the payload that says `predicate` of what has this name and digest (`sha256:…`)."""
    made = {
        "_type": STATEMENT,
        "subject": [{"name": name, "digest": {"sha256": digest.removeprefix("sha256:")}}],
        "predicateType": predicate_type,
        "predicate": dict(predicate),
    }
    return json.dumps(made, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def to_sign(payload: bytes) -> bytes:
    """Return the bytes that are signed: DSSE's pre-authentication encoding."""
    kind = PAYLOAD.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def envelope(payload: bytes, key: str, signature: bytes) -> dict[str, Any]:
    """Return the DSSE envelope of a payload with one signature."""
    signed = {"keyid": key, "sig": base64.b64encode(signature).decode()}
    return {"payloadType": PAYLOAD, "payload": base64.b64encode(payload).decode(), "signatures": [signed]}


def unchecked_predicate(signed: Any) -> dict[str, Any]:
    """Return what an envelope says, whoever has signed it; empty if it cannot be read."""
    try:
        found = json.loads(base64.b64decode(signed["payload"]))["predicate"]
    except (KeyError, TypeError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def opened(signed: Any, keys: Mapping[str, PublicKey], check: Check) -> dict[str, Any]:
    """Return the statement of an envelope, if a key that is trusted has signed it.

    Args:
        signed: The envelope, as plain values from anywhere.
        keys: By id; those of the cluster.
        check: Checks one signature.

    Raises:
        ValueError: It is no envelope of a statement, or no trusted key has signed it; the message says which.
    """
    try:
        if signed["payloadType"] != PAYLOAD or set(signed) != {"payloadType", "payload", "signatures"}:
            raise ValueError("it is of another kind")
        payload = base64.b64decode(signed["payload"], validate=True)
        pairs = [(str(one["keyid"]), base64.b64decode(one["sig"], validate=True)) for one in signed["signatures"]]
        # Of the encodings of the same bytes, one alone is taken: no character may be changed unseen.
        if signed != envelope(payload, *pairs[0]) or len(pairs) != 1:
            raise ValueError("it is not written as it was signed")
    except (TypeError, KeyError, IndexError, binascii.Error) as error:
        raise ValueError("it is no DSSE envelope with one signature") from error
    name, signature = pairs[0]
    key = keys.get(name)
    if key is None or key_id(key.raw) != name:
        raise ValueError(f"the key {name[:16]} that it names is not one of this cluster's")
    if key.state == "REVOKED":
        raise ValueError(f"the key {name[:16]} that signed it was revoked")
    if len(signature) != 64 or not check(key.raw, to_sign(payload), signature):
        raise ValueError(f"the signature is not that of the key {name[:16]} over this statement")
    found = json.loads(payload)
    if not isinstance(found, dict) or found.get("_type") != STATEMENT:
        raise ValueError("what is signed is no in-toto statement")
    return found


def ed25519_check(public: bytes, message: bytes, signature: bytes) -> bool:
    """Check a signature with the package `cryptography`.

    Raises:
        ImportError: It is not installed.
    """
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True
