"""The lines of a spawn page, for who comes early and who comes late."""

import asyncio

from detlab_hub.spawners.progress import KEPT, News


async def read(news):
    return [line async for line in news.lines()]


async def test_late_readers_get_the_history_and_all_get_what_comes():
    news = News()
    news.say(10, "one")
    early = asyncio.create_task(read(news))
    await asyncio.sleep(0)
    news.say(20, "two")
    news.say(20, "two")
    late = asyncio.create_task(read(news))
    await asyncio.sleep(0)
    news.say(5, "three")
    news.close()
    assert await early == await late == [(10, "one"), (20, "two"), (20, "three")]


async def test_a_second_start_begins_anew_for_those_who_read_already():
    news = News()
    news.say(10, "one")
    reader = asyncio.create_task(read(news))
    await asyncio.sleep(0)
    news.begin()
    news.say(3, "again")
    await asyncio.sleep(0)
    news.close()
    assert await reader == [(10, "one"), (3, "again")]


async def test_only_so_many_lines_are_kept():
    news = News()
    for number in range(KEPT + 50):
        news.say(1, str(number))
    news.close()
    lines = await read(news)
    assert len(lines) == KEPT
    assert lines[-1] == (1, str(KEPT + 49))
