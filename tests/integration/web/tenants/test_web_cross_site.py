"""A browser's session at every verb of the master: what other sites' pages, and scripts without the token, may ask."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import httpx
import pytest

from detlab_hub.web.crosssite import CrossSite
from testbed.cluster import Cluster
from testbed.front.browsing import log_in, xsrf_of
from testbed.routes import Asked, verbs

pytestmark = pytest.mark.hub

EVIL = "https://evil.example"
FETCH = {"Sec-Fetch-Mode": "cors", "Sec-Fetch-Site": "same-origin"}
GONE_TO = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Site": "none"}
PEOPLES = [one for one in verbs() if one.operation.cross_site.sessions and not one.route.endswith("drain")]
"""Draining would end this cluster's usefulness."""
FILES = (
    "tables/export",
    "outputs/{digest}",
    "checkpoints/{uuid}/archive",
    "files/{digest}",
    "code/{digest}",
    "usage",
    "openapi.json",
    "trials/{trial_id}/media/{media_id}/file",
    "trials/{trial_id}/media/{media_id}/document",
    "runs/{run_id}/media/{object_id}/file",
    "runs/{run_id}/media/{object_id}/document",
    "runs/{run_id}/file",
    "artifacts/{artifact}/versions/{version}/file",
)


@pytest.fixture(scope="module")
def browser(cluster: Cluster) -> Iterator[httpx.Client]:
    with log_in(cluster, cluster.user, cluster.password) as client:
        client.get(cluster.service)
        yield client


@pytest.fixture(scope="module")
def token(cluster: Cluster, browser: httpx.Client) -> str:
    return xsrf_of(browser, cluster)


@pytest.fixture
async def session(cluster: Cluster, browser: httpx.Client) -> AsyncIterator[httpx.AsyncClient]:
    """The same session for many requests at once."""
    async with httpx.AsyncClient(
        base_url=cluster.service, cookies=browser.cookies, trust_env=False, timeout=20
    ) as client:
        yield client


async def statuses(session: httpx.AsyncClient, headers: dict[str, str], asked: list[Asked]) -> dict[str, int]:
    """How each verb answers, 401 for the way to the login; a stream is not followed."""
    gate = asyncio.Semaphore(8)

    async def ask(one: Asked) -> tuple[str, int]:
        async with gate, session.stream(one.verb, one.path, headers=headers) as reply:
            to_login = "/oauth2/authorize" in reply.headers.get("location", "")
            return f"{one.verb} {one.route}", 401 if to_login else reply.status_code

    return dict(await asyncio.gather(*(ask(one) for one in asked)))


def let_in(found: dict[str, int]) -> list[str]:
    """Who was neither refused nor sent to log in."""
    return [name for name, status in found.items() if status not in {401, 403}]


@pytest.mark.parametrize(
    "foreign",
    [
        {"Origin": EVIL},
        {"Origin": "null"},
        {"Origin": EVIL, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"},
        {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
    ],
    ids=lambda headers: " ".join(headers.values()),
)
async def test_no_verb_takes_a_session_from_another_sites_page(
    session: httpx.AsyncClient, token: str, foreign: dict[str, str]
) -> None:
    """Even with the XSRF token, 82 verbs did."""
    asked = [one for one in PEOPLES if one.operation.cross_site is not CrossSite.PAGE]
    found = await statuses(session, {**foreign, "X-XSRFToken": token}, asked)
    assert let_in(found) == []
    assert len(found) >= 60


@pytest.mark.parametrize("headers", [{}, FETCH, {"X-XSRFToken": "wrong"}, {**FETCH, "X-XSRFToken": "wrong"}])
async def test_no_verb_takes_a_script_without_the_xsrf_token(
    session: httpx.AsyncClient, headers: dict[str, str]
) -> None:
    """57 GETs and a HEAD did where the request said no `Sec-Fetch-Mode`."""
    asked = [one for one in PEOPLES if headers.get("Sec-Fetch-Mode") or one.operation.cross_site is not CrossSite.PAGE]
    assert let_in(await statuses(session, headers, asked)) == []


async def test_every_verb_takes_this_sites_own_pages(cluster: Cluster, session: httpx.AsyncClient, token: str) -> None:
    for own in ({}, FETCH, {**FETCH, "Origin": cluster.url}, {"Origin": cluster.url}):
        found = await statuses(session, {**own, "X-XSRFToken": token}, PEOPLES)
        assert [name for name, status in found.items() if status in {401, 403, 500}] == []


async def test_a_link_leads_to_files_and_pages_only(cluster: Cluster, session: httpx.AsyncClient) -> None:
    gone = await statuses(session, GONE_TO, PEOPLES)
    linked = await statuses(session, {"Referer": f"{cluster.service}experiments/1"}, PEOPLES)
    files = {f"{one.verb} {one.route}" for one in PEOPLES if one.operation.cross_site is CrossSite.LINK}
    pages = {f"{one.verb} {one.route}" for one in PEOPLES if one.operation.cross_site is CrossSite.PAGE}
    assert {*let_in(gone)} == {*let_in(linked)} == files | pages
    assert all(name.startswith("GET ") and name.endswith(FILES) for name in files)
    assert len(files) == len(FILES)
    foreign = await statuses(session, {"Referer": f"{EVIL}/services/detlab/"}, PEOPLES)
    assert {*let_in(foreign)} == pages


async def test_a_page_may_be_gone_to_from_another_site(session: httpx.AsyncClient) -> None:
    asked = [one for one in PEOPLES if one.operation.cross_site is CrossSite.PAGE]
    found = await statuses(session, {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Site": "cross-site"}, asked)
    assert let_in(found) == [*found]
    framed = await statuses(session, {"Sec-Fetch-Mode": "cors", "Sec-Fetch-Site": "cross-site", "Origin": EVIL}, asked)
    assert let_in(framed) == []


async def test_a_token_counts_whatever_page_sends_it(cluster: Cluster) -> None:
    headers = {"Authorization": f"Bearer {cluster.token}", "Origin": EVIL, "Sec-Fetch-Site": "cross-site"}
    async with httpx.AsyncClient(base_url=cluster.service, trust_env=False, timeout=20) as client:
        assert (await client.get("api/v1/me", headers=headers)).status_code == 200


def test_a_foreign_page_is_told_what_is_wrong(cluster: Cluster, browser: httpx.Client, token: str) -> None:
    me = f"{cluster.service}api/v1/me"
    foreign = browser.get(me, headers={"X-XSRFToken": token, "Origin": EVIL})
    assert (foreign.status_code, foreign.json()["code"]) == (403, "auth.forbidden")
    assert foreign.json()["message"] == "a page of another site may not use your session here"
    missing = browser.get(me)
    assert missing.status_code == 401
    assert "X-XSRFToken" in missing.json()["message"]
