"""What a browser gets: login by the Hub, a session with an XSRF token, a page that is text and nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from testbed.cluster import Cluster
from testbed.front.browsing import log_in, xsrf_of

pytestmark = pytest.mark.hub

HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def browser(cluster: Cluster) -> Iterator[httpx.Client]:
    with log_in(cluster, cluster.user, cluster.password) as client:
        yield client


def test_an_anonymous_browser_is_sent_to_the_hub(cluster: Cluster) -> None:
    reply = httpx.get(cluster.service, trust_env=False)
    assert reply.status_code == 302
    assert reply.headers["location"].startswith("/hub/api/oauth2/authorize?")


def test_wrong_password_and_foreign_user_are_refused(cluster: Cluster) -> None:
    for user, password in ((cluster.user, "wrong"), ("mallory", cluster.password), ("ben", cluster.password)):
        with log_in(cluster, user, password) as client:
            assert client.get(f"{cluster.url}/hub/api/user", headers={"Sec-Fetch-Mode": "navigate"}).status_code == 403


def test_the_page_shows_the_cluster_and_escapes_names(cluster: Cluster, browser: httpx.Client) -> None:
    config = {
        "name": HOSTILE,
        "entrypoint": ["true"],
        "searcher": {"name": "single", "metric": HOSTILE, "max_length": 1},
    }
    with cluster.client() as client:
        made = client.post("experiments", json={"config": config})
        assert made.status_code == 200, made.text
    page = browser.get(f"{cluster.service}plain")
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    assert "&lt;img src=x onerror=alert(1)&gt;" in page.text
    assert "<img" not in page.text
    assert "<script" not in page.text
    assert "style=" not in page.text
    assert "slots in use" in page.text
    assert f"/hub/spawn/{cluster.user}" in page.text


def test_security_headers_everywhere(cluster: Cluster, browser: httpx.Client) -> None:
    pages = [
        f"{cluster.service}plain",
        f"{cluster.service}health",
        f"{cluster.service}api/v1/me",
        f"{cluster.service}nothing",
    ]
    for url in [*pages, f"{cluster.service}static/style.css"]:
        headers = browser.get(url).headers
        assert headers["x-content-type-options"] == "nosniff", url
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; style-src 'self'"), url
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert "server" not in headers or "Tornado" not in headers["server"]


def test_a_session_needs_the_xsrf_token_for_fetch_and_for_every_write(cluster: Cluster, browser: httpx.Client) -> None:
    browser.get(cluster.service)
    token = xsrf_of(browser, cluster)
    me, api = f"{cluster.service}api/v1/me", f"{cluster.service}api/v1/"
    fetch = {"Sec-Fetch-Mode": "cors", "Sec-Fetch-Site": "same-origin"}
    assert browser.get(me, headers=fetch).status_code == 401
    assert browser.get(me, headers={**fetch, "X-XSRFToken": token}).status_code == 200
    assert browser.get(me, headers={**fetch, "X-XSRFToken": "2|" + token}).status_code == 401
    for verb in ("POST", "DELETE"):
        for headers in ({}, fetch, {"Sec-Fetch-Mode": "navigate"}, {"Sec-Fetch-Mode": "no-cors"}):
            path = "experiments/999999/kill" if verb == "POST" else "experiments/999999"
            assert browser.request(verb, api + path, headers=headers).status_code == 401, (verb, headers)
            assert browser.request(verb, api + path, headers={**headers, "X-XSRFToken": token}).status_code == 404


def test_a_wrong_token_is_not_rescued_by_a_session(cluster: Cluster, browser: httpx.Client) -> None:
    reply = browser.get(f"{cluster.service}api/v1/me", headers={"Authorization": "token wrong"})
    assert reply.status_code == 401


def test_task_routes_take_no_session(cluster: Cluster, browser: httpx.Client) -> None:
    browser.get(cluster.service)
    headers = {"X-XSRFToken": xsrf_of(browser, cluster)}
    assert browser.get(f"{cluster.service}api/v1/task/metadata", headers=headers).status_code == 401


def test_each_user_has_a_password_of_their_own(cluster: Cluster) -> None:
    password = (cluster.folder / "secrets" / "password-ben").read_text().strip()
    assert password != cluster.password
    with log_in(cluster, "ben", password) as client:
        page = client.get(f"{cluster.service}plain")
        assert page.status_code == 200
        assert "ben" in page.text
        assert HOSTILE not in page.text
        assert "onerror" not in page.text
        assert "No experiment yet" in page.text
