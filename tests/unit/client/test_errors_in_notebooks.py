"""What a notebook shows of an error of detlab: the lines of its own code, and what happened."""

from __future__ import annotations

import re

from IPython.core.interactiveshell import InteractiveShell

from detlab.client import Client
from detlab.errors import DetlabError, NotFound


def shown(error: DetlabError) -> str:
    return re.sub("\x1b\\[[0-9;]*m", "", "\n".join(error._render_traceback_()))


def raised_by(code: str) -> DetlabError:
    shell = InteractiveShell()
    shell.user_ns.update(Client=Client, NotFound=NotFound)
    error = shell.run_cell(code, store_history=True, silent=True).error_in_exec
    assert isinstance(error, DetlabError)
    return error


def test_a_call_that_fails_is_shown_by_the_lines_of_the_cell() -> None:
    code = 'def ask():\n    return Client("http://127.0.0.1:9", "token").get_experiment(3)\n\nask()'
    text = shown(raised_by(code))
    assert re.search(r"line 4\n----> 4 ask\(\)\n\n.*, line 2\n----> 2 return Client\(", text), text
    assert "ClusterUnreachable: no answer from http://127.0.0.1:9/" in text
    assert "det up" in text
    assert "transport" not in text
    assert len(text.splitlines()) < 10


def test_of_many_frames_the_first_and_the_last_are_shown() -> None:
    code = "def down(n):\n    if not n:\n        raise NotFound('gone', hint='det list')\n    down(n - 1)\n\ndown(50)"
    text = shown(raised_by(code))
    assert text.count("---->") == 5
    assert "----> 6 down(50)" in text
    assert text.endswith("NotFound: gone\ndet list")


def test_an_error_that_was_never_raised_is_its_message() -> None:
    assert shown(NotFound("gone")) == "NotFound: gone"
