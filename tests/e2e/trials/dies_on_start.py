"""DiesOnStart: the exit code says no more than that."""

import sys

print("I will not start", file=sys.stderr)
sys.exit(3)
