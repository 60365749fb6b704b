"""Configs, and texts that may quote them, in the form that is shown: secrets masked, everything else unchanged."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Any

from detlab.schemas.expconf.raw.secret_keys import MASK, SECRET_BLOCKS, SECRET_KEYS, is_secret_option
from detlab_hub.services.base.warm_start import as_asked

_SECRET_NAMES = re.compile(
    r"TOKEN|SECRET|PASSW|CREDENTIAL|(API|ACCESS|PRIVATE|ACCOUNT)_?KEY|CONNECTION_STRING", re.IGNORECASE
)
"""Environment variables whose values must not be readable in a card that is forwarded to others for help."""
_SHORTEST = 6
"""Characters of the shortest secret that is masked in a text: to mask every "1" would hide what happened."""


_ADDRESSES = frozenset({"account_url", "endpoint_url"})
_IN_ADDRESS = re.compile(r"(?<=\?).+|(?<=://)[^/@]+(?=@)", re.DOTALL)
_FSSPEC = "fsspec"
"""The type of `checkpoint_storage` whose options have names of their own."""


def masked_config(config: dict[str, Any]) -> dict[str, Any]:
    """Return the config as submitted, with `data.secrets` and all credentials replaced by a mask."""
    asked = as_asked(config)
    shown = {key: (_mask(value) if key in SECRET_BLOCKS else value) for key, value in asked.items()}
    data = shown.get("data")
    if isinstance(data, dict) and (secrets := data.get("secrets")):
        # of a mapping the names are of use to its owner; anything else has nothing that could be shown
        shown["data"] = {**data, "secrets": dict.fromkeys(secrets, MASK) if isinstance(secrets, dict) else MASK}
    return shown


def masked_lineage(config: dict[str, Any]) -> dict[str, Any]:
    """Return the config for readers of a model, who may not read its experiment: secret variables are masked, too."""
    shown = masked_config(config)
    environment = shown.get("environment")
    if isinstance(environment, dict) and (variables := environment.get("environment_variables")):
        shown["environment"] = {**environment, "environment_variables": _mask_variables(variables)}
    return shown


def _mask_variables(value: Any) -> Any:
    """Mask `NAME=value` where the name is a secret's; for each kind of device, or for all."""
    if isinstance(value, dict):
        return {key: _mask_variables(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_mask_variables(item) for item in value]
    if not isinstance(value, str):
        return value
    name, separator, _ = value.partition("=")
    return f"{name}={MASK}" if separator and _SECRET_NAMES.search(name) else value


def masked_storage(storage: dict[str, Any]) -> dict[str, Any]:
    """Return a `checkpoint_storage` block with its credentials masked."""
    shown: dict[str, Any] = _mask(storage)
    return shown


def _mask(value: Any) -> Any:
    if isinstance(value, dict):
        if value.get("type") == _FSSPEC and isinstance(value.get("options"), dict):
            value = {**value, "options": _mask_options(value["options"])}
        return {
            key: MASK if key in SECRET_KEYS and isinstance(item, str) and item else _mask_address(key, _mask(item))
            for key, item in value.items()
        }
    return [_mask(item) for item in value] if isinstance(value, list) else value


def _mask_address(key: str, value: Any) -> Any:
    """Mask what opens a store in its address: a SAS token after the question mark, a user with a password."""
    if key not in _ADDRESSES or not isinstance(value, str):
        return value
    return _IN_ADDRESS.sub(MASK, value)


def _mask_options(value: Any, *, secret: bool = False) -> Any:
    """Mask texts and numbers below keys that are named as secrets are."""
    if isinstance(value, dict):
        return {key: _mask_options(item, secret=secret or is_secret_option(key)) for key, item in value.items()}
    if isinstance(value, list):
        return [_mask_options(item, secret=secret) for item in value]
    return MASK if secret and value and not isinstance(value, bool) else value


def _secret_options(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _texts(item) if is_secret_option(key) else _secret_options(item)


def secrets_of(config: dict[str, Any]) -> list[str]:
    """Return the secret texts in a config, longest first: `data.secrets`, credentials, variables with such names."""
    data = config.get("data")
    found = [*_texts(data.get("secrets") if isinstance(data, dict) else None)]
    for block in SECRET_BLOCKS:
        found += _credentials(config.get(block))
    environment = config.get("environment")
    if isinstance(environment, dict):
        for entry in _texts(environment.get("environment_variables")):
            name, _, value = entry.partition("=")
            if _SECRET_NAMES.search(name):
                found.append(value)
    return sorted({text for text in found if len(text) >= _SHORTEST}, key=lambda text: (-len(text), text))


def masked_text(text: str, secrets: Collection[str]) -> str:
    """Return a text with these secrets replaced by a mask."""
    for secret in secrets:
        text = text.replace(secret, MASK)
    return text


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)


def _credentials(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if value.get("type") == _FSSPEC:
            yield from _secret_options(value.get("options"))
        for key, item in value.items():
            if key in _ADDRESSES and isinstance(item, str):
                yield from _IN_ADDRESS.findall(item)
            yield from _texts(item) if key in SECRET_KEYS else _credentials(item)
    elif isinstance(value, list):
        for item in value:
            yield from _credentials(item)
