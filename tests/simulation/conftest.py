"""Chunks of seeds and planted bugs share nothing: any worker may run any of them."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Make a group of each test, in place of one per file."""
    if not config.pluginmanager.hasplugin("xdist"):
        return
    for item in items:
        if item.path.is_relative_to(HERE):
            item.own_markers[:] = [mark for mark in item.own_markers if mark.name != "xdist_group"]
            item.add_marker(pytest.mark.xdist_group(item.name))
