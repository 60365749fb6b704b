"""`python -m detlab_hub.core.searchers.suggesting`: answer one question of a search, in a separate process.

It reads {"searcher": name, "question": {...}} from standard input and writes the points to standard output, both JSON.
A method may import anything here, and take its time: the master waits outside of transactions, and not for ever.
"""

import json
import sys
from dataclasses import asdict
from typing import Any

from detlab_hub.core.searchers.method import Question
from detlab_hub.core.searchers.registry import method_class


def to_json(searcher: str, question: Question) -> bytes:
    """Serialize a question for the process that answers it."""
    return json.dumps({"searcher": searcher, "question": asdict(question)}).encode()


def answer(raw: bytes) -> list[dict[str, Any]]:
    """Answer what `to_json` wrote."""
    asked = json.loads(raw)
    return list(method_class(asked["searcher"]).suggest(Question(**asked["question"])))


if __name__ == "__main__":
    points = json.dumps(answer(sys.stdin.buffer.read()), allow_nan=False)
    sys.stdout.write(points)
