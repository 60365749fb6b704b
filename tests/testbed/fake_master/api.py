"""A master made of memory, behind real HTTP: for tests of whatever talks to one.

It speaks the wire models of `detlab.schemas.wire` over a real socket and misbehaves on request: it can refuse,
forget to answer after it has acted, and cut a stream in the middle of a line. It schedules nothing: the test says
what happens.

    with FakeMaster() as master:
        client = Client(master.url, master.token)
        master.faults.append(Fault("POST", "experiments", "lose_reply"))
        client.create_experiment({"name": "x"})          # submitted once, answered at the second attempt
"""

from __future__ import annotations

import threading
from http.server import ThreadingHTTPServer
from types import TracebackType

from detlab.schemas.wire import ClusterView, CreateExperiment, UserView
from testbed.fake_master.jobs import JOB_ROUTES
from testbed.fake_master.many import MANY_ROUTES
from testbed.fake_master.requests import RequestHandler, Route
from testbed.fake_master.state import ApiFault
from testbed.fake_master.tasks import TASK_ROUTES, FakeUserTasks

__all__ = ["ApiFault", "FakeMaster"]


class FakeMaster(FakeUserTasks):
    """The state, the levers, and the server while used as a context manager."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._server: ThreadingHTTPServer | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> FakeMaster:
        handler = type(
            "Handler",
            (RequestHandler,),
            {"master": self, "routes": [*_ROUTES, *TASK_ROUTES, *JOB_ROUTES, *MANY_ROUTES]},
        )
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        assert self._thread is not None
        with self.changed:
            self.closing = True
            self.changed.notify_all()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        """Address of the Hub."""
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.server_address[1]}"


_ROUTES: list[Route] = [
    ("GET", r"me", lambda h: h.tell(UserView(name="alice", scopes=["read", "write"]))),
    ("GET", r"cluster", lambda h: h.tell(ClusterView(cluster_id="c1", version="0.0.0-fake"))),
    ("GET", r"agents", lambda h: h.tell(h.master.agents)),
    ("HEAD", r"bundles/(.+)", RequestHandler.head_bundle),
    ("PUT", r"bundles/(.+)", RequestHandler.put_bundle),
    ("POST", r"experiments", lambda h: h.tell(h.master.create(CreateExperiment.model_validate_json(h.body)))),
    ("GET", r"experiments", RequestHandler.list_experiments),
    ("GET", r"experiments/(\d+)", lambda h, n: h.tell(h.master.experiment(n))),
    ("POST", r"experiments/(\d+)/(pause|activate|cancel|kill)", lambda h, n, a: h.tell(h.master.act(n, a))),
    ("POST", r"experiments/(\d+)/edit", lambda h, n: h.tell(h.master.edit(n, h.body))),
    ("DELETE", r"experiments/(\d+)", RequestHandler.delete),
    ("POST", r"log-retention", lambda h: h.tell(h.master.keep_logs(h.body))),
    ("POST", r"experiments/(\d+)/search", lambda h, n: h.tell(h.master.steer(n, h.body))),
    (
        "GET",
        r"experiments/(\d+)/search/journal",
        lambda h, n: h.tell(h.master.journal(n, int(h.query.get("after", 0)), h.query.get("only"))),
    ),
    ("GET", r"experiments/(\d+)/grants", lambda h, n: h.tell(h.master.grants_of(n))),
    ("PUT", r"experiments/(\d+)/grants", lambda h, n: h.tell(h.master.share(n, h.body))),
    ("DELETE", r"experiments/(\d+)/grants", lambda h, n: h.tell(h.master.unshare(n, h.query["kind"], h.query["name"]))),
    ("GET", r"experiments/(\d+)/search/replay", lambda h, n: h.tell(h.master.replay(n, h.query.get("at")))),
    ("GET", r"experiments/(\d+)/bundle", RequestHandler.get_code),
    ("GET", r"experiments/(\d+)/code", RequestHandler.list_code),
    ("GET", r"experiments/(\d+)/trials", RequestHandler.list_trials),
    ("GET", r"(experiments|trials)/(\d+)/checkpoints", RequestHandler.list_checkpoints),
    ("GET", r"experiments/(\d+)/curves", lambda h, n: h.tell(h.master.curves(n))),
    ("GET", r"experiments/(\d+)/stream", RequestHandler.follow_experiment),
    ("GET", r"trials/(\d+)", lambda h, n: h.tell(h.master.trial(n))),
    ("POST", r"trials/(\d+)/kill", RequestHandler.kill_trial),
    ("GET", r"trials/(\d+)/metrics", RequestHandler.list_series),
    ("GET", r"trials/(\d+)/logs", RequestHandler.list_logs),
    ("GET", r"trials/(\d+)/logs/stream", RequestHandler.follow_logs),
    ("GET", r"checkpoints/([^/]+)", lambda h, n: h.tell(h.master.checkpoint(n))),
    ("GET", r"checkpoints/([^/]+)/files/(.+)", RequestHandler.get_file),
    ("POST", r"checkpoints/([^/]+)/edit", lambda h, n: h.tell(h.master.edit_checkpoint(n, h.body))),
    ("DELETE", r"checkpoints/([^/]+)", lambda h, n: h.tell(h.master.trash(n, now=h.query.get("now") == "true"))),
    ("POST", r"checkpoints/([^/]+)/undelete", lambda h, n: h.tell(h.master.undelete(n))),
    ("GET", r"checkpoints/([^/]+)/pins", lambda h, n: h.tell(h.master.pins_of(n))),
    ("PUT", r"checkpoints/([^/]+)/bookmark", lambda h, n: h.tell(h.master.bookmark(n, h.body))),
    ("DELETE", r"checkpoints/([^/]+)/bookmark", lambda h, n: h.tell(h.master.bookmark(n, None))),
    ("GET", r"experiments/(\d+)/gc", lambda h, n: h.tell(h.master.gc(int(n), None))),
    ("POST", r"experiments/(\d+)/gc", lambda h, n: h.tell(h.master.gc(int(n), h.body))),
    ("POST", r"checkpoints/([^/]+)/remove-files", RequestHandler.remove_files),
    ("GET", r"checkpoints/([^/]+)/metrics", RequestHandler.list_values),
]
