"""The page on elastic pools: its configurations are read, and its table has every setting with its default."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from docs_snippets import DOCS
from traitlets.config import Config

from detlab_hub.backends.instances.aws import AwsProvider
from detlab_hub.backends.instances.configuration import Surroundings, make_pools
from detlab_hub.backends.instances.gcp import GcpProvider
from detlab_hub.backends.instances.gcp_settings import GcpSettings
from detlab_hub.backends.instances.local import LocalProvider
from detlab_hub.core.provisioning import PoolLimits
from detlab_hub.core.scheduling import read_pools

TEXT = (DOCS / "how-to" / "elastic-pools.md").read_text(encoding="utf-8")
AROUND = Surroundings(Path("instances"), "https://hub.example.org/services/detlab/", "c1")


def test_the_configurations_are_read(tmp_path: Path) -> None:
    found = []
    for text in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL):
        c = Config()
        exec(compile(text, "elastic-pools.md", "exec"), {"c": c})
        pools, mistakes = read_pools(c.DetHub.pools)
        assert not mistakes
        found += make_pools(pools, AROUND)
    local, aws, gcp = found
    assert isinstance(gcp.provider, GcpProvider)
    assert (gcp.template.slots, gcp.template.labels, gcp.limits.max_idle_agent_period) == (2, {"team": "vision"}, 600)
    assert isinstance(local.provider, LocalProvider)
    assert (local.name, local.template.slots, local.limits.max_instances) == ("elastic", 2, 4)
    assert isinstance(aws.provider, AwsProvider)
    assert (aws.template.slots, aws.template.gpu, aws.limits.max_instances) == (4, "NVIDIA A10G", 8)


def test_the_table_has_every_setting_with_its_default() -> None:
    told = {}
    for names, values in re.findall(r"^\| (`[^|]*) \| ([\d, ]+) \|", TEXT, re.MULTILINE):
        told.update(zip(re.findall(r"`(\w+)`", names), map(float, values.split(",")), strict=True))
    limits = PoolLimits()
    assert told == {field.name: float(getattr(limits, field.name)) for field in fields(PoolLimits)}


def test_the_table_of_google_cloud_has_every_setting() -> None:
    table = TEXT.partition("## On Google Cloud")[2].partition("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("| `")]
    told = {name for line in rows for name in re.findall(r"`(\w+)`", line.split("|")[1])}
    as_on_ec2 = {"setup", "agent_command", "agent_arguments", "fingerprint", "endpoint_url"}
    assert told == set(GcpSettings.model_fields) - as_on_ec2
