"""Docker engines, images, a registry and stand-ins for GPUs. Nothing that needs no container."""
