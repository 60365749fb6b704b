"""Where elastic pools get their instances: providers."""

from detlab_hub.backends.instances.base import InstanceOrder, Provider, ProviderError, Trouble

__all__ = ["InstanceOrder", "Provider", "ProviderError", "Trouble"]
