"""A site's own nginx in front of a cluster: it ends TLS, and knows the cluster by its name only."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from testbed import processes

CONFIG = """\
worker_processes 1;
daemon off;
pid {folder}/nginx.pid;
events {{}}
http {{
  access_log {folder}/access.log;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  ssl_certificate {certificate};
  ssl_certificate_key {key};
  server {{
    listen 127.0.0.1:{port} ssl default_server;
    return 421;
  }}
{site}
}}
"""


def why_not() -> str | None:
    """Why it cannot be started here; None if it can."""
    return None if _program() else "nginx is not installed (Debian: apt-get install nginx)"


def _program() -> str | None:
    return shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


@contextmanager
def running_nginx(folder: Path, site: str, port: int, certificate: Path, key: Path) -> Iterator[Path]:
    """Start it with one site beside a default one that answers 421 to whoever names no site; yield its log.

    Args:
        folder: An empty folder of its own.
        site: The `server { … }` of the site; `listen` is at `port` of 127.0.0.1.
        port: Where it listens.
        certificate: Chain, PEM.
        key: Of the certificate.
    """
    folder.mkdir()
    folder.chmod(0o755)
    (folder / "nginx.conf").write_text(
        CONFIG.format(folder=folder, port=port, certificate=certificate, key=key, site=site)
    )
    program, log = _program(), folder / "error.log"
    assert program is not None
    with log.open("wb") as out:
        server = subprocess.Popen([program, "-e", "stderr", "-c", folder / "nginx.conf"], stdout=out, stderr=out)
    try:
        yield log
    finally:
        processes.end(server, 20)
