"""Filters and regular expressions of output, through the services: pages join, and no expression holds anybody up."""

from __future__ import annotations

import re

import pytest
from services_scripted import ALICE, config

from detlab_hub.services.experiments.trials import Trials
from detlab_hub.services.logs import log_search
from detlab_hub.services.logs.log_search import BadRegex, required_text
from detlab_hub.store.queries.logs import chunks
from detlab_hub.store.queries.logs import lines as logs


def says(count: int):
    def script(launch):
        for n in range(count):
            yield ("log", n % 2, f"step {n} loss={'nan' if n % 5 == 4 else n} " + "a" * 40 + "b")
        yield ("metrics", "validation", 1, {"loss": 1.0})

    return script


async def spoken(make_world, count: int = 20):
    world = await make_world(says(count))
    await world.add_agent()
    made = await world.submit(config())
    await world.finish(made.id)
    (trial,) = await world.trials(made.id)

    async def ask(**wanted):
        lines, edges = await world.services[Trials].logs(ALICE, trial.id, **wanted)
        return [int(line.text.split()[1]) for line in lines], edges

    return ask


async def test_an_expression_by_pages_forwards_and_backwards(make_world, monkeypatch):
    monkeypatch.setattr(log_search, "REGEX_LINES", 3)
    ask = await spoken(make_world)
    assert (await ask(regex=r"loss=(nan|inf)\b"))[0] == [4, 9, 14, 19]
    first, edges = await ask(regex=r"loss=(nan|inf)\b", limit=3)
    assert first == [4, 9, 14]
    assert (await ask(regex=r"loss=(nan|inf)\b", after=edges.next))[0] == [19]
    last, edges = await ask(regex="loss=nan", tail=3)
    assert last == [9, 14, 19]
    assert (await ask(regex="loss=nan", before=edges.older))[0] == [4]
    assert (await ask(regex="loss=nan", rank=1))[0] == [9, 19]
    assert (await ask(regex="LOSS=nan"))[0] == [], "an expression minds the case"
    assert (await ask(regex="(?i)LOSS=nan", search="step 1"))[0] == [14, 19]


async def test_an_expression_looks_at_so_many_lines_and_says_where_to_go_on(make_world, monkeypatch):
    monkeypatch.setattr(log_search, "REGEX_LINES", 2)
    monkeypatch.setattr(log_search, "REGEX_MOST", 4)
    ask = await spoken(make_world)
    found, after, asked = [], 0, 0
    while after is not None:
        part, edges = await ask(regex="[n]an", after=after)
        found, after, asked = found + part, edges.next, asked + 1
    assert found == [4, 9, 14, 19]
    assert asked > 4


async def test_an_expression_behind_a_filter_that_nothing_passes_ends_its_page(make_world, monkeypatch):
    """Each empty answer of the database counted for nothing: one page walked the whole log."""
    monkeypatch.setattr(chunks, "CHUNK_CHARS", 1)  # a line in each
    monkeypatch.setattr(chunks, "SMALL_CHARS", 0)
    monkeypatch.setattr(logs, "SCAN", 2)
    monkeypatch.setattr(log_search, "REGEX_MOST", 3 * log_search.REGEX_LINES)
    ask = await spoken(make_world)
    assert await ask(regex="nowhere.*x") == ([], logs.Edges(next=6))
    assert await ask(regex="nowhere.*x", after=6) == ([], logs.Edges(next=12))
    monkeypatch.setattr(log_search, "PAGE_SECONDS", 0.0)
    assert await ask(regex="nowhere.*x") == ([], logs.Edges(next=2))
    monkeypatch.setattr(log_search, "PAGE_SECONDS", 3.0)
    assert await ask(regex="[n]an", before=20) == ([4, 9, 14], logs.Edges())


@pytest.mark.parametrize(
    ("regex", "says", "instead"),
    [
        ("(", "missing )", "Syntax"),
        (r"loss(?=nan)", "invalid perl operator", "lookahead"),
        (r"(a|b)\1", "invalid escape", "backreferences"),
        (r"a{2000}", "repetition size", "x\\+"),
        ("x" * 900 + ".{900}", "too large", "repeat less"),
    ],
)
async def test_what_re2_does_not_take_is_refused_with_what_to_write_instead(make_world, regex, says, instead):
    ask = await spoken(make_world, 1)
    with pytest.raises(BadRegex, match=re.escape(says)) as refused:
        await ask(regex=regex)
    assert re.search(instead, refused.value.hint)


async def test_an_expression_without_end_in_pythons_engine_is_one_like_others(make_world):
    ask = await spoken(make_world)
    assert (await ask(regex=r"(a+)+$"))[0] == []
    assert (await ask(regex=r"step 7 .*(a+)+b$"))[0] == [7]


async def test_an_expression_that_takes_all_its_time_ends_the_page_at_a_line(make_world, monkeypatch):
    """Linear in the text is not quick: the clock is looked at after each line."""
    monkeypatch.setattr(log_search, "PAGE_SECONDS", 0.0)
    ask = await spoken(make_world, 6)
    found, after, asked = [], 0, 0
    while after is not None:
        part, edges = await ask(regex="[s]tep [24]", after=after)
        found, after, asked = found + part, edges.next, asked + 1
    assert (found, asked) == ([2, 4], 6)
    found, before = [], 10**6
    while before is not None:
        part, edges = await ask(regex="[s]tep [24]", before=before)
        found, before = [*part, *found], edges.older
    assert found == [2, 4]


async def test_streams_and_times(make_world):
    ask = await spoken(make_world)
    assert (await ask(stream="stderr"))[0] == []
    assert len((await ask(stream="stdout"))[0]) == 20
    begin = 1_000_000.0
    part = (await ask(since=begin + 3, until=begin + 6))[0]
    assert 0 < len(part) < 20
    assert part == list(range(part[0], part[-1] + 1))


@pytest.mark.parametrize(
    ("regex", "text"),
    [
        ("loss=(nan|inf)", "loss="), ("loss", "loss"), ("ab*", "a"), ("a?", None), ("a|b", None), ("(a)|b", None),
        (r"a(?#()|b", None), ("x[|]", None), (r"a\|b", "a"), (".*x", None), ("", None), ("a+", "a"), ("(?i)x", None),
        ("ab{0}", "a"),
    ],
)  # fmt: skip
def test_the_text_that_a_match_begins_with(regex, text):
    assert required_text(regex) == text


async def test_lines_that_fit_come_with_what_stands_around_them(make_world, monkeypatch):
    ask = await spoken(make_world)
    found, edges = await ask(regex="[n]an", context=1)
    assert found == [3, 4, 5, 8, 9, 10, 13, 14, 15, 18, 19]
    beside = [place for place, _ in enumerate(found) if found[place] % 5 != 4]
    lines = (await ask(tail=0, context=5))[0]
    assert lines == [], "nothing fits, nothing stands around it"
    assert len(edges.context) == len(beside)
    assert (await ask(regex="[n]an", context=1, tail=1))[0] == [18, 19]
    assert (await ask(regex="[n]an", context=2, rank=1))[0] == [7, 9, 11, 17, 19], "of the rank that was asked for"
    assert (await ask(search="loss=nan", context=20))[0] == [*range(20)]
    assert (await ask(context=3, limit=4))[0] == [0, 1, 2, 3], "without a filter there is nothing to add"


async def test_a_page_with_context_is_bounded_and_says_where_to_go_on(make_world, monkeypatch):
    monkeypatch.setattr(log_search, "MOST_WITH_CONTEXT", 2)
    ask = await spoken(make_world)
    found, edges = await ask(regex="[n]an", context=1, tail=100)
    assert found == [13, 14, 15, 18, 19]
    assert (await ask(regex="[n]an", context=1, before=edges.older))[0] == [3, 4, 5, 8, 9, 10]
    found, edges = await ask(regex="[n]an", context=1)
    assert (found, (await ask(regex="[n]an", context=1, after=edges.next))[0]) == (
        [3, 4, 5, 8, 9, 10],
        [13, 14, 15, 18, 19],
    )
    monkeypatch.setattr(log_search, "PAGE_BYTES", 2 * 600)
    found, edges = await ask(regex="[n]an", context=20)
    assert 4 in found
    assert len(found) < 20
