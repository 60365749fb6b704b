"""The Hub's trust in servers on other nodes stands whatever the operator's own configuration sets."""

from __future__ import annotations

from pathlib import Path

from traitlets.config import Config

from detlab_hub.embedded.front import AddressOptions, choose_front
from detlab_hub.embedded.hub import load
from detlab_hub.embedded.settings import EmbeddedCluster
from detlab_hub.embedded.state import StartPlan, StateFolder


def test_an_operators_own_tornado_settings_do_not_remove_the_hubs_trust(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path / "state")
    folder.create()
    plan = StartPlan(
        8642, 1, 2, 3, "ann", **vars(choose_front(folder, EmbeddedCluster(), AddressOptions(ip="0.0.0.0", tls=True)))
    )
    folder.write_plan(plan)
    folder.config_file.write_text("")
    c = Config()

    def own(path: str) -> None:
        c.JupyterHub.tornado_settings = {"headers": {"Content-Security-Policy": "default-src 'self'"}}

    load(c, own, folder.root)
    settings = c.JupyterHub.tornado_settings
    assert settings["internal_ssl_ca"] == plan.servers_certificate_file
    assert {"internal_ssl_cert", "internal_ssl_key", "headers"} <= set(settings)
