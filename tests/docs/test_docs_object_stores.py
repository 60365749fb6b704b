"""What "Keep checkpoints in S3, GCS or Azure" says: its blocks are stores, its words are those of our errors."""

from __future__ import annotations

import re
from typing import Any

import certifi
import pytest
import yaml
from botocore.stub import ANY, Stubber
from docs_snippets import DOCS, Block, blocks
from traitlets.config import Config

from detlab.errors import StorageDenied, StorageError
from detlab.schemas.expconf import check
from detlab.storage import from_config, from_string
from detlab.storage.objects.store import ObjectStorage
from detlab.storage.objects.words import error_of
from detlab_hub.app import DetHub
from detlab_hub.services.checkpoints.stores import NamedStore, kind_of

PAGE = DOCS / "how-to" / "keep-checkpoints-in-object-stores.md"
TEXT = PAGE.read_text(encoding="utf-8")
BLOCKS = blocks(PAGE, "yaml")
ROWS = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \| (.+) \|$", TEXT, re.MULTILINE)


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_each_block_is_a_store(block: Block) -> None:
    config = yaml.safe_load(block.text)
    assert [problem for problem in check(config) if "storage" in problem.path] == []
    storage = config["checkpoint_storage"]
    if "ca_file" in storage:
        storage["ca_file"] = certifi.where()
    store = from_config(storage)
    assert isinstance(store, ObjectStorage)
    assert "://models" in store.objects.where


def test_all_types_are_shown() -> None:
    assert {yaml.safe_load(block.text)["checkpoint_storage"]["type"] for block in BLOCKS} == {"s3", "gcs", "azure"}


def test_the_addresses_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    found = re.findall(r"[\"`](\w+://[a-z/]+)[\"`]", TEXT)
    assert len(found) == 4
    for address in found:
        assert isinstance(from_string(address), ObjectStorage)


def test_what_the_log_says_is_what_the_page_says() -> None:
    codes = {code: advice for names, advice in ROWS for code in re.findall(r"`(\w+)`", names) if code[0].isupper()}
    assert len(codes) >= 9
    for code, advice in codes.items():
        answer = f"status code: 400 Bad Request: <Error><Code>{code}</Code><Message>words</Message></Error>"
        error = error_of(answer, "read", "s3://b")
        assert type(error) in {StorageError, StorageDenied.__subclasses__()[0]}
        assert f"{code}: words" in error.message
        for word in ("bucket", "region", "keys"):
            if word in advice.split(",")[0] and code != "ExpiredToken":
                assert word in str(error.hint), code


def test_the_master_takes_the_configuration_and_gives_keys_as_the_page_says() -> None:
    block, _ = blocks(PAGE, "python")
    config = Config()
    exec(block.text, {"c": config})
    give: Any = DetHub(config=config).storage_credentials
    keys = {"AccessKeyId": "ASIA" + "X" * 16, "SecretAccessKey": "s", "SessionToken": "t", "Expiration": 4_000_000_000}
    wanted = {"RoleArn": "arn:aws:iam::123456789012:role/detlab", "DurationSeconds": 3600}
    with Stubber(give._client()) as sts:
        for _ in range(2):
            sts.add_response(
                "assume_role", {"Credentials": keys}, {**wanted, "RoleSessionName": "detlab-alice", "Policy": ANY}
            )
        place = {"type": "s3", "bucket": "models", "prefix": "users/alice"}
        assert give("alice", place)["access_key_id"] == keys["AccessKeyId"]
        assert give("alice", {**place, "prefix": "users/alice/vision"})["token"] == "t"
        for other in ({"prefix": "users/bob"}, {"bucket": "m"}, {"endpoint_url": "https://minio.example.org"}):
            assert give("alice", {**place, **other}) is None
        sts.assert_no_pending_responses()


def test_the_stores_that_the_page_names_are_the_clusters_own() -> None:
    _, block = blocks(PAGE, "python")
    config = Config()
    exec(block.text, {"c": config})
    operators = DetHub(config=config).checkpoint_stores
    assert kind_of({"type": "s3", "bucket": "models", "prefix": "users/alice"}, operators) is NamedStore.CLUSTER
    assert kind_of({"type": "gcs", "bucket": "vision-checkpoints"}, operators) is NamedStore.CLUSTER
    assert kind_of({"type": "s3", "bucket": "models", "prefix": "team"}, operators) is NamedStore.USERS
