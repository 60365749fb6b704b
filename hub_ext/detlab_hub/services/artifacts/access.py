"""Which artifacts a caller may read, and who may do what with them (I9)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy.orm import Session

from detlab.errors import Conflict, Forbidden
from detlab.pasted import word
from detlab.schemas.wire.artifacts.artifacts import LATEST
from detlab_hub.core.rights import ACTIONS, Action, ObjectKind, Right, Thing, may, right_of
from detlab_hub.services.base.access import check_may_ask, no_such, owns, person
from detlab_hub.services.base.callers import Caller
from detlab_hub.store.queries import rights
from detlab_hub.store.queries.registry import artifacts, naming
from detlab_hub.store.tables import ArtifactRow, ArtifactVersionRow

_MOST_NAMED = 5
"""Artifacts of others that a hint names."""


def artifact_things(s: Session, caller: Caller, rows: Sequence[ArtifactRow]) -> dict[int, Thing]:
    """Load artifacts as the table of rights knows them, by their ids, with the caller's roles."""
    who = person(caller)
    found = {row.id: Thing(ObjectKind.ARTIFACT, row.owner) for row in rows}
    places = {row.id: row.workspace_id for row in rows if row.workspace_id is not None}
    roles = rights.roles_among(s, set(places.values()), who) if places else {}
    for key, place in places.items():
        if place in roles:
            found[key] = replace(found[key], members={who.name: roles[place]})
    return found


def artifact_rights(s: Session, caller: Caller, rows: Sequence[ArtifactRow]) -> dict[int, Right]:
    """Return the caller's rights to some artifacts, by their ids."""
    return {key: right_of(person(caller), thing) for key, thing in artifact_things(s, caller, rows).items()}


def artifact_for(s: Session, caller: Caller, name: str, action: Action | None = None) -> ArtifactRow:
    """Load an artifact that the caller may read, and with which they may do what `action` says.

    Args:
        s: A session.
        caller: Who asks.
        name: The name of one of the caller's own, anybody's `OWNER/NAME`, or an id. A name alone never means somebody
            else's: its owner could rename it, and the name would then mean another one.
        action: What they want to do.

    Raises:
        NotFound: It does not exist, or the caller may not read it: they cannot tell.
        Forbidden: They may read it, and not do that.
    """
    row = naming.named(s, ArtifactRow, name, person(caller).name)
    thing = None if row is None else artifact_things(s, caller, [row])[row.id]
    if row is None or thing is None or right_of(person(caller), thing) < Right.READ:
        raise _none(s, caller, name, exists=row is not None)
    if action is not None and not may(person(caller), action, thing):
        check_may_ask(caller, action)
        raise Forbidden(
            f"artifact {row.name!r} is {row.owner}'s, and you may not {ACTIONS[action].does}",
            hint="Roles in its workspace allow it: det workspace list-members",
        )
    return row


def _none(s: Session, caller: Caller, name: str, *, exists: bool) -> Exception:
    visible = rights.visible_artifacts(person(caller))
    others = [] if exists else naming.of_name(s, ArtifactRow, name, visible, _MOST_NAMED)
    named = ", ".join(f"{one.owner}/{one.name}" for one in others)
    what = f"you have no artifact {name[:300]!r}" if named else f"there is no artifact {name[:300]!r}"
    hint = f"Others' are named with their owner: {named}" if named else "det artifact list"
    return no_such(what, exists=exists, hint=hint)


def version_for(s: Session, row: ArtifactRow, named: str) -> ArtifactVersionRow:
    """Load a version of an artifact by its number, `v3`, an alias or `latest`.

    Raises:
        NotFound: There is none.
    """
    number = named[1:] if named[:1] in {"v", "V"} and named[1:].isdigit() else named
    if named == LATEST:
        found = artifacts.newest(s, row.id)
    elif number.isascii() and number.isdigit() and len(number) <= 9:
        found = artifacts.version(s, row.id, int(number))
    else:
        found = artifacts.with_alias(s, row.id, named)
    if found is None:
        called = word(f"{row.owner}/{row.name}")
        raise no_such(
            f"artifact {row.name!r} has no version {named[:80]!r}",
            exists=False,
            hint=f"Versions have numbers from 1 on, and aliases: det artifact describe {called}",
        )
    return found


def reference_of(caller: Caller, row: ArtifactRow) -> str:
    """Return what the caller names an artifact by: its name, or `OWNER/NAME` where it is somebody else's."""
    return row.name if owns(caller, row.owner) else f"{row.owner}/{row.name}"


def check_unused(s: Session, ids: Sequence[int], name: str, *, force: bool) -> None:
    """Check that versions may go: no run uses them, and no alias points at them.

    Raises:
        Conflict: Something does, and it is not forced.
    """
    if force:
        return
    used = [one for one in artifacts.links_of(s, ids) if one.role == "used"]
    aliases = sorted({alias for held in artifacts.aliases_of(s, ids).values() for alias in held})
    if not used and not aliases:
        return
    runs = len({one.run_id for one in used})
    why = [f"{runs} runs use it" if runs > 1 else "a run uses it"] if used else []
    why += [f"aliases point at it: {', '.join(aliases[:10])}"] if aliases else []
    raise Conflict(
        f"{name} is not deleted: {'; '.join(why)}",
        hint="See det artifact lineage; --force deletes it nevertheless, and what used it can no longer be repeated",
    )
