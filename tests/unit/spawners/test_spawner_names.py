"""The names under which a Hub finds the spawners."""

import importlib
import tomllib
from pathlib import Path

import pytest
from jupyterhub.spawner import Spawner

PROJECT = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.mark.parametrize(("name", "where"), PROJECT["entry-points"]["jupyterhub.spawners"].items())
def test_a_named_spawner_is_one(name, where):
    module, _, attribute = where.partition(":")
    assert issubclass(getattr(importlib.import_module(module), attribute), Spawner), name
