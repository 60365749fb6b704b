"""`python -m detlab_hub.core.searchers.suggesting`: answer the questions of searches, in a separate process.

It reads a line of JSON for each question from standard input, {"searcher": name, "question": {...}}, and writes a line
for each answer, {"points": [...]} or {"error": "..."}, until its input ends. A method may import anything here, and
take its time: the master waits outside of transactions, and not for ever. What a method prints goes to standard error.
"""

import gc
import json
import os
import sys
from collections.abc import Iterable
from typing import Any, TextIO

from detlab_hub.core.searchers.method import Question
from detlab_hub.core.searchers.registry import method_class


def to_json(searcher: str, question: Question) -> bytes:
    """Serialize a question for the process that answers it."""
    return json.dumps({"searcher": searcher, "question": vars(question)}).encode()


def answer(raw: bytes | str) -> list[dict[str, Any]]:
    """Answer what `to_json` wrote."""
    asked = json.loads(raw)
    return list(method_class(asked["searcher"]).suggest(Question(**asked["question"])))


def serve(questions: Iterable[str], answers: TextIO) -> None:
    """Answer each line of `questions`; if a method raises, the answer has the error."""
    for line in questions:
        try:
            told = json.dumps({"points": answer(line)}, allow_nan=False)
        except Exception as error:  # of the method, which may be third-party code: the search is told
            told = json.dumps({"error": f"{type(error).__name__}: {error}"})
        print(told, file=answers, flush=True)
        _tidy()


def _tidy() -> None:
    """Collect garbage between two questions, and spare the next one a look at all trials that are kept."""
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as out:
        os.dup2(2, 1)
        serve(sys.stdin, out)
