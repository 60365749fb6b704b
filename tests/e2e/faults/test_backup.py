"""A cluster is copied while a trial runs, ends, and goes on in another folder from where the copy was made."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from spine_lab import lab_of, single, until

from testbed.cluster import Cluster, running_cluster

pytestmark = [pytest.mark.hub, pytest.mark.soak, pytest.mark.timeout(240)]

STEPS = 120


def test_a_cluster_that_was_copied_while_a_trial_ran_goes_on_elsewhere(tmp_path: Path) -> None:
    first = tmp_path / "first"
    first.mkdir()
    with running_cluster(first, slots=2) as cluster, lab_of(cluster) as lab:
        done = lab.run(single("toy.py", hparams={"steps": 3, "save_every": 1}))
        curve = lab.curve(lab.first_trial(done))
        running = lab.submit(single("toy.py", hparams={"steps": STEPS, "save_every": 2}, max_restarts=1))
        trial = lab.first_trial(running)
        lab.at_step(trial, 6)
        until("a checkpoint", lambda: lab.trial(trial).view.latest_checkpoint, 20)
        made = cluster.det("backup", "--with-checkpoints", str(tmp_path / "x.tar.gz"), "--json", check=True)
        assert json.loads(made.stdout)["parts"] == ["state", "secrets", "code", "checkpoints"]
        copied = lab.trial(trial).view.steps_completed
        token, identity = cluster.token, lab.client.get_cluster().cluster_id
        cluster.down("--timeout", "20").check_returncode()
    shutil.rmtree(first / ".detlab")  # all is lost

    second = tmp_path / "second"
    second.mkdir()
    other = Cluster(second, slots=2)
    restored = other.det("restore", str(tmp_path / "x.tar.gz"))
    assert restored.returncode == 0, restored.stderr
    assert "--take-over" in restored.stdout
    started = other.up()
    assert started.returncode == 0, started.stdout + started.stderr + other.logs()
    try:
        assert "This cluster is a copy" in started.stdout
        assert "This cluster is a copy" in other.det("status").stdout
        with lab_of(other) as lab:
            assert lab.client.get_cluster().is_copy
            assert lab.client.get_experiment(running.id).state == "ACTIVE", "it waits"
        other.down("--timeout", "20")
        started = other.up("--take-over")
        assert started.returncode == 0, started.stdout + started.stderr + other.logs()
        assert "copy" not in started.stdout
        with lab_of(other) as lab:
            assert other.token == token
            assert lab.client.get_cluster().cluster_id == identity
            assert [item.id for item in lab.client.list_experiments()] == [running.id, done.id]
            assert lab.curve(lab.first_trial(lab.client.get_experiment(done.id))) == curve
            ended = lab.completed(lab.client.get_experiment(running.id), 90)
            after = lab.first_trial(ended)
            assert lab.steps(after) == list(range(1, STEPS + 1)), "no step is missing and none is there twice"
            resumed = [int(more[0]) for _, _, more in lab.journal(after, "start")]
            assert resumed[0] == 0
            assert 0 < resumed[-1] <= copied + 2, "it went on from a checkpoint of the copy"
            new = lab.run(single("toy.py", hparams={"steps": 3}))
            assert new.id == running.id + 1
    finally:
        other.down("--timeout", "20")
