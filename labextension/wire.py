"""Write `src/state/wire.ts`: the wire models as TypeScript types. `python wire.py [--check]`.

What the master sends (serialised: every key is there) and what a front end sends (validated: defaults may be left out)
are made from the pydantic models' JSON Schemas, so that neither side can drift from the other unseen.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Literal

from pydantic.json_schema import models_json_schema

from detlab.schemas import elasticwire, jobwire, poolwire, taskwire, wire
from detlab.schemas.wire import (
    Wire,
    batches,
    comparison,
    continuing,
    finding,
    media,
    projects,
    registry,
    runs,
    saved_views,
    storage,
    workspaces,
)
from detlab.schemas.wire.artifacts import artifacts
from detlab.schemas.wire.cluster import master
from detlab.schemas.wire.configs import config_policies, templates
from detlab.schemas.wire.governance import evidence
from detlab.schemas.wire.notebooks import schedules
from detlab.schemas.wire.notify import alerts, emails, user_settings, webhooks

TARGET = Path(__file__).parent / "src" / "state" / "wire.ts"
RECEIVED = (
    *(wire.UserView, wire.ClusterView, wire.AgentView, wire.ExperimentView, wire.TrialView, wire.CurvesView),
    *(wire.LogLine, wire.CheckpointView, wire.Event, wire.ErrorView, wire.CreateExperimentReply, wire.GrantList),
    *(wire.JournalEntry, wire.ReplayedSearch, wire.SteeredExperiment),
    *(taskwire.OverviewView, taskwire.QueueView, taskwire.TaskView, taskwire.TaskPage, taskwire.CreateTaskReply),
    *(taskwire.OutputList, taskwire.CodeList, taskwire.TimelineView, taskwire.UsageView, taskwire.AuditPage),
    *(taskwire.TokenList, taskwire.HealthView, poolwire.PoolList, elasticwire.ElasticPoolList),
    *(jobwire.JobList, jobwire.JobWhy, jobwire.QuotaList, jobwire.LimitList),
    *(registry.ModelList, registry.VersionList, registry.LabelMoves, registry.Comparison, registry.LineageGraph),
    *(storage.GcPreview, storage.StorageUsage),
    *(comparison.RunComparison, comparison.RunCurves, comparison.CodeComparison),
    *(workspaces.WorkspaceList, workspaces.MemberList, projects.ProjectList),
    *(finding.FoundTrials, finding.ExperimentPage, finding.Completions, saved_views.SavedViewList),
    *(media.MediaPage, media.MediaKeyList, media.MediaStepList),
    *(alerts.AlertList, alerts.UnreadAlerts, alerts.AlertRuleList, emails.EmailView, user_settings.UserSettings),
    *(webhooks.WebhookList, webhooks.WebhookCallList, schedules.ScheduleList),
    *(templates.TemplateList, config_policies.PolicyView),
    *(runs.RunViewList, runs.RunCurveList, runs.RunFileList),
    *(artifacts.ArtifactList, artifacts.ArtifactVersionList, artifacts.ArtifactFileList, artifacts.RunArtifactList),
    *(batches.BatchReply, master.MasterLogPage, evidence.LearningView),
)
SENT = (
    *(wire.CreateExperiment, wire.SteerSearch, taskwire.CreateTask, jobwire.JobUpdate),
    *(registry.CreateModel, registry.EditModel, registry.CreateVersion, registry.EditVersion),
    *(registry.MoveLabel, registry.RemoveLabel, saved_views.SaveView),
    batches.BatchRequest,
    *(workspaces.CreateWorkspace, workspaces.EditWorkspace, workspaces.MemberRequest),
    *(projects.CreateProject, projects.EditProject, projects.MoveExperiment, wire.EditExperiment),
    *(projects.MoveModel, continuing.ContinueExperiment, alerts.ReadAlerts),
    *(alerts.SetAlertRule, emails.SetEmail, emails.ConfirmEmail, webhooks.CreateWebhook, user_settings.SetUserSettings),
    *(templates.SetTemplate, config_policies.SetPolicy),
    *(artifacts.EditArtifact, artifacts.EditArtifactVersion),
)
HEAD = """/** The wire models (detlab.schemas). Made by labextension/wire.py: do not edit. */

/** Non-finite floats travel as these names: strict JSON has no others. */
export type Nonfinite = 'NaN' | 'Infinity' | '-Infinity';

/** A metric's value. */
export type Float = number | Nonfinite;
"""
MEASURED = {
    "value",
    "values",
    "best",
    "deviation",
    "best_validation",
    "latest_validation",
    "validation",
    "min",
    "max",
    "mean",
    "last",
}
"""Fields whose numbers come from people's code, so that they may be non-finite."""


def definitions(models: tuple[type[Wire], ...], mode: Literal["serialization", "validation"]) -> dict[str, Any]:
    """Return the JSON Schemas of models and of all that they hold, by name."""
    _, schema = models_json_schema([(model, mode) for model in models], ref_template="#/$defs/{model}")
    found: dict[str, Any] = schema["$defs"]
    return found


def type_of(schema: dict[str, Any]) -> str:
    """Return the TypeScript type of a JSON Schema."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "const" in schema:
        return json.dumps(schema["const"]).replace('"', "'")
    if "enum" in schema:
        return " | ".join(json.dumps(value).replace('"', "'") for value in schema["enum"])
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return " | ".join(dict.fromkeys(type_of(member) for member in schema[key]))
    match schema.get("type"):
        case "array":
            inner = type_of(schema.get("items", {}))
            return f"({inner})[]" if " " in inner else f"{inner}[]"
        case "object":
            values = schema.get("additionalProperties")
            return f"Record<string, {type_of(values) if isinstance(values, dict) else 'unknown'}>"
        case "number":
            return "number"
        case "integer":
            return "number"
        case "string" | "boolean" | "null" as plain:
            return str(plain)
    return "unknown"


def declaration(name: str, schema: dict[str, Any], *, sent: bool) -> str:
    """Return the declaration of one model or enumeration; of what is received, every key is there."""
    about = str(schema.get("description", "")).split("\n\n")[0].replace("\n", " ").replace("*/", "")
    lines = [f"/** {about} */"] if about else []
    if "properties" not in schema and schema.get("type") != "object":
        return "\n".join([*lines, f"export type {name} = {type_of(schema)};"])
    required = set(schema.get("required", []))
    lines.append(f"export interface {name} {{")
    for key, prop in schema.get("properties", {}).items():
        kind = type_of(prop)
        kind = kind.replace("number", "Float") if key in MEASURED else kind
        lines.append(f"  {key}{'?' if sent and key not in required else ''}: {kind};")
    return "\n".join([*lines, "}"])


def text() -> str:
    """Return the whole file."""
    received = definitions(RECEIVED, "serialization")
    sent = {name: schema for name, schema in definitions(SENT, "validation").items() if name not in received}
    everything = sorted({**received, **sent}.items())
    parts = [declaration(name, schema, sent=name in sent) for name, schema in everything]
    return "\n\n".join([HEAD.rstrip(), *parts]) + "\n"


def main(arguments: list[str]) -> int:
    """Write the file, or with `--check` only say whether it is up to date."""
    made = text()
    if "--check" in arguments:
        if TARGET.is_file() and TARGET.read_text() == made:
            return 0
        sys.stderr.write(f"{TARGET} is out of date: python labextension/wire.py\n")
        return 1
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_text(made)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
