"""A master's services are found by their classes, each made once, when it is first asked for."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path
from typing import Any, cast

import pytest

from detlab_hub import services as package
from detlab_hub.services import Services, Settings
from detlab_hub.services.admission.quotas import Quotas
from detlab_hub.services.agents.agents import Agents
from detlab_hub.services.base.context import Service
from detlab_hub.services.cluster.cluster import Cluster
from detlab_hub.services.cluster.overview import Overview
from detlab_hub.store import Store


@pytest.fixture
def services(tmp_path: Path) -> Services:
    """Those of a master whose database nobody asks."""
    return Services(cast(Store, object()), settings=Settings(state_dir=tmp_path, bundles_dir=tmp_path / "bundles"))


def classes(of: type[Any] = Service) -> set[type[Any]]:
    """All classes of services in the modules that there are."""
    for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        importlib.import_module(info.name)
    return {cls for cls in of.__subclasses__() if cls.__module__.startswith(package.__name__)}


def test_every_service_can_be_made_and_is_made_once(services: Services) -> None:
    found = {cls: services[cls] for cls in classes()}
    assert len(found) >= 55
    assert all(type(service) is cls and services[cls] is service for cls, service in found.items())


def test_a_service_is_made_when_it_is_first_asked_for(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[type[Service]] = []
    monkeypatch.setattr(Quotas, "__init__", lambda self, context: made.append(type(self)))
    assert (services[Quotas], made) == (services[Quotas], [Quotas])


def test_a_service_gets_the_others_that_it_asks_for(services: Services) -> None:
    overview = services[Overview]
    assert overview._cluster is services[Cluster]
    assert overview._agents is services[Agents], "the one that the master has made with its connections"


def test_two_masters_share_no_service(services: Services, tmp_path: Path) -> None:
    other = Services(cast(Store, object()), settings=Settings(state_dir=tmp_path, bundles_dir=tmp_path / "bundles"))
    assert other[Cluster] is not services[Cluster]
    assert other[Overview]._cluster is other[Cluster]
