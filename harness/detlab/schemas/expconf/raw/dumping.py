"""A raw config to YAML text that `load_yaml` reads back alike.

PyYAML writes for YAML 1.1, in which `1e-4` is a text: what YAML 1.2 would take for something else is quoted.
"""

from __future__ import annotations

from typing import Any

import yaml

from detlab.schemas.expconf.raw.loading import load_yaml

_BREAKS = frozenset("\r\x85\u2028\u2029\ufeff")
"""Line breaks of YAML beside the usual one; in other styles they are folded to spaces."""


class _Dumper(yaml.SafeDumper):
    """PyYAML's safe dumper, without aliases and with the texts of YAML 1.2 quoted."""

    def ignore_aliases(self, data: Any) -> bool:
        """Write what occurs twice twice: readers of configs seldom know aliases."""
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    plain = dumper.represent_str(text)
    if not _BREAKS.isdisjoint(text):
        plain.style = '"'  # the only style that escapes them
    if plain.style is None and "\n" not in text and load_yaml(f"- {text}")[0] not in ([text], None):
        plain.style = "'"
    return plain


_Dumper.add_representer(str, _represent_text)


def dump_yaml(raw: Any) -> str:
    """Return a raw config as YAML; keys keep their order."""
    return yaml.dump(raw, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)
