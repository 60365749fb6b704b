"""Every verb that changes something, by everybody who may call, on another's object: the answer is the page's.

What is expected is read from docs/reference/rights.md: its table of rights, and its table of actions with their routes.
The master is real, with its routes and services; only whose token it is, is said by the test. Each request gets objects
of its own, so that what is allowed is really done.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from functools import cache, partial
from itertools import count, product
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import httpx
import pytest
from tornado.httpserver import HTTPServer
from tornado.testing import bind_unused_port

from detlab.governance.withdrawals import Withdrawal
from detlab_hub.services import AgentCaller, Caller, EnrolCaller, TaskCaller
from detlab_hub.services.base.callers import ADMIN, READ, WRITE, HubCaller
from detlab_hub.services.base.configs import withdrawn
from detlab_hub.store.queries import rights, workspaces
from detlab_hub.store.tables import (
    AlertRuleRow,
    ArtifactRow,
    ArtifactVersionRow,
    BookmarkRow,
    CheckpointRow,
    ExperimentRow,
    GrantRow,
    HookRow,
    LabelMoveRow,
    MemberRow,
    ModelGrantRow,
    ModelRow,
    ProjectRow,
    ScheduleRow,
    SigningKeyRow,
    TaskRow,
    TemplateRow,
    TrackedRunRow,
    TrackedWriterRow,
    TrialRow,
    VersionLabelRow,
    VersionRow,
    WorkspaceRow,
)
from detlab_hub.web.auth import Identifier
from detlab_hub.web.crosssite import CrossSite
from detlab_hub.web.routes import Background, WebSettings, make_application
from detlab_hub.web.scopes import CHANGING
from testbed.resource_tests import declared
from testbed.routes import Asked, verbs

PAGE = Path(__file__).parents[4] / "docs/reference/rights.md"
BOTH = frozenset({READ, WRITE})
DIGEST = "sha256:" + "0" * 64
EXPERIMENT, TRIAL = 5, 7
"""Whose tasks call: of the first objects that are made."""


@dataclass(frozen=True)
class Asker:
    """Somebody who calls, and what they are to alice's objects, in the words of the page."""

    who: Any
    relation: str
    kinds: frozenset[str]
    """Whose token, in the words of the table of actions; and `administrator` for one who is."""


def person(name: str, relation: str, *groups: str, admin: bool = False, run: bool = False) -> Asker:
    scopes = BOTH | {ADMIN} if admin and not run else BOTH
    who = Caller(name, scopes, admin and not run, frozenset(groups), "1.a.0" if run else None)
    kinds = {"notebook run"} if run else {"user", "administrator"} if admin else {"user"}
    return Asker(who, relation, frozenset(kinds))


ASKERS: dict[str, Asker] = {
    "owner": person("alice", "owner"),
    "owner's run": person("alice", "notebook run of its owner", run=True),
    "editor": person("bob", "shared, may change"),
    "editor's run": person("bob", "shared, may change", run=True),
    "editor by a group": person("vera", "shared, may change", "editors", "readers"),
    "reader": person("rita", "shared, may read"),
    "reader by a group": person("carl", "shared, may read", "readers"),
    "workspace admin": person("wanda", "admin of its workspace"),
    "workspace admin's run": person("wanda", "editor of its workspace", run=True),
    "workspace editor by a group": person("gina", "editor of its workspace", "writers", "watchers"),
    "workspace viewer": person("vic", "viewer of its workspace"),
    "stranger": person("mallory", ""),
    "stranger's run": person("mallory", "", run=True),
    "named like the editors' group": person("editors", ""),
    "administrator": person("root", "administrator", admin=True),
    "administrator's run": person("root", "", admin=True, run=True),
    "owner who may only read": Asker(Caller("alice", frozenset({READ})), "owner", frozenset()),
    "its own trial": Asker(TaskCaller("5.7.0", TRIAL, EXPERIMENT, 1), "its own task", frozenset({"task"})),
    "a trial beside it": Asker(TaskCaller("5.8.0", 8, EXPERIMENT, 1), "task of its experiment", frozenset({"task"})),
    "a task of its owner": Asker(TaskCaller("c.0", None, None, 0, "command-x"), "", frozenset({"task"})),
    "agent": Asker(AgentCaller("node"), "agent that runs it", frozenset({"agent"})),
    "enrolment": Asker(EnrolCaller(), "", frozenset({"enrolment"})),
    "spawners": Asker(HubCaller(), "", frozenset({"spawners"})),
}
PROGRAMS = {"task", "agent", "enrolment", "spawners"}
RIGHTS = ["", "read", "write", "own"]


@dataclass(frozen=True)
class Row:
    """A row of the page's table of actions."""

    kinds: list[str]
    least: str
    tokens: set[str]
    routes: list[str]
    let_in: set[str]
    """Whose token the route takes: that of a part takes those of the whole action, and then looks at the object."""
    by_role: bool
    """Whether a role in the workspace suffices."""


def tables() -> list[list[list[str]]]:
    """The tables of the page, each with its head."""
    parts = re.findall(r"(?:^\|.*\n)+", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return [
        [[cell.strip(" `") for cell in line.strip("|\n").split("|")] for line in part.splitlines()] for part in parts
    ]


@cache
def page() -> tuple[dict[tuple[str, str], str], dict[str, Row]]:
    """Rights by kind and relation, and actions with their routes; a part of an action has those of the whole."""
    (head, _, *cells), (_, _, *lines) = tables()
    table = {(row[0], head[place]): row[place] for row in cells for place in range(1, len(head))}
    actions: dict[str, Row] = {}
    routes: list[str] = []
    let_in: set[str] = set()
    for name, _, kinds, least, tokens, asked in lines:
        if found := re.findall(r"[A-Z]+ [^`,]+", asked):  # MLflow's have tests of their own: services/tracking
            routes = [route for route in found if " /" not in route]
        of = [kind for kind in kinds.split(", ") if kind]
        asked_by = set(tokens.split(", "))
        let_in = let_in if name.startswith("-") else asked_by
        right, _, rest = least.partition("`")
        actions[name.removeprefix("- `")] = Row(of, right, asked_by, routes, let_in, "no role" not in rest)
    return table, actions


# --- what is asked

TO_CAROL = {"kind": "user", "name": "carol", "write": False}
BODIES: dict[str, dict[str, Any]] = {
    "experiment.edit": {"description": "x"},
    "experiment.archive": {"archived": True},
    "experiment.gc": {"now": True},
    "experiment.log_retention": {"days": 3},
    "experiment.share": TO_CAROL,
    "search.steer": {"act": "extend", "trials": 1},
    "search.code": {"act": "code", "bundle": DIGEST},
    "search.tell": {"trial_id": 1},
    "job.update": {"weight": 2.0},
    "checkpoint.edit": {"metadata": {"a": 1}},
    "checkpoint.remove_files": {"globs": ["*"]},
    "model.edit": {"description": "x"},
    "model.rename": {"name": "other"},
    "model.archive": {"archived": True},
    "model.share": TO_CAROL,
    "experiment.move": {},
    "model.move": {},
    "task.move": {},
    "version.edit": {"comment": "x"},
    "label.move": {"version": 1},
    "task.create": {"kind": "command", "config": {"entrypoint": "true"}, "dry_run": True},
    "task.start_server": {"kind": "notebook", "dry_run": True},
    **declared("VALID_BODIES"),
}
QUERIES = {action: {"kind": "user", "name": "bob"} for action in ("experiment.unshare", "model.unshare")}
QUERIES |= {"member.remove": {"kind": "user", "name": "ed"}, "alert_email.take": {"user": "bob"}}
CONTENT = {"bundle.upload": b"x"}
UPLOADS = {
    "PUT artifacts/{artifact}/files/{digest}": {},
    "PUT runs/{run_id}/media": {"key": "said", "step": 1, "place": 0, "kind": "text", "media_type": "text/plain"},
}
"""Routes that take a file, with their queries, of actions that others take JSON for."""


class Names(Identifier):
    """Takes the word of `Authorization: Bearer NAME` for whose token it is."""

    async def identify(self, handler: Any, rule: CrossSite) -> Any:
        return ASKERS[handler.request.headers["Authorization"].removeprefix("Bearer ").replace("_", " ")].who


@pytest.fixture
def db_url(tmp_path: Path) -> str:
    """SQLite alone: lists are compared on both databases, by tests of the store."""
    return f"sqlite:///{tmp_path}/detlab.sqlite"


@pytest.fixture
async def place(make_world: Any) -> AsyncIterator[tuple[Any, httpx.AsyncClient]]:
    """A master with its routes, and a client of it."""
    world = await make_world()
    background = Background()
    web = WebSettings(cookie_secret=b"x" * 32, hub_public_url="/hub/", background=background)
    server = HTTPServer(make_application(world.services, Names(SimpleNamespace(), world.services), web))
    sock, port = bind_unused_port()
    server.add_sockets([sock])
    base = f"http://127.0.0.1:{port}/services/detlab/"
    async with httpx.AsyncClient(base_url=base, trust_env=False, timeout=20) as client:
        yield world, client
    server.stop()
    await server.close_all_connections()
    await background.wait()


NUMBERS = count(1)


def objects(s: Any, bookmarked_by: str = "zoe") -> dict[str, str]:
    """Make an ended experiment of alice's with all that belongs to it, a model and a task, shared as `ASKERS` say.

    And a model of somebody else, `team`, that everybody may change.
    """
    number = next(NUMBERS)
    place, project = workspace(s, number)
    experiment = ExperimentRow(name=f"e{number}", owner="alice", state="COMPLETED", config={"name": "e"})
    experiment.workspace_id, experiment.project_id = place.id, project.id
    s.add(experiment)
    s.flush()
    trial = TrialRow(experiment_id=experiment.id, idx=0, request_id=f"r{number}", state="COMPLETED")
    model = ModelRow(name=f"m{number}", owner="alice", last_version=1, workspace_id=place.id)
    team = ModelRow(name=f"t{number}", owner="zoe")
    task = TaskRow(id=f"command-{number:012x}", kind="command", name="t", owner="alice", state="COMPLETED")
    task.workspace_id, task.project_id = place.id, project.id
    s.add_all([trial, model, team, task])
    s.flush()
    uuids = [str(UUID(int=2 * number)), str(UUID(int=2 * number + 1))]
    s.add_all(
        CheckpointRow(
            uuid=uuid, trial_id=trial.id, experiment_id=experiment.id, files={"a": {"size": 1, "digest": "d"}}
        )
        for uuid in uuids
    )
    s.flush()
    version = VersionRow(model_id=model.id, version=1, checkpoint_uuid=uuids[1], owner="alice")
    s.add(version)
    s.flush()
    s.add(VersionLabelRow(model_id=model.id, label="own", version_id=version.id, version=1))
    s.add(LabelMoveRow(model_id=model.id, label="own", to_version=1, by="alice", at=1.0))
    s.add(BookmarkRow(uuid=uuids[0], name=bookmarked_by))
    run = TrackedRunRow(id=f"{number:032d}"[::-1], owner="alice", experiment_id=experiment.id, trial_id=trial.id)
    s.add(run)
    s.flush()
    s.add(TrackedWriterRow(run_id=run.id, name="zzz"))
    hook = HookRow(owner="alice", name=f"h{number}", url="https://93.184.216.34/")
    rule = AlertRuleRow(owner="alice", kind="completed")
    schedule = ScheduleRow(owner="alice", name="s", cron="0 6 * * *", next_at=2e9)
    s.add_all([hook, rule, schedule])
    s.flush()
    s.add(SigningKeyRow(id=f"{number:064x}", public_key=f"{number:064x}"))
    artifact = ArtifactRow(name=f"a{number}", kind="dataset", owner="alice", workspace_id=place.id, last_version=1)
    s.add(artifact)
    s.flush()
    s.add(ArtifactVersionRow(artifact_id=artifact.id, version=1, digest="d", owner="alice"))
    names = {asker.who.name for asker in ASKERS.values() if isinstance(asker.who, Caller)}
    everybody = {"kind": rights.USER, "write": True, "granted_by": "zoe"}
    s.add_all(ModelGrantRow(model_id=team.id, name=name, **everybody) for name in sorted(names))
    for kind, name, write in (
        (rights.USER, "bob", True),
        (rights.USER, "rita", False),
        (rights.GROUP, "editors", True),
        (rights.GROUP, "readers", False),
    ):
        more = {"kind": kind, "name": name, "write": write, "granted_by": "alice"}
        s.add_all([GrantRow(experiment_id=experiment.id, **more), ModelGrantRow(model_id=model.id, **more)])
    return {
        "experiment_id": str(experiment.id),
        "trial_id": str(trial.id),
        "run_id": run.id,
        "uuid": uuids[0],
        "key": f"{number:064x}",
        "artifact": str(artifact.id),
        "model": str(model.id),
        "team": str(team.id),
        "version": "1",
        "label": "own",
        "task_id": task.id,
        "job_id": str(experiment.id),
        "digest": DIGEST,
        "agent_id": "nobody",
        "webhook": str(hook.id),
        "alert_rule": str(rule.id),
        "schedule": str(schedule.id),
        "workspace": str(place.id),
        "project": str(project.id),
    }


def workspace(s: Any, number: int) -> tuple[WorkspaceRow, ProjectRow]:
    """Make a workspace with an admin, an editor and a viewer, by their names and by groups, and a project in it."""
    row = WorkspaceRow(path=f"zoe/w{number}", name=f"w{number}", owner="zoe")
    s.add(row)
    s.flush()
    for kind, name, role in (
        (rights.USER, "zoe", "admin"),
        (rights.USER, "wanda", "admin"),
        (rights.USER, "ed", "editor"),
        (rights.GROUP, "writers", "editor"),
        (rights.USER, "vic", "viewer"),
        (rights.GROUP, "watchers", "viewer"),
    ):
        s.add(MemberRow(workspace_id=row.id, kind=kind, name=name, role=role, added_by="zoe"))
    return row, workspaces.add_project(s, row.id, "digits", "zoe", 1.0)


def empty_workspace(s: Any, owner: str) -> dict[str, str]:
    """Make a workspace in which nothing lies; to its owner one of their own, personal, has other rights."""
    if owner:
        place = workspaces.personal(s, owner, 1.0)
        project = str(workspaces.uncategorized(s, place, owner, 1.0))
        return {"workspace": str(place), "project": project, "project_name": workspaces.NOWHERE}
    row, project = workspace(s, next(NUMBERS))
    return {"workspace": str(row.id), "project": str(project.id)}


def expected(row: Row, kind: str, asker: Asker) -> set[int] | None:
    """The statuses of a refusal, by the page; None: it is allowed."""
    table, _ = page()
    allowed = bool(asker.kinds & row.tokens)
    if not row.least or not asker.kinds & row.let_in:
        return None if allowed else {403}
    relation = asker.relation if row.by_role or "its workspace" not in asker.relation else "viewer of its workspace"
    given = max((table[kind, name] for name in {relation, "any user"} if name), key=RIGHTS.index)
    if PROGRAMS & asker.kinds:
        return None if given == "own" else {403, 404, 409}
    if not given:
        return {404}
    return None if allowed and RIGHTS.index(given) >= RIGHTS.index(row.least) else {403}


def by_themselves(action: str, name: str) -> bool:
    """Whether the bookmark that is to be removed is the caller's own."""
    return action == "checkpoint.unbookmark" and isinstance(ASKERS[name].who, Caller)


async def ask(world: Any, client: httpx.AsyncClient, action: str, route: str, name: str, kind: str) -> httpx.Response:
    """Ask for an action on objects of its own."""
    bookmarks = {"bookmarked_by": ASKERS[name].who.name} if by_themselves(action, name) else {}
    ids = world.store.write_sync(partial(objects, **bookmarks))
    if kind == "user task":
        ids["job_id"] = ids["task_id"]
    if kind == "workspace":
        owner = ASKERS[name].who.name if ASKERS[name].relation in {"owner", "notebook run of its owner"} else ""
        ids |= world.store.write_sync(partial(empty_workspace, owner=owner))
    if action == "checkpoint.register_elsewhere":
        ids["model"] = ids["team"]
    verb, path = route.split()
    (one,) = [one for one in changing(ids) if (one.verb, one.route) == (verb, f"api/v1/{path}")]
    body: Any = BODIES.get(action, {})
    if action == "experiment.log_retention":
        body = {**body, "experiments": [int(ids["experiment_id"])]}
    if action == "tracked_run.begin":
        body = {"key": f"k{next(NUMBERS)}", "project": f"{ids['workspace']}/{ids.get('project_name', 'digits')}"}
    if action in LAID:
        body, QUERIES[action] = LAID[action](world, ids, getattr(ASKERS[name].who, "name", "nobody"))
    if "register" in action:
        body = {"checkpoint": ids["uuid"]}
    if action == "trash.empty":
        body = {"experiment_id": int(ids["experiment_id"])}
    if action == "member.leave":
        QUERIES[action] = {"kind": "user", "name": getattr(ASKERS[name].who, "name", "nobody")}
    params = QUERIES.get(action, {"force": "true"} if action in {"model.delete", "version.delete"} else None)
    content = CONTENT.get(action)
    headers = {"Authorization": f"Bearer {name.replace(' ', '_')}"}
    if action == "artifact.edit" and "versions" in route:
        body = {"comment": "x"}
    if route in UPLOADS:
        params, content = UPLOADS[route], b"x"
        headers["Content-Type"] = "application/octet-stream"
    sent = None if content or verb == "DELETE" else body
    return await client.request(one.verb, one.path, headers=headers, params=params, json=sent, content=content)


def _template(world: Any, ids: dict[str, str], asker: str) -> tuple[Any, Any]:
    """Make a template that the asker has made in the workspace: to change that of others takes its admin."""
    name = f"t{next(NUMBERS)}"
    row = TemplateRow(workspace_id=int(ids["workspace"]), key=name, name=name, owner=asker)
    world.store.write_sync(lambda s: s.add(row))
    return {"name": f"new{name}", "workspace": ids["workspace"], "config": {}}, {"name": f"{ids['workspace']}:{name}"}


def _policy(world: Any, ids: dict[str, str], asker: str) -> tuple[Any, Any]:
    which = {"workload": "experiment", "workspace": ids["workspace"]}
    return which, which


def _withdrawn(world: Any, ids: dict[str, str], asker: str) -> Any:
    one = Withdrawal(f"s{next(NUMBERS)}")
    world.store.write_sync(lambda s: withdrawn.keep(s, int(ids["workspace"]), one))
    return {"source": one.source, "reason": "why", "workspace": ids["workspace"]}


LAID = {
    "template.set": lambda *where: (_template(*where)[0], None),
    "template.remove": _template,
    "config_policy.set": lambda *where: (_policy(*where)[0], None),
    "config_policy.remove": _policy,
    "source.withdraw": lambda *where: (_withdrawn(*where), None),
    "source.restore": lambda *where: (_withdrawn(*where), None),
}
"""Actions on what a workspace lays under or over configs, which it names itself: (body, query)."""


def changing(ids: dict[str, str]) -> list[Asked]:
    return [one for one in verbs(ids) if one.verb in CHANGING and one.operation.action is not None]


def cases() -> Iterator[tuple[str, str, str, str, set[int] | None]]:
    """(action, route, kind of object, name of the asker, statuses of a refusal); what is left out has other tests."""
    for action, row in page()[1].items():
        for route, kind, (name, asker) in product(row.routes, row.kinds or [""], ASKERS.items()):
            refused = expected(row, kind, asker)
            if action == "artifact.move" and "versions" in route:  # a version has no name
                continue
            # of a task that runs, an agent that is connected, this whole master
            elsewhere = row.tokens & PROGRAMS or action == "cluster.drain"
            if refused is not None or not elsewhere:
                yield action, route, kind, name, refused


def agrees(action: str, status: int, refused: set[int] | None) -> bool:
    """Whether a status is that of a refusal, or of none; a node or token of that name there is not."""
    if refused is not None:
        return status in refused
    return status < 500 and status not in (
        {401, 403} if action.startswith(("node.", "token.", "member.leave")) else {401, 403, 404}
    )


async def test_everybodys_answer_to_every_action_is_that_of_the_page(place: tuple[Any, httpx.AsyncClient]) -> None:
    world, client = place
    wrong, asked, done = [], 0, 0
    for action, route, kind, name, refused in cases():
        reply = await ask(world, client, action, route, name, kind)
        asked, done = asked + 1, done + reply.is_success
        if not agrees(action, reply.status_code, refused):
            wrong.append(
                f"{action} {kind} by {name}: {reply.status_code} {reply.text[:120]}, not {refused or 'allowed'}"
            )
    assert not wrong, "\n".join(wrong)
    assert asked > 900
    assert done > 100, "what is allowed is done, too"


def test_every_verb_that_changes_something_has_a_row_on_the_page() -> None:
    _, actions = page()
    there = {route for row in actions.values() for route in row.routes}
    assert {
        f"{one.verb} {one.route.removeprefix('api/v1/')}" for one in changing({"experiment_id": "1", "trial_id": "1"})
    } == there
    assert set(BODIES) | set(QUERIES) <= set(actions)


async def test_an_empty_trash_request_without_an_experiment_is_about_ones_own(place: tuple[Any, Any]) -> None:
    world, client = place
    world.store.write_sync(objects)
    for name, status in {"owner": 200, "owner's run": 403, "administrator": 200, "administrator's run": 403}.items():
        headers = {"Authorization": f"Bearer {name.replace(' ', '_')}"}
        reply = await client.post("api/v1/storage/trash", json={}, headers=headers)
        assert reply.status_code == status, (name, reply.text)


def test_the_askers_are_of_every_relation_that_people_have() -> None:
    table, _ = page()
    relations = {relation for _, relation in table} - {"task that starts from it", "may read what uses it", "any user"}
    assert relations == {asker.relation for asker in ASKERS.values()} - {""}
