"""Names for experiments that were given none."""

from __future__ import annotations

import random


def _words(text: str) -> list[str]:
    return text.split()


_ADVERBS = _words(
    "boldly brightly calmly deeply eagerly easily finely freely gently gladly kindly lightly merrily mildly"
    " neatly nicely openly plainly quickly quietly rapidly really smoothly softly swiftly truly warmly wisely"
)
_ADJECTIVES = _words(
    "amber brave bright calm clever cosmic crisp curious daring early fair fluent golden honest humble keen"
    " lively lucid mellow modest noble patient polite quick quiet ready sharp silver steady sunny tidy vivid"
)
_ANIMALS = _words(
    "badger beaver bison crane dolphin eagle falcon ferret finch gecko heron ibex jackal kestrel koala lemur"
    " lynx marten moose newt otter owl panda penguin puffin quail raven robin seal stork tapir walrus wombat"
)


def petname(draw: random.Random) -> str:
    """Three words joined by hyphens, such as `calmly-vivid-otter`."""
    return f"{draw.choice(_ADVERBS)}-{draw.choice(_ADJECTIVES)}-{draw.choice(_ANIMALS)}"
