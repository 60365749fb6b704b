"""The page of rights, from the table that decides."""

from __future__ import annotations

from reference_pages.markdown import page, table


def rights() -> str:
    """The page of rights, from the table that decides."""
    from detlab_hub.core.rights import TABLE, Kind, Relation, Right

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
    columns = [*Relation]
    rows = [
        (kind.value, *("" if not (right := TABLE[kind].get(one, Right.NONE)) else f"`{right.wire}`" for one in columns))
        for kind in Kind
    ]
    notes = """
- Trials, metrics, output, code, events and grants of an experiment follow its row; output and files of a user task
  follow that of the task.
- *Job in the queue*: name, owner and reason in lists of the queue; everybody sees position, size and age of each job.
- *User*: name, usage and limits, where users are listed. *Administration*: audit log, tokens, health, uids, instances.
- A task acts by its own token, which knows its experiment and trial; the rights of its owner are not its own. The cells
  of a notebook run have another token, which speaks for the owner while the run lasts (*notebook run of its owner*);
  what is shared with the owner as a user is shared with it, what is shared with a group is not.
- Rights say which objects; the scopes of a token say which requests may be made at all (`custom:detlab:read`, `write`,
  `admin`). A request needs both. An administrator is who has the scope `admin`.
"""
    header = ("", *(one.value for one in columns))
    return page("Rights", intro, rights, table(header, rows), notes)
