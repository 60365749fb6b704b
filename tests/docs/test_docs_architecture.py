"""docs/explanation/architecture.md names modules, layers and functions that the code has."""

from __future__ import annotations

import re
import tomllib

from docs_snippets import DOCS, ROOT

PAGE = (DOCS / "explanation" / "architecture.md").read_text(encoding="utf-8")
_SOURCES = [
    path
    for part in ("harness", "hub_ext", "server_ext", "kernel_magics", "labextension/src")
    for path in (ROOT / part).rglob("*")
    if path.suffix in {".py", ".ts", ".tsx"} and "node_modules" not in path.parts
]


def files(name: str) -> list[str]:
    """The texts of the source files whose path ends so."""
    return [path.read_text(encoding="utf-8") for path in _SOURCES if f"/{path.as_posix()}".endswith(f"/{name}")]


def test_the_modules_that_the_page_names_exist() -> None:
    named = set(re.findall(r"`([\w/]+\.(?:py|tsx?))`", PAGE))
    assert len(named) > 60
    assert sorted(name for name in named if not files(name)) == []


def test_the_packages_of_the_services_are_in_the_order_of_their_layers() -> None:
    table = PAGE.partition("**Layers of the services.**")[2].partition("\n\n**")[0]
    rows = re.findall(r"^\| (\d*) ?\| `services/(\w+)` \|", table, re.MULTILINE)
    layers: list[set[str]] = []
    for number, name in rows:
        if number:
            assert int(number) == len(layers) + 1
            layers.append(set())
        layers[-1].add(name)
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    [held] = [one["layers"] for one in contracts if one["name"] == "Levels of the services"]
    assert layers == [set(layer.split(" | ")) for layer in held if layer != "master"]


def test_each_hop_of_the_routes_is_a_function_of_its_file() -> None:
    routes = PAGE.partition("## 9. ")[2]
    hops = re.findall(r"^\| \d+ \| (.+?) \| (.*?) \|", routes, re.MULTILINE)
    assert len(hops) > 60
    missing = []
    for place, functions in hops:
        for file in re.findall(r"`([^`]+)`", place):
            text = "\n".join(files(file))
            names = [name for code in re.findall(r"`([^`]+)`", functions) for name in code.split(".")]
            assert names, place
            missing += [
                (file, name)
                for name in names
                if not re.search(rf"(?:def|class|function|private) {name}\b|^  {name}\(", text, re.MULTILINE)
            ]
    assert missing == []
