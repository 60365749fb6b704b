"""What packages add to detlab by entry point: one group of names per seam, each loaded when it is used."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from detlab.errors import DetlabError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

T = TypeVar("T")
OURS = "detlab"
"""The distribution whose entry points no other package can replace."""


class PluginError(DetlabError):
    """No package has an entry point of this name, or it cannot be loaded: then `__cause__` says why."""

    default_code = "plugin"


class Plugins(Generic[T]):
    """The objects of one entry point group, by name.

    Names given as `built_in` are found without the metadata of a distribution: containers get a plain copy of the
    package. No other package can take such a name, or one of an entry point of detlab's own distribution.

    Args:
        group: Of entry points, as in `[project.entry-points."<group>"]`.
        what: What to call one of them in messages.
        built_in: `module:attribute` of those in this distribution, by name.
        error: Class of the errors that are raised.
        extras: Extras of detlab's distribution that bring what an entry point of its own needs, by name.
    """

    def __init__(
        self,
        group: str,
        what: str,
        built_in: Mapping[str, str] | None = None,
        error: type[DetlabError] = PluginError,
        *,
        extras: Mapping[str, str] | None = None,
    ) -> None:
        self.group = group
        self.what = what
        self.built_in = dict(built_in or {})
        self._error = error
        self._extras = dict(extras or {})

    def names(self) -> list[str]:
        """Return all installed names, sorted; nothing is imported."""
        return sorted({*self.built_in, *self._found})

    def origin(self, name: str) -> str:
        """Return where the object of an installed name comes from, as `module:attribute`."""
        return self.built_in.get(name) or self._found[name].value

    def load(self, name: object) -> T:
        """Return the object of a name.

        Raises:
            DetlabError: Of the class given: no package has this name, or it cannot be imported.
        """
        if not isinstance(name, str) or (name not in self.built_in and name not in self._found):
            raise self._unknown(name)
        try:
            target = self.built_in.get(name)
            if target is None:
                found: T = self._found[name].load()
                return found
            module, _, attribute = target.partition(":")
            built_in: T = getattr(import_module(module), attribute)
        except Exception as error:  # a package of somebody else's may fail in any way
            raise self._broken(name, error) from error
        return built_in

    def forget(self) -> None:
        """Search the installed packages again when a name is next requested."""
        self.__dict__.pop("_found", None)

    @functools.cached_property
    def _found(self) -> dict[str, EntryPoint]:
        from importlib.metadata import entry_points  # slow, and not needed for what is built in

        found: dict[str, EntryPoint] = {}
        for point in entry_points(group=self.group):
            if point.name not in self.built_in and (point.name not in found or _package(point) == OURS):
                found[point.name] = point
        return found

    def _broken(self, name: str, error: Exception) -> DetlabError:
        package = OURS if name in self.built_in else _package(self._found[name])
        said = f"{type(error).__name__}: {error}"
        if package in (None, OURS):
            extra = f"[{self._extras[name]}]" if name in self._extras else ""
            return self._error(
                f"the {self.what} {name!r} ({self.origin(name)}) cannot be loaded: {said}",
                hint=f"install what it needs: pip install --upgrade '{OURS}{extra}'",
            )
        return self._error(
            f"the {self.what} {name!r} of {package} ({self.origin(name)}) cannot be loaded: {said}",
            hint=f"install what it needs, or another version of it: pip install --upgrade {package}",
        )

    def _unknown(self, name: Any) -> DetlabError:
        from difflib import get_close_matches

        shown = f"{str(name)[:80]!r}" if name is not None else "None"
        there = self.names()
        near = get_close_matches(str(name)[:80], there, n=1)
        hint = (
            f"did you mean {near[0]!r}?"
            if near
            else f"name one of those, or install a package with an entry point of this name in {self.group}: "
            "pip install PACKAGE"
        )
        return self._error(
            f"there is no {self.what} {shown} here; installed: {', '.join(there) or 'none'}",
            hint=hint if there else f"reinstall {OURS}: its entry points are missing",
        )


def _package(point: EntryPoint) -> str | None:
    """Return the distribution of an entry point; None for one that was made by hand."""
    return None if point.dist is None else point.dist.name
