"""Keys and region as `aws configure` writes them; obstore reads the environment and asks instances, but no files."""

from __future__ import annotations

import configparser
import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from detlab.errors import StorageError

_READ_AGAIN = timedelta(minutes=10)
"""For how long temporary keys of a file are believed: whoever wrote them writes new ones."""
_BEFORE = ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE")
"""Variables that take precedence over the files, as in AWS's own programs; AWS_PROFILE does over the second one."""
_BY_BOTO3 = ("sso_session", "sso_start_url", "role_arn", "credential_process", "login_session")


def profile_credentials() -> Callable[[], Mapping[str, Any]] | None:
    """Return what gives the keys of AWS_PROFILE, or of `default`; None if there are none, or others come first.

    A profile of single sign-on, of a role or of a program is read by boto3, if that is installed.

    Raises:
        StorageError: boto3 gets no keys of the profile.
    """
    if any(os.environ.get(name) for name in (_BEFORE[:1] if os.environ.get("AWS_PROFILE") else _BEFORE)):
        return None
    found = _profile()
    if "aws_access_key_id" in found and "aws_secret_access_key" in found:
        return _keys
    return _boto3_credentials() if any(name in found for name in _BY_BOTO3) else None


def profile_region() -> str | None:
    """Return the region of the profile, if the environment names none."""
    if os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION"):
        return None
    return _profile().get("region")


def _keys() -> dict[str, Any]:
    found = _profile()
    token = found.get("aws_session_token")
    return {
        "access_key_id": found.get("aws_access_key_id", ""),
        "secret_access_key": found.get("aws_secret_access_key", ""),
        "token": token,
        "expires_at": datetime.now(UTC) + _READ_AGAIN if token else None,
    }


def _boto3_credentials() -> Callable[[], Mapping[str, Any]] | None:
    try:
        import boto3
        from botocore.exceptions import BotoCoreError
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError:
        return None
    try:
        provider: Callable[[], Mapping[str, Any]] = Boto3CredentialProvider(boto3.Session())
    except (BotoCoreError, ValueError) as error:
        name = os.environ.get("AWS_PROFILE") or "default"
        raise StorageError(
            f"the AWS profile {name!r} gives no keys: {error}", hint="see what this says: aws sts get-caller-identity"
        ) from None
    return provider


def _profile() -> dict[str, str]:
    """Return the profile's entries; the file of credentials comes before that of settings."""
    name = os.environ.get("AWS_PROFILE") or "default"
    settings = _section("AWS_CONFIG_FILE", "~/.aws/config", name if name == "default" else f"profile {name}")
    return {**settings, **_section("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials", name)}


def _section(variable: str, usual: str, name: str) -> dict[str, str]:
    parser = configparser.RawConfigParser(strict=False, default_section="")
    try:
        parser.read_string(Path(os.environ.get(variable) or usual).expanduser().read_text(encoding="utf-8"))
        return dict(parser[name])
    except (OSError, RuntimeError, ValueError, KeyError, configparser.Error):  # none, or not for us
        return {}
