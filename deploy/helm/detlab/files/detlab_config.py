"""The master of a release of the chart: its values are in config.json, its secrets in files."""

# ruff: noqa: F821  (the master runs this file with the name `c`)
import json
import os
from pathlib import Path

configuration = Path(os.environ.get("DETLAB_CONFIG", "/etc/detlab/config"))
secrets = Path(os.environ.get("DETLAB_SECRETS", "/etc/detlab/secrets"))
values = json.loads((configuration / "config.json").read_text(encoding="utf-8"))

c.DetHub.state_dir = "/var/lib/detlab"
c.DetHub.ip = "0.0.0.0"  # noqa: S104  (all of the pod; the network policy says who reaches it)
c.DetHub.port = 8643
c.DetHub.behind_tls_proxy = True
c.DetHub.db_url = (secrets / "database-url").read_text(encoding="ascii").strip()
c.DetHub.migrate_without_copy = True  # the site's own copies of PostgreSQL: docs/how-to/kubernetes.md
c.DetHub.hub_api_url = values["hubUrl"] + "/hub/api"
c.DetHub.public_url = values["publicUrl"]
c.DetHub.service_url = values["clusterUrl"] + "/services/detlab/"
c.DetHub.cluster_id = values["clusterId"]
c.DetHub.service_token_file = str(secrets / "service-token")
c.DetHub.spawner_token_file = str(secrets / "spawner-token")
c.DetHub.enrolment_token_file = str(secrets / "enrolment-token")
c.DetHub.cookie_secret_file = str(secrets / "master-cookie-secret")
if values["agent"]:
    c.DetHub.default_runtime = "kubernetes"
    c.DetHub.default_image = {"cpu": values["tasksImage"], "cuda": values["tasksImage"]}
if values["checkpointStorage"]:
    c.DetHub.checkpoint_storage = values["checkpointStorage"]

exec(compile(values["masterExtraConfig"], "master.extraConfig", "exec"))  # noqa: S102  (the operator's own)
