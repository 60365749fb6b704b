"""The hub page as it is served: an exact policy, nothing inline, files by their digest, and nobody's data."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from urllib.parse import urljoin

import httpx
import pytest

from detlab_hub.web import assets, pages
from detlab_hub.web.routes import PAGES
from detlab_hub.web.scopes import Scope, operation_of
from testbed.cluster import Cluster
from testbed.front.browsing import log_in, xsrf_of

pytestmark = pytest.mark.hub

EXACT = (
    "default-src 'none'; script-src 'self'; style-src 'self';"
    " style-src-attr 'unsafe-hashes' 'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='"
    " 'sha256-S+l+cz1wXqs2B0FcjqqT7NvjwGmhD1UjJswXjlSkj0s='; img-src 'self' data:; media-src 'self'; frame-src 'self';"
    " font-src 'self';"
    " connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)
MODELS = ["models/digits", "models/digits/compare", "models/digits/versions/3"]
SHELLS = ["", *pages.VIEWS, "experiments/1", "trials/1", "tasks/nb-1a2b", *MODELS]
FETCH = {"Sec-Fetch-Mode": "cors", "Sec-Fetch-Site": "same-origin"}


@pytest.fixture(scope="module")
def browser(cluster: Cluster) -> Iterator[httpx.Client]:
    with log_in(cluster, cluster.user, cluster.password) as client:
        yield client


@pytest.fixture(scope="module")
def ben(cluster: Cluster) -> Iterator[httpx.Client]:
    password = (cluster.folder / "secrets" / "password-ben").read_text().strip()
    with log_in(cluster, "ben", password) as client:
        yield client


def metas(page: str) -> dict[str, str]:
    """The page's own meta tags."""
    return {name: unescape(text) for name, text in re.findall(r'<meta name="detlab-(\w+)" content="([^"]*)">', page)}


def test_every_view_has_the_exact_policy_and_nothing_inline(cluster: Cluster, browser: httpx.Client) -> None:
    for path in SHELLS:
        reply = browser.get(cluster.service + path)
        assert reply.status_code == 200, path
        assert reply.headers["content-security-policy"] == EXACT, path
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["x-frame-options"] == "DENY"
        assert reply.headers["cache-control"] == "no-store"
        assert not re.search(r"<script(?![^>]*\ssrc=)", reply.text), "an inline script"
        assert "<style" not in reply.text
        assert not re.search(r"\s(style|on\w+)=", reply.text)
        assert "javascript:" not in reply.text


def test_the_page_works_without_javascript_in_a_clear_word(cluster: Cluster, browser: httpx.Client) -> None:
    page = browser.get(cluster.service).text
    word = re.search(r"<noscript>(.*?)</noscript>", page, re.DOTALL)
    assert word is not None
    assert "needs JavaScript" in word[1]
    plain = re.search(r'href="([^"]+)"', word[1])
    assert plain is not None
    shown = browser.get(urljoin(cluster.service, plain[1]))
    assert shown.status_code == 200
    assert "slots in use" in shown.text
    assert f'href="{httpx.URL(cluster.service).path}"' in shown.text


def test_assets_are_named_by_their_digest_and_kept_for_ever(cluster: Cluster, browser: httpx.Client) -> None:
    page = browser.get(cluster.service).text
    found = re.findall(r'(?:src|href)="(/services/detlab/static/[^"]+)"', page)
    assert {Path(httpx.URL(url).path).name for url in found} == {"hub.js", "hub.css", "icon.svg"}
    for url in found:
        reply = httpx.get(urljoin(cluster.service, url), trust_env=False)  # public: no session
        name = Path(httpx.URL(url).path).name
        assert reply.status_code == 200
        assert reply.headers["content-type"] == assets.MEDIA[name]
        assert reply.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert reply.headers["x-content-type-options"] == "nosniff"
        again = httpx.get(
            f"{cluster.service}static/{name}", headers={"If-None-Match": reply.headers["etag"]}, trust_env=False
        )
        assert again.status_code == 304
        assert again.headers["cache-control"] == "no-cache"
        assert not again.content


def test_the_script_travels_packed(cluster: Cluster) -> None:
    with httpx.Client(trust_env=False) as client, client.stream("GET", f"{cluster.service}static/hub.js") as reply:
        packed = b"".join(reply.iter_raw())
    assert reply.headers["content-encoding"] == "gzip"
    body = httpx.get(f"{cluster.service}static/hub.js", headers={"Accept-Encoding": "identity"}, trust_env=False)
    assert "content-encoding" not in body.headers
    assert gzip.decompress(packed) == body.content
    assert len(packed) < 500_000


@pytest.mark.parametrize("name", ["..%2Fpages.py", "hub.js%00", "shell.html", "HUB.JS", "hub.js.map"])
def test_only_named_files_are_served(cluster: Cluster, name: str) -> None:
    reply = httpx.get(f"{cluster.service}static/{name}", trust_env=False)
    assert reply.status_code == 404
    assert reply.json()["code"]


def test_every_page_declares_a_scope_and_only_files_and_health_are_public() -> None:
    public = set()
    for path, handler in PAGES:
        for verb in handler.SUPPORTED_METHODS:
            operation = operation_of(handler, verb)
            if operation is not None and Scope.PUBLIC in operation.scopes:
                public.add(path)
    assert public == {"health", "ready", "oauth_callback", "static/{asset_name}"}


def test_an_anonymous_browser_is_sent_to_log_in_and_back_to_the_view(cluster: Cluster) -> None:
    with httpx.Client(trust_env=False, follow_redirects=True, timeout=30) as client:
        login = client.get(f"{cluster.service}experiments/7")
        assert "/hub/login" in str(login.url)
        xsrf = re.search(r'name="_xsrf"\s+value="([^"]+)"', login.text)
        action = re.search(r'<form action="([^"]+)"', login.text)
        assert xsrf is not None
        assert action is not None
        form = {"username": cluster.user, "password": cluster.password, "_xsrf": unescape(xsrf[1])}
        page = client.post(urljoin(str(login.url), unescape(action[1])), data=form)
        assert str(page.url) == f"{cluster.service}experiments/7"
        assert metas(page.text)["user"] == cluster.user


def test_the_token_of_the_page_opens_the_api_and_nothing_opens_it_without(
    cluster: Cluster, browser: httpx.Client
) -> None:
    token = metas(browser.get(cluster.service).text)["xsrf"]
    assert token == xsrf_of(browser, cluster)
    api = f"{cluster.service}api/v1/"
    assert browser.get(f"{api}me", headers={**FETCH, "X-XSRFToken": token}).json()["name"] == cluster.user
    assert browser.get(f"{api}me", headers=FETCH).status_code == 401
    for verb, path in (("POST", "experiments/999999/kill"), ("DELETE", "experiments/999999")):
        assert browser.request(verb, api + path, headers=FETCH).status_code == 401
        assert browser.request(verb, api + path, headers={**FETCH, "X-XSRFToken": token}).status_code == 404


def test_the_token_of_one_user_is_nothing_to_another(
    cluster: Cluster, browser: httpx.Client, ben: httpx.Client
) -> None:
    token = metas(browser.get(cluster.service).text)["xsrf"]
    ben.get(cluster.service)
    assert ben.get(f"{cluster.service}api/v1/me", headers={**FETCH, "X-XSRFToken": token}).status_code == 401


def test_the_page_holds_nobodys_data(cluster: Cluster, ben: httpx.Client) -> None:
    config = {
        "name": "secret-of-the-operator",
        "entrypoint": ["true"],
        "searcher": {"name": "single", "metric": "x", "max_length": 1},
    }
    with cluster.client() as client:
        made = client.post("experiments", json={"config": config}).json()["experiment"]["id"]
    for path in ("", "everybody", f"experiments/{made}", "plain"):
        page = ben.get(cluster.service + path)
        assert page.status_code == 200
        assert "secret-of-the-operator" not in page.text
        shown = re.sub(r"<[^>]*>|pytest-of-\w+", " ", page.text)
        assert not re.search(rf"\b{re.escape(cluster.user)}\b", shown), "nobody else is named"
    shown = metas(ben.get(cluster.service).text)
    assert (shown["user"], shown["admin"]) == ("ben", "no")
    refused = ben.get(f"{cluster.service}api/v1/experiments/{made}", headers={**FETCH, "X-XSRFToken": shown["xsrf"]})
    assert refused.status_code == 404


def test_an_unknown_address_is_a_page_for_browsers_and_json_for_programs(
    cluster: Cluster, browser: httpx.Client
) -> None:
    html = {"Accept": "text/html,*/*;q=0.8"}
    for path in ("nowhere", "experiments/abc", "a/%3Cscript%3E/b"):
        page = browser.get(cluster.service + path, headers=html)
        assert page.status_code == 404, path
        assert page.headers["content-type"].startswith("text/html")
        assert "default-src 'none'" in page.headers["content-security-policy"]
        assert 'href="/services/detlab/"' in page.text
        assert "<script" not in page.text
    for path, headers in (("nowhere", {}), ("api/v1/nowhere", html)):
        reply = browser.get(cluster.service + path, headers=headers)
        assert (reply.status_code, reply.headers["content-type"]) == (404, "application/json")
        assert reply.json()["code"]


def test_usage_is_csv_by_a_link(cluster: Cluster, browser: httpx.Client) -> None:
    link = re.search(r'href="([^"]*usage\?format=csv)"', browser.get(f"{cluster.service}plain").text)
    assert link is not None
    navigation = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Site": "same-origin", "Accept": "text/html"}
    table = browser.get(urljoin(cluster.service, link[1]), headers=navigation)
    assert table.headers["content-type"] == "text/csv; charset=utf-8"
    assert table.headers["content-disposition"].startswith('attachment; filename="slot-hours_')
    assert table.text.startswith("day,user,kind,slot_hours")
    with cluster.client() as client:
        assert (
            client.get("usage", params={"format": "json"}, headers={"Accept": "text/csv"}).json()["items"] is not None
        )
        assert client.get("usage", params={"format": "xls"}).status_code == 422


def test_the_hub_links_to_the_page(cluster: Cluster, browser: httpx.Client) -> None:
    home = browser.get(f"{cluster.url}/hub/home")
    assert home.status_code == 200
    link = re.search(r'<a class="nav-link" href="([^"]+)">Cluster</a>', home.text)
    assert link is not None
    assert link[1] == "/services/detlab/"
    assert "Token</a>" in home.text, "the Hub's own entries are still there"
