"""The models that judge blocks by their `name`: those of detlab itself, and those of plug-ins."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any, Generic, TypeVar

from detlab.plugins import PluginError, Plugins
from detlab.schemas.expconf.blocks.scalars import Block

AnyBlock = TypeVar("AnyBlock", bound=Block)


class BlockMembers(Mapping[str, type[AnyBlock]], Generic[AnyBlock]):
    """The models by name; a plug-in is looked for only when it is named.

    Args:
        built_in: Those of detlab itself.
        plugins: The others; each is a class whose `Config` is its model.
        base: What every model derives from.
    """

    def __init__(self, built_in: Mapping[str, type[AnyBlock]], plugins: Plugins[Any], base: type[AnyBlock]) -> None:
        self.built_in, self._plugins, self._base = built_in, plugins, base
        self.of_plugin = functools.cache(self._of_plugin)

    def __getitem__(self, name: str) -> type[AnyBlock]:
        return self.built_in[name] if name in self.built_in else self.of_plugin(name)

    def __iter__(self) -> Iterator[str]:
        yield from self.built_in
        yield from sorted(set(self._plugins.names()) - set(self.built_in))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _of_plugin(self, name: str) -> type[AnyBlock]:
        try:
            found = self._plugins.load(name).Config
        except (PluginError, AttributeError):  # only the master has it, or it is broken: the master says what is wrong
            raise KeyError(name) from None
        if not (isinstance(found, type) and issubclass(found, self._base)):
            raise KeyError(name)
        return found
