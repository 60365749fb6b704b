"""`python -m detlab_agent` is `det agent run`."""

from __future__ import annotations

from detlab_agent.commands import run

if __name__ == "__main__":
    run()
