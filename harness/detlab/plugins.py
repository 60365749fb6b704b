"""What other packages add to detlab by entry point: one group of names per seam, each loaded when it is used."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from detlab.errors import DetlabError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

T = TypeVar("T")


class Plugins(Generic[T]):
    """The objects of one entry point group, by name.

    Names of detlab itself are found without the metadata of a distribution: containers get a plain copy of the
    package. No other package can take such a name.

    Args:
        group: Of entry points, as in `[project.entry-points."<group>"]`.
        what: What one of them is called in messages.
        built_in: `module:attribute` of those in this distribution, by name.
        error: Class of the errors that are raised.
    """

    def __init__(self, group: str, what: str, built_in: Mapping[str, str], error: type[DetlabError]) -> None:
        self.group = group
        self.built_in = dict(built_in)
        self._what = what
        self._error = error

    def names(self) -> list[str]:
        """Return all installed names, sorted; nothing is imported."""
        return sorted({*self.built_in, *self._found})

    def load(self, name: object) -> T:
        """Return the object of a name.

        Raises:
            DetlabError: Of the class given: no package has this name, or it cannot be imported.
        """
        target = self.built_in.get(name) if isinstance(name, str) else None
        if target is not None:
            module, _, attribute = target.partition(":")
            built_in: T = getattr(import_module(module), attribute)
            return built_in
        point = self._found.get(name) if isinstance(name, str) else None
        if point is None:
            raise self._unknown(name)
        try:
            found: T = point.load()
        except Exception as error:  # a package of somebody else's may fail in any way
            package = point.dist.name if point.dist is not None else point.value
            raise self._error(
                f"the {self._what} {point.name!r} of {package} ({point.value}) cannot be loaded: "
                f"{type(error).__name__}: {error}",
                hint=f"install what it needs, or another version of it: pip install --upgrade {package}",
            ) from error
        return found

    @functools.cached_property
    def _found(self) -> dict[str, EntryPoint]:
        from importlib.metadata import entry_points  # slow, and not needed for what is built in

        return {point.name: point for point in entry_points(group=self.group) if point.name not in self.built_in}

    def _unknown(self, name: Any) -> DetlabError:
        from difflib import get_close_matches

        shown = f"{str(name)[:80]!r}" if name is not None else "None"
        near = get_close_matches(str(name)[:80], self.names(), n=1)
        return self._error(
            f"there is no {self._what} {shown} here; installed: {', '.join(self.names())}",
            hint=f"did you mean {near[0]!r}?"
            if near
            else f"name one of those, or install a package with an entry point of this name in {self.group}: "
            "pip install PACKAGE",
        )
