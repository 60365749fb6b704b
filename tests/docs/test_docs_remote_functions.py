"""The page on remote functions: its cells, in order, in a real kernel."""

from __future__ import annotations

from pathlib import Path

import pytest
from docs_snippets import DOCS, blocks

from testbed.cluster import Cluster
from testbed.front.kernels import Notebook

pytestmark = pytest.mark.hub

PAGE = DOCS / "how-to" / "run-a-function-on-the-cluster.md"


def test_the_functions_of_the_page_run_as_printed(docs_cluster: Cluster, tmp_path: Path) -> None:
    env = {**docs_cluster.environment, "DET_URL": docs_cluster.url, "DET_TOKEN": docs_cluster.token}
    notebook = Notebook(tmp_path, env)
    try:
        cells = [notebook.run(block.text.rstrip("\n"), timeout=120) for block in blocks(PAGE, "python")]
    finally:
        notebook.close()
    assert [cell.traceback for cell in cells if cell.status != "ok"] == []
    assert "fitting 5 points" in cells[2].stdout
    assert cells[2].result["text/plain"] == "2.0"
    assert "Path('data')" in cells[3].result["text/plain"]
    assert "COMPLETED" in cells[4].result["text/plain"]
