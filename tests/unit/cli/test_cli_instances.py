"""`det cluster instances`, against a scripted master."""

from __future__ import annotations

from detlab.schemas.elasticwire import ElasticPoolView, InstanceView, ProviderErrorView

HOSTILE = "\x1b[31mred\x1b]0;x\x07"


def test_instances_and_what_went_wrong(det, det_json, master) -> None:
    assert "No elastic pools" in det("cluster", "instances").stdout
    master.elastic_pools = [
        ElasticPoolView(
            name="gpu",
            min_instances=0,
            max_instances=4,
            wanted=2,
            held_back="the last launch failed: tried again in 10 s",
            instances=[InstanceView(id="i-1", agent_id="gpu-1", state="running", agent_state="connected", spot=True)],
            errors=[
                ProviderErrorView(time=1.0, times=3, doing="launch", trouble="capacity", message=HOSTILE, hint="h")
            ],
        )
    ]
    text = det("cluster", "instances").stdout
    assert "\x1b" not in text
    assert "i-1" in text
    assert "Pool gpu: 1 instance (0 to 4), 2 more are wanted" in text
    assert "waits: the last launch failed" in text
    assert "launch (3 times)" in text
    assert "→ h" in text
    (pool,) = det_json("cluster", "instances")
    assert pool["errors"][0]["trouble"] == "capacity"
