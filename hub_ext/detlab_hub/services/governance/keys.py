"""The key that signs evidence: a file of this installation, or a command that its administrator has set."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from detlab.errors import Conflict, NotFound, Unavailable
from detlab.governance.evidence import PublicKey, ed25519_check, key_id, to_sign
from detlab.schemas.wire.governance.evidence import RevokeKey, SigningKeyList, SigningKeyView
from detlab_hub.core.rights import Action, ObjectKind
from detlab_hub.services.base import audit
from detlab_hub.services.base.access import check_administers
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.context import Service, ServiceContext
from detlab_hub.services.base.settings import Settings
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.store.queries.registry import evidence as governance
from detlab_hub.store.tables import SigningKeyRow

_log = logging.getLogger(__name__)
SIGNER_SECONDS = 10.0
"""An administrator's command has so long."""


class Signer:
    """Signs with one key.

    Attributes:
        id: Of its public key.
        public: 32 bytes.
    """

    def __init__(self, public: bytes, sign: Callable[[bytes], bytes]) -> None:
        self.public, self.id, self._sign = public, key_id(public), sign

    def sign(self, payload: bytes) -> bytes:
        """Return the signature of a payload, 64 bytes; it is checked.

        Raises:
            Unavailable: The key signs nothing, or something else.
        """
        message = to_sign(payload)
        signature = self._sign(message)
        if len(signature) != 64 or not ed25519_check(self.public, message, signature):
            raise Unavailable(
                f"what the signer of evidence answered is not a signature by the key {self.id[:16]}",
                hint="DetHub.evidence_signer and DetHub.evidence_signer_key must belong together",
            )
        return signature


class SigningKeys(Service):
    """The keys of the cluster. Private ones never leave this machine, and are in no row, reply or log."""

    def __init__(self, context: ServiceContext) -> None:
        super().__init__(context)
        self._signer: Signer | None = None
        self._making = asyncio.Lock()

    async def signer(self) -> Signer:
        """Return what signs now; the first call of an installation makes its key and enrols it.

        Raises:
            Unavailable: The key cannot be read or made.
        """
        async with self._making:
            if self._signer is None:
                self._signer = await self._context.write(self._settled)
            return self._signer

    def _settled(self, unit: UnitOfWork) -> Signer:
        settings = unit.settings
        if settings.evidence_signer:
            return _enrolled(unit, command_signer(settings.evidence_signer, settings.evidence_signer_key))
        here = installation_of(settings)
        for row in governance.active_keys(unit.session):
            path = folder_of(settings) / f"{row.id}.key"
            if row.installation == here and path.is_file():
                return _file_signer(path, bytes.fromhex(row.public_key))
        return _enrolled(unit, new_key(folder_of(settings)))

    async def page(self) -> SigningKeyList:
        """Return all public keys: who checks a signature needs them, and nobody else loses by it."""
        rows = await self._context.read(governance.keys)
        return SigningKeyList(items=[key_view(row) for row in rows])

    async def rotate(self, caller: Caller) -> SigningKeyList:
        """Sign with a new key from now on; the old ones hold for what they have signed.

        Raises:
            Forbidden: The caller is no administrator.
            Conflict: A command signs, whose key is changed where the command is.
        """
        check_administers(caller, ObjectKind.SITE, "change the key that signs evidence")
        if self._context.settings.evidence_signer:
            raise Conflict(
                "a command signs here: its key is not the master's to change",
                hint="set DetHub.evidence_signer_key to its new public key, and restart the master",
            )

        def change(unit: UnitOfWork) -> Signer:
            made = _enrolled(unit, new_key(folder_of(unit.settings)))
            audit.note(unit, caller, Action.SIGNING_KEY_ROTATE, f"key {made.id[:16]}")
            return made

        async with self._making:
            self._signer = await self._context.write(change)
        await asyncio.to_thread(_remove_others, folder_of(self._context.settings), self._signer.id)
        return await self.page()

    async def revoke(self, caller: Caller, name: str, request: RevokeKey) -> SigningKeyList:
        """Declare that nothing which a key has signed holds any more: checkpoints with its evidence are refused.

        Raises:
            Forbidden: The caller is no administrator.
            NotFound: There is no such key.
        """
        check_administers(caller, ObjectKind.SITE, "revoke a key that signs evidence")

        def change(unit: UnitOfWork) -> None:
            row = unit.session.get(SigningKeyRow, name)
            if row is None:
                raise NotFound(f"there is no key {name[:80]}", hint="det governance keys")
            row.state, row.ended_at = "REVOKED", row.ended_at or unit.now
            audit.note(unit, caller, Action.SIGNING_KEY_REVOKE, f"key {row.id[:16]}", request.reason)

        async with self._making:
            await self._context.write(change)
            if self._signer is not None and self._signer.id == name:
                self._signer = None
        await asyncio.to_thread(_remove, folder_of(self._context.settings) / f"{name}.key")
        return await self.page()


def installation_of(settings: Settings) -> str:
    """Return what tells this installation from a copy of it, which signs with a key of its own."""
    name = "" if settings.holder is None else settings.holder.instance
    return f"{name} copy" if settings.is_copy else name


def folder_of(settings: Settings) -> Path:
    """Return the folder of private keys, beside the other secrets."""
    return settings.state_dir / "secrets" / "evidence"


def _enrolled(unit: UnitOfWork, signer: Signer) -> Signer:
    """Make a key the one that signs: its public half is a row, and the others sign no more."""
    for row in governance.active_keys(unit.session):
        if row.id != signer.id:
            row.state, row.ended_at = "RETIRED", unit.now
    known = unit.session.get(SigningKeyRow, signer.id)
    if known is not None and known.state == "REVOKED":
        raise Unavailable(
            f"the key {signer.id[:16]} that is to sign evidence was revoked",
            hint="set DetHub.evidence_signer_key to another one, and restart the master",
        )
    if known is not None:
        known.state, known.ended_at = "ACTIVE", None
        return signer
    here = installation_of(unit.settings)
    made = SigningKeyRow(id=signer.id, public_key=signer.public.hex(), installation=here, made_at=unit.now)
    unit.session.add(made)
    _log.info("evidence of checkpoints is signed with the key %s from now on", signer.id[:16])
    return signer


def new_key(folder: Path) -> Signer:
    """Make a key, and write it (mode 0600) into a folder of mode 0700."""
    private = Ed25519PrivateKey.generate()
    public = private.public_key().public_bytes_raw()
    path = folder / f"{key_id(public)}.key"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(private.private_bytes_raw())
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise Unavailable(f"the key that signs evidence cannot be written to {path}: {error.strerror}") from error
    return Signer(public, private.sign)


def _file_signer(path: Path, public: bytes) -> Signer:
    try:
        private = Ed25519PrivateKey.from_private_bytes(path.read_bytes())
    except (OSError, ValueError) as error:
        raise Unavailable(
            f"the key that signs evidence cannot be read from {path}: {error}",
            hint="restore it from a backup; or move it away, and a new key is made when the master starts",
        ) from error
    if private.public_key().public_bytes_raw() != public:
        raise Unavailable(f"{path} holds another key than its name says", hint="restore it from a backup")
    return Signer(public, private.sign)


def command_signer(command: Sequence[str], public: str) -> Signer:
    """Return a signer that runs a command: the message on its standard input, 64 bytes on its standard output.

    Args:
        command: Program and arguments; no shell.
        public: Its public key, 32 bytes in hex.

    Raises:
        Unavailable: The public key is none.
    """
    try:
        raw = bytes.fromhex(public)
    except ValueError:
        raw = b""
    if len(raw) != 32:
        hint = "write the 32 bytes of the Ed25519 public key in hex"
        raise Unavailable("DetHub.evidence_signer is set, and DetHub.evidence_signer_key is no public key", hint=hint)

    def run(message: bytes) -> bytes:
        try:
            done = subprocess.run(list(command), input=message, capture_output=True, timeout=SIGNER_SECONDS, check=True)
        except (OSError, subprocess.SubprocessError) as error:
            raise Unavailable(f"DetHub.evidence_signer signed nothing: {type(error).__name__}") from error
        return done.stdout

    return Signer(raw, run)


def _remove_others(folder: Path, kept: str) -> None:
    for path in folder.glob("*.key"):
        if path.stem != kept:
            _remove(path)


def _remove(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        path.unlink()


def public_keys(rows: Sequence[SigningKeyRow]) -> Mapping[str, PublicKey]:
    """Return keys as verification takes them."""
    found = {}
    for row in rows:
        with contextlib.suppress(ValueError):
            found[row.id] = PublicKey(row.id, bytes.fromhex(row.public_key), row.state)
    return found


def key_view(row: SigningKeyRow) -> SigningKeyView:
    """Make the view of a key."""
    return SigningKeyView(
        id=row.id,
        public_key=row.public_key,
        installation=row.installation,
        state=row.state,
        made_at=row.made_at,
        ended_at=row.ended_at,
    )
