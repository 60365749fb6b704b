"""Where elastic pools get their instances: providers."""

from detlab_hub.backends.instances.base import Order, Provider, ProviderError, Trouble

__all__ = ["Order", "Provider", "ProviderError", "Trouble"]
