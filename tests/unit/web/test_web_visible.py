"""Text of people in pages made by the service: as text, with nothing hidden in it; in links, quoted."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import quote, unquote

import pytest

from detlab.visible import visible
from detlab_hub.web import pages
from detlab_hub.web.visible import shown

TEXT_TS = Path(__file__).parents[3] / "labextension" / "src" / "components" / "common" / "text.ts"
HOSTILE = [
    "<img src=x onerror=alert(1)>",
    '"><script>alert(1)</script>',
    "' onmouseover='alert(1)",
    "100%20sure%00",
    "two words",
    "javascript:alert(1)",
    "ädä 漢字 😀",
    "ada\u202egnp.nimda\u202c",
    "ada\u200b\ufeff\u2066",
    "{{ user.admin }}{% raw x %}",
    "..",
]


def plain(name: str) -> str:
    """The plain page as an administrator of this name sees it, with an experiment and an agent of that name."""
    slot = SimpleNamespace(id="0", kind="cpu", name=name, allocation_id=None)
    agent = SimpleNamespace(id=name, state="connected", slots=[slot], serves_user=name, version=name)
    row = dict.fromkeys(
        ("id", "name", "owner", "state", "trials", "running", "metric", "best", "started", "note"), name
    )
    cluster = SimpleNamespace(slots_used=0, slots_total=1, agents=1, experiments_active=0, draining=False, version="1")
    cluster.message = SimpleNamespace(text=name)
    page: bytes = pages._PLAIN.generate(
        shown=shown,
        user=SimpleNamespace(name=name, admin=True),
        cluster=cluster,
        agents=[agent],
        experiments=[{**row, "tone": "busy", "percent": 50}],
        server_url=f"/hub/spawn/{quote(name, safe='')}",
        home_url="/hub/home",
        page_url="/services/detlab/",
        usage_url="/services/detlab/api/v1/usage?format=csv",
        style_url="/s.css",
        icon_url="/i.svg",
    )
    return page.decode()


class Skeleton(HTMLParser):
    """The tags of a page with the names of their attributes, as a browser reads it."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, ...]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, *(name for name, _ in attrs)))


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_adds_no_tag_and_no_attribute_to_the_plain_page(name: str) -> None:
    page = plain(name)
    assert Skeleton(page).tags == Skeleton(plain("ada")).tags
    assert shown(name) in page
    assert not re.search("[\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]", page)


@pytest.mark.parametrize("name", HOSTILE)
def test_the_link_to_the_server_of_a_hostile_name_is_theirs(name: str) -> None:
    link = re.search(r'class="button" href="([^"]+)"', plain(name))
    assert link is not None
    assert re.fullmatch(r"/hub/spawn/[\w.~%-]+", link[1], re.ASCII)
    assert unquote(link[1].removeprefix("/hub/spawn/")) == name


def test_characters_that_hide_or_reorder_are_written_out() -> None:
    assert visible("a\u202egnp.exe\u202c") == "a⟨U+202E⟩gnp.exe⟨U+202C⟩"
    assert visible("a\x00b\x08\x1b[31m") == "a⟨U+0000⟩b⟨U+0008⟩⟨U+001B⟩[31m"
    assert visible("\u200b\ufeff\U000e0041") == "⟨U+200B⟩⟨U+FEFF⟩⟨U+E0041⟩"
    assert visible("tab\tand\nline ä 漢 😀") == "tab\tand\nline ä 漢 😀"
    assert visible("one\nline\ud800", keep="") == "one⟨U+000A⟩line⟨U+D800⟩"


def test_they_are_the_characters_that_the_views_write_out() -> None:
    source = TEXT_TS.read_text(encoding="utf-8")
    lines = re.findall(r"^const (?:INVISIBLE|CONTROL) = (.+);$", source, re.MULTILINE)
    members = re.findall(r"\[([^\]]+)\]", "".join(lines))
    assert len(members) == 3
    theirs = re.compile(f"[{''.join(members).replace('u{', 'U000').replace('}', '')}]")
    for code in (*range(0xD800), *range(0xE000, 0x11000), *range(0xE0000, 0xE0100)):
        letter = chr(code)
        assert (visible(letter) != letter) == bool(theirs.fullmatch(letter)), hex(code)


def test_an_error_page_shows_what_was_asked_for_as_text() -> None:
    name = "<b>\u202ex"
    page = pages._ERROR.generate(
        shown=shown,
        title="Not found",
        message=name,
        hint=name,
        status=404,
        home_url="/",
        hub_url="/hub/",
        style_url="",
    ).decode()
    assert page.count("&lt;b&gt;⟨U+202E⟩x") == 2
    assert "<b>" not in page
