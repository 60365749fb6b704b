"""`det alert email`, through the routes and a real mail server, by a user and an administrator."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from services_scripted import ALICE, ROOT
from tornado.httpserver import HTTPServer
from tornado.testing import bind_unused_port

from detlab.cli.root import det as command
from detlab_hub.services.base.callers import ADMIN, READ, WRITE, Caller
from detlab_hub.services.base.settings import SmtpServer
from detlab_hub.services.notify.mails import MailSender
from detlab_hub.web.auth import Identifier
from detlab_hub.web.crosssite import CrossSite
from detlab_hub.web.routes import Background, WebSettings, make_application
from testbed.mail.servers import MailServer

PEOPLE = {
    one.name: Caller(one.name, frozenset({READ, WRITE, *([ADMIN] if one.admin else [])}), one.admin)
    for one in (ALICE, ROOT)
}


class Tokens(Identifier):
    """Takes a user's name for their token."""

    async def identify(self, handler: Any, rule: CrossSite) -> Any:
        return PEOPLE[handler.request.headers["Authorization"].split()[1]]


@pytest.fixture
async def det(make_world: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Callable[..., Any]]:
    """Runs `det` for somebody against the routes of a world with a mail server."""
    server = MailServer(tmp_path).start()
    world = await make_world(smtp=SmtpServer("127.0.0.1", server.port, "none", "det@example.org"))
    background = Background()
    web = WebSettings(cookie_secret=b"x" * 32, hub_public_url="/hub/", background=background)
    http = HTTPServer(make_application(world.services, Tokens(SimpleNamespace(), world.services), web))
    sock, port = bind_unused_port()
    http.add_sockets([sock])
    monkeypatch.setenv("DET_URL", f"http://127.0.0.1:{port}")

    async def run(who: str, *words: str) -> Any:
        done = await asyncio.to_thread(
            CliRunner().invoke, command, [*([] if words[0] == "user" else ["alert"]), *words], env={"DET_TOKEN": who}
        )
        await MailSender(world.services.context).step()
        return done

    run.mails = server  # type: ignore[attr-defined]  # for the test to look into
    yield run
    http.stop()
    await http.close_all_connections()
    await background.wait()
    server.kill()


async def test_from_an_address_to_a_rule(det: Any) -> None:
    refused = await det("alice", "add-rule", "failed", "--email")
    assert (refused.exit_code, "det alert email set ADDRESS" in refused.stderr) == (1, True), refused.output
    assert "No address is set" in (await det("alice", "email", "show")).stdout
    asked = await det("alice", "email", "set", "ada@example.org")
    assert asked.stdout.startswith("A code is sent to ada@example.org."), asked.output
    assert "ada@example.org waits for its code" in (await det("alice", "email", "show")).stdout
    wrong = await det("alice", "email", "confirm", "wrong")
    assert (wrong.exit_code, "not the code" in wrong.stderr) == (1, True), wrong.output
    found = re.search(r"det alert email confirm (\S+)", det.mails.mails[0].get_content())
    assert found is not None
    confirmed = await det("alice", "email", "confirm", found[1])
    assert confirmed.stdout.startswith("ada@example.org is confirmed."), confirmed.output
    made = await det("alice", "add-rule", "failed", "--email", "--no-bell")
    assert made.exit_code == 0, made.output
    assert "e-mail" in (await det("alice", "rules")).stdout
    assert "Alerts are sent to ada@example.org (set by alice" in (await det("alice", "email", "show")).stdout
    assert (await det("alice", "email", "show", "--user", "root")).exit_code == 1
    given = await det("root", "email", "set", "a@example.org", "--user", "alice")
    assert given.stdout.startswith("Alerts to alice are sent to a@example.org"), given.output
    assert "set by root" in (await det("root", "email", "show", "--user", "alice")).stdout
    mistaken = await det("alice", "email", "set", "no address")
    assert (mistaken.exit_code, "an address is NAME@DOMAIN" in mistaken.stderr) == (2, True), mistaken.output
    assert (await det("alice", "email", "rm")).exit_code == 0
    assert "bell" in (await det("alice", "rules")).stdout


async def test_settings_are_shown_set_and_reset(det: Callable[..., Any]) -> None:
    done = await det("alice", "user", "settings", "set", "time-zone", "Europe/Berlin")
    assert (done.exit_code, done.stdout) == (0, "time_zone is Europe/Berlin.\n")
    assert (await det("alice", "user", "settings", "set", "email", "off")).stdout == "email is off.\n"
    shown = await det("alice", "user", "settings", "get")
    assert "Europe/Berlin" in shown.stdout
    assert "No alert is sent by e-mail" in shown.stdout
    assert json.loads((await det("alice", "user", "settings", "get", "email", "--json")).stdout) == {"email": False}
    assert json.loads((await det("root", "user", "settings", "get", "--json")).stdout)["chosen"] == []
    wrong = await det("alice", "user", "settings", "set", "time_zone", "Europe/Atlantis")
    assert wrong.exit_code != 0
    assert "there is no time zone" in wrong.stderr
    assert (await det("alice", "user", "settings", "set", "density", "3")).exit_code == 2
    assert (await det("alice", "user", "settings", "reset", "email")).stdout == "email is on.\n"
    assert (await det("alice", "user", "settings", "reset")).stdout == "All settings have their defaults.\n"
