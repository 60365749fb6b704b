"""Match regular expressions of users against lines, in a process of its own.

Python's engine may take for ever over an expression, and holds the interpreter meanwhile. Here that delays no other
work: the kernel kills this process when a request exceeds its limit of processor time. It is run as a file,
with nothing but the standard library. A request is a line of JSON, the reply a list of the lines that match.
"""

import json
import re
import resource
import signal
import sys
import warnings

MEMORY = 1 << 30
HOPELESS = 3
"""Exit code: this expression takes all memory for these lines, or is none for this Python."""


def main() -> None:
    """Answer requests until standard input ends."""
    warnings.simplefilter("ignore")  # of expressions that are deprecated in part: they are not shown here
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for line in sys.stdin.buffer:
        question = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, question["seconds"])
        try:
            search = re.compile(question["pattern"]).search
            found = [at for at, text in enumerate(question["texts"]) if search(text) is not None]
        except (MemoryError, re.error, OverflowError, RecursionError):
            sys.exit(HOPELESS)
        signal.setitimer(signal.ITIMER_PROF, 0)
        sys.stdout.buffer.write(json.dumps(found).encode() + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
