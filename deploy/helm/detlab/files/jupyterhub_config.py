"""The Hub of a release of the chart: its values are in config.json, its secrets in files.

`hub.extraConfig` of the values is run last, so that a site may change all of this.
"""

# ruff: noqa: F821  (the Hub runs this file with the name `c`)
import json
import os
from pathlib import Path

from detlab.schemas.wire import ADMIN_GROUP, ADMIN_ROLE, SERVICE_PREFIX
from detlab_hub.embedded.hub import ACCESS, CUSTOM_SCOPES, GeneratedPasswords
from detlab_hub.services.base.callers import ADMIN, READ, WRITE

configuration = Path(os.environ.get("DETLAB_CONFIG", "/etc/detlab/config"))
secrets = Path(os.environ.get("DETLAB_SECRETS", "/etc/detlab/secrets"))
values = json.loads((configuration / "config.json").read_text(encoding="utf-8"))


def secret(name: str) -> str:
    """Return one of the release's secrets."""
    return (secrets / name).read_text(encoding="ascii").strip()


def driver(url: str) -> str:
    """Return a database's URL with the driver that the image has."""
    scheme, colon, rest = url.partition("://")
    return f"postgresql+psycopg{colon}{rest}" if scheme in {"postgresql", "postgres"} else url


# --- where everybody is
c.JupyterHub.bind_url = "http://:8000"  # the proxy's own address is its command line's
c.JupyterHub.public_url = values["publicUrl"] + "/"
c.JupyterHub.hub_bind_url = "http://0.0.0.0:8081"
c.JupyterHub.hub_connect_url = values["hubUrl"]
c.ConfigurableHTTPProxy.should_start = False
c.ConfigurableHTTPProxy.api_url = values["proxyApiUrl"]
c.ConfigurableHTTPProxy.auth_token = secret("proxy-token")
c.JupyterHub.cleanup_servers = False
c.JupyterHub.db_url = driver(secret("hub-database-url"))
c.JupyterHub.upgrade_db = True
c.JupyterHub.cookie_secret = bytes.fromhex(secret("hub-cookie-secret"))
c.JupyterHub.tornado_settings = {"cookie_options": {"samesite": "Lax"}}

# --- who may log in
names = [values["admin"], *values["users"]]
c.JupyterHub.authenticator_class = GeneratedPasswords
c.GeneratedPasswords.password_files = {name: str(secrets / f"password-{name}") for name in names}
c.Authenticator.allowed_users = set(names)
c.Authenticator.admin_users = {values["admin"]}

# --- what they may do
c.JupyterHub.custom_scopes = CUSTOM_SCOPES
c.JupyterHub.extra_user_scopes = {WRITE, ACCESS}
c.JupyterHub.load_roles = [
    {"name": ADMIN_ROLE, "scopes": [ADMIN, ACCESS], "users": [values["admin"]], "groups": [ADMIN_GROUP]},
    {"name": "server", "scopes": ["users:activity!user", "access:servers!server", WRITE, ACCESS]},
    {"name": "detlab-service", "scopes": ["servers", "read:users", "list:users"], "services": ["detlab"]},
]
c.JupyterHub.services = [
    {
        "name": "detlab",
        "url": values["masterUrl"],
        "api_token": secret("service-token"),
        "oauth_no_confirm": True,
        "oauth_redirect_uri": f"{SERVICE_PREFIX}oauth_callback",
        "oauth_client_allowed_scopes": [READ, WRITE, ADMIN],
    }
]

# --- notebooks and shells
c.JupyterHub.spawner_class = values["spawner"]
c.JupyterHub.allow_named_servers = True
c.JupyterHub.concurrent_spawn_limit = 0  # waiting in the master's queue is no load for the Hub
c.AllocationMixin.service_url = values["masterUrl"] + SERVICE_PREFIX
c.AllocationMixin.service_token_file = str(secrets / "spawner-token")
c.AllocationMixin.cluster_url = values["clusterUrl"]
c.AllocationMixin.pools = values["pools"]
c.AllocationMixin.images = [values["tasksImage"]]
c.Spawner.default_url = "/lab"
c.Spawner.environment = {"DET_WELCOME": "1"}

if values["spawner"] == "detlab":
    c.DetSpawner.runtimes = ["kubernetes"]
else:
    notebooks = values["notebooks"]
    c.DetKubeSpawner.pod_timeout = values["podTimeout"]
    c.DetKubeSpawner.namespace = values["tasksNamespace"]
    c.DetKubeSpawner.image = values["tasksImage"]
    c.DetKubeSpawner.image_pull_policy = values["pullPolicy"]
    c.DetKubeSpawner.image_pull_secrets = values["pullSecrets"]
    c.DetKubeSpawner.cmd = ["jupyterhub-singleuser"]
    c.DetKubeSpawner.uid = 1000
    c.DetKubeSpawner.gid = 1000
    c.DetKubeSpawner.fs_gid = 1000
    c.DetKubeSpawner.extra_labels = {"detlab.io/notebook": "true"}
    c.DetKubeSpawner.automount_service_account_token = False
    c.DetKubeSpawner.service_account = values["tasksServiceAccount"]
    c.DetKubeSpawner.priority_class_name = values["tasksPriorityClass"]
    c.DetKubeSpawner.mem_guarantee = notebooks["memory"]
    c.DetKubeSpawner.mem_limit = notebooks["memoryLimit"]
    c.DetKubeSpawner.cpu_guarantee = notebooks["cpu"]
    c.DetKubeSpawner.cpu_limit = notebooks["cpuLimit"]
    c.DetKubeSpawner.gpu_resource = notebooks["gpuResource"]
    c.DetKubeSpawner.working_dir = "/home/detlab"
    c.DetKubeSpawner.environment = {"DET_WELCOME": "1", "HOME": "/home/detlab"}
    volumes, mounts = [], []
    if notebooks["homeSize"]:
        # KubeSpawner fills in the names in braces
        c.DetKubeSpawner.storage_pvc_ensure = True
        c.DetKubeSpawner.pvc_name_template = "detlab-home-{user_server}"
        c.DetKubeSpawner.storage_capacity = notebooks["homeSize"]
        c.DetKubeSpawner.storage_access_modes = ["ReadWriteOnce"]
        c.DetKubeSpawner.storage_class = notebooks["homeStorageClass"] or None
        volumes.append({"name": "home", "persistentVolumeClaim": {"claimName": "{pvc_name}"}})
        mounts.append({"name": "home", "mountPath": "/home/detlab"})
    if values["certificate"]:
        volumes.append({"name": "certificate", "configMap": {"name": values["certificate"]}})
        mounts.append({"name": "certificate", "mountPath": "/etc/detlab/certificate", "readOnly": True})
        c.DetKubeSpawner.environment["DET_MASTER_CERT_FILE"] = "/etc/detlab/certificate/tls.crt"
    c.DetKubeSpawner.volumes = volumes
    c.DetKubeSpawner.volume_mounts = mounts

for name, text in sorted(values["extraConfig"].items()):
    exec(compile(text, f"hub.extraConfig.{name}", "exec"))  # noqa: S102  (the operator's own)
