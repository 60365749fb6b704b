"""The route table of the API, and the application made from it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import cache
from typing import Any

from tornado import web

from detlab.schemas.wire import API_PREFIX, SERVICE_PREFIX
from detlab_hub.services import Services
from detlab_hub.services.kernel.threads import Tickets
from detlab_hub.web import auth, pages
from detlab_hub.web.base import REPLIES, REPLIES_PER_USER, Guarded, access_log
from detlab_hub.web.bodies import BodyLimits
from detlab_hub.web.cluster import (
    agents,
    audit,
    cluster,
    instances,
    jobs,
    limits,
    metrics,
    nodes,
    overview,
    pools,
    quotas,
    service,
    storage,
    uids,
    usage,
)
from detlab_hub.web.experiments import (
    bundles,
    checkpoints,
    code,
    collection,
    experiments,
    figures,
    grants,
    searches,
    streams,
    trials,
)
from detlab_hub.web.openapi import describe
from detlab_hub.web.openstreams import Streams
from detlab_hub.web.registry import models, versions
from detlab_hub.web.tasks import outputs, spawns, tasks, usertasks

API: list[tuple[str, type[Guarded]]] = [
    ("openapi.json", cluster.OpenApi),
    ("me", cluster.Me),
    ("cluster", cluster.Cluster),
    ("cluster/drain", cluster.Drain),
    ("agents", agents.Agents),
    ("agents/enrolments", agents.Enrolments),
    ("agents/enrol", agents.Enrol),
    ("agents/connect", agents.Connect),
    ("agents/records", agents.AgentRecords),
    ("agents/{agent_id}", nodes.Node),
    ("agents/{agent_id}/enable", nodes.Enable),
    ("agents/{agent_id}/disable", nodes.Disable),
    ("agents/{agent_id}/drain", nodes.DrainNode),
    ("agents/{agent_id}/slots/{slot_id}/enable", nodes.EnableSlot),
    ("agents/{agent_id}/slots/{slot_id}/disable", nodes.DisableSlot),
    ("instances", instances.Instances),
    ("bundles/{digest}", bundles.Bundle),
    ("experiments", experiments.Experiments),
    ("log-retention", experiments.LogRetention),
    ("experiments/{experiment_id}", experiments.Experiment),
    ("experiments/{experiment_id}/edit", experiments.Edit),
    ("experiments/{experiment_id}/gc", collection.Gc),
    ("experiments/{experiment_id}/tensorboard-files", collection.EventFiles),
    ("experiments/{experiment_id}/search", searches.Steer),
    ("experiments/{experiment_id}/search/ask", searches.Ask),
    ("experiments/{experiment_id}/search/tell", searches.Tell),
    ("experiments/{experiment_id}/search/journal", searches.Journal),
    ("experiments/{experiment_id}/search/replay", searches.Replay),
    ("experiments/{experiment_id}/pause", experiments.Pause),
    ("experiments/{experiment_id}/activate", experiments.Activate),
    ("experiments/{experiment_id}/cancel", experiments.Cancel),
    ("experiments/{experiment_id}/kill", experiments.Kill),
    ("experiments/{experiment_id}/grants", grants.Grants),
    ("experiments/{experiment_id}/bundle", experiments.Bundle),
    ("experiments/{experiment_id}/trials", experiments.Trials),
    ("experiments/{experiment_id}/checkpoints", experiments.Checkpoints),
    ("experiments/{experiment_id}/curves", experiments.Curves),
    ("experiments/{experiment_id}/figures/{kind}", figures.Figure),
    ("experiments/{experiment_id}/code", code.CodeFiles),
    ("experiments/{experiment_id}/code/{digest}", code.CodeText),
    ("experiments/{experiment_id}/timeline", overview.Timeline),
    ("experiments/{experiment_id}/stream", streams.ExperimentStream),
    ("stream", streams.AllStream),
    ("overview", overview.Overview),
    ("queue", overview.Queue),
    ("jobs", jobs.Jobs),
    ("jobs/{job_id}", jobs.Job),
    ("jobs/{job_id}/why", jobs.Why),
    ("pools", pools.Pools),
    ("quotas", quotas.Quotas),
    ("limits", limits.UserLimits),
    ("metrics", metrics.Metrics),
    ("uids", uids.Uids),
    ("usage", usage.Usage),
    ("storage/usage", storage.StorageUsageRoute),
    ("storage/trash", storage.Trash),
    ("audit", audit.Audit),
    ("tokens", service.Tokens),
    ("tokens/{token_id}", service.Token),
    ("service", service.Service),
    ("trials/{trial_id}", trials.Trial),
    ("trials/{trial_id}/kill", trials.Kill),
    ("trials/{trial_id}/metrics", trials.Metrics),
    ("trials/{trial_id}/values", trials.Values),
    ("trials/{trial_id}/logs", trials.Logs),
    ("trials/{trial_id}/logs/stream", streams.LogStream),
    ("trials/{trial_id}/checkpoints", trials.Checkpoints),
    ("checkpoints/{uuid}", checkpoints.Checkpoint),
    ("checkpoints/{uuid}/undelete", checkpoints.Undelete),
    ("checkpoints/{uuid}/pins", checkpoints.Pins),
    ("checkpoints/{uuid}/bookmark", checkpoints.BookmarkOf),
    ("checkpoints/{uuid}/edit", checkpoints.Edit),
    ("checkpoints/{uuid}/remove-files", checkpoints.RemoveSome),
    ("checkpoints/{uuid}/metrics", checkpoints.Metrics),
    ("checkpoints/{uuid}/files/{digest}", checkpoints.CheckpointFileBytes),
    ("checkpoints/{uuid}/archive", checkpoints.CheckpointArchive),
    ("models", models.Models),
    ("model-labels", models.ModelLabels),
    ("model-versions", versions.Search),
    ("models/{model}", models.Model),
    ("models/{model}/edit", models.EditOne),
    ("models/{model}/versions", versions.Versions),
    ("models/{model}/versions/{version}", versions.Version),
    ("models/{model}/versions/{version}/edit", versions.EditOne),
    ("models/{model}/versions/{version}/lineage", versions.Lineage),
    ("models/{model}/compare", models.Compare),
    ("models/{model}/labels", models.History),
    ("models/{model}/labels/{label}", models.Move),
    ("models/{model}/labels/{label}/remove", models.Remove),
    ("models/{model}/grants", models.Grants),
    ("tasks", usertasks.UserTasks),
    ("tasks/{task_id}", usertasks.UserTask),
    ("tasks/{task_id}/kill", usertasks.Kill),
    ("tasks/{task_id}/logs", usertasks.Logs),
    ("tasks/{task_id}/logs/stream", usertasks.LogStream),
    ("tasks/{task_id}/outputs", outputs.Outputs),
    ("tasks/{task_id}/outputs/{digest}", outputs.OutputBytes),
    ("task/outputs/{name}", outputs.TaskOutput),
    ("spawns", spawns.Spawns),
    ("spawns/offers", spawns.Offers),
    ("spawns/{task_id}", spawns.Spawn),
    ("spawns/{task_id}/stream", spawns.SpawnStream),
    ("spawns/{task_id}/claim", spawns.Claim),
    ("task/activity", spawns.Activity),
    ("task/records", tasks.Records),
    ("task/rendezvous", tasks.Meeting),
    ("task/point", tasks.Point),
    ("task/ranks", tasks.Ranks),
    ("task/preempt", tasks.Preempt),
    ("task/preempt/ack", tasks.PreemptAck),
    ("task/checkpoints", tasks.Checkpoints),
    ("task/checkpoints/{uuid}", tasks.Checkpoint),
    ("task/metadata", tasks.TrialMetadata),
    ("task/best-validation", tasks.BestValidation),
    ("task/storage-credentials", tasks.Credentials),
    ("task/search", tasks.CustomSearch),
    ("task/collection", tasks.Collection),
    ("task/checkpoint", tasks.Reading),
    ("task/storage-check", tasks.StorageCheck),
    ("task/storage-check/expected", tasks.StorageExpected),
    ("task/certificate", tasks.Certificate),
    ("task/token", tasks.Token),
]
"""Path below `/services/detlab/api/v1/` and its handler."""

PAGES: list[tuple[str, type[Guarded]]] = [
    ("", pages.Shell),
    *((view, pages.Shell) for view in pages.VIEWS),
    ("experiments/{experiment_id}", pages.ExperimentPage),
    ("trials/{trial_id}", pages.TrialPage),
    ("tasks/{task_id}", pages.TaskPage),
    ("models/{model}", pages.ModelPage),
    ("models/{model}/compare", pages.ModelPage),
    ("models/{model}/versions/{version}", pages.ModelVersionPage),
    ("plain", pages.Plain),
    ("health", cluster.HealthRoute),
    ("oauth_callback", pages.OAuthCallback),
    ("static/{asset_name}", pages.StaticFile),
]
"""Path below `/services/detlab/` and its handler."""

_OFTEN = frozenset({"task/records", "task/preempt"})
"""Whole paths, which fit no other route's pattern: they may be tried before all others."""
_PATTERNS = {"experiment_id": r"[0-9]{1,18}", "trial_id": r"[0-9]{1,18}"}


def pattern_of(path: str) -> str:
    """Return the regular expression of a route; ids are digits, everything else is one segment."""
    parts = re.split(r"\{(\w+)\}", path)
    literal = [re.escape(part) for part in parts[::2]]
    groups = [f"(?P<{name}>{_PATTERNS.get(name, '[^/]+')})" for name in parts[1::2]]
    return "".join(text + group for text, group in zip(literal, [*groups, ""], strict=True))


def rules(prefix: str = SERVICE_PREFIX) -> list[tuple[str, type[Guarded]]]:
    """Return the router's rules: full patterns and handlers, the API first."""
    # The router tries one after the other: what running tasks ask all the time stands first.
    often = [route for route in API if route[0] in _OFTEN]
    ordered = often + [route for route in API if route[0] not in _OFTEN]
    found = [(re.escape(prefix + API_PREFIX) + pattern_of(path), cls) for path, cls in ordered]
    return found + [(re.escape(prefix) + pattern_of(path), cls) for path, cls in PAGES]


@dataclass(frozen=True)
class WebSettings:
    """The web layer's settings, besides the services."""

    cookie_secret: bytes
    hub_public_url: str
    """Public prefix of the Hub for links, such as `/hub/`."""
    background: Callable[[Coroutine[Any, Any, None]], object]
    """Runs a coroutine that outlives its request, and keeps it referenced."""
    prefix: str = SERVICE_PREFIX


def make_application(services: Services, identifier: auth.Identifier, settings: WebSettings) -> web.Application:
    """Return the tornado application of the master."""
    told = services.settings
    return web.Application(
        [(pattern + "$", cls) for pattern, cls in rules(settings.prefix)],
        default_handler_class=pages.Nowhere,
        log_function=access_log,
        services=services,
        identifier=identifier,
        streams=Streams(told.limits, told.stream_bytes_per_user, told.stream_slow_limit),
        bodies=BodyLimits(),
        replies=Tickets("bytes of replies", REPLIES_PER_USER, REPLIES),
        background=settings.background,
        hub_public_url=settings.hub_public_url,
        prefix=settings.prefix,
        templates={cls: path for path, cls in [*reversed(PAGES), *reversed(API)]},
        openapi=cache(lambda: describe([(settings.prefix + API_PREFIX + path, cls) for path, cls in API])),
        cookie_secret=settings.cookie_secret,
        xsrf_cookie_kwargs=dict(auth.COOKIES),
        websocket_ping_interval=20,
        websocket_ping_timeout=20,
        websocket_max_message_size=AGENT_MESSAGE_LIMIT,
    )


AGENT_MESSAGE_LIMIT = 2 * 1024 * 1024
"""Bytes of one message of an agent; one with more ends the connection."""


class Background:
    """Coroutines that outlive the request which started them."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def __call__(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine and keep it referenced until it is done."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def wait(self) -> None:
        """Wait until all of them are done."""
        await asyncio.gather(*self._tasks, return_exceptions=True)
