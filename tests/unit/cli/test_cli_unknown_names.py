"""What is said of a name that is none of those that there are."""

from __future__ import annotations

from detlab.cli.output.unknown_names import no_such_name


def test_the_names_that_there_are_are_said_those_that_look_like_it_first() -> None:
    error = no_such_name("trial 7 has no 'smples'", "smples", {"a", "b", "samples"}, hint="det trial media list 7")
    assert error.message == "trial 7 has no 'smples': there are samples, a, b"
    assert error.hint == "det trial media list 7"


def test_many_names_are_counted_and_hostile_ones_are_shown_as_text() -> None:
    many = no_such_name("no x", "x", [f"n{number:02}" for number in range(12)], hint="")
    assert many.message.endswith("n08, n09, and 2 more")
    assert "\x1b" not in no_such_name("no x", "x", ["\x1b[31m"], hint="").message
    assert no_such_name("no x", "x", [], hint="").message == "no x: it has none at all"
