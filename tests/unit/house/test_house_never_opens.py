"""The master runs nothing of anybody's: no module of it can unpickle, evaluate or load YAML that makes objects."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
FOLDERS = ("hub_ext/detlab_hub", "server_ext/detlab_server", "harness/detlab/schemas", "harness/detlab/storage")
"""What runs in the master, or in a server that speaks for a user, and sees what others wrote."""
FORBIDDEN = {
    "pickle",
    "cPickle",
    "_pickle",
    "dill",
    "cloudpickle",
    "joblib",
    "torch",
    "marshal",
    "shelve",
    "jsonpickle",
}
READS_PICKLES = "detlab.run"
"""The package whose values may be pickles: for their owner's kernel and tasks."""
CALLS = {"eval", "exec", "compile", "__import__"}
YAML = {"load", "load_all", "unsafe_load", "unsafe_load_all", "full_load", "full_load_all"}
OWN_MODULES = {
    "hub_ext/detlab_hub/web/routes.py": (
        '    for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):\n'
        "        for cls in vars(importlib.import_module(info.name)).values():\n"
    )
}
"""Modules that import those of their own package by the names of its files, and how: nobody else says these names."""
SAFE = {"SafeLoader", "CSafeLoader", "BaseLoader", "CBaseLoader"}


def safe_loaders(tree: ast.AST) -> set[str]:
    """Names of the classes of a module that are a safe loader by what they derive from."""
    found = set(SAFE)
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.bases and all(last_name(base) in found for base in node.bases):
            found.add(node.name)
    return found


def last_name(node: ast.AST | None) -> str:
    return getattr(node, "attr", getattr(node, "id", ""))


def forbidden_imports(node: ast.Import | ast.ImportFrom) -> list[str]:
    """Modules that an import loads and nobody may, and forms of import that hide from `openings` what is called."""
    if isinstance(node, ast.Import):
        loaded = [name.name for name in node.names]
        hidden = [name.name for name in node.names if name.name == "yaml" and name.asname not in {None, "yaml"}]
        hidden += [name for name in loaded if name.startswith("yaml.")]
    else:
        module = node.module or ""
        loaded = [f"{module}.{name.name}" for name in node.names]
        hidden = [name for name in loaded if name.startswith("yaml.") or name == "importlib.import_module"]
    found = [name for name in loaded if name.partition(".")[0] in FORBIDDEN]
    return found + hidden + [name for name in loaded if f"{name}.".startswith(f"{READS_PICKLES}.")]


def openings(text: str) -> list[str]:
    """What in a module could run what a file says."""
    tree = ast.parse(text)
    safe = safe_loaders(tree)
    found: list[str] = []
    for node in ast.walk(tree):
        match node:
            case ast.Import() | ast.ImportFrom():
                found += forbidden_imports(node)
            case ast.Call(func=ast.Name(id=name)) if name in CALLS:
                found.append(name)
            case ast.Call(func=ast.Attribute(attr="import_module")):
                found.append("import_module")
            case ast.Call(func=ast.Attribute(attr=name, value=ast.Name(id="yaml"))) if name in YAML:
                loaders = [last_name(key.value) for key in node.keywords if key.arg == "Loader"]
                loaders += [last_name(argument) for argument in node.args[1:]]
                found += [] if loaders and set(loaders) <= safe else [f"yaml.{name}"]
            case ast.Call(func=ast.Attribute(attr="load"), keywords=keys) if any(
                key.arg == "allow_pickle" for key in keys
            ):
                found.append("allow_pickle")
    return found


@pytest.mark.slow
@pytest.mark.parametrize("folder", FOLDERS)
def test_nothing_that_reads_for_others_can_run_what_it_reads(folder):
    sources = sorted((ROOT / folder).rglob("*.py"))
    assert len(sources) > 3
    found = {str(path.relative_to(ROOT)): openings(path.read_text()) for path in sources}
    for path, how in OWN_MODULES.items():
        if path in found and how in (ROOT / path).read_text():
            found[path].remove("import_module")
    assert {path: names for path, names in found.items() if names} == {}


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "import torch.nn",
        "from joblib import load",
        "eval(text)",
        "yaml.load(text)",
        "yaml.load(text, Loader=yaml.Loader)",
        "yaml.full_load(text)",
        "class Mine(yaml.Loader): pass\nyaml.load(text, Mine)",
        "np.load(file, allow_pickle=True)",
        "from yaml import load",
        "from yaml.loader import Loader",
        "import yaml.loader",
        "import yaml as y",
        'importlib.import_module("pickle")',
        "from importlib import import_module",
        "import detlab.run.values",
        "from detlab.run.values import decode",
        "from detlab.run import values",
        "from detlab import run",
    ],
)
def test_the_rule_finds_what_it_is_for(text):
    assert len(openings(text)) == 1


def test_the_rule_lets_safe_loaders_pass():
    own = "class Mine(yaml.CSafeLoader): pass\nyaml.load(a, Mine)\n"
    imports = "import yaml\nfrom detlab import errors\nimport detlab.runner\n"
    text = f"{imports}{own}yaml.load(a, Loader=yaml.SafeLoader)\nyaml.safe_load(a)\n"
    assert openings(text) == []
