"""`det experiment share`, against a scripted master."""

from __future__ import annotations

import pytest


def test_sharing_with_a_user_and_a_group(master, det, det_json) -> None:
    master.add_experiment()
    assert det("e", "share", 1).stdout == "Experiment 1 is not shared.\n"
    shown = det("e", "share", 1, "--user", "bob").stdout.splitlines()[-1]
    assert shown.split()[:3] == ["user", "bob", "look"]
    assert "look and change" in det("e", "share", 1, "--group", "vision", "--write").stdout
    found = [(one["kind"], one["name"], one["write"]) for one in det_json("e", "share", 1)]
    assert found == [("user", "bob", False), ("group", "vision", True)]
    assert [one["name"] for one in det_json("e", "share", 1, "--user", "bob", "--remove")] == ["vision"]
    refused = det("e", "share", 1, "--user", "bob", "--remove")
    assert refused.exit_code == 1
    assert "not shared with the user 'bob'" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--user", "bob", "--group", "vision"), "run the command twice"),
        (("--write",), "name a user or a group"),
        (("--remove",), "name a user or a group"),
        (("--user", "bob", "--write", "--remove"), "without --write"),
    ],
)
def test_mistakes_are_said_before_anything_is_done(master, det, arguments: tuple[str, ...], said: str) -> None:
    master.add_experiment()
    refused = det("e", "share", 1, *arguments)
    assert refused.exit_code == 2
    assert said in refused.stderr
    assert master.grants == {}


def test_a_hostile_name_is_text_in_the_table(master, det) -> None:
    master.add_experiment()
    shown = det("e", "share", 1, "--user", "\x1b[31mbob\x1b]0;x\x07").stdout
    assert "\x1b" not in shown
    assert "\x07" not in shown


def test_who_shares_code_with_secrets_is_warned(master, det, workplace) -> None:
    """Readers of an experiment may download its code whole: the page hides values, the download does not."""
    (workplace / "code" / ".env").write_text("KEY=abc\n")
    assert det("e", "create", "search.yaml", "code").exit_code == 0
    shared = det("e", "share", 1, "--user", "bob")
    assert "the code, which they may now download, holds .env" in shared.stderr
    assert "--remove" in shared.stderr
    assert "holds" not in det("e", "share", 1).stderr
    assert "holds" not in det("e", "share", 1, "--user", "bob", "--remove").stderr
