"""Keys and digests of evidence as people give them: in each form in which `det governance` prints them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import click

from detlab.errors import DetlabError
from detlab.visible import visible

if TYPE_CHECKING:
    from detlab.schemas.wire.governance.evidence import SigningKeyView, WithdrawnSourceView

WHERE = "det governance keys prints both, the id and the public key; somebody whom you trust tells you which to take"
_DIGITS = re.compile(r"[0-9a-f]{64}")
_SHORT = 8
"""Digits that name a key or a manifest among those that are listed."""


def digits(text: str) -> str:
    """Return the 64 hexadecimal digits of a key, a key id or a digest; empty if it has none.

    Upper case, colons, spaces and the word `sha256:` in front make no difference.
    """
    plain = re.sub(r"[\s:]", "", text.strip().lower().removeprefix("sha256:"))
    return plain if _DIGITS.fullmatch(plain) else ""


def given_keys(texts: Sequence[str]) -> list[str]:
    """Return the digits of public keys or their ids.

    Raises:
        click.UsageError: Some are none; all of them are named.
    """
    found = [digits(one) for one in texts]
    if wrong := [one for one, has in zip(texts, found, strict=True) if not has]:
        shown = ", ".join(repr(visible(one[:80])) for one in wrong)
        what = f"--key is 64 hexadecimal digits, a public key (Ed25519) or the id of one, not {shown}"
        short = any(re.fullmatch(r"[0-9a-f]{1,63}…?", one.strip().lower()) for one in wrong)
        more = "; a part of one could be that of another key, so all digits are needed" if short else ""
        raise click.UsageError(f"{what}{more}. {WHERE}")
    return found


def public_bytes(given: str, listed: Iterable[SigningKeyView]) -> bytes:
    """Return the public key that somebody trusts: of an id, the one that has it, wherever it was listed.

    An id is the SHA-256 of its key, so that whoever lists keys can put no other one in its place.
    """
    from detlab.governance.evidence import key_id

    for one in listed:
        raw = bytes.fromhex(digits(one.public_key))
        if len(raw) == 32 and key_id(raw) == given:
            return raw
    return bytes.fromhex(given)


def listed_key(text: str, listed: Sequence[SigningKeyView]) -> str:
    """Return the id of a key of the cluster, given by its id or public key, or by how one of them begins.

    Raises:
        DetlabError: None of them is it, or several.
    """
    plain = digits(text) or re.sub(r"[\s:…]", "", text.lower())
    long_enough = len(plain) >= _SHORT
    found = {one.id for one in listed if long_enough and (one.id.startswith(plain) or one.public_key.startswith(plain))}
    if len(found) == 1:
        return found.pop()
    known = "; ".join(f"{one.id[:16]}… ({one.state})" for one in listed) or "none"
    what = (
        f"{visible(text[:80])!r} names {len(found)} keys" if found else f"the cluster has no key {visible(text[:80])!r}"
    )
    hint = f"give the id or the public key, or its first {_SHORT} digits or more, as det governance keys prints them"
    raise DetlabError(f"{what}; it has: {known}", hint=hint)


def manifest_of(text: str, listed: Iterable[WithdrawnSourceView] = ()) -> str:
    """Return a manifest as the master takes it; empty: none was given.

    Args:
        text: With or without `sha256:`, in any case.
        listed: Withdrawals, of which one may be named by how its manifest begins.

    Raises:
        click.UsageError: It is none.
    """
    if not text.strip():
        return ""
    if plain := digits(text):
        return f"sha256:{plain}"
    begins = re.sub(r"[\s:…]", "", text.lower().removeprefix("sha256:"))
    found = {one.manifest for one in listed if len(begins) >= _SHORT and one.manifest.startswith(f"sha256:{begins}")}
    if len(found) == 1:
        return found.pop()
    raise click.UsageError(
        f"--manifest is sha256: and 64 hexadecimal digits, not {visible(text[:80])!r}."
        " It stands in the config that declares the source (manifest:); sha256sum FILE prints that of a file"
    )
