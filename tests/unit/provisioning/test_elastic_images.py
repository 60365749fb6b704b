"""The image of the master has what its pools' providers need."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PROVIDERS = {"aws": "boto3", "gcp": "google-cloud-compute"}
"""Extra of each provider with an SDK of its own, and a package that it is for."""


@pytest.mark.parametrize(("extra", "package"), PROVIDERS.items())
def test_the_image_of_the_master_has_the_sdk_of_each_provider(extra: str, package: str) -> None:
    """It had boto3 alone: a pool with `provider: {type: gcp}` could not launch."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert any(one.startswith(package) for one in project["optional-dependencies"][extra])
    dockerfile = (ROOT / "deploy/images/hub.Dockerfile").read_text(encoding="utf-8")
    (extras,) = re.findall(r"^ARG EXTRAS=(\S+)$", dockerfile, re.MULTILINE)
    assert extra in extras.split(",")
