"""The master as an application: configuration and wiring, nothing else. `python -m detlab_hub` runs it."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import dataclasses
import hashlib
import logging
import os
import secrets
import signal
import socket
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tornado.httpserver import HTTPServer
from traitlets import Bool, Callable, Dict, Float, Integer, List, Unicode, default
from traitlets.config import Application
from traitlets.config.loader import PyFileConfigLoader

import detlab
from detlab.client.transport.discovery import is_loopback
from detlab.errors import DetlabError
from detlab.launch.host.identity import DEFAULT_RANGE, IdentityError, account_name, parse_range, read_uids
from detlab.schemas.expconf import container_defaults
from detlab.schemas.runtimes import PROCESS
from detlab.schemas.storage_types import StorageHolder
from detlab.schemas.wire import SERVICE_PREFIX
from detlab.token_text import one_word
from detlab_hub.backends.instances.configuration import ElasticPool, Surroundings, make_pools
from detlab_hub.core.scheduling import Pools, read_pools
from detlab_hub.core.scheduling.governing import GovernedMounts, read_governed_mounts
from detlab_hub.embedded.sockets.listeners import inherited
from detlab_hub.embedded.state import TAKE_OVER_NOTE
from detlab_hub.limit_settings import UserLimits, read_limits
from detlab_hub.services import Services, Settings
from detlab_hub.services.base.server_certificates import ServerAuthority
from detlab_hub.services.base.settings import A_COPY, SmtpServer, UidPolicy, Webhook, errors_in
from detlab_hub.services.cluster.cluster import Cluster
from detlab_hub.services.cluster.log_lines import write_to_stderr
from detlab_hub.services.notify.configuration import read_smtp, read_webhooks
from detlab_hub.services.notify.consumers import installed
from detlab_hub.services.usertasks.hub_client import HubServers
from detlab_hub.shown_settings import shown_settings
from detlab_hub.store import CopyPolicy, Store, installation
from detlab_hub.web.auth import Identifier, close_hub_client, make_hub_auth
from detlab_hub.web.bodies import MOST_READ
from detlab_hub.web.routes import Background, WebSettings, make_application

UPGRADE_NOTE = "upgrading"
"""File beside the database that holds our process id while an older schema is brought up to date."""


class DetHub(Application):
    """The master: one HTTP service of a JupyterHub, with a database of its own."""

    name = "detlab_hub"
    version = detlab.__version__
    description = "The master of detlab, an external service of JupyterHub."

    state_dir = Unicode(".detlab", help="Folder of the database, the bundles and the secrets.").tag(config=True)
    db_url = Unicode(help="Database: sqlite:///PATH or postgresql://USER:PASSWORD@HOST/NAME.").tag(config=True)
    migrate_without_copy = Bool(
        False,
        help="Bring an older database to this version's schema even where no copy of it can be made before.",
    ).tag(config=True)
    ip = Unicode(help="Address to listen on; default: JUPYTERHUB_SERVICE_URL's, else loopback.").tag(config=True)
    port = Integer(help="Port to listen on; default: JUPYTERHUB_SERVICE_URL's, else 8643.").tag(config=True)
    behind_tls_proxy = Bool(
        False,
        help="A reverse proxy with TLS is in front of this process, so it may listen beyond loopback, by plain HTTP.",
    ).tag(config=True)
    base_path = Unicode(help="Prefix of all routes.").tag(config=True)
    hub_api_url = Unicode(help="Where this process reaches the Hub's API; ends with /hub/api.").tag(config=True)
    hub_prefix = Unicode(help="The Hub's own public prefix.").tag(config=True)
    public_url = Unicode("http://127.0.0.1:8000", help="Public address of the Hub.").tag(config=True)
    service_url = Unicode(
        help="How tasks reach this service, unless their agent reaches it by TLS, or this is loopback and their agent"
        " elsewhere: then they take their agent's way. Ends with the base path; default: where it listens, which is"
        " loopback where that is everywhere."
    ).tag(config=True)
    service_token_file = Unicode(help="File with this service's token for the Hub.").tag(config=True)
    cookie_secret_file = Unicode(help="File with the secret that signs cookies; made if missing.").tag(config=True)
    enrolment_token_file = Unicode(
        help="File with an enrolment token that does not expire (the embedded cluster's agent); may be missing."
    ).tag(config=True)
    cluster_id = Unicode(help="Name of this cluster in tasks' environments; generated once if empty.").tag(config=True)
    checkpoint_storage = Dict(help="Default checkpoint_storage of experiments; a shared_fs in the state folder.").tag(
        config=True
    )
    checkpoint_stores = List(
        Dict(),
        help="Further object stores of the cluster's own, as checkpoint_storage blocks ({'type': 's3', 'bucket': …}):"
        " only these, the default one and file systems are opened by the master; all others by their owners' tasks.",
    ).tag(config=True)
    outgoing_allowed = List(
        Unicode(),
        help="Networks (10.1.0.0/16), addresses and hosts inside that the master may call, as webhooks; addresses that"
        " are not public are refused otherwise. The hosts of c.DetHub.webhooks may be private without it.",
    ).tag(config=True)
    default_runtime = Unicode(
        PROCESS,
        help="How trials and tasks run that do not say `runtime`: process, docker, or another that agents have.",
    ).tag(config=True)
    storage_credentials = Callable(
        None,
        allow_none=True,
        help="Gives tasks short-lived credentials for object stores: called with the owner's name and the experiment's"
        " checkpoint_storage block, returns them or None. See detlab_hub.storage_credentials.",
    ).tag(config=True)
    evidence_signer = List(
        Unicode(),
        help="Program and arguments that sign the evidence of governed checkpoints, in place of a key in"
        " STATE_DIR/secrets/evidence: it reads what is to be signed and writes 64 bytes (Ed25519).",
    ).tag(config=True)
    evidence_signer_key = Unicode(help="The public key of evidence_signer: 32 bytes in hex.").tag(config=True)
    default_image = Dict(
        Unicode(),
        help='Image of containers that name none, by kind of slot: {"cpu": "…", "cuda": "…"}.',
    ).tag(config=True)
    uid_range = Unicode(
        "{}-{}".format(*DEFAULT_RANGE),
        help="uids that users get whose tasks run on agents that are root, each one for the whole cluster.",
    ).tag(config=True)
    user_map = Dict(
        Integer(),
        key_trait=Unicode(),
        help='Hub user -> uid of an account that they have on the nodes: {"alice": 1005}. Wins over what is assigned.',
    ).tag(config=True)
    user_map_file = Unicode(help="A file with the same, as JSON; `user_map` wins.").tag(config=True)
    users_file = Unicode(
        help="users.json of the agents of an earlier version, which assigned uids themselves: taken over once."
    ).tag(config=True)
    agent_nodes_limit = Integer(
        10_000, min=1, help="Nodes that an agent may speak for (Kubernetes); those beyond are left out."
    ).tag(config=True)
    agent_slots_limit = Integer(1024, min=1, help="Slots that an agent may offer; one with more is refused.").tag(
        config=True
    )
    agent_zero_slot_tasks_limit = Integer(
        1000, min=0, help="The most that an agent's --max-zero-slot-tasks may be; one with more is refused."
    ).tag(config=True)
    pools = Dict(
        value_trait=Dict(),
        key_trait=Unicode(),
        help='Resource pools beside `default`, and how each is scheduled: {"gpu": {"scheduler": "priority",'
        ' "preemption": True, "fitting": "best", "heterogeneous": False, "description": "...",'
        ' "priority": 42, "patience": 300.0, "governance": {"levels": ["direct"]}}}. `default` may be among them. With'
        ' "scheduler": "fair_share" and "share_by": "user" users have shares of it, whatever they submit.',
    ).tag(config=True)
    task_container_defaults = Dict(
        help="What all tasks get that do not say otherwise, by Determined's names: image, environment_variables,"
        " bind_mounts, shm_size, devices, registry_auth, startup_hook, log_policies and others. A pool's own, in"
        " `pools`, come before them."
    ).tag(config=True)
    governed_mounts = Dict(
        key_trait=Unicode(),
        help="Data that may be mounted only where a pool enforces something, whatever runs there, notebooks and shells"
        ' too: {"/srv/patients": ["gov.isolated@1", "gov.ledger@1"], "pvc:patients": ["gov.ledger@1"]}. A directory of'
        " nodes counts with all in it, and with each that holds it.",
    ).tag(config=True)
    currency = Unicode("", help="What the prices of pools are in, as people are told: EUR, credits.").tag(config=True)
    default_compute_pool = Unicode("default", help="Pool of trials and tasks with slots that name none.").tag(
        config=True
    )
    default_zero_slot_pool = Unicode("default", help="Pool of tasks without slots that name none.").tag(config=True)
    preemptions_per_hour = Integer(
        6, min=0, help="A trial that was preempted so often within an hour keeps its slots."
    ).tag(config=True)
    checkpoint_near = Float(
        15.0, min=0.0, help="A trial whose next checkpoint is due within so many seconds is preempted after it."
    ).tag(config=True)
    agent_reconnect_wait = Float(
        25.0, help="Seconds without a heartbeat after which an agent is lost and its tasks run elsewhere."
    ).tag(config=True)
    spawner_token_file = Unicode(help="File with the token of the Hub's spawners; may be missing.").tag(config=True)
    servers_certificate_file = Unicode(
        help="Certificate of the authority that signs those of servers on other nodes; the Hub's proxy and its spawners"
        " must believe it. Empty: such servers speak plain HTTP."
    ).tag(config=True)
    servers_key_file = Unicode(help="The key of that authority.").tag(config=True)
    idle_timeouts = Dict(
        value_trait=Float(),
        key_trait=Unicode(),
        default_value={"tensorboard": 3600.0},
        help="Seconds without use after which a server is ended, by kind (notebook, shell, tensorboard), unless its own"
        " options say otherwise. 0 or absent: never.",
    ).tag(config=True)
    idle_warning = Float(300.0, help="Seconds before that in which its user is warned.").tag(config=True)
    spawn_lease = Float(
        30.0, help="Seconds without contact from the Hub after which the start of a server is abandoned."
    ).tag(config=True)
    bundle_limit_mb = Integer(95, help="Most that the code of one experiment may have, packed.").tag(config=True)
    outputs_limit_mb = Integer(200, help="Most that one notebook run or borrowed cell may upload as outputs.").tag(
        config=True
    )
    artifact_limit_mb = Integer(10_240, help="Most that one file may have which a client of MLflow uploads.").tag(
        config=True
    )
    media_objects = Integer(
        50_000, min=0, help="Images, tables and other media that one trial may log; further ones are left out."
    ).tag(config=True)
    media_mb = Integer(5_120, min=0, help="Most that the media of one trial may have in all.").tag(config=True)
    tasks_keep_days = Float(
        30.0,
        min=0,
        help="Days for which ended notebooks, shells, commands and other tasks are listed, with their logs and outputs."
        " 0: for ever.",
    ).tag(config=True)
    bundles_keep_days = Float(
        90.0,
        min=0,
        help="Days for which code stays that no experiment and no notebook or other task names any more. 0: for ever.",
    ).tag(config=True)
    trash_days = Float(
        7.0,
        min=0,
        help="Days for which checkpoints that were deleted, or collected by the policy of their experiment, can be"
        " restored by `det checkpoint undelete`; their files stay as long. 0: the files go at once.",
    ).tag(config=True)
    gc_delay = Float(
        60.0,
        min=0,
        help="Seconds after the end of an experiment at which checkpoints that its policy does not keep are collected.",
    ).tag(config=True)
    log_retention_days = Integer(
        -1,
        min=-1,
        max=32767,
        help="Days after the end of a trial for which its output is kept, unless its experiment says otherwise. -1: for"
        " ever; 0: until the next cleaning.",
    ).tag(config=True)
    log_cleaning_hour = Integer(
        3,
        min=0,
        max=23,
        help="Hour of the day, in the master's time zone, at which output that is kept no longer is removed; so it is"
        " after a start of the master.",
    ).tag(config=True)
    stream_buffer_mb = Integer(
        16, min=1, help="Most MB buffered in all streams of a user together for clients that read too slowly."
    ).tag(config=True)
    stream_slow_limit = Float(
        30.0,
        min=0.1,
        help="Seconds after which the stream of a client that reads too slowly is closed; it resumes at its cursor.",
    ).tag(config=True)
    audit_keep_days = Float(400.0, min=1, help="Days for which entries of the audit log are kept.").tag(config=True)
    webhooks = List(
        Dict(),
        help="Addresses that are told what happens, as [{'url': …, 'events': ['model.label'], 'secret': …}]: JSON by"
        " POST, signed with the secret (X-Detlab-Signature: sha256=HMAC of the body). `*` is all events, `model.*` all"
        " of models.",
    ).tag(config=True)
    smtp = Dict(
        help="The mail server for alerts by e-mail, as {'host': …, 'from': 'detlab <detlab@example.org>', 'user': …,"
        " 'password_file': …}. 'security' is starttls (the default), tls or none; 'port' 587, 465 or 25 by it;"
        " 'ca_file' has certificates to believe; 'domains' are those to whose addresses mail is sent, else any. It may"
        " be on a private network. Empty: nobody is told by e-mail."
    ).tag(config=True)
    log_as_json = Bool(False, help="Write the log as a JSON object for each line: time, level, logger, message.").tag(
        config=True
    )
    config_files = List(Unicode(), help="traitlets files to read; the command line wins.").tag(config=True)

    classes = [UserLimits]  # noqa: RUF012  (as traitlets declares it)

    aliases = Application.aliases | {
        "config": "DetHub.config_files",
        "state-dir": "DetHub.state_dir",
        "port": "DetHub.port",
    }

    @default("log_level")
    def _log_level(self) -> int:
        return logging.INFO

    @default("ip")
    def _ip(self) -> str:
        return urlsplit(os.environ.get("JUPYTERHUB_SERVICE_URL", "")).hostname or "127.0.0.1"

    @default("port")
    def _port(self) -> int:
        return urlsplit(os.environ.get("JUPYTERHUB_SERVICE_URL", "")).port or 8643

    @default("hub_prefix")
    def _hub_prefix(self) -> str:
        return os.environ.get("JUPYTERHUB_BASE_URL", "/") + "hub/"

    @default("db_url")
    def _db_url(self) -> str:
        return f"sqlite:///{self._root / 'db' / 'detlab.sqlite'}"

    @default("base_path")
    def _base_path(self) -> str:
        return os.environ.get("JUPYTERHUB_SERVICE_PREFIX", SERVICE_PREFIX)

    @default("hub_api_url")
    def _hub_api_url(self) -> str:
        return os.environ.get("JUPYTERHUB_API_URL", "http://127.0.0.1:8081/hub/api")

    @default("service_url")
    def _service_url(self) -> str:
        # nobody can dial "everywhere"; agents of other machines do not pass a loopback address on
        ip = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.ip, self.ip)  # noqa: S104  (to dial it)
        return f"http://{f'[{ip}]' if ':' in ip else ip}:{self.port}{self.base_path}"

    @default("service_token_file")
    def _service_token_file(self) -> str:
        return str(self._root / "secrets" / "service_token")

    @default("cookie_secret_file")
    def _cookie_secret_file(self) -> str:
        return str(self._root / "secrets" / "cookie_secret")

    @default("enrolment_token_file")
    def _enrolment_token_file(self) -> str:
        return str(self._root / "secrets" / "enrolment_token")

    @default("spawner_token_file")
    def _spawner_token_file(self) -> str:
        return str(self._root / "secrets" / "spawner_token")

    @default("users_file")
    def _users_file(self) -> str:
        return str(self._root / "users.json")

    @property
    def _root(self) -> Path:
        return Path(self.state_dir).absolute()

    def initialize(self, argv: Sequence[str] | None = None) -> None:
        """Read the command line and the configuration files."""
        self.parse_command_line(list(argv) if argv is not None else None)
        said = copy.deepcopy(self.config)
        for name in self.config_files:
            path = Path(name).absolute()
            self.update_config(PyFileConfigLoader(path.name, path=str(path.parent)).load_config())
        self.update_config(said)

    def settings(self) -> Settings:
        """Return the settings of the services."""
        root = self._root
        enrolment = _read_secret(self.enrolment_token_file)
        spawner = _read_secret(self.spawner_token_file)
        checkpoints = root / "checkpoints"
        return Settings(
            state_dir=root,
            bundles_dir=root / "bundles",
            default_checkpoint_storage=dict(self.checkpoint_storage)
            or {"type": "shared_fs", "host_path": str(checkpoints)},
            checkpoint_stores=tuple(dict(block) for block in self.checkpoint_stores),
            outgoing_allowed=tuple(self.outgoing_allowed),
            storage_credentials=self.storage_credentials,
            evidence_signer=tuple(self.evidence_signer),
            evidence_signer_key=self.evidence_signer_key,
            service_url=self.service_url,
            public_url=f"{self.public_url.rstrip('/')}{self.base_path}",
            cluster_id=self.cluster_id or _made_once(root / "db" / "cluster_id", lambda: secrets.token_hex(8)),
            version=detlab.__version__,
            enrolment_secret_hash=hashlib.sha256(enrolment.encode()).hexdigest() if enrolment else None,
            hub_secret_hash=hashlib.sha256(spawner.encode()).hexdigest() if spawner else None,
            server_authority=self._server_authority(),
            idle_timeouts=dict(self.idle_timeouts),
            idle_warning=self.idle_warning,
            spawn_lease=self.spawn_lease,
            agent_reconnect_wait=self.agent_reconnect_wait,
            pools=self._pools(),
            currency=self.currency,
            preemptions_per_hour=self.preemptions_per_hour,
            checkpoint_near=self.checkpoint_near,
            tasks_keep=self.tasks_keep_days * 86400.0,
            bundles_keep=self.bundles_keep_days * 86400.0,
            trash_window=self.trash_days * 86400.0,
            gc_delay=self.gc_delay,
            log_retention_days=self.log_retention_days,
            log_cleaning_hour=self.log_cleaning_hour,
            audit_keep=self.audit_keep_days * 86400.0,
            stream_bytes_per_user=self.stream_buffer_mb * 1024 * 1024,
            stream_slow_limit=self.stream_slow_limit,
            bundle_limit=self.bundle_limit_mb * 1024 * 1024,
            outputs_limit=self.outputs_limit_mb * 1024 * 1024,
            artifact_limit=self.artifact_limit_mb * 1024 * 1024,
            media_objects=self.media_objects,
            media_bytes=self.media_mb * 1024 * 1024,
            default_runtime=self.default_runtime,
            default_image=dict(self.default_image),
            task_container_defaults=self._container_defaults(),
            governed_mounts=self._governed_mounts(),
            uids=self._uids(),
            agent_nodes_limit=self.agent_nodes_limit,
            agent_slots_limit=self.agent_slots_limit,
            agent_zero_slot_tasks_limit=self.agent_zero_slot_tasks_limit,
            limits=read_limits(self),
            webhooks=self._webhooks(),
            smtp=self._smtp(),
        )

    def _server_authority(self) -> ServerAuthority | None:
        if not self.servers_certificate_file:
            return None
        found = ServerAuthority(Path(self.servers_certificate_file), Path(self.servers_key_file))
        found.prove()
        return found

    def _pools(self) -> Pools:
        """Return the pools.

        Raises:
            DetlabError: Their configuration has errors; the message lists all of them.
        """
        pools, errors = read_pools(self.pools, self.default_compute_pool, self.default_zero_slot_pool)
        if errors:
            raise DetlabError(
                f"the configuration of the pools is wrong: {'; '.join(errors)}", hint="correct c.DetHub.pools"
            )
        return pools

    def _governed_mounts(self) -> GovernedMounts:
        """Return what mounts need of pools.

        Raises:
            DetlabError: It has errors; the message lists all of them.
        """
        found, errors = read_governed_mounts(self.governed_mounts)
        if errors:
            raise DetlabError(
                f"the governed mounts are wrong: {'; '.join(errors)}", hint="correct c.DetHub.governed_mounts"
            )
        return found

    def _container_defaults(self) -> dict[str, Any]:
        """Return what the cluster gives to all tasks.

        Raises:
            DetlabError: It has errors; the message lists all of them.
        """
        found, problems = container_defaults.read(dict(self.task_container_defaults))
        if problems:
            said = "; ".join(f"{one.path} {one.message}".strip() for one in problems)
            raise DetlabError(
                f"the defaults of tasks are wrong: {said}", hint="correct c.DetHub.task_container_defaults"
            )
        return found

    def _webhooks(self) -> tuple[Webhook, ...]:
        """Return the webhooks.

        Raises:
            DetlabError: Their configuration has errors; the message lists all of them, without the secrets.
        """
        hooks, errors = read_webhooks(self.webhooks)
        if errors:
            raise DetlabError(
                f"the configuration of the webhooks is wrong: {'; '.join(errors)}", hint="correct c.DetHub.webhooks"
            )
        return hooks

    def _smtp(self) -> SmtpServer | None:
        """Return the mail server.

        Raises:
            DetlabError: Its configuration has errors; the message lists all of them.
        """
        server, errors = read_smtp(self.smtp)
        if errors:
            raise DetlabError(
                f"the configuration of the mail server is wrong: {'; '.join(errors)}", hint="correct c.DetHub.smtp"
            )
        return server

    def _elastic(self, settings: Settings) -> tuple[ElasticPool, ...]:
        """Return the pools that have a provider.

        Raises:
            DetlabError: A provider is wrong.
        """
        arguments: tuple[str, ...] = ("--homes", str(self._root / "homes"))
        around = Surroundings(self._root / "instances", settings.service_url, settings.cluster_id, arguments)
        try:
            return make_pools(settings.pools, around)
        except ValueError as error:
            raise DetlabError(f"the configuration of the pools: {error}", hint="correct c.DetHub.pools") from error

    def _uids(self) -> UidPolicy:
        """Return the uids under which tasks run.

        Raises:
            DetlabError: The range or the map cannot be used.
        """
        try:
            in_file = read_uids(Path(self.user_map_file)) if self.user_map_file else {}
            policy = UidPolicy(
                parse_range(self.uid_range),
                {**in_file, **self.user_map},
                read_uids(Path(self.users_file)),
                lambda uid: account_name(uid) is not None,
                os.geteuid() == 0,
            )
        except (ValueError, IdentityError) as error:
            raise DetlabError(f"the uids of users: {error}", hint="correct c.DetHub.uid_range or .user_map") from error
        errors = errors_in(policy)
        if errors:
            raise DetlabError(f"the user map is wrong: {'; '.join(errors)}", hint="correct c.DetHub.user_map")
        return policy

    def hub_token(self) -> str:
        """Return this service's token for the Hub.

        Raises:
            DetlabError: There is none.
        """
        token = _read_secret(self.service_token_file) or os.environ.get("JUPYTERHUB_API_TOKEN", "")
        if not token:
            raise DetlabError(
                f"no token for the Hub: neither {self.service_token_file} nor JUPYTERHUB_API_TOKEN",
                hint="Register the service 'detlab' with the Hub and write its api_token there.",
            )
        return token

    def _check_address(self) -> None:
        """Refuse to carry tokens over a network in the clear.

        Raises:
            DetlabError: The address can be reached from other machines, and no TLS proxy is declared in front of it.
        """
        if not (self.behind_tls_proxy or is_loopback(self.ip)):
            raise DetlabError(
                f"the master would listen on {self.ip}, which other machines reach, and speaks plain HTTP: anyone on"
                " the network path could read its tokens",
                hint="Listen on loopback, behind the Hub's proxy with TLS; or, where a TLS proxy is in front of it, set"
                " c.DetHub.behind_tls_proxy = True",
            )

    async def serve(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set, or the database is lost. Running tasks continue when the master stops."""
        self._check_address()
        self.hub_token()  # without one nothing can be served: say so before anything is made
        self._pools()
        self._container_defaults()
        (self._root / "db").mkdir(mode=0o700, parents=True, exist_ok=True)
        store = await asyncio.to_thread(self._open_store)
        hub = HubServers(self.hub_api_url, self.hub_token())
        try:
            settings = await asyncio.to_thread(self._installed, self.settings(), store)
            services = Services(
                store, settings=settings, hub=hub, elastic=self._elastic(settings), consumers=installed()
            )
            await services.start()
            try:
                await self._serve_http(services, stop)
            finally:
                await services.stop()
        finally:
            await hub.close()
            store.close()

    def _open_store(self) -> Store:
        """Open the database; while an older schema is brought up to date, a file tells `det up` so."""
        note = self._root / "db" / UPGRADE_NOTE

        def upgrading() -> None:
            self.log.warning(
                "the database is brought to this version's schema: with much output in it that takes minutes, and room"
                " on the disk; stopped meanwhile, it starts over"
            )
            with contextlib.suppress(OSError):  # a full disk: what follows says so better
                note.write_text(f"{os.getpid()}\n", encoding="ascii")

        try:
            return Store.open(
                self.db_url,
                holder=f"{socket.gethostname()}:{os.getpid()}",
                upgrading=upgrading,
                copies=CopyPolicy(self._root / "db", required=not self.migrate_without_copy),
            )
        finally:
            note.unlink(missing_ok=True)

    def _installed(self, settings: Settings, store: Store) -> Settings:
        """Return the settings with the installation that this is; a file that `det up --take-over` made goes."""
        told = self._root / "db" / TAKE_OVER_NOTE
        take_over = told.exists()
        found = store.write_sync(lambda s: installation.settle(s, self.db_url, time.time(), take_over=take_over))
        told.unlink(missing_ok=True)
        if found.is_copy:
            self.log.warning("%s", A_COPY)
        elif take_over:
            self.log.warning("this installation owns the cluster's checkpoints from now on (epoch %d)", found.epoch)
        holder = StorageHolder(settings.cluster_id, found.instance, found.epoch)
        return dataclasses.replace(settings, holder=holder, is_copy=found.is_copy)

    async def _serve_http(self, services: Services, stop: asyncio.Event) -> None:
        hub = make_hub_auth(
            api_url=self.hub_api_url,
            api_token=self.hub_token(),
            base_url=self.base_path,
            hub_prefix=self.hub_prefix,
        )
        background = Background()
        cookie = _made_once(Path(self.cookie_secret_file), lambda: secrets.token_hex(32))
        web = WebSettings(
            cookie_secret=bytes.fromhex(cookie),
            hub_public_url=self.hub_prefix,
            background=background,
            prefix=self.base_path,
            shown_settings=partial(shown_settings, self),
        )
        application = make_application(services, Identifier(hub, services), web)
        server = HTTPServer(application, xheaders=True, max_body_size=MOST_READ)
        lent = inherited()
        if self.port in lent:
            server.add_socket(lent[self.port])
        else:
            server.listen(self.port, address=self.ip)
        self.log.info("serving on http://%s:%d%s", self.ip, self.port, self.base_path)
        try:
            await self._until_stop(services, stop)
        finally:
            server.stop()
            await application.settings["streams"].close()
            await server.close_all_connections()
            await background.wait()
            await close_hub_client()

    async def _until_stop(self, services: Services, stop: asyncio.Event) -> None:
        """Return when told to stop; raise when the database is lost for good and only a restart helps."""
        while not stop.is_set():
            try:
                await asyncio.wait_for(stop.wait(), 2.0)
            except TimeoutError:
                if not services[Cluster].healthy():
                    why = services.context.store.broken_because or "it cannot write to its database any more"
                    raise DetlabError(f"the master ends: {why}", hint=services.context.store.broken_hint) from None

    def start(self) -> None:
        """Run until SIGTERM or SIGINT."""
        level: Any = self.log_level
        write_to_stderr(level, as_json=self.log_as_json)
        asyncio.run(self._run())

    async def _run(self) -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        await self.serve(stop)
        self.log.info("stopped")


def _read_secret(path: str) -> str:
    try:
        return one_word(Path(path).read_text(encoding="ascii"), path)
    except FileNotFoundError:
        return ""


def _made_once(path: Path, make: Any) -> str:
    """Return a file's text, written (mode 0600) when it is first needed."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(make())
    return path.read_text(encoding="ascii").strip()
