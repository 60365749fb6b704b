"""`python -m detlab.viz`: draw figures of snapshots, in a separate process.

It reads a line of JSON for each figure from standard input, `{"snapshot": ..., "kind": ..., "options": {...}}`, until
its input ends, and writes a line for each answer: `{"figure": {"data": ..., "layout": ...}}`, `{"refused": "..."}` for
an option that is wrong, or `{"error": "..."}`. What a library prints goes to standard error.
"""

import json
import os
import sys
from collections.abc import Iterable
from typing import Any, TextIO

from detlab.errors import DetlabError
from detlab.schemas.wire import CurvesView
from detlab.viz.kinds import plot


def to_json(snapshot: CurvesView, kind: str, options: dict[str, Any]) -> bytes:
    """Serialize a request for the process that draws it."""
    return json.dumps({"snapshot": snapshot.model_dump(mode="json"), "kind": kind, "options": options}).encode()


def draw(raw: bytes | str) -> dict[str, Any]:
    """Draw what `to_json` wrote, without a template: who shows it decides between light and dark."""
    asked = json.loads(raw)
    snapshot = CurvesView.model_validate(asked["snapshot"])
    figure = plot(snapshot, asked["kind"], config=snapshot.experiment.config, **asked["options"])
    drawn: dict[str, Any] = json.loads(figure.to_json())
    drawn["layout"].pop("template", None)
    return drawn


def serve(requests: Iterable[str], answers: TextIO) -> None:
    """Answer each line of `requests`; what cannot be drawn gives an answer that says why."""
    for line in requests:
        try:
            told = json.dumps({"figure": draw(line)})
        except DetlabError as error:
            told = json.dumps({"error": f"{error.message}. {error.hint or ''}".rstrip()})
        except ValueError as error:  # of an option
            told = json.dumps({"refused": str(error)})
        except Exception as error:  # of a library: the next figure may be drawn all the same
            told = json.dumps({"error": f"{type(error).__name__}: {error}"})
        print(told, file=answers, flush=True)


if __name__ == "__main__":
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as out:
        os.dup2(2, 1)
        serve(sys.stdin, out)
