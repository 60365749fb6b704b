"""What it costs to store files in an object store and to fetch them again: prints one JSON object.

    python artifact_copies.py detlab|boto3|obstore|s3fs|dcp ADDRESS FOLDER TARGET NAME

FOLDER is stored under NAME, then fetched into TARGET (made here, empty); both are timed, with this process's CPU.
`dcp` stores as many bytes of tensors instead, by torch.distributed.checkpoint and its fsspec storage.
"""

import json
import os
import resource
import shutil
import sys
import time
from pathlib import Path

BUCKET = "bench"


def cpu():
    return sum(
        used.ru_utime + used.ru_stime
        for used in (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    )


def measured(what):
    began, before = time.perf_counter(), cpu()
    what()
    return time.perf_counter() - began, cpu() - before


def detlab(address, folder, target, name):
    from detlab.storage.config import from_config

    keys = {"access_key": "bench", "secret_key": "benchbench", "endpoint_url": address}
    store = from_config({"type": "s3", "bucket": BUCKET, **keys})
    made = {}

    def put():
        part = store.upload(folder, name)
        made["manifest"] = store.publish(name, {"steps_completed": 1}, part)

    return put, lambda: store.download(name, target, made["manifest"])


def boto3(address, folder, target, name):
    import boto3 as library

    keys = {"aws_access_key_id": "bench", "aws_secret_access_key": "benchbench", "region_name": "us-east-1"}
    client = library.client("s3", endpoint_url=address, **keys)
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]

    def put():
        for path in files:
            client.upload_file(str(path), BUCKET, f"{name}/{path.relative_to(folder)}")

    def get():
        for path in files:
            client.download_file(BUCKET, f"{name}/{path.relative_to(folder)}", str(target / path.relative_to(folder)))

    return put, get


def obstore(address, folder, target, name):
    """The library alone, below detlab's storages: no digests, no manifest."""
    import obstore as library
    from obstore.store import S3Store

    store = S3Store(
        BUCKET, endpoint=address, access_key_id="bench", secret_access_key="benchbench", region="us-east-1",
        virtual_hosted_style_request=False, client_options={"allow_http": True}, unsigned_payload=True,
    )  # fmt: skip
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]

    def put():
        for path in files:
            library.put(store, f"{name}/{path.relative_to(folder)}", path, chunk_size=8 << 20, max_concurrency=8)

    def get():
        for path in files:
            with (target / path.relative_to(folder)).open("wb") as file:
                for chunk in library.get(store, f"{name}/{path.relative_to(folder)}").stream(min_chunk_size=8 << 20):
                    file.write(chunk)

    return put, get


def s3fs(address, folder, target, name):
    import s3fs as library

    keys = {"key": "bench", "secret": "benchbench", "endpoint_url": address}
    system = library.S3FileSystem(**keys, client_kwargs={"region_name": "us-east-1"})
    return (
        lambda: system.put(f"{folder}/", f"{BUCKET}/{name}/", recursive=True),
        lambda: system.get(f"{BUCKET}/{name}/", f"{target}/", recursive=True),
    )


def dcp(address, folder, target, name):
    import torch
    from torch.distributed import checkpoint
    from torch.distributed.checkpoint._fsspec_filesystem import FsspecReader, FsspecWriter

    keys = {"key": "bench", "secret": "benchbench", "client_kwargs": {"region_name": "us-east-1"}}
    options = {**keys, "endpoint_url": address}
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    state = {f"weight{number}": torch.rand(size // 20 // 4) for number in range(20)}
    place = f"s3://{BUCKET}/{name}"
    return (
        lambda: checkpoint.save(state, storage_writer=FsspecWriter(place, **options), no_dist=True),
        lambda: checkpoint.load(state, storage_reader=FsspecReader(place, **options), no_dist=True),
    )


def main():
    kind, address, folder, target, name = sys.argv[1:]
    os.environ.update(AWS_EC2_METADATA_DISABLED="true")
    Path(target).mkdir(parents=True)
    clients = {"detlab": detlab, "boto3": boto3, "obstore": obstore, "s3fs": s3fs, "dcp": dcp}
    put, get = clients[kind](address, Path(folder), Path(target), name)
    up, up_cpu = measured(put)
    down, down_cpu = measured(get)
    shutil.rmtree(target)
    print(json.dumps({"up": up, "up_cpu": up_cpu, "down": down, "down_cpu": down_cpu}), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
