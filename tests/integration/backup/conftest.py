"""Sites to back up, and places to restore them to, on either database."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from backup_sites import Site, make_site

from detlab_hub.embedded.state import StateFolder

numbers = iter(range(1_000_000))


@pytest.fixture(params=["sqlite", "postgres"])
def new_site(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Site]:
    """Makes the first site; its copies take a folder of their own and, on PostgreSQL, an empty database."""
    made = iter(range(100))

    def empty_url() -> str | None:
        if request.param == "sqlite":
            return None
        server = request.getfixturevalue("postgres_server")
        context = server.database(f"backup_{next(numbers)}")
        url = context.__enter__()
        request.addfinalizer(lambda: context.__exit__(None, None, None))
        return url

    def make(*, filled: bool = True) -> Site:
        root = tmp_path / f"site{next(made)}" / ".detlab"
        root.parent.mkdir()
        url = empty_url()
        if filled:
            return make_site(root, url)
        if url is not None:
            (root.parent / "config.py").write_text(f"c.DetHub.db_url = {url!r}\n")
        return Site(StateFolder(root), url or f"sqlite:///{root}/db/detlab.sqlite")

    return make
