"""Which page a request comes from, by what browsers say; and where a login may lead."""

from __future__ import annotations

import pytest
from tornado.httputil import HTTPConnection, HTTPHeaders, HTTPServerRequest, RequestStartLine

from detlab.errors import DetlabError, Forbidden
from detlab_hub.web.crosssite import CrossSite, check_session, from_own_page, is_local


def request(host: str, **headers: str) -> HTTPServerRequest:
    sent = HTTPHeaders({"Host": host, **{name.replace("_", "-"): value for name, value in headers.items()}})
    return HTTPServerRequest(
        start_line=RequestStartLine("POST", "/", "HTTP/1.1"), headers=sent, connection=HTTPConnection()
    )


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("lab.example", "https://lab.example"),
        ("lab.example:443", "https://lab.example"),
        ("LAB.example", "https://lab.EXAMPLE"),
        ("127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("lab.example:80", "http://lab.example"),
        ("[::1]:8000", "http://[::1]:8000"),
    ],
)
def test_a_page_of_this_site_is_known_by_its_origin(host: str, origin: str) -> None:
    assert from_own_page(request(host, Origin=origin))
    assert from_own_page(request(host, Origin=origin, Sec_Fetch_Site="same-origin"))
    assert not from_own_page(request(host, Origin=origin, Sec_Fetch_Site="cross-site"))


@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "",
        "https://evil.example",
        "https://lab.example.evil.example",
        "https://lab.example:8443",
        "https://evil.example/lab.example",
        "https://lab.example@evil.example",
        "file://lab.example",
        "http://[lab.example",
    ],
)
def test_a_page_of_another_site_is_known_by_its_origin(origin: str) -> None:
    assert not from_own_page(request("lab.example", Origin=origin))


class Asked:
    """A request of a session, as the rules look at it."""

    xsrf_token = b"token"

    def __init__(self, host: str, **headers: str) -> None:
        self.request = request(host, **headers)


def refusal(host: str, rule: CrossSite, **headers: str) -> DetlabError:
    with pytest.raises(Forbidden) as refused:
        check_session(Asked(host, **headers), rule)
    return refused.value


def test_a_refusal_behind_a_server_that_changes_the_host_says_what_was_compared() -> None:
    """It told people on the hub page to use the hub page."""
    hint = refusal("127.0.0.1:8642", CrossSite.XSRF, Origin="https://lab.example:8443", X_XSRFToken="token").hint or ""
    for said in ("'https://lab.example:8443'", "Host '127.0.0.1:8642'", "proxy_set_header Host $http_host"):
        assert said in hint
    endless = refusal("h" * 5000, CrossSite.XSRF, Origin="https://" + "o" * 5000).hint or ""
    assert len(endless) < 1000
    assert "Host" not in (refusal("lab.example", CrossSite.XSRF, Sec_Fetch_Site="cross-site").hint or "")


def test_who_follows_a_link_of_another_site_to_a_file_is_told_how_to_save_it() -> None:
    """The message spoke of a page that uses a session."""
    gone = {"Sec_Fetch_Mode": "navigate", "Sec_Fetch_Site": "cross-site"}
    refused = refusal("lab.example", CrossSite.LINK, **gone)
    assert "leads to a file" in refused.message
    assert "address bar" in (refused.hint or "")
    check_session(Asked("lab.example", **{**gone, "Sec_Fetch_Site": "none"}), CrossSite.LINK)


@pytest.mark.parametrize(
    "url",
    [
        "///evil.example",
        "//evil.example",
        "/\\evil.example",
        "\\\\evil.example",
        "/\t/evil.example",
        "\t//evil.example",
        "/\n/evil.example",
        "/a\r\nSet-Cookie: b=c",
        "/\x00",
        "https://evil.example/",
        "javascript:alert(1)",
        "evil.example",
        "",
        " //evil.example",
    ],
)
def test_no_login_leads_to_another_site(url: str) -> None:
    """A path with three slashes was taken for one of this site: browsers read a host out of it."""
    assert not is_local(url)


@pytest.mark.parametrize("url", ["/", "/services/detlab/", "/services/detlab/experiments/1?tab=logs&a=%2F%2Fb#x"])
def test_a_login_leads_back_to_where_it_began(url: str) -> None:
    assert is_local(url)
