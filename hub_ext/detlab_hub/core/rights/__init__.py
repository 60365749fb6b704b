"""Rights: who may do what with which object, as a table of rights and one of actions (I9). Pure.

What a caller is to an object (its owner, someone it is shared with, the task that runs it) is found here from facts.
Not here: loading those facts (services/base/access.py), and which verbs a token may call (web/scopes.py).
"""

from detlab_hub.core.rights.actions import ACTIONS, Action, ActionRule, CallerKind, may, may_ask
from detlab_hub.core.rights.model import (
    AgentIdentity,
    AttemptIdentity,
    CallerRelation,
    ObjectKind,
    Person,
    Right,
    Role,
    Thing,
    Who,
)
from detlab_hub.core.rights.table import TABLE, by_role, relations, right_of, role_of

__all__ = [
    "ACTIONS",
    "TABLE",
    "Action",
    "ActionRule",
    "AgentIdentity",
    "AttemptIdentity",
    "CallerKind",
    "CallerRelation",
    "ObjectKind",
    "Person",
    "Right",
    "Role",
    "Thing",
    "Who",
    "by_role",
    "may",
    "may_ask",
    "relations",
    "right_of",
    "role_of",
]
