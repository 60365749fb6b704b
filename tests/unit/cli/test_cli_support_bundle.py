"""`support-bundle`: what helps is in it, in a bounded size, and none of the secrets that are planted everywhere."""

from __future__ import annotations

import json
import stat
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from detlab.cli.output import support_archive
from detlab.cli.output.redaction import Redactor, is_secret_name
from detlab.schemas.expconf.raw.secret_keys import MASK
from detlab.schemas.wire import FailureView
from testbed.fake_master.api import FakeMaster

Det = Callable[..., Result]
PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIplantedpem7\nQ29udGVudA==\n-----END RSA PRIVATE KEY-----"
PLANTED = [f"planted-{word}" for word in (
    "variable", "registry", "secret", "pod", "store", "url", "bearer", "printed", "query", "json", "session", "setting",
)]  # fmt: skip
CONFIG = {
    "name": "digits",
    "environment": {
        "environment_variables": {"cpu": ["WANDB_API_KEY=planted-variable", "EPOCHS=17"]},
        "registry_auth": {"username": "planted-registry", "server": "planted-registry"},
        "pod_spec": {"env": [{"name": "DB_PASSWORD", "value": "planted-pod"}, {"name": "MODE", "value": "fast-mode"}]},
    },
    "data": {"secrets": {"hub": "planted-secret"}, "path": "s3://bucket/data"},
    "checkpoint_storage": {"type": "s3", "secret_key": "planted-store", "bucket": "kept-bucket"},
    "hyperparameters": {"tokenizer": "bert-base", "max_tokens": 512},
}
OUTPUT = [
    "out of memory at step 41",
    "using planted-variable and planted-pod for the upload",
    "connect to postgres://ada:planted-url@db.example/x",
    "again with planted-url",
    "Authorization: Bearer planted-bearer",
    "login with password=planted-printed now",
    "GET https://store.example/a?sig=planted-query&part=1",
    '{"api_key": "planted-json", "lr": 0.1}',
    "session_token: planted-session",
    PEM.splitlines()[0], *PEM.splitlines()[1:],
    "ghp_abcdefghijklmnopqrstuvwxyz0123456789 AKIAABCDEFGHIJKLMNOP",
    "tokens_per_second=512 tokenizer=bert-base",
    "the token of this shell: a-token",
]  # fmt: skip
SECRETS = [*PLANTED, "MIIplantedpem7", "Q29udGVudA", "ghp_abcdef", "AKIAABCDEFGHIJKLMNOP"]


def content(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as archive:
        return {Path(one.name).name: archive.extractfile(one).read() for one in archive}  # type: ignore[union-attr]


def no_secret(files: dict[str, bytes]) -> None:
    found = {(secret, name) for name, data in files.items() for secret in SECRETS if secret.encode() in data}
    assert found == set()


def a_trial(master: FakeMaster) -> int:
    failure = FailureView(kind="exception", message="died with planted-variable", log_tail=["password=planted-printed"])
    number = master.add_experiment(config=CONFIG).id
    trial = master.add_trial(number, failure=failure)
    for line in OUTPUT:
        master.log(trial.id, line, rank=0)
    return number


@pytest.mark.parametrize(
    "words", [("trial", "support-bundle", 1), ("support-bundle", "trial-1"), ("support-bundle", 1)]
)
def test_no_planted_secret_is_in_it(master: FakeMaster, det: Det, workplace: Path, words: tuple[Any, ...]) -> None:
    a_trial(master)
    done = det(*words, "-o", "help")
    assert done.exit_code == 0, done.output
    (path,) = (workplace / "help").iterdir()
    files = content(path)
    no_secret(files)
    whole = b"".join(files.values())
    for kept in ("EPOCHS=17", "fast-mode", "kept-bucket", "s3://bucket/data", "out of memory at step 41", "bert-base",
                 "tokens_per_second=512", "@db.example/x", "store.example/a", '"max_tokens": 512'):  # fmt: skip
        assert kept.encode() in whole, kept
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert all(name in done.stdout for name in files), "what is in it is listed"


def test_of_a_task(master: FakeMaster, det_json: Any, workplace: Path) -> None:
    view = master.add_task("command", config={"environment": CONFIG["environment"], "entrypoint": "train"})
    told = det_json("support-bundle", view.id)
    files = content(workplace / told["path"])
    no_secret(files)
    assert json.loads(files["task.json"])["id"] == view.id
    assert [one["name"] for one in told["files"]] == list(files)
    assert all(one["bytes"] == len(files[one["name"]]) for one in told["files"])


def test_of_the_cluster_where_a_part_of_it_is_broken(master: FakeMaster, det_json: Any, workplace: Path) -> None:
    line = {"id": 1, "at": 1.0, "level": "error", "logger": "detlab", "text": "smtp password: planted-setting"}
    setting = {"name": "smtp_password", "value": "planted-setting", "is_default": False, "help": ""}
    master.answers |= {
        "master/config": {"settings": [setting], "log_level": "info"},
        "master/logs": {"items": [line], "last": 1},
        "service": {"ok": False, "items": [{"name": "database", "detail": "postgres://det:planted-url@db/x"}]},
        "jobs": {"items": []},
        "limits": {"items": []},
        "instances": {"items": []},
    }
    told = det_json("master", "support-bundle")
    files = content(workplace / told["path"])
    no_secret(files)
    assert b"smtp_password" in files["settings.json"]
    assert b"detlab: smtp" in files["master-log.txt"]
    assert list(json.loads(files["errors.json"])) == ["metrics"], "what could not be read is named"


def test_who_may_not_read_the_cluster_gets_no_file(master: FakeMaster, det: Det, workplace: Path) -> None:
    before = sorted(workplace.iterdir())
    assert det("master", "support-bundle").exit_code == 1
    assert sorted(workplace.iterdir()) == before


def test_it_stays_small_and_says_what_is_a_part(
    master: FakeMaster, det_json: Any, workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(support_archive, "MOST_BYTES", 2000)
    number = master.add_trial(master.add_experiment().id).id
    for step in range(300):
        master.log(number, f"step {step} " + "x" * 50)
    master.log(number, "y" * 50_000)
    master.log(number, "the end")
    told = det_json("trial", "support-bundle", number)
    files = content(workplace / told["path"])
    assert max(map(len, files.values())) <= 2000
    assert [one["cut"] for one in told["files"] if one["name"] == "output.txt"] == [True]
    assert b"the end" in files["output.txt"]


def test_a_link_of_a_neighbour_is_not_written_through(master: FakeMaster, det: Det, workplace: Path) -> None:
    master.add_trial(master.add_experiment().id)
    precious = workplace / "precious"
    precious.write_text("mine")
    (workplace / "trial-1-support.tar.gz").symlink_to(precious)
    assert det("trial", "support-bundle", 1).exit_code == 0
    assert precious.read_text() == "mine"
    assert "trial.json" in content(workplace / "trial-1-support.tar.gz")


@pytest.mark.parametrize(
    "text",
    [
        "tokens: 512",
        "tokenizer=bert",
        "num_tokens = 7",
        "loss=0.1",
        "key: value",
        "password_file=/etc/x",
        "token=None",
        "ssh -p 2222 node1",
        "--token-file /etc/x --lr 0.1",
        "--max-tokens 512 --no-password --lr 0.1",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert Redactor().text(text) == text


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("GITHUB_TOKEN=abcdef1", f"GITHUB_TOKEN={MASK}"),
        ("'aws_secret_access_key': 'a b c d'", f"'aws_secret_access_key': '{MASK}'"),
        ("--password hunter2x --api-key=k1", f"--password {MASK} --api-key={MASK}"),
        ("mysql -u ada --db-password 'a b' -p hunter2 -h x", f"mysql -u ada --db-password '{MASK}' -p {MASK} -h x"),
        ("curl -phunter2 --token abc", f"curl -phunter2 --token {MASK}"),
        ("https://u:p@x/y", f"https://{MASK}@x/y"),
        ("Set-Cookie: a=b", f"Set-Cookie: {MASK}"),
        ("cut off: -----BEGIN PRIVATE KEY-----\nabc", f"cut off: {MASK}"),
    ],
)
def test_forms_of_secrets(text: str, left: str) -> None:
    assert Redactor().text(text) == left


def test_a_secret_among_the_words_of_a_command_is_masked_wherever_it_recurs() -> None:
    """A password on a command line was kept unless a variable had it too."""
    words = ["python", "train.py", "--wandb-api-key", "swordfish", "-p", "hunter2x", "--lr", "0.1", "--port", "80"]
    redactor = Redactor()
    assert redactor.value(words) == [*words[:3], MASK, "-p", MASK, *words[6:]]
    assert redactor.text("logged in with hunter2x") == f"logged in with {MASK}"


def test_long_lines_take_no_long_time() -> None:
    for word in ("a" * 200_000, "token" * 40_000, "://" * 60_000, "-----BEGIN PRIVATE KEY-----" * 5000, "=" * 200_000):
        assert Redactor().text(word) is not None


@pytest.mark.parametrize("name", ["token", "AUTH_TOKEN", "password", "db_passwd", "client_secret", "auth", "X-Api-Key"])
def test_names_of_secrets(name: str) -> None:
    assert is_secret_name(name)
