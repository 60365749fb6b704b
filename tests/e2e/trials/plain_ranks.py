"""PlainRanks: a launcher of one's own: every process under wrap_rank, without torch."""

import subprocess
import sys

if len(sys.argv) > 1:
    print(f"I am number {sys.argv[1]}", flush=True)
    sys.exit(0)
children = [
    subprocess.Popen(
        [sys.executable, "-m", "detlab.launch.wrap_rank", str(rank), "--", sys.executable, __file__, str(rank)]
    )
    for rank in range(2)
]
sys.exit(max(child.wait() for child in children))
