"""What of a terminal's repeated output is new, however much of it the server has dropped meanwhile."""

import random
from collections import deque

import pytest

from detlab.cli.terminal.output import KEPT_PIECES, SeenOutput, overlaps


class Server:
    """A terminal's pieces as its server keeps them, and what a client hears of them."""

    def __init__(self):
        self.kept = deque(maxlen=KEPT_PIECES)
        self.said = ""
        self.seen = SeenOutput()
        self.written = ""

    def say(self, piece, *, heard=True):
        self.kept.append(piece)
        self.said += piece
        if heard:
            self.seen.add(piece)
            self.written += piece

    def reconnect(self):
        """The client hears all that is kept; return whether it knew a part of it."""
        fresh = self.seen.fresh_of("".join(self.kept))
        self.written += "".join(self.kept) if fresh is None else fresh
        return fresh is not None


@pytest.mark.parametrize("before", [1, 30, 999, 1000, 1001, 2500])
@pytest.mark.parametrize("meanwhile", [0, 1, 700, 999])
def test_nothing_is_written_twice_and_nothing_is_missing(before, meanwhile):
    server = Server()
    for number in range(before):
        server.say(f"{number}\r\n")
    for number in range(meanwhile):
        server.say(f"missed {number}\r\n", heard=False)
    assert server.reconnect()
    assert server.written == server.said
    server.say("after\r\n")
    server.say("lost\r\n", heard=False)
    assert server.reconnect(), "once more, of what came in one piece"
    assert server.written == server.said


@pytest.mark.parametrize("seed", range(20))
def test_pieces_of_any_size_through_many_cuts(seed):
    draw = random.Random(seed)
    server = Server()
    for number in range(draw.choice([40, 1500, 4000])):
        server.say(f"{number} " * draw.randint(1, 4))
        if draw.random() < 0.005:
            for more in range(draw.randint(0, 300)):
                server.say(f"{number}.{more}\n", heard=False)
            assert server.reconnect()
            assert server.written == server.said


def test_a_gap_is_noticed():
    server = Server()
    for number in range(10):
        server.say(f"{number}\r\n")
    for number in range(KEPT_PIECES):
        server.say(f"missed {number}\r\n", heard=False)
    assert not server.reconnect()
    assert server.written.endswith("9\r\nmissed 0\r\n" + server.written.partition("missed 0\r\n")[2])
    assert server.written.count("missed") == KEPT_PIECES


def test_before_a_first_word_all_is_new():
    server = Server()
    server.say("hello", heard=False)
    assert server.reconnect()
    assert server.written == "hello"


def test_lines_that_are_all_the_same_are_never_written_again():
    server = Server()
    for _ in range(2 * KEPT_PIECES):
        server.say("y\r\n")
    assert server.reconnect()
    assert server.written == server.said


def test_overlaps_are_all_found_the_longest_first():
    draw = random.Random(0)
    for _ in range(2000):
        known, said = ("".join(draw.choices("ab", k=draw.randint(0, 9))) for _ in range(2))
        found = [n for n in range(min(len(known), len(said)), 0, -1) if said.startswith(known[-n:])]
        assert list(overlaps(known, said))[:1] == found[:1], (known, said)
        if not (known and said.startswith(known)):
            assert list(overlaps(known, said)) == found, (known, said)
