"""A client that is like a browser: logged in by the Hub's form, with its session's cookies and XSRF token."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import httpx

from testbed.cluster import Cluster


@contextmanager
def log_in(cluster: Cluster, user: str, password: str) -> Iterator[httpx.Client]:
    """A browser-like client after the Hub's login form."""
    with httpx.Client(trust_env=False, follow_redirects=True, timeout=30) as client:
        enter(client, cluster, user, password)
        yield client


def enter(client: httpx.Client, cluster: Cluster, user: str, password: str) -> None:
    """Fill in the Hub's login form, as who has not logged in or has logged out."""
    page = client.get(f"{cluster.url}/hub/login")
    xsrf = re.search(r'name="_xsrf"\s+value="([^"]+)"', page.text)
    assert xsrf is not None
    form = {"username": user, "password": password, "_xsrf": xsrf[1]}
    client.post(f"{cluster.url}/hub/login", params={"next": "/hub/home"}, data=form)


def xsrf_of(client: httpx.Client, cluster: Cluster) -> str:
    """The service's XSRF cookie."""
    for cookie in client.cookies.jar:
        if cookie.name == "_xsrf" and cookie.path == "/services/detlab/":
            return str(cookie.value)
    raise AssertionError(f"no XSRF cookie for the service: {client.cookies}")
