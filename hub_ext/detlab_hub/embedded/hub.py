"""The Hub's configuration, made from the state folder. `jupyterhub_config.py` beside it calls `configure`."""

from __future__ import annotations

import os
from pathlib import Path
from secrets import compare_digest
from typing import Any

from jupyterhub.auth import Authenticator
from traitlets import Dict, Unicode

from detlab.schemas.wire import ADMIN_GROUP, ADMIN_ROLE, SERVICE_PREFIX
from detlab_hub.embedded.state import StartPlan, StateFolder
from detlab_hub.services.base.callers import ADMIN, READ, WRITE

ACCESS = "access:services!service=detlab"
CUSTOM_SCOPES = {
    READ: {"description": "See your experiments"},
    WRITE: {"description": "Submit experiments and change your own", "subscopes": [READ]},
    ADMIN: {"description": "See and change all users' experiments; manage agents", "subscopes": [WRITE]},
}


def configure(c: Any, folder: StateFolder, plan: StartPlan) -> None:
    """Fill a traitlets config with everything that the embedded Hub needs."""
    _addresses(c, folder, plan)
    _users(c, folder, plan)
    _roles(c, folder, plan)
    _servers(c, folder, plan)
    _navigation(c)


def _addresses(c: Any, folder: StateFolder, plan: StartPlan) -> None:
    c.JupyterHub.bind_url = plan.bind_url
    if plan.certificate_file:
        # the proxy uses them; the Hub is to know that it is behind https
        c.JupyterHub.ssl_cert, c.JupyterHub.ssl_key = plan.certificate_file, plan.key_file
    c.JupyterHub.hub_bind_url = f"http://{plan.hub_ip}:{plan.hub_port}"
    c.JupyterHub.hub_connect_url = f"http://127.0.0.1:{plan.hub_port}"
    # The supervisor runs the proxy: a Hub restart leaves open connections alone.
    c.ConfigurableHTTPProxy.should_start = False
    c.ConfigurableHTTPProxy.api_url = f"http://127.0.0.1:{plan.proxy_api_port}"
    c.ConfigurableHTTPProxy.auth_token = folder.secret("proxy_token")
    c.JupyterHub.cleanup_servers = False
    c.JupyterHub.db_url = f"sqlite:///{folder.root / 'db' / 'jupyterhub.sqlite'}"
    c.JupyterHub.upgrade_db = True
    c.JupyterHub.cookie_secret_file = str(folder.secrets / "hub_cookie_secret")
    c.JupyterHub.template_vars = {"announcement": ""}


def _users(c: Any, folder: StateFolder, plan: StartPlan) -> None:
    names = [plan.operator, *plan.extra_users]
    files = {}
    for name in names:
        files[name] = str(folder.password_file(name, plan.operator))
    c.JupyterHub.authenticator_class = "detlab_hub.embedded.hub.GeneratedPasswords"
    c.GeneratedPasswords.password_files = files
    c.Authenticator.allowed_users = set(names)
    c.Authenticator.admin_users = {plan.operator}
    # 256 random bits need no slow hash
    c.JupyterHub.trust_user_provided_tokens = True
    # The Hub calls this setting pending deprecation and asks for use cases of services that act as users: this is
    # one, the operator's command line.
    c.JupyterHub.api_tokens = {folder.secret("user_token"): plan.operator}


def _roles(c: Any, folder: StateFolder, plan: StartPlan) -> None:
    c.JupyterHub.custom_scopes = CUSTOM_SCOPES
    c.JupyterHub.extra_user_scopes = {WRITE, ACCESS}
    c.JupyterHub.load_roles = [
        # the Hub makes the group where there is none, and leaves its members alone: they are in its database
        {"name": ADMIN_ROLE, "scopes": [ADMIN, ACCESS], "users": [plan.operator], "groups": [ADMIN_GROUP]},
        {
            "name": "server",
            "scopes": ["users:activity!user", "access:servers!server", WRITE, ACCESS],
        },
        {"name": "detlab-service", "scopes": ["servers", "read:users", "list:users"], "services": ["detlab"]},
        {"name": "detlab-supervisor", "scopes": ["proxy", "list:users", "servers"], "services": ["detlab-supervisor"]},
    ]
    c.JupyterHub.services = [
        {
            "name": "detlab",
            "url": f"http://127.0.0.1:{plan.master_port}",
            "api_token": folder.secret("service_token"),
            "oauth_no_confirm": True,
            # on the Hub's own host, also where users have names of their own
            "oauth_redirect_uri": f"{SERVICE_PREFIX}oauth_callback",
            "oauth_client_allowed_scopes": [READ, WRITE, ADMIN],
            # the Hub's own link would lead to the name that it gives services then
            "display": not plan.subdomain_host,
            "timeout": 10,
        },
        {"name": "detlab-supervisor", "api_token": folder.secret("supervisor_token"), "display": False},
    ]


def _servers(c: Any, folder: StateFolder, plan: StartPlan) -> None:
    c.JupyterHub.spawner_class = "detlab_hub.spawners.DetSpawner"
    c.JupyterHub.allow_named_servers = True
    # starts that wait in the master's queue must not keep others from requesting an allocation
    c.JupyterHub.concurrent_spawn_limit = 0
    c.DetSpawner.service_url = plan.master_url
    c.DetSpawner.service_token_file = str(folder.secrets / "spawner_token")
    c.DetSpawner.cluster_url = plan.public_url
    c.JupyterHub.tornado_settings = _tornado(folder, plan)
    if plan.servers_certificate_file:
        c.DetSpawner.servers_certificate_file = plan.servers_certificate_file
    c.Spawner.default_url = "/lab"
    c.Spawner.http_timeout = 60
    c.Spawner.environment = {"DET_WELCOME": "1"}
    if os.getuid() != 0:
        # its servers run as the operator: no other user gets one, and the operator's opens in the present folder
        c.DetSpawner.only_user = plan.operator
        c.Spawner.notebook_dir = plan.workdir


def _tornado(folder: StateFolder, plan: StartPlan) -> dict[str, Any]:
    """Return settings of the Hub's web server that are not options of the Hub.

    The Hub's cookies are sent when a person follows a link, and not with requests from another site's page. If there
    is an authority for servers on other nodes, the Hub trusts it when it checks whether servers are up; the Hub's own
    `internal_ssl` would require TLS of all of its parts.
    """
    found: dict[str, Any] = {"cookie_options": {"samesite": "Lax"}}
    if plan.servers_certificate_file:
        certificate, key = folder.hub_pair
        found |= {
            "internal_ssl_cert": str(certificate),
            "internal_ssl_key": str(key),
            "internal_ssl_ca": plan.servers_certificate_file,
        }
    return found


def _subdomains(c: Any, plan: StartPlan) -> None:
    """Keep detlab's service on the Hub's own host, where each user's servers have names of their own.

    The Hub would give services separate names as well. Clients and agents expect detlab's service below the Hub's
    address, whatever its name.
    """
    routes = {f"{host}{SERVICE_PREFIX}": f"http://127.0.0.1:{plan.master_port}" for host in plan.hosts}
    c.ConfigurableHTTPProxy.extra_routes = {**routes, **c.ConfigurableHTTPProxy.get("extra_routes", {})}


def _navigation(c: Any) -> None:
    """Put the link to the hub page into the Hub's own navigation, on all of its pages."""
    c.JupyterHub.template_paths = [str(Path(__file__).parent / "templates")]


def load(c: Any, load_subconfig: Any, folder: Path) -> None:
    """Configure the Hub from a state folder, then let the operator's own files override that.

    Args:
        c: The Hub's configuration object.
        load_subconfig: The Hub's function that loads another configuration file.
        folder: The state folder.

    Raises:
        FileNotFoundError: The folder has no plan: the embedded Hub is started by `det up`.
    """
    state = StateFolder(folder)
    plan = state.read_plan()
    if plan is None:
        raise FileNotFoundError(f"{state.plan_file}: the embedded Hub is started by det up")
    configure(c, state, plan)
    for path in (state.config_file, Path(plan.config) if plan.config else None):
        if path is not None and path.exists():
            load_subconfig(str(path))
    # A configuration that sets headers replaces the whole dict; without this the Hub would take servers for dead.
    c.JupyterHub.tornado_settings = {**_tornado(state, plan), **c.JupyterHub.tornado_settings}
    if plan.subdomain_host:
        _subdomains(c, plan)


class GeneratedPasswords(Authenticator):
    """Each allowed user has a password of 256 random bits in a file that only the operator can read.

    Unlike a shared password it does not let one user in as another.
    """

    password_files = Dict(
        key_trait=Unicode(), value_trait=Unicode(), help="User name -> file that holds the password."
    ).tag(config=True)

    async def authenticate(self, handler: Any, data: dict[str, str]) -> dict[str, Any] | None:
        """Return the user whose password this is, or None."""
        name = str(self.normalize_username(data["username"]))
        path = self.password_files.get(name)
        if path is None:
            compare_digest(b"nobody", data["password"].encode())
            return None
        wanted = Path(path).read_text(encoding="ascii").strip()
        if not wanted or not compare_digest(wanted.encode(), data["password"].encode()):
            return None
        # None leaves it as the Hub has it: False would take from people at each login what an administrator gave them
        return {"name": name, "admin": True if name in self.admin_users else None}
