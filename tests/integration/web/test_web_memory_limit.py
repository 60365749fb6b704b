"""Hostile configs under a memory limit: the master refuses each in bounded time and lives; `det config check` agrees.

`tests/hostile/test_memory_of_one_request.py` measures what each costs a whole cluster's master, on all routes.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from limited_master import TOKEN

from testbed.hostile_configs import submissions, texts

PROGRAM = Path(__file__).with_name("limited_master.py")
MOST_SECONDS = 20.0
"""Far more than any of them takes, on a machine that runs other tests beside this one."""

HARMLESS = {
    "maxval: the largest float",
    "choice: the largest float",
    "constant: the largest float",
    "resources.weight: the largest float",
    "pattern: nested",
}
"""Configs that look dangerous and cost nothing: they are accepted."""
HARMLESS_JSON = {"many choices", "many variables", "many mounts"}
"""Likewise of those sent as JSON, which is read faster than YAML and so may have more values."""
TEXTS = texts()


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A client of a master that may have 300 MiB more than it has when it is idle, and that outlives all of it."""
    folder = tmp_path_factory.mktemp("master")
    log = (folder / "log").open("w+")
    process = subprocess.Popen(
        [sys.executable, PROGRAM, "master", folder], stdout=subprocess.PIPE, stderr=log, text=True
    )
    assert process.stdout is not None
    try:
        base = process.stdout.readline().strip()
        assert base, (folder / "log").read_text()
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        with httpx.Client(base_url=base, headers=headers, trust_env=False, timeout=MOST_SECONDS) as client:
            yield client
            assert client.get("health").status_code == 200
        assert process.poll() is None, (folder / "log").read_text()
        assert "MemoryError" not in (folder / "log").read_text()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        log.close()


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, float]]:
    """Exit status and seconds of `det config check` by name, under the same limit."""
    folder = tmp_path_factory.mktemp("check") / "files"
    folder.mkdir()
    for number, text in enumerate(TEXTS.values()):
        (folder / f"{number:04}.yaml").write_text(text, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, PROGRAM, "check", folder], capture_output=True, text=True, timeout=150, check=False
    )
    assert done.returncode == 0, done.stderr
    return dict(zip(TEXTS, json.loads(done.stdout).values(), strict=True))


def submit(client: httpx.Client, body: bytes) -> httpx.Response:
    """Submit, without running anything."""
    return client.post("api/v1/experiments", content=body)


@pytest.mark.parametrize("what", list(TEXTS))
def test_a_hostile_text_is_refused_by_master_and_config_check_alike(
    limited: httpx.Client, checked: dict[str, tuple[int, float]], what: str
) -> None:
    reply = submit(limited, json.dumps({"config_yaml": TEXTS[what], "dry_run": True}).encode())
    status, seconds = checked[what]
    assert (reply.status_code, status) in ({(200, 0)} if what in HARMLESS else {(422, 2), (413, 2)}), reply.text[:500]
    assert seconds < MOST_SECONDS


@pytest.mark.parametrize("what", [name for name in submissions() if not name.startswith("YAML: ")])
def test_a_hostile_config_as_json_is_refused(limited: httpx.Client, what: str) -> None:
    reply = submit(limited, json.dumps({**submissions()[what], "dry_run": True}).encode())
    assert reply.status_code in ({200} if what in HARMLESS_JSON else {413, 422}), reply.text[:500]


SIZE = 5_900_000
BODIES = {
    "beyond a float": '{"config": {"hyperparameters": {"x": 1e400}}, "dry_run": true}',
    "5,000 digits": f'{{"config": {{"max_restarts": {"9" * 5000}}}, "dry_run": true}}',
    "all digits": f'{{"config": {{"max_restarts": {"9" * SIZE}}}, "dry_run": true}}',
    "deep lists": f'{{"config": {"[" * 2_900_000}{"]" * 2_900_000}, "dry_run": true}}',
    "many values": f'{{"config": {{"labels": [{"1," * 2_900_000}1]}}, "dry_run": true}}',
    "a long text": f'{{"config": {{"name": "{"x" * SIZE}"}}, "dry_run": true}}',
    "a long YAML": json.dumps({"config_yaml": "x" * SIZE, "dry_run": True}),
    "over the limit of bodies": " " * 20_000_000,
}


@pytest.mark.parametrize("what", list(BODIES))
def test_a_hostile_body_is_refused(limited: httpx.Client, what: str) -> None:
    assert submit(limited, BODIES[what].encode()).status_code in {400, 413, 422}
