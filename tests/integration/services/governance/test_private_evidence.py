"""Evidence of checkpoints at the level `dp`: what was spent is signed; what is not within the policy is not stored."""

from __future__ import annotations

from typing import Any

import pytest
from governed_world import declared, governed_trial
from services_scripted import ALICE

from detlab.errors import CheckpointError, DetlabError
from detlab.schemas.wire.governance.capabilities import ENFORCED
from detlab_hub.services.governance.reading import EvidenceReading, summary_of
from testbed.privacy import SPENT

POLICY: dict[str, Any] = {
    "version": 1,
    "sources": [{"name": "trusted"}, {"name": "web"}],
    "rules": [{"source": "*", "layers": ".*", "scale": 1.0}],
    "level": "dp",
    "dp": {"max_grad_norm": 1.0, "target_epsilon": 8.0, "delta": 1e-5},
}


async def private_trial(make_world: Any) -> Any:
    return await governed_trial(make_world, POLICY, pools=declared(levels=["dp"], attestation=False))


async def test_what_was_spent_is_signed_and_shown(make_world: Any) -> None:
    trial = await private_trial(make_world)
    uuid = await trial.save(5, level="dp", privacy=SPENT, order=[])
    seen = await trial.world.services[EvidenceReading].of_checkpoint(ALICE, uuid)
    assert seen.problems == []
    assert seen.predicate["segment"]["privacy"] == {"mechanism": "rdp", **SPENT}
    summary = await trial.world.services.context.read(lambda s: summary_of(s, uuid))
    assert summary is not None
    assert {one.level for one in summary.sources} == {"dp"}
    assert summary.privacy is not None
    assert summary.privacy.epsilon == 3.5


@pytest.mark.parametrize(
    "said",
    [
        {"level": "dp"},
        {"level": "direct", "privacy": SPENT},
        {"level": "dp", "privacy": {**SPENT, "epsilon": 8.5}},
        {"level": "dp", "privacy": {**SPENT, "target_epsilon": 80.0}},
        {"level": "dp", "privacy": {**SPENT, "delta": 0.1}},
        {"level": "dp", "privacy": {**SPENT, "max_grad_norm": 2.0}},
        {"level": "dp", "privacy": {**SPENT, "epsilon": -1.0}},
    ],
    ids=["nothing", "another level", "too much", "target", "delta", "norm", "negative"],
)
async def test_a_checkpoint_that_is_not_within_the_policy_is_not_committed(make_world: Any, said: Any) -> None:
    trial = await private_trial(make_world)
    with pytest.raises((CheckpointError, DetlabError)):
        await trial.save(5, **said)
    page = await trial.world.services[EvidenceReading].ledger(ALICE, trial.trial_id)
    assert [one.kind for one in page.items if one.kind == "segment"] == []


async def test_a_trial_whose_image_has_no_opacus_is_refused_by_its_pre_flight(make_world: Any) -> None:
    trial = await private_trial(make_world)
    ((code, message),) = await trial.preflight(enforces=sorted(ENFORCED))
    assert code == "ENV"
    assert "pip install 'detlab[dp]'" in message
