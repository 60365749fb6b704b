"""Runs of other systems, for tests of importers: what the real packages have written, logs made by hand, a server."""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import time
import urllib.request
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from detlab.testing.ports import free_port

FILES = Path(__file__).parent
BLOCK = 32 * 1024


def unpacked(name: str, folder: Path) -> Path:
    """Unpack an archive of this folder; return the folder."""
    with zipfile.ZipFile(FILES / name) as archive:
        archive.extractall(folder)
    return folder


def mlrun(root: Path, run: str = "a" * 32, **metrics: str) -> Path:
    """Make a folder mlruns/ by hand with one run; `metrics` are the texts of their files. Return the run's folder."""
    write(root / "1" / "meta.yaml", "experiment_id: '1'\nname: hand\nlifecycle_stage: active\n")
    folder = root / "1" / run
    write(folder / "meta.yaml", f"run_id: {run}\nstatus: 3\nstart_time: 5\nend_time: 9\nlifecycle_stage: active\n")
    for key, text in metrics.items():
        write(folder / "metrics" / key, text)
    return folder


def write(path: Path, text: str) -> None:
    """Write a file, with the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


# --- W&B


def varint(value: int) -> bytes:
    """Encode a number as protobuf does."""
    found = bytearray()
    while True:
        value, byte = value >> 7, value & 0x7F
        found.append(byte | (0x80 if value else 0))
        if not value:
            return bytes(found)


def part(number: int, value: bytes | int) -> bytes:
    """Encode a field: bytes with their length, or a number."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def item(key: str, value: object) -> bytes:
    """Encode an item of a row, a config or a summary."""
    return part(1, key.encode()) + part(16, json.dumps(value).encode())


def start(run: str = "r1", project: str = "digits", **config: object) -> bytes:
    """Encode the record that a run begins with."""
    body = part(1, run.encode()) + part(3, project.encode()) + part(8, b"name")
    body += part(4, b"".join(part(1, item(key, value)) for key, value in config.items()))
    return part(1, 1) + part(17, body + part(17, part(1, 1000) + part(2, 5_000_000)))


def row(step: int, **values: object) -> bytes:
    """Encode a row of the history."""
    said = {"_step": step, "_timestamp": 1000 + step, **values}
    return part(2, b"".join(part(1, item(key, value)) for key, value in said.items()))


def exit_record(code: int = 0) -> bytes:
    """Encode the record that a run ends with."""
    return part(18, part(1, code) + part(2, 7))


def log_of(records: Iterable[bytes], version: int = 0) -> bytes:
    """Write records as W&B does."""
    found = bytearray(struct.pack("<4sHB", b":W&B", 0xBEE1, version))
    for record in records:
        rest, first = record, True
        while True:
            room = BLOCK - len(found) % BLOCK
            if room < 7:
                found += bytes(room)
                room = BLOCK
            piece, rest = rest[: room - 7], rest[room - 7 :]
            kind = (1 if first else 4) if not rest else (2 if first else 3)
            found += struct.pack("<IHB", zlib.crc32(piece, zlib.crc32(bytes([kind]))), len(piece), kind) + piece
            first = False
            if not rest:
                break
    return bytes(found)


def wandb_run(root: Path, data: bytes, name: str = "offline-run-20261130_000000-r1") -> Path:
    """Make a folder of a run of W&B with a log; return it."""
    folder = root / name
    (folder / "files").mkdir(parents=True, exist_ok=True)
    (folder / f"run-{name.rpartition('-')[2]}.wandb").write_bytes(data)
    return folder


# --- a server of MLflow


ROOT = Path(__file__).parents[3]
MAKE_MLRUNS = FILES / "make_mlruns.py"
PYTHONS = {"3": ROOT / ".venv-mlflow" / "bin" / "python", "2": ROOT / ".venv-mlflow2" / "bin" / "python"}
"""Python with a version of MLflow, in an environment of its own."""


@contextmanager
def mlflow_server(version: str, folder: Path) -> Iterator[str]:
    """Start a tracking server: of MLflow 3 on SQLite with files behind it, of MLflow 2 on a folder; yield its address.

    MLflow 2 does not know the SQLAlchemy of today, and its own launcher wants gunicorn: Flask's will do.
    """
    port = free_port()
    folder.mkdir(parents=True)
    python = str(PYTHONS[version])
    environment = {"PATH": os.defpath, "HOME": str(folder), "MLFLOW_DISABLE_TELEMETRY": "true"}
    if version == "3":
        command = [python, "-W", "ignore", "-m", "mlflow", "server", "--workers", "1", "--port", str(port)]
        command += ["--backend-store-uri", f"sqlite:///{folder}/runs.db", "--artifacts-destination", f"{folder}/files"]
    else:
        command = [python, "-W", "ignore", "-m", "flask", "--app", "mlflow.server:app", "run", "--port", str(port)]
        place = str(folder / "mlruns")
        environment |= {"_MLFLOW_SERVER_FILE_STORE": place, "_MLFLOW_SERVER_ARTIFACT_ROOT": place}
    log = (folder / "server.log").open("wb")
    process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=folder, start_new_session=True)
    try:
        _await(f"http://127.0.0.1:{port}/health", process, folder / "server.log")
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        log.close()


def _await(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + 120
    while time.monotonic() < until and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except OSError:
            time.sleep(0.2)
    raise AssertionError(f"MLflow's server does not answer: {log.read_text(errors='replace')[-3000:]}")


def make_mlruns(version: str, where: str, folder: Path) -> None:
    """Log the runs of `make_mlruns.py` to a server, or into a folder, with the real client."""
    environment = {
        "PATH": os.defpath,
        "HOME": str(folder),
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "GIT_PYTHON_REFRESH": "q",
    }
    command = [str(PYTHONS[version]), "-W", "ignore", str(MAKE_MLRUNS), where]
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
