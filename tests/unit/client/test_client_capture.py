"""Which local files a source needs."""

from pathlib import Path

import pytest

from detlab.client.bundling.bundle import build_bundle
from detlab.client.bundling.capture import capture_imports


@pytest.fixture
def root(tmp_path: Path) -> Path:
    files = {
        "model.py": "import layers\nfrom package.inner import thing\n",
        "layers.py": "import model  # a circle\nimport numpy\n",
        "unused.py": "",
        "package/__init__.py": "",
        "package/inner.py": "from . import sibling\nfrom .. import nothing\nfrom .deep import x\n",
        "package/sibling.py": "import helper\n",
        "package/deep/__init__.py": "",
        "package/deep/more.py": "",
        "package/table.csv": "1,2",
        "package/__pycache__/inner.pyc": "x",
        "helper.py": "",
        "space/a.py": "",
        "space/b.py": "",
        "space/sub/c.py": "from ..a import x\n",
        "data/huge.bin": "x",
        "sys.py": "",
        "random.py": "",
        "broken.py": "def (",
        "named.py": "",
    }
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    return tmp_path


PACKAGE = (
    "package/__init__.py",
    "package/deep/__init__.py",
    "package/deep/more.py",
    "package/inner.py",
    "package/sibling.py",
    "package/table.csv",
)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import torch, os.path", ()),
        ("import model", ("helper.py", "layers.py", "model.py", *PACKAGE)),
        ("from package import inner", ("helper.py", *PACKAGE)),
        ("import package.deep.more as m", ("helper.py", *PACKAGE)),
        ("from space import a", ("space/a.py",)),
        ("import space.sub.c", ("space/a.py", "space/sub/c.py")),
        ("import data", ()),
        ("import sys", ()),
        ("import random", ("random.py",)),
        ("def f():\n    if True:\n        import helper", ("helper.py",)),
        ("from . import helper", ("helper.py",)),
        ("from .. import helper", ()),
        ("import importlib\nimportlib.import_module('named')", ("named.py",)),
        ("__import__('named')", ("named.py",)),
        ("from helper import *", ("helper.py",)),
    ],
)
def test_imports_are_followed(root: Path, source: str, expected: tuple[str, ...]) -> None:
    captured = capture_imports([source], root)
    assert captured.paths == tuple(sorted(expected))
    assert captured.unparsed == ()
    assert {file.path for file in build_bundle(root, only=captured.paths).files} == set(expected)


def test_provided_modules_hide_files(root: Path) -> None:
    assert capture_imports(["import helper, unused"], root, provided=["helper"]).paths == ("unused.py",)


def test_what_is_no_python_is_named(root: Path) -> None:
    captured = capture_imports({"cell 3": "%matplotlib inline", "cell 4": "import broken"}, root)
    assert captured.paths == ("broken.py",)
    assert [text.split(":")[0] for text in captured.unparsed] == ["cell 3", "broken.py"]


def test_ignored_parts_of_a_package_stay_behind(root: Path) -> None:
    (root / ".detignore").write_text("*.csv\n")
    assert "package/table.csv" not in capture_imports(["import package"], root).paths
