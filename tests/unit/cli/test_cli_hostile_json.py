"""JSON on a terminal: its meaning is kept, and nothing in it is obeyed."""

from __future__ import annotations

import json

import pytest

from detlab.cli.output.printing import clean, json_text, say_json

HOSTILE = (
    "\x1b[31m\x9b2J\x9d0;x\x9c \x7f \u202egnp\u2066\u200f\u061c\u2028 \ufeff \b tab\tline\n <script> \U0001f600"
    "\u200b\xad\U000e0041"
)
OBEYED = set(map(chr, [*range(0x20), *range(0x7F, 0xA0)])) - {"\n"} | set(
    "\u202e\u2066\u200f\u061c\u2028\ufeff\u200b\xad\U000e0041"
)


@pytest.mark.parametrize("value", [HOSTILE, {HOSTILE: [HOSTILE]}, [{"a": {HOSTILE: HOSTILE}}]])
def test_json_keeps_its_meaning_and_controls_no_terminal(capsys, value):
    say_json(value)
    printed = capsys.readouterr().out
    assert json.loads(printed) == value
    assert not set(printed) & OBEYED
    assert "\U0001f600" in printed


def test_a_line_of_a_log_as_json_is_the_same(capsys):
    text = json_text(json.dumps({"text": HOSTILE}, ensure_ascii=False))
    assert json.loads(text) == {"text": HOSTILE}
    assert not set(text) & OBEYED


def test_a_text_in_a_table_loses_what_a_terminal_obeys():
    assert not set(clean(HOSTILE, lines=True)) & (OBEYED - {"\t"})
