"""The front ends' own checks: types of the wire, rules, and that they are in what is built."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
LABEXTENSION = ROOT / "labextension"


def test_the_types_of_the_wire_are_those_of_the_models():
    done = subprocess.run(
        [sys.executable, "wire.py", "--check"],
        cwd=LABEXTENSION,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_components_know_no_host_and_write_no_html():
    done = subprocess.run(
        ["node", "lint.mjs"], cwd=LABEXTENSION, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("line", ["import { a } from '@jupyterlab/services';", "el.innerHTML = name;", "eval(x)"])
def test_the_rules_find_what_breaks_them(tmp_path, line):
    (tmp_path / "lint.mjs").write_text((LABEXTENSION / "lint.mjs").read_text())
    for folder in ("src/components", "src/state"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "src" / "components" / "bad.tsx").write_text(line)
    done = subprocess.run(["node", "lint.mjs"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "bad.tsx:1" in done.stderr


def test_the_built_extension_is_small_and_names_no_other_host():
    """What is loaded at first stays below 350 kB, unzipped even.

    plotly.js comes with the first figure of a search; experiments and trials, tables and comparisons, workspaces,
    models and the form with the first tab of them.
    """
    built = ROOT / "server_ext" / "detlab_server" / "labextension"
    if not (built / "package.json").is_file():
        pytest.skip("the front ends are not built: make front")
    package = json.loads((built / "package.json").read_text())
    assert package["jupyterlab"]["_build"]["load"].startswith("static/remoteEntry.")
    scripts = list((built / "static").glob("*.js"))
    [plotly] = [script for script in scripts if "plotly-cartesian.min.js" in script.read_text()]
    assert plotly.stat().st_size < 1_600_000
    [entry] = [script for script in scripts if script.name.startswith("remoteEntry.")]
    numbers = re.findall(
        r"\.e\((\d+)\)", "".join(re.findall(r'"\./(?:extension|style)":\(\)=>[^"]*', entry.read_text()))
    )
    first = [entry, *(script for script in scripts if script.name.split(".")[0] in numbers)]
    assert len(first) == 3, "the script and the styles"
    assert 10_000 < sum(script.stat().st_size for script in first) < 350_000
    assert sum(script.stat().st_size for script in scripts if script != plotly) < 820_000
    assert not any("://cdn" in script.read_text() for script in scripts if script != plotly)
    # Where plotly.js would get the outlines of maps, which this part of it cannot draw.
    assert set(re.findall(r"://cdn[^\"'`]*", plotly.read_text())) == {"://cdn.plot.ly/un/"}
