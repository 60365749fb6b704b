"""Short-lived credentials of object stores for tasks, as operators configure them.

    c.DetHub.storage_credentials = AssumeRole("arn:aws:iam::123456789012:role/detlab", bucket="checkpoints",
                                              prefix="{owner}")

Any callable will do that takes the task's owner and the experiment's `checkpoint_storage` block, and returns None to
give nothing, or credentials as obstore's client takes them, with `expires_at` (a datetime, or seconds since the epoch):

    s3       access_key_id, secret_access_key, token
    gcs      token
    azure    token, or sas_token, or access_key

It is called in a thread, for each task and again before what it gave expires. The block is a user's word: give only
what that owner may have.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

_NOT_IN_NAMES = re.compile(r"[^\w+=,.@-]", re.ASCII)
_OBJECTS = ["s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload", "s3:ListMultipartUploadParts"]


class AssumeRole:
    """Gives credentials of an AWS role, restricted to the part of one bucket that belongs to the task's owner.

    The master itself needs leave to assume the role (`sts:AssumeRole`), from its own environment. A block that names
    another bucket, or something outside of the owner's prefix, gets nothing. Needs boto3: the extra `aws`.

    Args:
        role_arn: The role.
        bucket: The bucket for which it is.
        prefix: Where in it the owner's checkpoints are; `{owner}` stands for the owner's name: `users/{owner}`. Empty:
            all owners share the bucket.
        seconds: For how long credentials hold; AWS takes 900 to the role's maximum.
        region: Region of STS.
        endpoint_url: Another endpoint of STS.
    """

    def __init__(
        self,
        role_arn: str,
        *,
        bucket: str,
        prefix: str = "",
        seconds: int = 3600,
        region: str | None = None,
        endpoint_url: str | None = None,
    ) -> None:
        self._role, self._bucket, self._seconds = role_arn, bucket, seconds
        self._prefix = prefix.strip("/")
        self._where = {"region_name": region, "endpoint_url": endpoint_url}
        self._sts: Any = None

    def __call__(self, owner: str, block: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return credentials for a block; None if it is not for this role."""
        if block.get("type") != "s3" or block.get("bucket") != self._bucket or block.get("endpoint_url"):
            return None
        root = self._root_of(owner)
        asked = str(block.get("prefix") or "").strip("/")
        if root is None or ".." in asked.split("/") or (root and asked != root and not asked.startswith(f"{root}/")):
            return None
        reply = self._client().assume_role(
            RoleArn=self._role,
            RoleSessionName=_session_name(owner),
            DurationSeconds=self._seconds,
            Policy=json.dumps(_policy(self._bucket, root)),
        )
        found = reply["Credentials"]
        return {
            "access_key_id": found["AccessKeyId"],
            "secret_access_key": found["SecretAccessKey"],
            "token": found["SessionToken"],
            "expires_at": found["Expiration"],
        }

    def _root_of(self, owner: str) -> str | None:
        """Return the owner's prefix; None for a name that would lead elsewhere, or stand for other names."""
        if "{owner}" in self._prefix and (not owner or owner in {".", ".."} or re.search(r"[/*?$\x00-\x1f]", owner)):
            return None
        return self._prefix.replace("{owner}", owner)

    def _client(self) -> Any:
        if self._sts is None:
            import boto3
            from botocore.config import Config

            config = Config(connect_timeout=5, read_timeout=5, retries={"total_max_attempts": 2})
            self._sts = boto3.client("sts", config=config, **self._where)
        return self._sts


def _policy(bucket: str, root: str) -> dict[str, Any]:
    """Return the policy that leaves of the role's rights those on one prefix."""
    arn = f"arn:aws:s3:::{bucket}"
    listing: dict[str, Any] = {"Effect": "Allow", "Action": ["s3:ListBucket"], "Resource": [arn]}
    if root:
        listing["Condition"] = {"StringLike": {"s3:prefix": [root, f"{root}/*"]}}
    objects = f"{arn}/{root}/*" if root else f"{arn}/*"
    return {
        "Version": "2012-10-17",
        "Statement": [{"Effect": "Allow", "Action": _OBJECTS, "Resource": [objects]}, listing],
    }


def _session_name(owner: str) -> str:
    """Return a name for AWS's own audit log: 2 to 64 characters, of two owners never the same."""
    plain = _NOT_IN_NAMES.sub("-", owner)
    if plain == owner and 2 <= len(f"detlab-{owner}") <= 64:
        return f"detlab-{owner}"
    return f"detlab-{plain[:40]}-{hashlib.sha256(owner.encode()).hexdigest()[:12]}"
