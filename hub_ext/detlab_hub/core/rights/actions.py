"""The table of actions: what each one acts on, the least right to it, and which kinds of callers may ask for it at all.

Every verb that changes something names one of them (`web.scopes.needs`), and the service that carries it out asks by
the same name (`services.base.access`), so that a route and its service cannot mean different rights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from detlab_hub.core.rights.model import (
    AgentIdentity,
    AttemptIdentity,
    ObjectKind,
    Person,
    Right,
    Thing,
    Who,
)
from detlab_hub.core.rights.table import right_of


class CallerKind(StrEnum):
    """Who asks, by the kind of their token."""

    PERSON = "user"
    """By a session, a token of the Hub, or that of a notebook server."""
    RUN = "notebook run"
    ADMIN = "administrator"
    TASK = "task"
    AGENT = "agent"
    ENROLMENT = "enrolment"
    SPAWNERS = "spawners"


class Action(StrEnum):
    """What a caller may want to do that changes something."""

    EXPERIMENT_CREATE = "experiment.create"
    EXPERIMENT_EDIT = "experiment.edit"
    EXPERIMENT_ARCHIVE = "experiment.archive"
    EXPERIMENT_PAUSE = "experiment.pause"
    EXPERIMENT_ACTIVATE = "experiment.activate"
    EXPERIMENT_CANCEL = "experiment.cancel"
    EXPERIMENT_CONTINUE = "experiment.continue"
    EXPERIMENT_KILL = "experiment.kill"
    EXPERIMENT_BATCH = "experiment.batch"
    EXPERIMENT_DELETE = "experiment.delete"
    EXPERIMENT_GC = "experiment.gc"
    EXPERIMENT_DELETE_EVENT_FILES = "experiment.delete_event_files"
    EXPERIMENT_KEEP_LOGS = "experiment.log_retention"
    EXPERIMENT_MOVE = "experiment.move"
    EXPERIMENT_SHARE = "experiment.share"
    EXPERIMENT_UNSHARE = "experiment.unshare"
    SEARCH_STEER = "search.steer"
    SEARCH_CODE = "search.code"
    SEARCH_ASK = "search.ask"
    SEARCH_TELL = "search.tell"
    TRIAL_KILL = "trial.kill"
    JOB_UPDATE = "job.update"
    TRASH_EMPTY = "trash.empty"
    BUNDLE_UPLOAD = "bundle.upload"
    CHECKPOINT_EDIT = "checkpoint.edit"
    CHECKPOINT_BOOKMARK = "checkpoint.bookmark"
    CHECKPOINT_UNBOOKMARK = "checkpoint.unbookmark"
    CHECKPOINT_UNBOOKMARK_ALL = "checkpoint.unbookmark_all"
    CHECKPOINT_DELETE = "checkpoint.delete"
    CHECKPOINT_UNDELETE = "checkpoint.undelete"
    CHECKPOINT_REMOVE_FILES = "checkpoint.remove_files"
    CHECKPOINT_REGISTER = "checkpoint.register"
    CHECKPOINT_REGISTER_ELSEWHERE = "checkpoint.register_elsewhere"
    MODEL_CREATE = "model.create"
    MODEL_EDIT = "model.edit"
    MODEL_RENAME = "model.rename"
    MODEL_ARCHIVE = "model.archive"
    MODEL_DELETE = "model.delete"
    MODEL_MOVE = "model.move"
    MODEL_SHARE = "model.share"
    MODEL_UNSHARE = "model.unshare"
    VERSION_REGISTER = "version.register"
    VERSION_EDIT = "version.edit"
    VERSION_DELETE = "version.delete"
    LABEL_MOVE = "label.move"
    LABEL_REMOVE = "label.remove"
    ARTIFACT_CREATE = "artifact.create"
    ARTIFACT_LOG = "artifact.log"
    ARTIFACT_USE = "artifact.use"
    ARTIFACT_EDIT = "artifact.edit"
    ARTIFACT_MOVE = "artifact.move"
    ARTIFACT_DELETE = "artifact.delete"
    VIEW_SAVE = "view.save"
    VIEW_REMOVE = "view.remove"
    WORKSPACE_CREATE = "workspace.create"
    WORKSPACE_EDIT = "workspace.edit"
    WORKSPACE_ARCHIVE = "workspace.archive"
    WORKSPACE_DELETE = "workspace.delete"
    TEMPLATE_SET = "template.set"
    TEMPLATE_REMOVE = "template.remove"
    CONFIG_POLICY_SET = "config_policy.set"
    CONFIG_POLICY_REMOVE = "config_policy.remove"
    MEMBER_SET = "member.set"
    MEMBER_REMOVE = "member.remove"
    MEMBER_LEAVE = "member.leave"
    PROJECT_CREATE = "project.create"
    PROJECT_EDIT = "project.edit"
    PROJECT_ARCHIVE = "project.archive"
    PROJECT_DELETE = "project.delete"
    RUN_CREATE = "tracked_run.create"
    RUN_LOG = "tracked_run.log"
    RUN_BEGIN = "tracked_run.begin"
    RUN_REPORT = "tracked_run.report"
    RUN_DELETE = "tracked_run.delete"
    RUN_REGISTER = "tracked_run.register"
    TASK_CREATE = "task.create"
    TASK_START_SERVER = "task.start_server"
    TASK_KILL = "task.kill"
    TASK_MOVE = "task.move"
    SCHEDULE_CREATE = "schedule.create"
    SCHEDULE_PAUSE = "schedule.pause"
    SCHEDULE_RESUME = "schedule.resume"
    SCHEDULE_RUN = "schedule.run"
    SCHEDULE_REMOVE = "schedule.remove"
    AGENT_ENROL = "agent.enrol"
    AGENT_RECORDS = "agent.records"
    ENROLMENT_CREATE = "enrolment.create"
    NODE_ENABLE = "node.enable"
    NODE_DISABLE = "node.disable"
    NODE_DRAIN = "node.drain"
    NODE_FORGET = "node.forget"
    CLUSTER_DRAIN = "cluster.drain"
    CLUSTER_MESSAGE = "cluster.message"
    MASTER_CONFIGURE = "master.configure"
    QUOTA_SET = "quota.set"
    ALERT_READ = "alert.read"
    ALERT_RULE_SET = "alert_rule.set"
    ALERT_RULE_REMOVE = "alert_rule.remove"
    ALERT_EMAIL_SET = "alert_email.set"
    ALERT_EMAIL_CONFIRM = "alert_email.confirm"
    ALERT_EMAIL_REMOVE = "alert_email.remove"
    ALERT_EMAIL_GIVE = "alert_email.give"
    ALERT_EMAIL_TAKE = "alert_email.take"
    USER_SETTINGS_SET = "user_settings.set"
    USER_SETTINGS_RESET = "user_settings.reset"
    WEBHOOK_CREATE = "webhook.create"
    WEBHOOK_TEST = "webhook.test"
    WEBHOOK_DELETE = "webhook.delete"
    SIGNING_KEY_ROTATE = "signing_key.rotate"
    SIGNING_KEY_REVOKE = "signing_key.revoke"
    SOURCE_WITHDRAW = "source.withdraw"
    SOURCE_RESTORE = "source.restore"
    QUOTA_REMOVE = "quota.remove"
    TOKEN_REVOKE = "token.revoke"  # noqa: S105  (a name)
    SPAWN_START = "spawn.start"
    SPAWN_CLAIM = "spawn.claim"
    SPAWN_END = "spawn.end"
    ATTEMPT_REPORT = "attempt.report"
    ATTEMPT_MEET = "attempt.meet"
    ATTEMPT_COMMIT = "attempt.commit"
    ATTEMPT_DELETE_CHECKPOINT = "attempt.delete_checkpoint"
    ATTEMPT_COLLECT = "attempt.collect"
    ATTEMPT_RENEW = "attempt.renew"
    ATTEMPT_GOVERN = "attempt.govern"


@dataclass(frozen=True)
class ActionRule:
    """A row of the table.

    Attributes:
        kinds: Kinds of objects that it acts on; none: what is new, or the caller's own attempt, node or server.
        least: The least right to the object.
        callers: Who may ask for it at all.
        does: What it is, in words.
        by_role: Whether the role of a member of the workspace suffices. Not for what runs as the owner of the object.
        within: Another action, whose route carries this one out, too, where more than that one is asked for.
    """

    kinds: tuple[ObjectKind, ...]
    least: Right
    callers: frozenset[CallerKind]
    does: str
    within: Action | None = None
    by_role: bool = True


PEOPLE = frozenset({CallerKind.PERSON, CallerKind.RUN})
THEMSELVES = frozenset({CallerKind.PERSON})
"""People, but no notebook run: what deletes, hides, shares or lasts longer than the run."""
_ADMIN = frozenset({CallerKind.ADMIN})
_TASK = frozenset({CallerKind.TASK})
_HUB = frozenset({CallerKind.SPAWNERS})
_ANY_WRITER = PEOPLE | _TASK
_NONE, _READ, _WRITE, _OWN = Right.NONE, Right.READ, Right.WRITE, Right.OWN
_EXPERIMENT, _CHECKPOINT, _MODEL = (ObjectKind.EXPERIMENT,), (ObjectKind.CHECKPOINT,), (ObjectKind.MODEL,)
_WORKSPACE, _ARTIFACT = (ObjectKind.WORKSPACE,), (ObjectKind.ARTIFACT,)
_SCHEDULE = (ObjectKind.SCHEDULE,)

ACTIONS: Mapping[Action, ActionRule] = {
    Action.EXPERIMENT_CREATE: ActionRule((), _NONE, PEOPLE, "submit an experiment"),
    Action.EXPERIMENT_EDIT: ActionRule(_EXPERIMENT, _WRITE, PEOPLE, "change its name, texts and labels"),
    Action.EXPERIMENT_ARCHIVE: ActionRule(
        _EXPERIMENT, _OWN, THEMSELVES, "archive it, or restore it", Action.EXPERIMENT_EDIT
    ),
    Action.EXPERIMENT_PAUSE: ActionRule(_EXPERIMENT, _WRITE, PEOPLE, "pause it"),
    Action.EXPERIMENT_ACTIVATE: ActionRule(_EXPERIMENT, _WRITE, PEOPLE, "continue it"),
    Action.EXPERIMENT_CANCEL: ActionRule(_EXPERIMENT, _WRITE, PEOPLE, "end it after a last checkpoint"),
    Action.EXPERIMENT_CONTINUE: ActionRule(
        _EXPERIMENT, _WRITE, PEOPLE, "let its trials go on after its end, from their checkpoints"
    ),
    Action.EXPERIMENT_KILL: ActionRule(_EXPERIMENT, _WRITE, PEOPLE, "end it now"),
    Action.EXPERIMENT_BATCH: ActionRule(
        (), _NONE, PEOPLE, "do the same to many experiments, with the right that it takes to each"
    ),
    Action.EXPERIMENT_DELETE: ActionRule(_EXPERIMENT, _OWN, THEMSELVES, "delete it with all that belongs to it"),
    Action.EXPERIMENT_GC: ActionRule(_EXPERIMENT, _OWN, THEMSELVES, "change which checkpoints it keeps, and collect"),
    Action.EXPERIMENT_DELETE_EVENT_FILES: ActionRule(_EXPERIMENT, _OWN, THEMSELVES, "delete its TensorBoard files"),
    Action.EXPERIMENT_KEEP_LOGS: ActionRule(
        _EXPERIMENT, _OWN, THEMSELVES, "set for how long its output is kept, which may delete it"
    ),
    Action.EXPERIMENT_MOVE: ActionRule(
        _EXPERIMENT, _OWN, THEMSELVES, "move it to another project, whose members see it"
    ),
    Action.EXPERIMENT_SHARE: ActionRule(_EXPERIMENT, _OWN, THEMSELVES, "share it"),
    Action.EXPERIMENT_UNSHARE: ActionRule(_EXPERIMENT, _OWN, THEMSELVES, "withdraw a grant"),
    Action.SEARCH_STEER: ActionRule(_EXPERIMENT, _WRITE, PEOPLE, "extend or steer its search"),
    Action.SEARCH_CODE: ActionRule(
        _EXPERIMENT,
        _OWN,
        THEMSELVES,
        "give its search other code, which runs as its owner",
        Action.SEARCH_STEER,
        by_role=False,
    ),
    Action.SEARCH_ASK: ActionRule(_EXPERIMENT, _WRITE, PEOPLE, "have its search propose a trial"),
    Action.SEARCH_TELL: ActionRule(_EXPERIMENT, _WRITE, PEOPLE, "tell its search a result"),
    Action.TRIAL_KILL: ActionRule(_EXPERIMENT, _WRITE, PEOPLE, "end one of its trials"),
    Action.JOB_UPDATE: ActionRule(
        (ObjectKind.EXPERIMENT, ObjectKind.TASK),
        _OWN,
        THEMSELVES,
        "change its pool, priority, weight or place in the queue",
    ),
    Action.TRASH_EMPTY: ActionRule(_EXPERIMENT, _OWN, THEMSELVES, "empty its trash, or that of all of one's own"),
    Action.BUNDLE_UPLOAD: ActionRule((), _NONE, PEOPLE, "upload code"),
    Action.CHECKPOINT_EDIT: ActionRule(_CHECKPOINT, _WRITE, PEOPLE, "change its metadata"),
    Action.CHECKPOINT_BOOKMARK: ActionRule(_CHECKPOINT, _WRITE, PEOPLE, "bookmark it, which keeps it"),
    Action.CHECKPOINT_UNBOOKMARK: ActionRule(_CHECKPOINT, _READ, THEMSELVES, "remove one's own bookmark"),
    Action.CHECKPOINT_UNBOOKMARK_ALL: ActionRule(
        _CHECKPOINT, _OWN, THEMSELVES, "remove others' bookmarks", Action.CHECKPOINT_UNBOOKMARK
    ),
    Action.CHECKPOINT_DELETE: ActionRule(_CHECKPOINT, _OWN, THEMSELVES, "delete it"),
    Action.CHECKPOINT_UNDELETE: ActionRule(_CHECKPOINT, _OWN, THEMSELVES, "restore it from the trash"),
    Action.CHECKPOINT_REMOVE_FILES: ActionRule(_CHECKPOINT, _OWN, THEMSELVES, "remove some of its files"),
    Action.CHECKPOINT_REGISTER: ActionRule(
        _CHECKPOINT, _WRITE, PEOPLE, "make it a version of a model of its owner", Action.VERSION_REGISTER
    ),
    Action.CHECKPOINT_REGISTER_ELSEWHERE: ActionRule(
        _CHECKPOINT, _OWN, THEMSELVES, "make it a version of another's model", Action.VERSION_REGISTER
    ),
    Action.MODEL_CREATE: ActionRule((), _NONE, PEOPLE, "make a model"),
    Action.MODEL_EDIT: ActionRule(_MODEL, _WRITE, PEOPLE, "change its texts, metadata and labels"),
    Action.MODEL_RENAME: ActionRule(_MODEL, _OWN, THEMSELVES, "give it another name", Action.MODEL_EDIT),
    Action.MODEL_ARCHIVE: ActionRule(_MODEL, _OWN, THEMSELVES, "archive it, or restore it", Action.MODEL_EDIT),
    Action.MODEL_DELETE: ActionRule(_MODEL, _OWN, THEMSELVES, "delete it with its versions"),
    Action.MODEL_MOVE: ActionRule(_MODEL, _OWN, THEMSELVES, "move it to another workspace, whose members see it"),
    Action.MODEL_SHARE: ActionRule(_MODEL, _OWN, THEMSELVES, "share it"),
    Action.MODEL_UNSHARE: ActionRule(_MODEL, _OWN, THEMSELVES, "withdraw a grant"),
    Action.VERSION_REGISTER: ActionRule(_MODEL, _WRITE, PEOPLE, "register a version"),
    Action.VERSION_EDIT: ActionRule(_MODEL, _WRITE, PEOPLE, "change a version's texts, metadata and semantic version"),
    Action.VERSION_DELETE: ActionRule(_MODEL, _OWN, THEMSELVES, "delete a version"),
    Action.LABEL_MOVE: ActionRule(_MODEL, _WRITE, PEOPLE, "move a label to a version"),
    Action.LABEL_REMOVE: ActionRule(_MODEL, _WRITE, PEOPLE, "take a label away"),
    Action.ARTIFACT_CREATE: ActionRule((), _NONE, _ANY_WRITER, "make an artifact", Action.ARTIFACT_LOG),
    Action.ARTIFACT_LOG: ActionRule(
        _ARTIFACT, _WRITE, _ANY_WRITER, "upload files and log a version; a trial does so for its owner"
    ),
    Action.ARTIFACT_USE: ActionRule(_ARTIFACT, _READ, _ANY_WRITER, "record that a run uses a version"),
    Action.ARTIFACT_EDIT: ActionRule(_ARTIFACT, _WRITE, PEOPLE, "change its texts, metadata and aliases"),
    Action.ARTIFACT_MOVE: ActionRule(
        _ARTIFACT,
        _OWN,
        THEMSELVES,
        "give it another name, or move it to another workspace, whose members see it",
        Action.ARTIFACT_EDIT,
    ),
    Action.ARTIFACT_DELETE: ActionRule(_ARTIFACT, _OWN, THEMSELVES, "delete it, or a version of it"),
    Action.VIEW_SAVE: ActionRule((), _NONE, PEOPLE, "keep a view of one's own, perhaps in a project"),
    Action.VIEW_REMOVE: ActionRule((), _NONE, THEMSELVES, "remove a view of one's own"),
    Action.WORKSPACE_CREATE: ActionRule((), _NONE, THEMSELVES, "make a workspace"),
    Action.WORKSPACE_EDIT: ActionRule(_WORKSPACE, _OWN, THEMSELVES, "change its name, description and defaults"),
    Action.WORKSPACE_ARCHIVE: ActionRule(
        _WORKSPACE, _OWN, THEMSELVES, "archive it, or restore it", Action.WORKSPACE_EDIT
    ),
    Action.WORKSPACE_DELETE: ActionRule(_WORKSPACE, _OWN, THEMSELVES, "delete it, once nothing lies in it"),
    Action.TEMPLATE_SET: ActionRule(
        _WORKSPACE, _WRITE, THEMSELVES, "make or change a template in it (another's: its admins)"
    ),
    Action.TEMPLATE_REMOVE: ActionRule(
        _WORKSPACE, _WRITE, THEMSELVES, "remove a template from it (another's: its admins)"
    ),
    Action.CONFIG_POLICY_SET: ActionRule(
        _WORKSPACE, _OWN, THEMSELVES, "set its config policy (the cluster's: administrators)"
    ),
    Action.CONFIG_POLICY_REMOVE: ActionRule(
        _WORKSPACE, _OWN, THEMSELVES, "delete its config policy (the cluster's: administrators)"
    ),
    Action.MEMBER_SET: ActionRule(_WORKSPACE, _OWN, THEMSELVES, "make somebody a member, or give them another role"),
    Action.MEMBER_REMOVE: ActionRule(_WORKSPACE, _OWN, THEMSELVES, "remove a member"),
    Action.MEMBER_LEAVE: ActionRule(_WORKSPACE, _READ, THEMSELVES, "leave it", Action.MEMBER_REMOVE),
    Action.PROJECT_CREATE: ActionRule(_WORKSPACE, _WRITE, PEOPLE, "make a project in it, or put something into one"),
    Action.PROJECT_EDIT: ActionRule(_WORKSPACE, _WRITE, PEOPLE, "change the texts of a project"),
    Action.PROJECT_ARCHIVE: ActionRule(
        _WORKSPACE, _OWN, THEMSELVES, "archive a project, or restore it", Action.PROJECT_EDIT
    ),
    Action.PROJECT_DELETE: ActionRule(_WORKSPACE, _OWN, THEMSELVES, "delete a project, once nothing lies in it"),
    Action.RUN_CREATE: ActionRule(
        _WORKSPACE, _WRITE, _ANY_WRITER, "record a run from elsewhere in one of its projects, which is made for it"
    ),
    Action.RUN_LOG: ActionRule(
        (ObjectKind.TRACKED_RUN, ObjectKind.EXPERIMENT),
        _WRITE,
        _ANY_WRITER,
        "log into it: metrics, parameters, tags, files and models",
    ),
    Action.RUN_BEGIN: ActionRule(
        _WORKSPACE, _WRITE, PEOPLE, "begin a run from anywhere in one of its projects, which is made for it"
    ),
    Action.RUN_REPORT: ActionRule(
        (ObjectKind.TRACKED_RUN,), _WRITE, PEOPLE, "send its records: metrics, parameters, results, output"
    ),
    Action.RUN_DELETE: ActionRule((ObjectKind.TRACKED_RUN,), _OWN, THEMSELVES, "delete it, or restore it"),
    Action.RUN_REGISTER: ActionRule(
        (), _NONE, _ANY_WRITER, "make a model, or a version of one, of what a run has logged"
    ),
    Action.TASK_CREATE: ActionRule((), _NONE, PEOPLE, "start a task"),
    Action.TASK_START_SERVER: ActionRule(
        (), _NONE, THEMSELVES, "start a server of the Hub, which has a token of its own", Action.TASK_CREATE
    ),
    Action.TASK_KILL: ActionRule((ObjectKind.TASK_STATE,), _WRITE, PEOPLE, "end it now"),
    Action.TASK_MOVE: ActionRule(
        (ObjectKind.TASK_STATE,), _OWN, THEMSELVES, "move it to another project, whose members see its state"
    ),
    Action.SCHEDULE_CREATE: ActionRule((), _NONE, THEMSELVES, "schedule notebook runs, which start as oneself"),
    Action.SCHEDULE_PAUSE: ActionRule(_SCHEDULE, _OWN, THEMSELVES, "pause it: it starts nothing"),
    Action.SCHEDULE_RESUME: ActionRule(_SCHEDULE, _OWN, THEMSELVES, "resume it"),
    Action.SCHEDULE_RUN: ActionRule(_SCHEDULE, _OWN, THEMSELVES, "have it start a run of its owner's now"),
    Action.SCHEDULE_REMOVE: ActionRule(_SCHEDULE, _OWN, THEMSELVES, "remove it; what it has started goes on"),
    Action.AGENT_ENROL: ActionRule((), _NONE, frozenset({CallerKind.ENROLMENT}), "get an agent's key"),
    Action.AGENT_RECORDS: ActionRule((), _NONE, frozenset({CallerKind.AGENT}), "deliver what its tasks have left"),
    Action.ENROLMENT_CREATE: ActionRule((ObjectKind.AGENT,), _OWN, _ADMIN, "make an enrolment token"),
    Action.NODE_ENABLE: ActionRule((ObjectKind.AGENT,), _OWN, _ADMIN, "let it, or one of its slots, take tasks"),
    Action.NODE_DISABLE: ActionRule((ObjectKind.AGENT,), _OWN, _ADMIN, "let it, or one of its slots, take none"),
    Action.NODE_DRAIN: ActionRule((ObjectKind.AGENT,), _OWN, _ADMIN, "drain it"),
    Action.NODE_FORGET: ActionRule((ObjectKind.AGENT,), _OWN, _ADMIN, "send it away"),
    Action.CLUSTER_DRAIN: ActionRule((ObjectKind.CLUSTER,), _OWN, _ADMIN, "drain the cluster"),
    Action.CLUSTER_MESSAGE: ActionRule((ObjectKind.CLUSTER,), _OWN, _ADMIN, "set and clear the message to everybody"),
    Action.MASTER_CONFIGURE: ActionRule((ObjectKind.SITE,), _OWN, _ADMIN, "change settings of the master"),
    Action.QUOTA_SET: ActionRule((ObjectKind.QUOTA,), _OWN, _ADMIN, "set a quota"),
    Action.ALERT_READ: ActionRule((), _NONE, THEMSELVES, "mark one's own alerts as read"),
    Action.ALERT_RULE_SET: ActionRule((), _NONE, THEMSELVES, "make a rule by which one is told of what one may read"),
    Action.ALERT_RULE_REMOVE: ActionRule((ObjectKind.ALERT_RULE,), _OWN, THEMSELVES, "remove a rule for alerts"),
    Action.ALERT_EMAIL_SET: ActionRule((), _NONE, THEMSELVES, "have a code sent to an address for one's own alerts"),
    Action.ALERT_EMAIL_CONFIRM: ActionRule((), _NONE, THEMSELVES, "confirm that address by its code"),
    Action.ALERT_EMAIL_REMOVE: ActionRule((), _NONE, THEMSELVES, "remove one's own address"),
    Action.ALERT_EMAIL_GIVE: ActionRule((ObjectKind.SITE,), _OWN, _ADMIN, "set a user's address for alerts"),
    Action.ALERT_EMAIL_TAKE: ActionRule((ObjectKind.SITE,), _OWN, _ADMIN, "remove a user's address for alerts"),
    Action.USER_SETTINGS_SET: ActionRule((), _NONE, THEMSELVES, "change one's own settings"),
    Action.USER_SETTINGS_RESET: ActionRule((), _NONE, THEMSELVES, "reset one's own settings"),
    Action.WEBHOOK_CREATE: ActionRule((), _NONE, THEMSELVES, "make a webhook"),
    Action.WEBHOOK_TEST: ActionRule((ObjectKind.WEBHOOK,), _OWN, THEMSELVES, "have a call sent to it"),
    Action.WEBHOOK_DELETE: ActionRule((ObjectKind.WEBHOOK,), _OWN, THEMSELVES, "delete it with its rules and calls"),
    Action.SIGNING_KEY_ROTATE: ActionRule((ObjectKind.SITE,), _OWN, _ADMIN, "sign evidence with a new key"),
    Action.SIGNING_KEY_REVOKE: ActionRule((ObjectKind.SITE,), _OWN, _ADMIN, "revoke a key that signs evidence"),
    Action.SOURCE_WITHDRAW: ActionRule(
        _WORKSPACE, _OWN, THEMSELVES, "withdraw a source of samples in it (in the cluster: administrators)"
    ),
    Action.SOURCE_RESTORE: ActionRule(
        _WORKSPACE, _OWN, THEMSELVES, "take such a withdrawal back (in the cluster: administrators)"
    ),
    Action.QUOTA_REMOVE: ActionRule((ObjectKind.QUOTA,), _OWN, _ADMIN, "remove a quota"),
    Action.TOKEN_REVOKE: ActionRule((ObjectKind.SITE,), _OWN, _ADMIN, "revoke a token"),
    Action.SPAWN_START: ActionRule((), _NONE, _HUB, "start a user's server"),
    Action.SPAWN_CLAIM: ActionRule((), _NONE, _HUB, "take over a server that is up"),
    Action.SPAWN_END: ActionRule((), _NONE, _HUB, "end a user's server"),
    Action.ATTEMPT_REPORT: ActionRule((), _NONE, _TASK, "report of itself: records, metadata, outputs, preemption"),
    Action.ATTEMPT_MEET: ActionRule((), _NONE, _TASK, "find its other ranks, and get certificates and hyperparameters"),
    Action.ATTEMPT_COMMIT: ActionRule((), _NONE, _TASK, "commit a checkpoint of its trial"),
    Action.ATTEMPT_DELETE_CHECKPOINT: ActionRule(_CHECKPOINT, _OWN, _TASK, "delete a checkpoint of its trial"),
    Action.ATTEMPT_COLLECT: ActionRule((), _NONE, _TASK, "take and report what its owner has to remove"),
    Action.ATTEMPT_RENEW: ActionRule((), _NONE, _TASK, "renew its token"),
    Action.ATTEMPT_GOVERN: ActionRule((), _NONE, _TASK, "record its matrix, and have a checkpoint's evidence verified"),
}


def may(who: Who, action: Action, thing: Thing) -> bool:
    """Whether a caller may do something with an object: by the kind of their token, and by their right to it."""
    rule = ACTIONS[action]
    if thing.kind not in rule.kinds:
        raise ValueError(f"{action} is not about a {thing.kind}")
    if not rule.by_role:
        thing = replace(thing, members={}, member_groups={})
    return may_ask(who, action) and right_of(who, thing) >= rule.least


def may_ask(who: Who, action: Action) -> bool:
    """Whether the kind of a caller's token may ask for an action at all, whatever it is to be done with."""
    return not _kinds(who).isdisjoint(ACTIONS[action].callers)


def _kinds(who: Who) -> frozenset[CallerKind]:
    match who:
        case Person(run=True):
            return frozenset({CallerKind.RUN})
        case Person(admin=True):
            return frozenset({CallerKind.PERSON, CallerKind.ADMIN})
        case Person():
            return THEMSELVES
        case AttemptIdentity():
            return _TASK
        case AgentIdentity():
            return frozenset({CallerKind.AGENT})
