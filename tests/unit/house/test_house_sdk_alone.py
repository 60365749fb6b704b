"""The SDK imports nothing of the master: import-linter holds it, and so it is where only the SDK is installed."""

from __future__ import annotations

import subprocess
import sys

import detlab.testing.searchers
import detlab_hub.testing.searchers

ALONE = """
import sys
for name in ("detlab_hub", "detlab_agent", "detlab_server", "detlab_magics"):
    sys.modules[name] = None
import detlab.testing.searchers as found
try:
    found.SearchMethodContract
except ImportError as error:
    print(error)
"""


def test_the_contract_of_search_methods_is_the_masters_and_importing_its_name_needs_none() -> None:
    done = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True, check=True)
    assert "detlab_hub" in done.stdout
    assert detlab.testing.searchers.SearchMethodContract is detlab_hub.testing.searchers.SearchMethodContract
