"""What a release promises: one version everywhere, typed packages, hashes for what is pinned, CI on each Python."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.utils import canonicalize_name

sys.path.insert(0, str(Path(__file__).parents[3] / "deploy"))
import release

ROOT = Path(__file__).parents[3]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
WORKFLOWS = {
    path.stem: yaml.safe_load(path.read_text(encoding="utf-8")) for path in ROOT.glob(".github/workflows/*.yml")
}
_PIN = re.compile(r"^([\w.-]+)(?:\[[^]]*\])?==([^\s;]+)", re.MULTILINE)


def pins(name: str) -> dict[str, str]:
    text = (ROOT / name).read_text(encoding="utf-8")
    return {canonicalize_name(package): version for package, version in _PIN.findall(text)}


def commands(job: dict[str, object]) -> list[str]:
    return [step["run"] for step in job["steps"] if "run" in step]


def test_package_and_chart_have_one_version() -> None:
    assert len(set(release.versions().values())) == 1


@pytest.fixture
def released(tmp_path: Path) -> Path:
    """A tree whose version is ready to be tagged."""
    chart = tmp_path / "deploy" / "helm" / "detlab" / "Chart.yaml"
    chart.parent.mkdir(parents=True)
    chart.write_text('version: 0.2.0\nappVersion: "0.2.0"\n')
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "0.2.0"\n')
    (tmp_path / "CHANGELOG.md").write_text(
        "## [Unreleased]\n\n## [0.2.0] - 2026-01-31\n\n- New.\n\n## [0.1.0] - 2025-12-01\n"
    )
    return tmp_path


def test_the_notes_of_a_release_are_its_part_of_the_changelog(released: Path) -> None:
    assert release.release("v0.2.0", released) == ("- New.", [])


def test_a_release_whose_parts_disagree_is_refused_with_all_that_is_wrong(released: Path) -> None:
    _, wrong = release.release("0.3.0", released)
    assert len(wrong) == 5
    assert {line.partition(" says")[0] for line in wrong[:3]} == {
        "pyproject.toml",
        "Chart.yaml (version)",
        "Chart.yaml (appVersion)",
    }
    assert "write v0.3.0" in wrong[3]
    assert "[0.3.0] - YEAR-MONTH-DAY" in wrong[4]


@pytest.mark.parametrize("package", PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"])
def test_a_package_that_is_shipped_has_types(package: str) -> None:
    assert (ROOT / package / "py.typed").exists()


def test_what_only_a_checkout_needs_is_no_extra() -> None:
    assert {"bench", "dev", "docs", "lint", "test"} <= PYPROJECT["dependency-groups"].keys()
    assert PYPROJECT["dependency-groups"].keys().isdisjoint(PYPROJECT["project"]["optional-dependencies"])


def test_the_lock_has_hashes_for_what_people_install_in_the_versions_that_are_tested() -> None:
    locked, tested = pins("requirements.lock"), pins("constraints.txt")
    assert len(locked) > 150
    assert {name: version for name, version in locked.items() if tested.get(name, version) != version} == {}, (
        "make lock"
    )
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    bare = [block for block in re.split(r"\n(?=[^\s#])", text)[1:] if "--hash=sha256:" not in block]
    assert bare == []
    extras = PYPROJECT["project"]["optional-dependencies"]
    wanted = {re.split(r"[\s\[<>=!~;]", need)[0] for name in extras for need in extras[name]} - {"detlab"}
    assert {canonicalize_name(name) for name in wanted} <= locked.keys(), "make lock"


def test_ci_does_what_a_newcomer_is_told_and_nothing_else_on_each_python() -> None:
    job = WORKFLOWS["test"]["jobs"]["contributing"]
    told = (
        (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## The first hour")[2].partition("\n## ")[0]
    )
    assert commands(job) == ["make unit"]
    assert all(f"    {command} " in told for command in commands(job))
    versions = re.findall(r"Python :: (3\.\d+)", "\n".join(PYPROJECT["project"]["classifiers"]))
    assert job["strategy"]["matrix"]["python"] == versions
    assert PYPROJECT["project"]["requires-python"] == f">={versions[0]}"


@pytest.mark.parametrize("name", WORKFLOWS)
def test_workflows_run_targets_and_files_that_there_are(name: str) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    lines = "\n".join(line for job in WORKFLOWS[name]["jobs"].values() for line in commands(job))
    targets = re.findall(r"\bmake ([a-z-]+)", lines)
    assert [target for target in targets if not re.search(rf"^{target}:", makefile, re.MULTILINE)] == []
    files = re.findall(r"(?:deploy|\.ci)/[\w./-]+|[\w-]+\.lock", lines)
    assert [file for file in files if not ((ROOT / file).exists() or "detlab-" in file)] == []


def test_a_release_waits_for_all_of_its_parts() -> None:
    jobs = WORKFLOWS["release"]["jobs"]
    assert set(jobs["publish"]["needs"]) | {"check", "publish"} == set(jobs)
    assert jobs["publish"]["environment"] == "release"
    page = (ROOT / "docs" / "contributing" / "release.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == set(jobs)
