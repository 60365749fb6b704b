"""What checkpoints cost in an object store, and how long the registry, collection and the sums over storage take.

    python bench/artifacts.py
    python bench/artifacts.py --quick
    python bench/artifacts.py --parts copies,stall --server moto
    make bench-artifacts BENCH_ARGS="--json"

**Copies**: 500 MB in five files are stored and fetched again by detlab's storage, by boto3's `upload_file` and
`download_file`, by s3fs, and, as tensors, by torch's distributed checkpoint over fsspec. Each client is a process of
its own whose CPU is counted, and they take turns. The server is `bench/load/objects.py`, which keeps what comes from
the socket in memory and costs next to nothing, so that the client is measured; by `--server moto` it is moto's, which
is slower than any of them. detlab writes a manifest with a digest of each file, and checks it after fetching: the
others do not. The floor is a bare socket that sends, or takes, as many bytes.

**Stall**: a loop of small steps in Python beside which a thread stores the same files: by how much the loop gets longer
with an object store, and with a directory.

**Registry, collection, sums**: a database with 100,000 versions of 100 models, an experiment with 100,000 checkpoints
in 1,000 trials, and 100,000 checkpoints of 50 users: a query for the best as the service answers it, what a policy
keeps (the decision alone, and the whole preview with pins and metrics), and `storage usage`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import sys
import tempfile
import threading
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from measure import (
    OURS,
    ROOT,
    Figure,
    absent,
    ask_peer,
    conclude,
    median_of,
    options,
    percentile,
    program,
    spread,
    until,
)

from detlab.storage.config import from_config

PARTS = ("copies", "stall", "queries")
FILES = 5
CLIENTS = {"detlab": OURS, "boto3": OURS, "obstore": OURS, "s3fs": "artifacts", "dcp": "artifacts"}
"""Each with the environment that it runs in."""
WORDS = {
    "detlab": "detlab (with manifest and digests)",
    "boto3": "boto3",
    "obstore": "obstore alone, without digests",
    "s3fs": "s3fs",
    "dcp": "torch DCP with fsspec and s3fs",
}
TIMES = 1.5
"""Goal: of boto3's throughput."""
BARE = 0.9
"""Goal: of the throughput of obstore alone, which digests nothing."""
CPU_PART = 1 / 3
"""Goal: of boto3's CPU."""


# --- copies -----------------------------------------------------------------------------------------------------------


@contextmanager
def object_server(kind: str, folder: Path) -> Iterator[str]:
    """Run an object store with a bucket; yield its address."""
    if kind == "raw":
        port_file = folder / "port"
        port_file.unlink(missing_ok=True)
        command = [sys.executable, str(ROOT / "bench" / "load" / "objects.py"), str(port_file)]
        with program(command, folder / "objects.log"):
            until(lambda: port_file.exists() and port_file.read_text() != "", "the object server")
            yield f"http://127.0.0.1:{port_file.read_text()}"
        return
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    with program([sys.executable, "-m", "moto.server", "-p", str(port)], folder / "moto.log"):
        until(lambda: reachable(port), "moto's server")
        asked = urllib.request.Request(f"{address}/bench", method="PUT")
        urllib.request.urlopen(asked).close()
        yield address


def reachable(port: int) -> bool:
    """Whether something listens there."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def make_files(folder: Path, size: int) -> None:
    """Write files of random bytes, as weights are: nothing in them can be packed."""
    folder.mkdir()
    for number in range(FILES):
        with (folder / f"shard-{number}.safetensors").open("wb") as file:
            for _ in range(size // FILES // 1_000_000):
                file.write(os.urandom(1_000_000))


def floor(size: int) -> float:
    """Seconds in which one thread sends so many bytes to another over a socket."""
    piece = memoryview(bytearray(1 << 20))
    with socket.create_server(("127.0.0.1", 0)) as server:

        def take() -> None:
            connection, _ = server.accept()
            room = memoryview(bytearray(1 << 20))
            with connection:
                while connection.recv_into(room):
                    pass

        taking = threading.Thread(target=take)
        began = time.perf_counter()
        taking.start()
        with socket.create_connection(server.getsockname()) as sending:
            for _ in range(size >> 20):
                sending.sendall(piece)
        taking.join()
        return time.perf_counter() - began


def copies(given: argparse.Namespace, root: Path, size: int) -> list[Figure]:
    """Store and fetch by each client in turn."""
    make_files(root / "files", size)
    found: dict[str, list[dict[str, float]]] = {client: [] for client in CLIENTS}
    why = {client: "" if env == OURS else absent(env, given) for client, env in CLIENTS.items()}
    floors = []
    for number in range(given.rounds):
        for client, env in CLIENTS.items():
            if why[client]:
                continue
            target = root / f"target-{client}-{number}"
            # A server for each: it keeps in memory what it was given.
            with object_server(given.server, root) as address:
                asked = (client, address, str(root / "files"), str(target), str(uuid.uuid4()))
                found[client].append(ask_peer(env, "artifact_copies.py", *asked))
        floors.append(floor(size))
    figures = []
    for way, word in (("up", "up"), ("down", "down")):
        for client, rounds in found.items():
            figures += _rows(client, word, way, rounds, found, size, why[client])
        rates = [size / 1e6 / one for one in floors]
        figures.append(Figure(f"  floor: one socket, {word}", median_of(rates), "MB/s", note=spread(rates)))
    return figures


def _rows(
    client: str,
    word: str,
    way: str,
    rounds: Sequence[dict[str, float]],
    all_rounds: Mapping[str, Sequence[dict[str, float]]],
    size: int,
    why: str,
) -> list[Figure]:
    label = f"{WORDS[client]}, {word}"
    if not rounds:
        return [Figure(f"  {label}", None, note=why)]
    rates = [size / 1e6 / one[way] for one in rounds]
    cpu = [one[f"{way}_cpu"] for one in rounds]
    if client != "detlab":
        return [
            Figure(f"  {label}", median_of(rates), "MB/s", note=spread(rates)),
            Figure(f"  {label}: CPU", median_of(cpu), "s", note=spread(cpu)),
        ]
    beside = all_rounds["boto3"]
    ratio = median_of(rates) / median_of([size / 1e6 / one[way] for one in beside])
    # In the same minute: the machine is as busy for both.
    bare = median_of([other[way] / own[way] for own, other in zip(rounds, all_rounds["obstore"], strict=True)])
    part = median_of(cpu) / median_of([one[f"{way}_cpu"] for one in beside])
    return [
        Figure(label, median_of(rates), "MB/s", note=spread(rates)),
        Figure(f"{label}: throughput beside boto3's", ratio, "x", at_least=TIMES),
        Figure(f"{label}: throughput beside obstore's alone", bare, "x", at_least=BARE),
        Figure(f"{label}: CPU", median_of(cpu), "s", note=spread(cpu)),
        Figure(f"{label}: CPU beside boto3's", part, "x", at_most=CPU_PART),
    ]


# --- stall ------------------------------------------------------------------------------------------------------------


def steps_while(busy: Callable[[], bool]) -> list[float]:
    """Return the seconds of each step of a small loop, for as long as something is so."""
    taken = []
    while busy():
        began = time.perf_counter()
        sum(range(20_000))
        taken.append(time.perf_counter() - began)
    return taken


def stall(given: argparse.Namespace, root: Path, size: int) -> list[Figure]:
    """Compare the loop beside an upload to a directory and to an object store."""
    files = root / "files"
    if not files.exists():
        make_files(files, size)
    added: dict[str, list[float]] = {"directory": [], "s3": []}
    longest: dict[str, list[float]] = {"directory": [], "s3": []}
    with object_server(given.server, root) as address:
        keys = {"access_key": "bench", "secret_key": "benchbench", "endpoint_url": address}
        stores = {
            "directory": from_config({"type": "directory", "container_path": str(root / "store")}),
            "s3": from_config({"type": "s3", "bucket": "bench", **keys}),
        }
        until_then = time.perf_counter() + 1.0
        alone = median_of(steps_while(lambda: time.perf_counter() < until_then))
        for _ in range(given.rounds):
            for kind, store in stores.items():
                name = str(uuid.uuid4())

                def put(store: Any = store, name: str = name) -> None:
                    store.publish(name, {"steps_completed": 1}, store.upload(files, name))

                storing = threading.Thread(target=put)
                storing.start()
                steps = steps_while(storing.is_alive)
                added[kind].append(sum(max(0.0, one - alone) for one in steps))
                longest[kind].append(max(steps, default=0.0))
                store.delete(name)
    bound = max(1.25 * median_of(added["directory"]), median_of(added["directory"]) + 0.05)
    return [
        Figure(
            f"Loop beside an upload to {'a directory' if kind == 'directory' else 'S3'}: longer by",
            median_of(added[kind]),
            "s",
            at_most=bound if kind == "s3" else None,
            note=f"{spread(added[kind])}; longest step {1e3 * median_of(longest[kind]):.1f} ms of {1e3 * alone:.2f} ms",
        )
        for kind in ("directory", "s3")
    ]


# --- queries ----------------------------------------------------------------------------------------------------------


def queries(given: argparse.Namespace, root: Path) -> list[Figure]:
    """Measure what the master answers from a large database."""
    sys.path.insert(0, str(ROOT / "bench" / "load"))
    import artifacts_database as made

    count = 5_000 if given.quick else 100_000
    with made.large(root, count) as world:
        looks = 20 if given.quick else 60
        figures = []
        for where in made.QUERIES:
            label = f"Best by accuracy where {where or 'anything'}, {count:,} versions: p95"
            figures.append(_looked(label, lambda where=where: world.best(where), looks, 50.0))
        for word, what in (("alone", world.decide), ("preview", world.preview)):
            taken = [_timed(what) for _ in range(given.rounds)]
            walls = [wall for wall, _ in taken]
            cpu = median_of(cpu for _, cpu in taken)
            label = f"Collection decides about {count:,}: {word}"
            note = f"{spread(walls)}; CPU {cpu:.2g} s"
            figures.append(Figure(label, median_of(walls), "s", at_most=2.0, note=note))
        for by in ("user", "group", "project", "experiment"):
            label = f"Storage usage by {by}, {2 * count:,} checkpoints: p95"
            figures.append(_looked(label, lambda by=by: world.usage(by), looks // 2, 200.0))
        return figures


def _looked(label: str, what: Callable[[], Any], looks: int, most: float) -> Figure:
    """Measure a question that is asked many times, in milliseconds."""
    taken = [_timed(what) for _ in range(looks)]
    walls = [wall * 1000 for wall, _ in taken]
    note = f"median {median_of(walls):.1f}; CPU {1000 * median_of(cpu for _, cpu in taken):.1f}"
    return Figure(label, percentile(walls, 95), "ms", at_most=most, note=note)


def _timed(what: Callable[[], Any]) -> tuple[float, float]:
    """Return the seconds that something takes, and those of this process's CPU."""
    began, before = time.perf_counter(), time.process_time()
    what()
    return time.perf_counter() - began, time.process_time() - before


def main() -> int:
    """Print the table; with --check status 1 if a goal is missed."""

    def more(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--parts", default=",".join(PARTS), help="some of copies,stall,queries")
        parser.add_argument("--server", choices=("raw", "moto"), default="raw", help="what stores the objects")

    given = options(__doc__ or "", more)
    size = (50 if given.quick else 500) * 1_000_000
    figures: list[Figure] = []
    parts = given.parts.split(",")
    with tempfile.TemporaryDirectory(
        prefix="detlab-bench-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None
    ) as name:
        root = Path(name)
        if "copies" in parts:
            figures += copies(given, root, size)
        if "stall" in parts:
            figures += stall(given, root, size)
        shutil.rmtree(root / "files", ignore_errors=True)
    if "queries" in parts:
        with tempfile.TemporaryDirectory(prefix="detlab-bench-") as name:
            figures += queries(given, Path(name))
    return conclude(
        f"Artifacts: {size // 1_000_000} MB on the {given.server} server, and large registries", figures, given
    )


if __name__ == "__main__":
    raise SystemExit(main())
