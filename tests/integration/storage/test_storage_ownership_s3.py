"""In a bucket: the record of who owns a prefix, and the parts of uploads that never ended."""

from __future__ import annotations

import boto3
import pytest

from detlab.schemas.checkpoint_ids import new_checkpoint_id
from detlab.storage import from_config
from detlab.storage.inventory import Uploads, inventory, remove
from detlab.storage.objects.store import ObjectStorage
from detlab.storage.ownership import StorageHolder, StorageOwned
from testbed.objectstores.servers import BUCKET, ObjectServer

ORIGINAL, COPY, TOOK_OVER = (
    StorageHolder("c1", "original", 1),
    StorageHolder("c1", "copy", 1),
    StorageHolder("c1", "copy", 2),
)


def opened(server: ObjectServer, prefix: str, holder: StorageHolder) -> ObjectStorage:
    store = from_config(server.block(prefix))
    assert isinstance(store, ObjectStorage)
    return store.held_by(holder)


def saved(store: ObjectStorage) -> str:
    uuid = new_checkpoint_id(7)
    (store.stage(uuid) / "model.pt").write_bytes(b"weights")
    store.publish(uuid, {"steps_completed": 1}, store.seal(uuid))
    return uuid


def test_a_copy_only_reads_a_prefix_and_another_prefix_is_nobodys(s3_server: ObjectServer, prefix: str) -> None:
    uuid = saved(opened(s3_server, prefix, ORIGINAL))
    copy = opened(s3_server, prefix, COPY)
    for change in (lambda: copy.delete(uuid), lambda: saved(copy), copy.check, lambda: copy.sweep(0.0)):
        with pytest.raises(StorageOwned):
            change()
    assert copy.uuids() == [uuid]
    saved(opened(s3_server, f"{prefix}/elsewhere", COPY))
    opened(s3_server, prefix, TOOK_OVER).delete(uuid)
    with pytest.raises(StorageOwned):
        saved(opened(s3_server, prefix, ORIGINAL))


def test_parts_of_an_upload_that_never_ended_are_found_and_removed(s3_server: ObjectServer, prefix: str) -> None:
    block = s3_server.block(prefix, region="us-east-1")
    keys = {"aws_access_key_id": "key", "aws_secret_access_key": "secret", "region_name": "us-east-1"}
    client = boto3.client("s3", endpoint_url=block["endpoint_url"], **keys)
    uuid = new_checkpoint_id(7)
    begun = client.create_multipart_upload(Bucket=BUCKET, Key=f"{prefix}/{uuid}/model.pt")["UploadId"]
    client.upload_part(Bucket=BUCKET, Key=f"{prefix}/{uuid}/model.pt", UploadId=begun, PartNumber=1, Body=b"x" * 1000)
    client.create_multipart_upload(Bucket=BUCKET, Key=f"{prefix}-of-a-neighbour/{uuid}/model.pt")
    uploads = Uploads(block)
    (found,) = uploads.list()
    assert (found.uuid, found.bytes) == (uuid, 1000)
    uploads.abort(found)
    assert uploads.list() == []


def test_what_is_begun_is_listed_with_its_marks_and_goes_with_them(s3_server: ObjectServer, prefix: str) -> None:
    store = opened(s3_server, prefix, ORIGINAL)
    uuid, kept = new_checkpoint_id(7), saved(store)
    store.mark(uuid, "c1-7", 3)
    (store.stage(uuid) / "model.pt").write_bytes(b"weights")
    store.seal(uuid)
    found = {one.uuid: one for one in inventory(store)}
    assert (found[uuid].published, found[uuid].marks, found[uuid].bytes) == (False, [("c1-7", 3)], 7)
    assert (found[kept].published, found[kept].marks) == (True, [])
    remove(store, found[uuid])
    assert [one.uuid for one in inventory(store)] == [kept]
