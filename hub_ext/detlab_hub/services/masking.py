"""Configs as people may see them: secrets masked, everything else as it is."""

from __future__ import annotations

from typing import Any

from detlab_hub.services.sources import as_asked

MASK = "********"
_SECRET_KEYS = frozenset(
    {
        "access_key",
        "secret_key",
        "connection_string",
        "credential",
        "password",
        "identitytoken",
        "registrytoken",
        "token",
        "auth",
    }
)
_SECRET_BLOCKS = ("checkpoint_storage", "environment", "integrations")


def masked_config(config: dict[str, Any]) -> dict[str, Any]:
    """The config as it was asked for, with `data.secrets.*` and all credentials replaced by a mask."""
    asked = as_asked(config)
    shown = {key: (_mask(value) if key in _SECRET_BLOCKS else value) for key, value in asked.items()}
    data = shown.get("data")
    if isinstance(data, dict) and isinstance(data.get("secrets"), dict):
        shown["data"] = {**data, "secrets": dict.fromkeys(data["secrets"], MASK)}
    return shown


def masked_storage(storage: dict[str, Any]) -> dict[str, Any]:
    """A `checkpoint_storage` block with its credentials masked."""
    shown: dict[str, Any] = _mask(storage)
    return shown


def _mask(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: MASK if key in _SECRET_KEYS and isinstance(item, str) and item else _mask(item)
            for key, item in value.items()
        }
    return [_mask(item) for item in value] if isinstance(value, list) else value
