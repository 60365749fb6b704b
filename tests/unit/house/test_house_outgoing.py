"""The master calls nobody whom a user names: who makes connections, and who opens stores, is a list."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

HUB = Path(__file__).parents[3] / "hub_ext" / "detlab_hub"
CLIENTS = {
    "aiohttp",
    "boto3",
    "botocore",
    "fsspec",
    "ftplib",
    "google",
    "googleapiclient",
    "http.client",
    "httpcore",
    "httpx",
    "obstore",
    "paramiko",
    "pycurl",
    "requests",
    "smtplib",
    "tornado.httpclient",
    "tornado.simple_httpclient",
    "tornado.tcpclient",
    "tornado.websocket.websocket_connect",
    "urllib.request",
    "urllib3",
    "websocket",
    "websockets",
    "xmlrpc.client",
}
"""Libraries that make connections."""
CALLS = {"create_connection", "open_connection", "open_unix_connection", "create_unix_connection", "connect_ex"}
"""Calls that make one without such a library."""
MAKES_CONNECTIONS = {
    "backends/instances/aws.py": "the operator's cloud, for elastic pools",
    "backends/instances/gcp.py": "the operator's cloud, for elastic pools",
    "backends/instances/gcp_words.py": "what it and its library say when that fails",
    "embedded/hubapi.py": "the Hub of `det up`, on loopback",
    "embedded/master.py": "the master of `det up`, on loopback",
    "services/base/outgoing.py": "the one client for all other servers",
    "services/notify/smtp.py": "the operator's mail server, at the operator's address",
    "services/usertasks/hub_client.py": "the Hub's API, at the operator's address",
    "spawners/allocation.py": "in the Hub: a server at the address of its node, which the agent says; status only",
    "spawners/client.py": "in the Hub: the master",
    "storage_credentials.py": "STS, by the operator's configuration",
}
"""Module -> whom it calls. A new one needs a reason why no user names the address."""
OPENS_STORES = {
    "services/checkpoints/files.py": "what `stores` gives it",
    "services/checkpoints/event_files.py": "names of folders; it opens nothing",
    "services/checkpoints/manifests.py": "forms of names; it opens nothing",
    "services/checkpoints/stores.py": "the table of who opens what",
}
"""Modules that import `detlab.storage`."""


def imports(tree: ast.AST) -> Iterator[str]:
    """The names that a module imports, whole."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module") and node.args:
            yield ast.unparse(node.args[0]).strip("'\"")


def is_of(name: str, packages: set[str]) -> bool:
    """Whether a name is one of some packages or below it."""
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def connects(tree: ast.AST) -> bool:
    """Whether a module makes connections."""
    calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    return any(is_of(name, CLIENTS) for name in imports(tree)) or any(
        isinstance(call, ast.Attribute) and (call.attr in CALLS or ast.unparse(call) == "socket.socket.connect")
        for call in calls
    )


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(HUB.rglob("*.py")):
        yield path.relative_to(HUB).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


@pytest.mark.slow
def test_only_listed_modules_of_the_master_make_connections() -> None:
    found = {name for name, tree in modules() if connects(tree)}
    assert sorted(found - MAKES_CONNECTIONS.keys()) == [], "use services/base/outgoing.py"
    assert sorted(MAKES_CONNECTIONS.keys() - found) == [], "remove what is no longer true from the list"


def test_only_the_table_of_access_opens_stores() -> None:
    found = {name for name, tree in modules() if any(is_of(one, {"detlab.storage"}) for one in imports(tree))}
    assert sorted(found - OPENS_STORES.keys()) == [], "use services/checkpoints/stores.py"
    assert sorted(OPENS_STORES.keys() - found) == []


@pytest.mark.slow
def test_an_open_store_is_made_by_the_table_alone() -> None:
    """And by those that add short-lived keys to one that the table has given."""
    makes = {
        name
        for name, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("OpenStore")
    }
    assert makes == {"services/checkpoints/stores.py", "services/experiments/stored_files.py"}


@pytest.mark.parametrize(
    "text",
    [
        "import httpx",
        "from urllib import request",
        "import urllib.request as r",
        "def f():\n    import boto3",
        "from tornado.httpclient import AsyncHTTPClient",
        "import socket\nsocket.create_connection(('x', 1))",
        "import asyncio\nasync def f():\n    await asyncio.open_connection('x', 1)",
        "import importlib\nimportlib.import_module('requests')",
    ],
)
def test_each_way_to_make_one_is_seen(text: str) -> None:
    assert connects(ast.parse(text))
