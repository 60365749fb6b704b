"""The registry of plug-ins: names, what is loaded when, and what is told of one that is missing or broken."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from detlab.errors import StorageError
from detlab.plugins import PluginError, Plugins

GROUP = "detlab_tests.things"


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], None]]:
    """Install a package with entry points of `GROUP`."""

    def add(package: str, points: str) -> None:
        info = tmp_path / f"{package.replace('-', '_')}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[{GROUP}]\n{points}\n")

    with monkeypatch.context() as patch:
        patch.syspath_prepend(str(tmp_path))
        yield add


def test_names_are_known_without_any_import(install):
    install("theirs", "two = no_such_module:thing")
    assert Plugins(GROUP, "thing", {"one": "neither_this:thing"}).names() == ["one", "two"]


def test_an_object_is_loaded_by_its_name(install):
    install("theirs", "two = json:loads")
    things = Plugins(GROUP, "thing", {"one": "json:dumps"})
    assert [things.load("one")(1), things.load("two")("2")] == ["1", 2]
    assert [things.origin("one"), things.origin("two")] == ["json:dumps", "json:loads"]


def test_what_is_built_in_is_found_without_metadata(monkeypatch):
    monkeypatch.setitem(sys.modules, "importlib.metadata", None)
    assert Plugins(GROUP, "thing", {"one": "json:dumps"}).load("one")(1) == "1"


@pytest.mark.parametrize("order", [["theirs", "detlab-not-us"], ["detlab-not-us", "theirs"]])
def test_no_package_takes_a_name_that_is_built_in(install, order):
    for package in order:
        install(package, "one = json:loads")
    assert Plugins(GROUP, "thing", {"one": "json:dumps"}).origin("one") == "json:dumps"


@pytest.mark.parametrize("order", [["another", "detlab"], ["detlab", "zebra"]])
def test_no_package_takes_a_name_of_detlabs_entry_points(install, order):
    for package in order:
        install(package, f"one = {'json:dumps' if package == 'detlab' else 'json:loads'}")
    assert Plugins(GROUP, "thing").origin("one") == "json:dumps"


def test_a_package_that_comes_later_is_found_when_one_looks_anew(install):
    things = Plugins(GROUP, "thing")
    assert things.names() == []
    install("theirs", "two = json:loads")
    assert things.names() == []
    things.forget()
    assert things.names() == ["two"]


@pytest.mark.parametrize(
    ("name", "hint"),
    [("jsn", "did you mean 'json'?"), ("x", f"entry point of this name in {GROUP}"), (None, "name one")],
)
def test_a_name_that_is_not_installed_is_told_with_those_that_are(name, hint):
    with pytest.raises(StorageError) as told:
        Plugins(GROUP, "thing", {"json": "json:dumps", "yaml": "yaml:dump"}, StorageError).load(name)
    assert told.value.message == f"there is no thing {name!r} here; installed: json, yaml"
    assert hint in (told.value.hint or "")


def test_where_nothing_is_installed_detlab_is_damaged():
    with pytest.raises(PluginError, match="installed: none\nreinstall detlab: its entry points are missing"):
        Plugins(GROUP, "thing").load("one")


def test_one_that_cannot_be_imported_is_told_with_its_package_and_the_reason(install):
    install("theirs", "two = no_such_module:thing\nthree = json:no_such_name")
    things = Plugins(GROUP, "thing")
    with pytest.raises(PluginError) as told:
        things.load("two")
    assert "thing 'two' of theirs (no_such_module:thing) cannot be loaded: ModuleNotFoundError" in told.value.message
    assert told.value.hint == "install what it needs, or another version of it: pip install --upgrade theirs"
    assert isinstance(told.value.__cause__, ImportError)
    with pytest.raises(PluginError, match=r"'three' of theirs .* cannot be loaded: AttributeError"):
        things.load("three")


def test_an_extra_of_detlab_is_named(install):
    with pytest.raises(PluginError) as told:
        Plugins(GROUP, "thing", {"one": "no_such_module:thing"}, extras={"one": "hub"}).load("one")
    assert told.value.hint == "install what it needs: pip install --upgrade 'detlab[hub]'"
