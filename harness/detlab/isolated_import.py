"""Import code from a folder beside modules of the same names that are in use already."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

_NEVER_HIDDEN = {*sys.stdlib_module_names, "__main__", "detlab", "numpy", "torch"}


@contextlib.contextmanager
def import_from_path(path: str | os.PathLike[str]) -> Iterator[None]:
    """Import from a folder while the block lasts, such as an older `model_def` from a checkpoint's `code`.

        with det.import_from_path(checkpoint_dir / "code"):
            import model_def as old_model_def

    Modules of the same names that were imported before stay what they are outside of the block. Nothing is written to
    the folder. `sys.modules` belongs to the whole process: other threads should import nothing meanwhile.

    Args:
        path: The folder; it comes first in `sys.path`.

    Raises:
        NotADirectoryError: There is no such folder.
    """
    folder = Path(path).absolute()
    if not folder.is_dir():
        raise NotADirectoryError(f"import_from_path needs a folder, and {folder} is none")
    with isolated([folder]):
        yield


@contextlib.contextmanager
def isolated(folders: Sequence[Path], hidden: Collection[str] = ()) -> Iterator[None]:
    """Put folders first on the path; afterwards `sys.path` and their modules in `sys.modules` are as before.

    Args:
        folders: Where to import from.
        hidden: Further top-level modules to import anew.
    """
    in_code = {name for folder in folders for name in _top_names(folder)} - _NEVER_HIDDEN
    hidden_tops = in_code | set(hidden)
    path, writes_bytecode = list(sys.path), sys.dont_write_bytecode
    before = dict(sys.modules)
    for name in before:
        if name.partition(".")[0] in hidden_tops and folders:
            del sys.modules[name]
    sys.path[:0] = [str(folder) for folder in folders]
    sys.dont_write_bytecode = True  # the checkpoint's files have digests
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path[:], sys.dont_write_bytecode = path, writes_bytecode
        for name in [name for name in sys.modules if name.partition(".")[0] in hidden_tops]:
            if name not in before or sys.modules[name] is not before[name]:
                del sys.modules[name]
        sys.modules.update({name: old for name, old in before.items() if name not in sys.modules})
        importlib.invalidate_caches()


def _top_names(folder: Path) -> Iterator[str]:
    for entry in folder.iterdir():
        if entry.suffix == ".py":
            yield entry.stem
        elif entry.is_dir():
            yield entry.name
