"""Fixtures of versions and their folders, as everywhere that versions are exported."""

from testbed.model_versions import contents, folder, version

__all__ = ["contents", "folder", "version"]
