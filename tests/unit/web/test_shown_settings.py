"""Administrators see how the master is set up; no secret is among what they see."""

import json

from detlab_hub.app import DetHub
from detlab_hub.shown_settings import shown_settings

PLANTED = "hunter2"


def test_no_secret_of_the_configuration_is_shown() -> None:
    master = DetHub()
    master.db_url = f"postgresql://detlab:{PLANTED}@db.example.org/detlab"
    master.checkpoint_storage = {"type": "s3", "bucket": "b", "access_key": PLANTED, "secret_key": PLANTED}
    master.task_container_defaults = {
        "environment_variables": [f"HF_TOKEN={PLANTED}", "MODE=fast"],
        "registry_auth": {"username": "ada", "password": PLANTED},
    }
    master.webhooks = [
        {"url": f"https://hooks.slack.com/services/T0/B0/{PLANTED}", "secret": PLANTED, "events": ["label"]}
    ]
    master.smtp = {"host": "mail.example.org", "password": PLANTED, "password_file": "/etc/detlab/smtp"}
    shown = {one.name: one for one in shown_settings(master)}
    text = json.dumps([one.model_dump(mode="json") for one in shown.values()])
    assert PLANTED not in text
    assert "db.example.org/detlab" in str(shown["db_url"].value)
    assert "MODE=fast" in text
    assert "hooks.slack.com" in text
    assert "/etc/detlab/smtp" in text
    assert (shown["db_url"].is_default, shown["port"].help) == (False, DetHub.port.help)
    assert shown["gc_delay"].is_default
    assert {"config_file", "log_datefmt"}.isdisjoint(shown)
    assert "pools" in shown
