"""Programs under a memory limit: `limited_master.py master FOLDER` and `limited_master.py check FOLDER`.

The first is a master with its routes, which asks a Hub of its own making who people are, and prints its address. The
second runs `det config check` for all files of a folder, and prints the exit statuses and seconds. Both limit their
memory once all is loaded and has run once: to what they have then, and `ROOM`.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

ROOM = 300 * 1024**2
"""Bytes of data that may come on top of those that are there when everything is loaded."""
OWN, TOKEN = "own-token", "ada-token"
HARMLESS = {"entrypoint": ["true"], "searcher": {"name": "single", "metric": "x"}}


def limit_memory() -> None:
    """Let this process have `ROOM` more, of whatever is its own: heap, maps without a file, stacks of threads."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    now = next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmData:"))
    resource.setrlimit(resource.RLIMIT_DATA, (now + ROOM, now + ROOM))


async def master(folder: Path) -> None:
    """Serve until this process is ended."""
    from tornado.httpclient import AsyncHTTPClient
    from tornado.httpserver import HTTPServer
    from tornado.netutil import bind_sockets
    from tornado.web import Application, RequestHandler

    from detlab_hub.services import Services, Settings
    from detlab_hub.store import Store
    from detlab_hub.web.auth import Identifier, make_hub_auth
    from detlab_hub.web.bodies import MOST_READ
    from detlab_hub.web.routes import Background, WebSettings, make_application

    class Whoami(RequestHandler):
        """GET /hub/api/user."""

        def get(self) -> None:
            token = self.request.headers["Authorization"].removeprefix("token ")
            scopes = ["custom:detlab:read", "custom:detlab:write"]
            people: dict[str, dict[str, Any]] = {
                OWN: {"kind": "service", "name": "detlab"},
                TOKEN: {"kind": "user", "name": "ada", "scopes": scopes, "groups": []},
            }
            if token not in people:
                self.set_status(403)
            self.write(people.get(token, {"status": 403, "message": "Forbidden"}))

    def serve(application: Any, **more: Any) -> int:
        server, sockets = HTTPServer(application, **more), bind_sockets(0, "127.0.0.1")
        server.add_sockets(sockets)
        return int(sockets[0].getsockname()[1])

    hub = f"http://127.0.0.1:{serve(Application([('/hub/api/user', Whoami)]))}/hub/api"
    store = Store.open(f"sqlite:///{folder}/detlab.sqlite", holder="test")
    services = Services(store, settings=Settings(state_dir=folder, bundles_dir=folder / "bundles"))
    await services.start()
    auth = make_hub_auth(api_url=hub, api_token=OWN, base_url="/services/detlab/", hub_prefix="/hub/")
    web = WebSettings(cookie_secret=b"x" * 32, hub_public_url="/hub/", background=Background())
    port = serve(make_application(services, Identifier(auth, services), web), max_body_size=MOST_READ)
    base = f"http://127.0.0.1:{port}/services/detlab/"
    body = json.dumps({"config": HARMLESS, "dry_run": True})
    for _ in range(3):
        await AsyncHTTPClient().fetch(
            f"{base}api/v1/experiments", method="POST", body=body, headers={"Authorization": f"Bearer {TOKEN}"}
        )
    limit_memory()
    print(base, flush=True)
    await asyncio.Event().wait()


def check(folder: Path) -> None:
    """Print a JSON object: name of the file -> exit status and seconds."""
    from click.testing import CliRunner

    from detlab.cli.commands.config import config

    runner, found = CliRunner(), {}
    (folder.parent / "harmless.yaml").write_text(json.dumps(HARMLESS), encoding="utf-8")
    assert runner.invoke(config, ["check", "--complete", str(folder.parent / "harmless.yaml")]).exit_code == 0
    limit_memory()
    for path in sorted(folder.iterdir()):
        began = time.monotonic()
        result = runner.invoke(config, ["check", "--complete", str(path)])
        found[path.name] = (result.exit_code, time.monotonic() - began)
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "master":
        asyncio.run(master(Path(sys.argv[2])))
    else:
        check(Path(sys.argv[2]))
