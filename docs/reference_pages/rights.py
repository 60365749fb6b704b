"""The page of rights, from the table that decides."""

from __future__ import annotations

from reference_pages.markdown import page, table


def rights() -> str:
    """The page of rights, from the table that decides."""
    from detlab_hub.core.rights import TABLE, CallerRelation, ObjectKind, Right

    intro = """
Who may do what with which object. Each row is a kind of object, each column what a caller is to it. A caller who is
several things to an object has the best right of them. An empty cell gives none: for such a caller the object does not
exist, and they get the same 404 as for one that was never there. Who may read an object, and asks for more, gets 403.
"""
    rights = """
- `read`: read it, download from it, start from its checkpoints
- `write`: that, and change it: pause, activate, cancel and kill it, write into it
- `own`: that, and share and delete it
"""
    columns = [*CallerRelation]
    rows = [
        (kind.value, *("" if not (right := TABLE[kind].get(one, Right.NONE)) else f"`{right.wire}`" for one in columns))
        for kind in ObjectKind
    ]
    notes = """
- Trials, metrics, output, code, events and grants of an experiment follow its row; output and files of a user task
  follow that of the task.
- *State of a user task*: its name, kind, state, owner, pool and resources, why it waits, and of its config the image.
  For members of its workspace; to all that is in the task a role gives no right.
- *Job in the queue*: name, owner and reason in lists of the queue; everybody sees position, size and age of each job.
- *User*: name, usage and limits, where users are listed. *Administration*: audit log, tokens, health, uids, instances.
- A task acts by its own token, which knows its experiment and trial; the rights of its owner are not its own. The cells
  of a notebook run have another token, which speaks for the owner while the run lasts (*notebook run of its owner*);
  what is shared with the owner as a user is shared with it, what is shared with a group is not.
- A model gives its readers the checkpoints that their owner has put there: those of versions in a model of the owner
  of the checkpoint's experiment, and those that this owner has registered in a model of somebody else. The checkpoint
  of any other version is read by who may read its experiment at that time, also if it was registered before this rule.
- What lies in a workspace has its members as readers, editors and admins. A role is given to a user or to a group of
  the Hub, and of role and grant each has the better. What runs as its owner is not for roles (*by no role*). A
  personal workspace has no members: in it lies what its owner has submitted without naming another.
- Rights say which objects; the scopes of a token say which requests may be made at all (`custom:detlab:read`, `write`,
  `admin`). A request needs both. An administrator is who has the scope `admin`.
"""
    header = ("", *(one.value for one in columns))
    return page("Rights", intro, rights, table(header, rows), notes, _ACTIONS, _actions())


_ACTIONS = """
## Actions

What changes something is an action, with one row here: on what it acts, which right to it is the least, and whose
token may ask for it at all. Anyone else gets 403, whatever the object. *User* includes their notebook servers;
*notebook run* is the token of its cells, which deletes, archives, shares and purges nothing. An action without an
object makes something new, or is about the caller's own attempt, node or server. One with a dash is a part of the one
above, by the same route.
"""


_BY_PROTOCOL = frozenset({"tracked_run.create", "tracked_run.log", "tracked_run.delete", "tracked_run.register"})
"""Actions without a route of the API: clients of MLflow ask for them."""


def _actions() -> str:
    from detlab_hub.core.rights import ACTIONS, Action, Right
    from detlab_hub.web.routes import API, PROTOCOLS
    from detlab_hub.web.scopes import CHANGING, operation_of

    routes: dict[Action, list[str]] = {}
    for path, handler in API:
        for verb in sorted(CHANGING):
            operation = operation_of(handler, verb)
            if operation is not None and operation.action is not None:
                routes.setdefault(operation.action, []).append(f"`{verb} {path}`")
    for path, handler in PROTOCOLS:
        for verb in sorted(CHANGING):
            operation = operation_of(handler, verb)
            if operation is not None and operation.action in _BY_PROTOCOL:
                routes.setdefault(operation.action, []).append(f"`{verb} /{path}`")
    whole = [action for action in Action if ACTIONS[action].within is None]
    order = [one for action in whole for one in (action, *(part for part in Action if ACTIONS[part].within is action))]
    rows = []
    for action in order:
        rule = ACTIONS[action]
        kinds = ", ".join(kind.value for kind in rule.kinds)
        least = "" if rule.least is Right.NONE else f"`{rule.least.wire}`{'' if rule.by_role else ', by no role'}"
        callers = ", ".join(sorted(rule.callers, key=[*type(next(iter(rule.callers)))].index))
        name = f"`{action}`" if rule.within is None else f"- `{action}`"
        rows.append((name, rule.does, kinds, least, callers, ", ".join(routes.get(action, []))))
    return table(("action", "what", "object", "least right", "whose token", "routes"), rows)
