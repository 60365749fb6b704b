"""Where checkpoints are kept.

A checkpoint is a folder named by its uuid. It is *staged* in a folder of its user's own (`.unfinished-<uid>/`) on the
same file system, gets a manifest with the SHA-256 digest, size and mode of every file, and is *published* by one
rename; so a folder with a manifest is complete. It counts once the master has committed the manifest's digest. Until
then a mark beside the stage (`.pending-…`) names the trial and the attempt that began it: a later attempt of that trial
removes the stage, and `sweep` removes stages that were abandoned. What is published is removed by `delete` alone.

Users who do not trust each other may share a storage if its folder has the sticky bit (mode 1777): what is in a
checkpoint only its user can read, and others see its name once it is published, when they can no longer be in its way.

    storage = from_config({"type": "shared_fs", "host_path": "/data/checkpoints"})

Other types come from other packages by entry point (group `detlab.storages`); each implements `StorageManager` and
passes `detlab.testing.storage.StorageContract`: see docs/contributing/add-a-storage.md.
"""

from detlab.storage.base import ManifestNotWritten, StorageManager, StorageType
from detlab.storage.config import from_config, from_string
from detlab.storage.manifest import MANIFEST_NAME, METADATA_NAME, Manifest, ManifestPart
from detlab.storage.posix import DirectoryStorage, SharedFSStorage

__all__ = [
    "MANIFEST_NAME",
    "METADATA_NAME",
    "DirectoryStorage",
    "Manifest",
    "ManifestNotWritten",
    "ManifestPart",
    "SharedFSStorage",
    "StorageManager",
    "StorageType",
    "from_config",
    "from_string",
]
