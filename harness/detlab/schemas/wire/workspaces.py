"""Wire models of workspaces: their members, and what they give to what is submitted into them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from detlab.schemas.script_names import MOST_CHARS, name_problem, normal
from detlab.schemas.text_limits import DESCRIPTION_CHARS, LABEL_CHARS
from detlab.schemas.wire.base import PersonRequest, Wire
from detlab.schemas.wire.grants import GrantTo

RoleName = Literal["viewer", "editor", "admin"]
REFERENCE_CHARS = 2 * MOST_CHARS
"""Most characters of `OWNER/NAME`."""


def folder_name(text: str) -> str:
    """Return the name of a workspace or a project as it is kept: no `/` or `:`, and not digits alone, as ids are.

    Raises:
        ValueError: It can be none.
    """
    name = normal(" ".join(text.split()))
    if problem := name_problem(name, " ._-", LABEL_CHARS):
        raise ValueError(problem)
    if name.isdigit():
        raise ValueError("a name of digits only would be an id")
    return name


FolderName = Annotated[str, Field(max_length=4 * LABEL_CHARS), AfterValidator(folder_name)]
Reference = Annotated[str, Field(max_length=REFERENCE_CHARS)]


class DefaultsView(Wire):
    """What a workspace gives to what is submitted into it: a config's own values come before them.

    It runs as the members, so that each value passes the same checks as one in their config.
    """

    resource_pool: str = Field("", max_length=LABEL_CHARS)
    checkpoint_storage: dict[str, Any] = {}
    """As in a config, without keys and passwords. Admins of the workspace name a bucket; anything else, such as a
    path of the nodes or another address, is for administrators of the cluster."""
    environment: dict[str, Any] = {}
    """As in a config; for administrators of the cluster alone, as it decides what code the members' tasks run."""
    task_container_defaults: dict[str, Any] = {}
    """By Determined's names, with a `startup_hook`; for administrators of the cluster alone, likewise. The credentials
    of a registry are masked."""
    template: str = Field("", max_length=LABEL_CHARS)
    """One of its templates, which is laid under each experiment that names no other."""


class WorkspaceDefaults(DefaultsView, PersonRequest):
    """The same, as admins set it."""


class CreateWorkspace(PersonRequest):
    """POST workspaces. Who makes one is its first admin."""

    name: FolderName
    description: str = Field("", max_length=DESCRIPTION_CHARS)


class EditWorkspace(PersonRequest):
    """POST workspaces/{workspace}/edit. What is null stays as it is; the same edit again changes nothing."""

    name: FolderName | None = None
    description: str | None = Field(None, max_length=DESCRIPTION_CHARS)
    archived: bool | None = None
    """An archived one takes nothing new, and lists leave it out."""
    defaults: WorkspaceDefaults | None = None
    """All of them, replaced."""


class WorkspaceView(Wire):
    """A workspace."""

    id: int
    name: str
    owner: str
    """Who made it; others name it `OWNER/NAME`."""
    personal: bool = False
    """Whether it is where its owner's things lie that name no workspace. It has no members."""
    description: str = ""
    created_at: float = 0.0
    archived_at: float | None = None
    may: Literal["read", "write", "own"] = "read"
    """What the caller may do: look at it; also put things into it; also decide who is a member."""
    role: RoleName | None = None
    """The caller's; null: an administrator of the cluster who is no member, or the owner of a personal one."""
    projects: int = 0
    experiments: int = 0
    models: int = 0
    runs: int = 0
    """Runs from elsewhere, without those that are marked as deleted."""
    tasks: int = 0
    """User tasks that have not ended, without those of a personal one that name none."""
    quota: int | None = None
    """Slots that all that lies in it may hold at a time; null: any number."""
    defaults: DefaultsView = DefaultsView()
    shortened: list[str] = []
    """Fields of which a list has only a part."""


class WorkspaceList(Wire):
    """One page of workspaces, the oldest first."""

    items: list[WorkspaceView]
    after: int | None = None
    """`after` of the next page; null: this is the last one."""


class MemberRequest(GrantTo, PersonRequest):
    """PUT workspaces/{workspace}/members: who gets which role; one they had before is replaced."""

    role: RoleName = "viewer"
    """A viewer sees what lies in it, an editor changes it and puts things into it, an admin also deletes, shares and
    decides who is a member."""


class MemberView(GrantTo):
    """A member of a workspace."""

    role: RoleName
    added_by: str = ""
    created_at: float = 0.0


class MemberList(Wire):
    """The members of a workspace, users first."""

    items: list[MemberView]
