"""Makes the files that repeat what the code says, most of them reference pages: those of `MAKERS`.

    python docs/generate.py           write them
    python docs/generate.py --check   exit 1 and name the files that are not current

`tests/docs/test_docs_generated.py` fails when one is not current. (The page of the experiment config is made by
`python -m detlab.schemas.publish`.)
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from reference_pages.command_line import cli
from reference_pages.determined import determined_names
from reference_pages.determined_coverage import PAGE, come_from_determined
from reference_pages.filters import filters
from reference_pages.helm_values import helm_values
from reference_pages.http_api import http_api
from reference_pages.imports import imports
from reference_pages.limits import limits
from reference_pages.magics import magics
from reference_pages.plugins import plugins
from reference_pages.rights import rights
from reference_pages.routes import architecture, relayed
from reference_pages.sbatch import sbatch_options
from reference_pages.sdk import client, core_api
from reference_pages.storage_access import storage_access
from reference_pages.trainer import pytorch
from reference_pages.what_works import readme

ROOT = Path(__file__).parents[1]
PAGES: dict[str, Callable[[], str]] = {
    "cli.md": cli,
    "magics.md": magics,
    "http-api.md": http_api,
    "core-api.md": core_api,
    "pytorch.md": pytorch,
    "client.md": client,
    "filters.md": filters,
    "helm-values.md": helm_values,
    "limits.md": limits,
    "plugins.md": plugins,
    "rights.md": rights,
    "sbatch-options.md": sbatch_options,
    "storage-access.md": storage_access,
    "determined-names.md": determined_names,
    "imports.md": imports,
}
"""Below docs/reference."""
MAKERS: dict[str, Callable[[], str]] = {
    **{f"docs/reference/{name}": make for name, make in PAGES.items()},
    "docs/explanation/architecture.md": architecture,
    PAGE: come_from_determined,
    "server_ext/detlab_server/relayed.py": relayed,
    "README.md": readme,
}


def main() -> int:
    """Write the files, or check them; return the exit status."""
    parser = argparse.ArgumentParser(description="Make the files that repeat what the code says.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a page is not current")
    options = parser.parse_args()
    stale = 0
    for name, make in MAKERS.items():
        path, text = ROOT / name, make()
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale += 1
        if options.check:
            print(f"{path} is not current: python docs/generate.py")
        else:
            path.write_text(text, encoding="utf-8")
            print(path)
    return 1 if options.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
