"""An experiment's code, read from its bundle: the list of files, and one file's bytes by digest, never by path.

A bundle comes from a user, possibly an attacker: it is read as a stream with the checks of `detlab.launch.archives`,
never unpacked, and only up to a limit.
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

from sqlalchemy.orm import Session

from detlab.errors import BundleError, BundleTooLarge, NotFound
from detlab.launch.archives import ArchiveLimits, UnsafeBundle, members, open_bundle, sha256_of
from detlab.schemas.bundles import holds_secrets
from detlab.schemas.taskwire import CodeFile, CodeList
from detlab_hub.services.admission.bundles import bundle_file
from detlab_hub.services.base.access import experiment_for
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.context import Service, ServiceContext
from detlab_hub.services.base.threads import FairPlaces
from detlab_hub.store.tables import clean_text

FILE_LIMIT = 1024 * 1024
"""Bytes of the largest file that is shown."""
LIMITS = ArchiveLimits(entries=20_000, size=512 << 20)
"""Beyond this a bundle is not listed: that would take too long. It can still be downloaded whole."""
REMEMBERED = 64
"""Bundles whose lists are kept in memory; a digest's list never changes."""
HIDDEN = "(hidden)"
"""What is shown in place of a value of a file of secrets."""
_ASSIGNED = re.compile(r"\s*(export\s+)?[A-Z][A-Z0-9_]*\s*=")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_WHOLE = "det experiment download-model-def EXPERIMENT fetches all of it"


class Code(Service):
    """Reads bundles for people, one at a time: unpacking costs processor time."""

    def __init__(self, context: ServiceContext) -> None:
        super().__init__(context)
        self._lists: OrderedDict[str, Sequence[CodeFile]] = OrderedDict()
        self._turn = FairPlaces(1)

    async def list(self, caller: Caller, experiment_id: int, was: str | None = None) -> CodeList:
        """List the files of an experiment's code by path; there are none if it was submitted without code.

        Args:
            caller: Who asks.
            experiment_id: Whose code.
            was: The bundle that it had earlier; None: the one that it has.

        Raises:
            NotFound: There is no such experiment for the caller, or its code is no longer stored.
            BundleError: Its code cannot be shown.
        """
        bundle = await self._bundle(caller, experiment_id, was)
        return CodeList(items=[] if bundle is None else [*await self._files(caller, bundle)])

    async def file(self, caller: Caller, experiment_id: int, digest: str, was: str | None = None) -> bytes:
        """Return the bytes of one file; of a file of secrets, such as `.env`, without the values.

        Args:
            caller: Who asks.
            experiment_id: Whose code.
            digest: The file's digest, as `list` gives it.
            was: As for `list`.

        Raises:
            NotFound: There is no such experiment for the caller, or no such file in its code.
            BundleTooLarge: The file has more than a megabyte.
            BundleError: Its code cannot be shown.
        """
        bundle = await self._bundle(caller, experiment_id, was)
        absent = NotFound(f"the code of experiment {experiment_id} has no file {digest[:80]}")
        if bundle is None or _DIGEST.fullmatch(digest) is None:
            raise absent
        known = next((file for file in await self._files(caller, bundle) if file.digest == digest), None)
        if known is None:
            raise absent
        if known.size > FILE_LIMIT:
            raise BundleTooLarge(f"{known.path} is over the {FILE_LIMIT:,} bytes that are shown", hint=_WHOLE)
        async with self._turn.of(caller.name):
            archive = bundle_file(self._context.settings, bundle)
            data = await self._context.workers.code.run(caller.name, _read_one, archive, known)
        if data is None:
            raise absent
        named = (file.path for file in await self._files(caller, bundle) if file.digest == digest)
        return without_secrets(data) if any(map(holds_secrets, named)) else data

    async def _bundle(self, caller: Caller, experiment_id: int, was: str | None) -> str | None:
        def look(s: Session) -> str | None:
            has = experiment_for(s, caller, experiment_id).bundle
            return has if was is None else was

        return await self._context.read(look)

    async def _files(self, caller: Caller, bundle: str) -> Sequence[CodeFile]:
        async with self._turn.of(caller.name):
            if bundle not in self._lists:
                archive = bundle_file(self._context.settings, bundle)
                self._lists[bundle] = await self._context.workers.code.run(caller.name, list_files, archive)
                while len(self._lists) > REMEMBERED:
                    self._lists.popitem(last=False)
            self._lists.move_to_end(bundle)
            return self._lists[bundle]


def without_secrets(data: bytes) -> bytes:
    """Return a file of secrets as the page may show it: names stay, and comments; what may be a value does not."""
    shown = []
    for line in data.decode(errors="replace").splitlines():
        name = _ASSIGNED.match(line)
        plain = not line.strip() or line.lstrip().startswith("#")
        shown.append(line if plain else f"{name[0]}{HIDDEN}" if name else HIDDEN)
    return "".join(f"{line}\n" for line in shown).encode()


def list_files(archive: Path, limits: ArchiveLimits = LIMITS) -> list[CodeFile]:
    """List the files of a bundle, by path. Of a path that occurs twice, the last one counts, as in unpacking.

    Raises:
        NotFound: The bundle is not there.
        BundleError: It is damaged, or exceeds `limits`.
    """
    found: dict[str, CodeFile] = {}
    try:
        with open_bundle(archive, limits) as tar:
            for member, path in members(tar, limits):
                if member.isreg():
                    shown = clean_text(str(path))  # what is no UTF-8 could not be sent
                    found[shown] = CodeFile(path=shown, size=member.size, digest=f"sha256:{sha256_of(tar, member)}")
    except FileNotFoundError as error:
        raise NotFound("the code is not on this master any more") from error
    except (UnsafeBundle, OSError) as error:
        raise BundleError(f"this code cannot be shown: {error}", hint=_WHOLE) from error
    return [found[path] for path in sorted(found)]


def _read_one(archive: Path, wanted: CodeFile) -> bytes | None:
    """Return the bytes of a file that was listed; None if they are no longer there."""
    try:
        with open_bundle(archive, LIMITS) as tar:
            for member, path in members(tar, LIMITS):
                if clean_text(str(path)) != wanted.path or member.size != wanted.size:
                    continue
                source = tar.extractfile(member)
                data = b"" if source is None else source.read(FILE_LIMIT + 1)
                if f"sha256:{hashlib.sha256(data).hexdigest()}" == wanted.digest:
                    return data
    except FileNotFoundError:
        return None
    except (UnsafeBundle, OSError) as error:
        raise BundleError(f"this code cannot be shown: {error}", hint=_WHOLE) from error
    return None
