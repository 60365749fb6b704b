"""The account that a task is shown of itself: one line, and nobody else's name."""

from __future__ import annotations

import pytest

from detlab.launch.host.accounts import group_with, name_of, passwd_with

PASSWD = "root:x:0:0:root:/root:/bin/sh\ndaemon:x:1:1::/:/usr/sbin/nologin"


@pytest.mark.parametrize("name", ["root", "daemon"])
def test_nobody_gets_the_name_of_an_account_that_is_there(name: str) -> None:
    assert name_of(20_000, {"USER": name}, PASSWD) == "det20000"
    assert name_of(20_000, {"USER": "carol"}, PASSWD) == "carol"


@pytest.mark.parametrize(
    "environment",
    [
        {"USER": "x:x:0:0::/:/bin/sh\nmallory"},
        {"USER": "a:b"},
        {"USER": "a\nroot2:x:0:0::/:/bin/sh"},
        {"USER": "a", "HOME": "/x:/bin/sh\nroot2:x:0:0"},
        {"USER": "a", "HOME": "/x\nroot2:x:0:0::/:/bin/sh"},
        {"USER": "a", "SHELL": "/bin/sh\nroot2:x:0:0::/:/bin/sh"},
        {"USER": ""},
    ],
)
def test_what_a_user_is_called_makes_one_line_and_no_more(environment: dict[str, str]) -> None:
    lines = passwd_with(20_000, 20_001, environment, PASSWD).splitlines()
    assert lines[:2] == PASSWD.splitlines()
    assert len(lines) == 3
    name, _, uid, gid, *rest = lines[2].split(":")
    assert (uid, gid, len(rest)) == ("20000", "20001", 3)
    assert [line.split(":")[2] for line in lines].count("0") == 1
    assert group_with(20_001, name, "root:x:0:\n").splitlines() == ["root:x:0:", f"{name}:x:20001:"]
