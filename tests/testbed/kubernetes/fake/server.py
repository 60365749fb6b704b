"""The HTTP of the fake API server: discovery, objects, watches, logs, reviews of access."""

from __future__ import annotations

import asyncio
import copy
import json
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from tornado.httputil import format_timestamp
from tornado.iostream import StreamClosedError
from tornado.web import RequestHandler

from testbed.kubernetes.fake import admission, patches, selectors
from testbed.kubernetes.fake.resources import REVIEW, Object, Refused, Resource, forbidden, not_found
from testbed.kubernetes.fake.store import Change

if TYPE_CHECKING:
    from testbed.kubernetes.fake.cluster import FakeCluster

_VERBS = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_ALL_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
WATCH_SECONDS = 1800.0


class Target(NamedTuple):
    """What a path names."""

    resource: Resource
    namespace: str
    name: str
    sub: str


class Handler(RequestHandler):
    """One request."""

    @property
    def cluster(self) -> FakeCluster:
        """The server's state."""
        found: FakeCluster = self.settings["cluster"]
        return found

    async def prepare(self) -> None:
        """Break off, be slow or fail as tests want it; then know the caller."""
        cluster = self.cluster
        self.user = ""
        cluster.requests.append((str(self.request.method), self.request.uri or ""))
        cluster.before(str(self.request.method), self.request.path)
        if cluster.ahead:
            self.set_header("Date", format_timestamp(time.time() + cluster.ahead))
        if cluster.slow:
            await asyncio.sleep(cluster.slow)
        if cluster.failures and not self.request.path.startswith("/readyz"):
            code = cluster.failures.popleft()
            if code == 0:
                return self._break_off()
            if code == 429:
                self.set_header("Retry-After", "1")
            return self._refuse(Refused(code, f"the server answers {code} because a test wants it"))
        bearer = self.request.headers.get("Authorization", "").removeprefix("Bearer ")
        self.user = cluster.users.get(bearer, "")
        if not self.user and self.request.path not in {"/readyz", "/version"}:
            self._refuse(Refused(401, "Unauthorized"))
        return None

    def _break_off(self) -> None:
        self.request.connection.stream.close()
        self._finished = True

    def _refuse(self, refused: Refused) -> None:
        self.set_status(refused.code)
        self._reply(refused.status())

    def _reply(self, body: Any, status: int | None = None) -> None:
        if status is not None:
            self.set_status(status)
        self.set_header("Content-Type", "application/json")
        self.cluster.after(str(self.request.method), self.request.path)
        self.finish(json.dumps(body))

    async def _serve(self, path: str) -> None:
        try:
            await self._answer(path.strip("/").split("/"))
        except Refused as refused:
            self._refuse(refused)
        except StreamClosedError:  # the caller has hung up
            return

    get = post = put = patch = delete = _serve

    async def _answer(self, parts: list[str]) -> None:
        match parts:
            case ["readyz"] | ["livez"] | ["healthz"]:
                self.finish("ok")
            case ["version"]:
                self._reply({"major": "1", "minor": "20", "gitVersion": "v1.20.2-fake", "platform": "linux/amd64"})
            case ["api"]:
                self._reply({"kind": "APIVersions", "versions": ["v1"]})
            case ["apis"]:
                self._reply(self._groups())
            case ["api", version]:
                self._reply(self._kinds("", version))
            case ["apis", group] if group:
                self._reply(self._group(group))
            case ["apis", group, version]:
                self._reply(self._kinds(group, version))
            case ["api", version, *rest]:
                await self._objects(self._target("", version, rest))
            case ["apis", group, version, *rest]:
                await self._objects(self._target(group, version, rest))
            case _:
                raise Refused(404, "the server could not find the requested resource")

    # --- discovery ----------------------------------------------------------------------------------------

    def _groups(self) -> Object:
        names = sorted({group for group, _, _ in self.cluster.store.resources if group} | {REVIEW.group})
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [self._group(name) for name in names]}

    def _group(self, name: str) -> Object:
        found = {version for group, version, _ in self.cluster.store.resources if group == name}
        found |= {REVIEW.version} if name == REVIEW.group else set()
        if not found:
            raise Refused(404, "the server could not find the requested resource")
        versions = [{"groupVersion": f"{name}/{version}", "version": version} for version in sorted(found)]
        return {"name": name, "versions": versions, "preferredVersion": versions[0]}

    def _kinds(self, group: str, version: str) -> Object:
        kinds = [
            r for r in [*self.cluster.store.resources.values(), REVIEW] if (r.group, r.version) == (group, version)
        ]
        if not kinds:
            raise Refused(404, "the server could not find the requested resource")
        resources = []
        for r in kinds:
            for name in (r.plural, *(f"{r.plural}/{sub}" for sub in r.subresources)):
                one = {
                    "name": name,
                    "singularName": "",
                    "namespaced": r.namespaced,
                    "kind": r.kind,
                    "verbs": _ALL_VERBS,
                }
                resources.append(one)
        at = f"{group}/{version}" if group else version
        return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": at, "resources": resources}

    # --- objects ------------------------------------------------------------------------------------------

    def _target(self, group: str, version: str, parts: list[str]) -> Target:
        namespace = ""
        if parts[0] == "namespaces" and len(parts) > 2 and parts[2] != "status":
            namespace, parts = parts[1], parts[2:]
        plural, name, sub = [*parts, "", "", ""][:3]
        if (group, version, plural) == (REVIEW.group, REVIEW.version, REVIEW.plural):
            return Target(REVIEW, "", name, sub)
        resource = self.cluster.store.resources.get((group, version, plural))
        if resource is None or (sub and sub not in resource.subresources):
            raise Refused(404, "the server could not find the requested resource")
        return Target(resource, namespace, name, sub)

    async def _objects(self, at: Target) -> None:
        verb = _VERBS[str(self.request.method)]
        watching = self.get_query_argument("watch", "") in {"1", "true", "True"}
        if not at.name:
            verb = {"get": "watch" if watching else "list", "delete": "deletecollection"}.get(verb, verb)
        if at.resource is REVIEW:
            return self._review()
        if not self.cluster.may(self.user, verb, at.resource, at.namespace, at.sub):
            raise forbidden(self.user, verb, at.resource, at.namespace, at.name, at.sub)
        match verb, at.sub:
            case "watch", _:
                await self._watch(at)
            case "get", "log":
                await self._tell_log(at)
            case "list", _:
                self._list(at)
            case "get", _:
                self._reply(self.cluster.store.get(at.resource, at.namespace, at.name))
            case _:
                self._write(at, verb)
        return None

    def _write(self, at: Target, verb: str) -> None:
        match verb, at.sub:
            case "create", "":
                self._create(at)
            case "create", "binding":
                self._bind(at)
            case "create", "eviction":
                options = self._body().get("deleteOptions") or {}
                self._delete_one(at, options, status=201)
            case (("update" | "patch"), _):
                self._change(at, verb)
            case "delete", _:
                self._delete_one(at, self._body(optional=True))
            case "deletecollection", _:
                self._delete_all(at)
            case _:
                raise Refused(405, "the server does not allow this method on the requested resource")

    def _delete_all(self, at: Target) -> None:
        chosen, options = self._chosen(at), self._body(optional=True)
        for found in [one for one in self.cluster.store.all(at.resource, at.namespace) if chosen(one)]:
            self.cluster.store.end(at.resource, found, self._grace(options))
        self._reply({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"})

    def _body(self, *, optional: bool = False) -> Object:
        if optional and not self.request.body:
            return {}
        try:
            found: Object = json.loads(self.request.body)
        except ValueError as error:
            raise Refused(400, f"the object provided is unrecognized: {error}") from error
        return found

    def _chosen(self, at: Target) -> Callable[[Object], bool]:
        labels = selectors.by_labels(self.get_query_argument("labelSelector", ""))
        fields = selectors.by_fields(self.get_query_argument("fieldSelector", ""))
        return lambda found: (
            (not at.namespace or found["metadata"].get("namespace") == at.namespace)
            and (not at.name or found["metadata"]["name"] == at.name)
            and labels(found)
            and fields(found)
        )

    def _list(self, at: Target) -> None:
        store, meta = self.cluster.store, {}
        chosen = self._chosen(at)
        items = [found for found in store.all(at.resource, at.namespace) if chosen(found)]
        version = store.version
        begin, limit = 0, int(self.get_query_argument("limit", "0"))
        if token := self.get_query_argument("continue", ""):
            version, begin = (int(part) for part in token.split("."))
            if version < store.oldest:
                raise Refused(410, "The provided continue parameter is too old to display a consistent list result.")
        rest = items[begin:]
        if limit and len(rest) > limit:
            meta = {"continue": f"{version}.{begin + limit}", "remainingItemCount": len(rest) - limit}
            rest = rest[:limit]
        plain = [{k: v for k, v in one.items() if k not in {"kind", "apiVersion"}} for one in rest]
        shown = plain if "." not in at.resource.group or at.resource.group.endswith(".k8s.io") else rest
        self._reply(
            {
                "kind": f"{at.resource.kind}List",
                "apiVersion": at.resource.api_version,
                "metadata": {"resourceVersion": str(version), **meta},
                "items": shown,
            }
        )

    def _create(self, at: Target) -> None:
        made, store = self._body(), self.cluster.store
        if made.get("kind") not in {None, at.resource.kind}:
            raise Refused(400, f"{made.get('kind')} in version {made.get('apiVersion')} cannot be handled here")
        home = made.get("metadata", {}).get("namespace")
        if at.resource.namespaced and home not in {None, "", at.namespace}:
            raise Refused(400, f"the namespace of the provided object does not match the namespace sent ({home})")
        if at.resource.namespaced and store.find(store.kind("namespaces"), "", at.namespace) is None:
            raise not_found(store.kind("namespaces"), at.namespace)
        admission.admit(store, at.resource, at.namespace, made)
        if self.get_query_argument("dryRun", ""):
            return self._reply(made, 201)
        created = store.create(at.resource, at.namespace, made)
        if self.cluster.drop_replies > 0:
            self.cluster.drop_replies -= 1
            return self._break_off()
        return self._reply(created, 201)

    def _bind(self, at: Target) -> None:
        node = self._body()["target"]["name"]
        self.cluster.scheduler.bind(self.cluster.store.get(at.resource, at.namespace, at.name), node)
        self._reply({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}, 201)

    def _change(self, at: Target, verb: str) -> None:
        store = self.cluster.store
        found = store.find(at.resource, at.namespace, at.name)
        if found is None and verb == "update" and not at.sub and at.resource.plural == "leases":
            raise not_found(at.resource, at.name)
        found = store.get(at.resource, at.namespace, at.name)
        given = self._body()
        if verb == "patch":
            kind = self.request.headers.get("Content-Type", "").partition(";")[0]
            given = patches.patched(found, given, kind)
        changed = copy.deepcopy(found)
        if at.sub == "status":
            changed["status"] = given.get("status", {})
            changed["metadata"]["resourceVersion"] = given.get("metadata", {}).get("resourceVersion")
        else:
            changed = {**copy.deepcopy(given), **({"status": found["status"]} if self._has_status(at, found) else {})}
            admission.check_change(at.resource, found, changed)
        self._reply(store.replace(at.resource, found, changed))

    @staticmethod
    def _has_status(at: Target, found: Object) -> bool:
        return "status" in at.resource.subresources and "status" in found

    def _grace(self, options: Object) -> float | None:
        asked = self.get_query_argument("gracePeriodSeconds", "")
        value = options.get("gracePeriodSeconds")
        return float(asked) if asked else None if value is None else float(value)

    def _delete_one(self, at: Target, options: Object, status: int = 200) -> None:
        found = self.cluster.store.get(at.resource, at.namespace, at.name)
        wanted = options.get("preconditions") or {}
        for field in ("uid", "resourceVersion"):
            has = found["metadata"][field]
            if wanted.get(field) not in {None, has}:
                message = (
                    f'Operation cannot be fulfilled on {at.resource.qualified} "{at.name}": the {field.upper()} in the '
                    f"precondition ({wanted[field]}) does not match the {field.upper()} in record ({has})."
                )
                raise Refused(409, message)
        self._reply(self.cluster.store.end(at.resource, found, self._grace(options)), status)

    def _review(self) -> None:
        asked = self._body()
        wanted = asked["spec"].get("resourceAttributes") or {}
        resource = self.cluster.store.resources.get(
            (wanted.get("group", ""), wanted.get("version") or "v1", wanted.get("resource", ""))
        ) or Resource(wanted.get("group", ""), "v1", wanted.get("resource", ""), "")
        sub = wanted.get("subresource", "")
        allowed = self.cluster.may(self.user, wanted.get("verb", ""), resource, wanted.get("namespace", ""), sub)
        self._reply({**asked, "status": {"allowed": allowed}}, 201)

    # --- streams ------------------------------------------------------------------------------------------

    async def _watch(self, at: Target) -> None:
        store, chosen = self.cluster.store, self._chosen(at)
        bookmarks = self.get_query_argument("allowWatchBookmarks", "") in {"1", "true", "True"}
        asked = self.get_query_argument("resourceVersion", "")
        until = time.monotonic() + float(self.get_query_argument("timeoutSeconds", "") or WATCH_SECONDS)
        changes: asyncio.Queue[Change] = asyncio.Queue()
        self.set_header("Content-Type", "application/json")
        cut = self.cluster.cut
        store.listeners.add(changes.put_nowait)
        try:
            if asked in {"", "0"}:
                for found in store.all(at.resource, at.namespace):
                    if chosen(found):
                        self._event("ADDED", found)
            else:
                try:
                    backlog = store.since(int(asked))
                except Refused as refused:
                    self._event("ERROR", refused.status())
                    return await self._end()
                for change in backlog:
                    self._tell(at, chosen, change)
            await self.flush()
            await self._follow(at, chosen, changes, until, bookmarks=bookmarks, cut=cut)
        finally:
            store.listeners.discard(changes.put_nowait)
        return None

    async def _end(self) -> None:
        await self.finish()

    async def _follow(
        self,
        at: Target,
        chosen: Callable[[Object], bool],
        changes: asyncio.Queue[Change],
        until: float,
        *,
        bookmarks: bool,
        cut: asyncio.Event,
    ) -> None:
        marked = time.monotonic()
        while (left := until - time.monotonic()) > 0:
            try:
                change = await asyncio.wait_for(changes.get(), min(left, 0.2))
            except TimeoutError:
                change = None
            if cut.is_set():
                return self._break_off()
            if change is not None:
                self._tell(at, chosen, change)
                while not changes.empty():
                    self._tell(at, chosen, changes.get_nowait())
                await self.flush()
            elif bookmarks and time.monotonic() - marked > self.cluster.bookmark_every:
                marked = time.monotonic()
                meta = {"resourceVersion": str(self.cluster.store.version), "creationTimestamp": None}
                self._event(
                    "BOOKMARK", {"kind": at.resource.kind, "apiVersion": at.resource.api_version, "metadata": meta}
                )
                await self.flush()
            elif self.request.connection.stream.closed():
                return None
        return await self._end()

    def _tell(self, at: Target, chosen: Callable[[Object], bool], change: Change) -> None:
        if change.resource is not at.resource:
            return
        was = change.before is not None and chosen(change.before)
        is_now = not change.deleted and chosen(change.after)
        if is_now:
            self._event("MODIFIED" if was else "ADDED", change.after)
        elif was:
            last = change.after if change.deleted else {**(change.before or {})}
            meta = {**last["metadata"], "resourceVersion": str(change.version)}
            self._event("DELETED", {**last, "metadata": meta})

    def _event(self, kind: str, found: Object) -> None:
        self.write(json.dumps({"type": kind, "object": found}) + "\n")

    async def _tell_log(self, at: Target) -> None:
        pod = self.cluster.store.get(at.resource, at.namespace, at.name)
        container = self.get_query_argument("container", "") or pod["spec"]["containers"][0]["name"]
        known = [one["name"] for one in [*pod["spec"]["containers"], *(pod["spec"].get("initContainers") or [])]]
        if container not in known:
            raise Refused(400, f"container {container} is not valid for pod {at.name}")
        log = self.cluster.kubelet.log(pod, container)
        if log is None:
            said = "ContainerCreating" if pod["spec"].get("nodeName") else "no node"
            raise Refused(400, f'container "{container}" in pod "{at.name}" is waiting to start: {said}')
        follow = self.get_query_argument("follow", "") in {"1", "true", "True"}
        stamped = self.get_query_argument("timestamps", "") in {"1", "true", "True"}
        tail, since = self.get_query_argument("tailLines", ""), self.get_query_argument("sinceTime", "")
        self.set_header("Content-Type", "text/plain")
        position = max(0, len(log.lines) - int(tail)) if tail else 0
        cut = self.cluster.cut
        while True:
            over = log.over
            for stamp, line in log.lines[position:]:
                if not since or stamp[:19] >= since[:19]:
                    self.write(f"{stamp} ".encode() + line + b"\n" if stamped else line + b"\n")
            position = len(log.lines)
            await self.flush()
            if not follow or over:
                return await self._end()
            if cut.is_set() or self.request.connection.stream.closed():
                return self._break_off()
            await asyncio.sleep(0.05)
