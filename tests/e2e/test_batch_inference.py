"""examples/batch_inference on a real cluster: a registered model labels all digits in two processes, with a pause."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from spine_lab import Lab, until

from detlab.errors import ConfigError

pytestmark = [pytest.mark.hub, pytest.mark.timeout(300)]

EXAMPLES = Path(__file__).parents[2] / "examples"
MINUTE = 60
ONE_THREAD = {"environment_variables": ["OMP_NUM_THREADS=1", "BATCH_SECONDS=0.4"]}


def config_of(path: str, **searcher: Any) -> dict[str, Any]:
    config: dict[str, Any] = yaml.safe_load((EXAMPLES / path).read_text(encoding="utf-8"))
    config["searcher"] |= searcher
    return {**config, "environment": ONE_THREAD}


@pytest.mark.soak
def test_a_registered_model_is_scored_once_over_with_a_pause_and_its_version_says_how_good_it_is(
    lab: Lab, tmp_path: Path
) -> None:
    config = config_of("digits_trial/const.yaml")
    config["hyperparameters"]["max_epochs"] = 4
    trained = lab.completed(lab.client.create_experiment(config, EXAMPLES / "digits_trial"), 2 * MINUTE)
    version = lab.client.create_model("digits-to-score").register_version(experiment_id=trained.id)

    wanted = config_of("batch_inference/score.yaml", source_checkpoint_uuid=version.checkpoint_uuid)
    scored = lab.client.create_experiment(wanted, EXAMPLES / "batch_inference")
    trial = lab.first_trial(scored)
    until("the first part of the output", lambda: trial.reload().view.latest_checkpoint, 2 * MINUTE)
    scored.pause()
    until("the pause", lambda: not lab.slots_of(scored), MINUTE)
    scored.activate()
    lab.completed(scored, 2 * MINUTE)

    trial.reload()
    assert (trial.view.run, trial.view.restarts) == (2, 0)
    (output,) = (one for one in trial.list_checkpoints() if one.view.state == "COMPLETED")
    folder = output.download(tmp_path / "labels")
    lines = [line for path in folder.rglob("*.jsonl") for line in path.read_text().splitlines()]
    assert sorted(json.loads(line)["index"] for line in lines) == list(range(1797))
    said = json.loads((folder / "outputs.json").read_text())
    assert (said["complete"], said["source"]) == (True, version.checkpoint_uuid)
    assert [one["rank"] for one in said["ranks"]] == [0, 1]

    with pytest.raises(ConfigError, match="has used no checkpoint"):
        version.add_evaluation(trained.list_trials()[0].id)
    noted = version.add_evaluation(trial.id, name="all digits")
    assert noted["metrics"]["accuracy"] > 0.8
    fresh = lab.client.get_model("digits-to-score").get_version()
    assert fresh.evaluations == {trial.id: noted}
    assert noted["output"] == output.uuid
    assert (noted["name"], noted["experiment"]) == ("all digits", scored.id)
