"""How fast the front ends draw, in a real headless Chromium, on pages built from the components that ship.

    python bench/faces.py                 all of it, about a minute
    python bench/faces.py --quick         fewer rounds: is everything in order?
    python bench/faces.py --check         also fail (exit 1) when a number misses its target

The pages are the harness of `labextension/src/harness` with made-up data in memory, so that neither network nor master
is measured. Needs `npm install` in labextension/, playwright and Chromium (`CHROMIUM`, default /usr/bin/chromium).
"""

from __future__ import annotations

import argparse
import functools
import gzip
import http.server
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

FIRST_PAINT = """async () => {
  const script = performance.getEntriesByName('detlab-script')[0].startTime;
  const shown = await new Promise(resolve => {
    const look = () => {
      const row = document.querySelector('.det-panel .det-item, .det-panel .det-tr');
      if (row) requestAnimationFrame(() => setTimeout(() => resolve(performance.now())));
      else requestAnimationFrame(look);
    };
    look();
  });
  return shown - script;
}"""

SCROLL = """async frames => {
  const grid = document.querySelector('[role=grid]');
  const step = 224;  // eight rows a frame: as fast as a wheel is turned
  const times = [];
  let blank = 0;
  let last = await new Promise(requestAnimationFrame);
  for (let i = 0; i < frames; i += 1) {
    grid.scrollTop += step;
    const now = await new Promise(requestAnimationFrame);
    times.push(now - last);
    last = now;
    const box = grid.getBoundingClientRect();
    const under = document.elementFromPoint(box.left + 60, box.top + box.height / 2);
    if (!under || !under.closest('[role=row]')) blank += 1;
  }
  return { times, blank, rows: Number(grid.getAttribute('aria-rowcount')) - 1 };
}"""

DRAW = """async log => {
  // Pressing "Log scale" draws all curves on new axes: the worst case of a full drawing.
  const button = [...document.querySelectorAll('button')].find(b => b.textContent === 'Log scale');
  const before = performance.now();
  button.click();
  const script = performance.now() - before;
  await new Promise(requestAnimationFrame);
  await new Promise(resolve => setTimeout(resolve));
  return { script, all: performance.now() - before };
}"""

UPDATE = """async rounds => {
  const { api, metricsEvent } = window.detlab;
  const found = [];
  let id = 1000 + Math.floor(performance.now());
  window.updateStep = window.updateStep || 1001;
  for (let i = 0; i < rounds; i += 1) {
    await new Promise(requestAnimationFrame);
    await new Promise(resolve => setTimeout(resolve));
    const before = performance.now();
    for (let k = 0; k < 100; k += 1) {
      api.say('stream', metricsEvent(id += 1, 100 + k, window.updateStep, 0.1 + k / 400));
    }
    window.updateStep += 1;
    await new Promise(requestAnimationFrame);  // the fold and React's drawing are in this frame
    const frame = performance.now();
    await new Promise(resolve => setTimeout(resolve));
    found.push({ all: performance.now() - before, frame: frame - before });
  }
  return found;
}"""


COMPARE = """async charts => {
  // The pane is made anew: its requests, which memory answers, its charts, and the frame in which all are there.
  const tab = key => document.querySelector(`[role=tab][data-key=${key}]`);
  tab('metrics').click();
  await new Promise(resolve => setTimeout(resolve, 200));
  const before = performance.now();
  tab('curves').click();
  await new Promise(resolve => {
    const look = () => {
      // Two layers of each chart, beside the canvas of its axes.
      if (document.querySelectorAll('canvas.det-curve-layer').length >= 2 * charts) resolve();
      else requestAnimationFrame(look);
    };
    look();
  });
  await new Promise(requestAnimationFrame);
  await new Promise(resolve => setTimeout(resolve));
  return performance.now() - before;
}"""


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    what: str
    value: float
    unit: str
    target: float
    at_least: bool = False
    note: str = ""

    @property
    def ok(self) -> bool:
        return self.value >= self.target if self.at_least else self.value <= self.target


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder on a free loopback port; yields the address of its page."""
    handler = functools.partial(_Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/index.html"
        finally:
            server.shutdown()


def build(folder: Path) -> None:
    """Build the harness page into `folder`."""
    subprocess.run(["node", str(ROOT / "labextension" / "harness.mjs"), str(folder)], check=True)


def fresh(browser: Any, address: str, query: str, ready: str) -> Any:
    """Open a page and wait until `ready` (a selector) is there."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(f"{address}?{query}")
    page.wait_for_selector(ready, timeout=60_000)
    return page


def first_paint(browser: Any, address: str, rounds: int) -> Row:
    """The panel with 1,000 experiments, from its script's first line to the frame after its rows are there."""
    found = []
    for _ in range(rounds):
        page = browser.new_page(viewport={"width": 320, "height": 900})
        page.goto(f"{address}?view=panel&case=large", wait_until="commit")
        page.wait_for_function("performance.getEntriesByName('detlab-script').length > 0")
        found.append(page.evaluate(FIRST_PAINT))
        page.close()
    return Row("panel, 1,000 experiments: first paint after its script", statistics.median(found), "ms", 300)


def scrolling(browser: Any, address: str, frames: int) -> list[Row]:
    """The table of 10,000 trials, scrolled by eight rows a frame."""
    page = fresh(browser, address, "view=experiment&tab=trials&case=large", "[role=grid][aria-rowcount='10001']")
    page.evaluate(SCROLL, 20)
    page.evaluate("document.querySelector('[role=grid]').scrollTop = 0")
    seen = page.evaluate(SCROLL, frames)
    page.close()
    rate = 1000 * len(seen["times"]) / sum(seen["times"])
    slowest = sorted(seen["times"])[int(len(seen["times"]) * 0.95)]
    return [
        Row(
            f"table of {seen['rows']:,} trials: scrolling", rate, "frames/s", 50, True, f"p95 {slowest:.1f} ms a frame"
        ),
        Row("table: frames in which the middle was blank", 100 * seen["blank"] / len(seen["times"]), "%", 2),
    ]


WHOLE = """async () => {
  const grid = document.querySelector('[role=grid]');
  for (let i = 0; i < 1000 && grid.getAttribute('aria-rowcount') !== '10001'; i += 1) {
    grid.scrollTop = grid.scrollHeight;
    await new Promise(requestAnimationFrame);
  }
  grid.scrollTop = 0;
}"""
RUNS = "view=runs&tab=trials&case=large&pin=name&heat=accuracy&" + "&".join(
    f"column={name}"
    for name in (
        *("id", "experiment", "name", "state", "label", "owner", "accuracy", "hparams.lr", "hparams.width"),
        *("hparams.optimizer.name", "val/loss", "duration", "created"),
    )
)


def runs_scrolling(browser: Any, address: str, frames: int) -> list[Row]:
    """The table of all trials, 10,000 of them with 13 columns, one pinned and one coloured."""
    page = fresh(browser, address, RUNS, "[role=grid] [role=rowgroup] > [role=row]")
    page.evaluate(WHOLE)
    page.evaluate(SCROLL, 20)
    page.evaluate("document.querySelector('[role=grid]').scrollTop = 0")
    seen = page.evaluate(SCROLL, frames)
    page.close()
    rate = 1000 * len(seen["times"]) / sum(seen["times"])
    slowest = sorted(seen["times"])[int(len(seen["times"]) * 0.95)]
    note = f"p95 {slowest:.1f} ms a frame"
    return [
        Row(f"table of all trials, {seen['rows']:,} rows: scrolling", rate, "frames/s", 50, True, note),
        Row("table of all trials: frames in which the middle was blank", 100 * seen["blank"] / frames, "%", 2),
    ]


def curves(browser: Any, address: str, rounds: int) -> list[Row]:
    """100 curves of 1,000 points: drawn whole, and with one more point for each."""
    page = fresh(browser, address, "view=experiment&tab=curves&case=large", ".det-curve-layer")
    page.wait_for_timeout(1500)
    drawn = [page.evaluate(DRAW, True) for _ in range(2 * max(rounds // 2, 2))]
    page.wait_for_timeout(500)
    updated = page.evaluate(UPDATE, rounds * 10)
    page.close()
    times = [one["all"] for one in drawn]
    frames = sorted(one["frame"] for one in updated)
    whole = sorted(one["all"] for one in updated)
    work = busy(browser, address, rounds)
    p95 = whole[int(len(whole) * 0.95)]
    note = f"with the wait for the frame: median {statistics.median(frames):.1f} ms, p95 {p95:.1f} ms"
    return [
        Row(
            "100 curves x 1,000 points: drawn whole",
            statistics.median(times),
            "ms",
            200,
            note=f"fastest {min(times):.0f}",
        ),
        Row("… updated by 100 points: work of the page's thread", work, "ms", 16, note=note),
    ]


def comparing(browser: Any, address: str, rounds: int) -> Row:
    """20 trials x 5 metrics of 500 points, compared: from the press of the tab until all charts are drawn."""
    names = [("validation", "validation_error"), ("validation", "accuracy"), ("validation", "loss")]
    names += [("training", "loss"), ("training", "lr")]
    trials = ",".join(str(100 + number) for number in range(20))
    metrics = "&".join(f"metric={group}.{name}" for group, name in names)
    page = fresh(browser, address, f"view=comparison&case=compared&trials={trials}&{metrics}", ".det-curve-layer")
    page.wait_for_timeout(1000)
    found = [page.evaluate(COMPARE, len(names)) for _ in range(max(rounds, 3))]
    page.close()
    return Row(
        "20 trials x 5 metrics compared: drawn", statistics.median(found), "ms", 250, note=f"fastest {min(found):.0f}"
    )


def busy(browser: Any, address: str, rounds: int) -> float:
    """Milliseconds of the page's main thread per update of 100 points, by the browser's own account."""
    page = fresh(browser, address, "view=experiment&tab=curves&case=large", ".det-curve-layer")
    page.wait_for_timeout(1500)
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")

    def task_time() -> float:
        found = session.send("Performance.getMetrics")["metrics"]
        return next(1000 * one["value"] for one in found if one["name"] == "TaskDuration")

    page.evaluate(UPDATE, 5)
    before = task_time()
    page.evaluate(UPDATE, rounds * 10)
    spent = task_time() - before
    page.close()
    return spent / (rounds * 10)


def sizes() -> list[Row]:
    """Own code of each entry, gzip: what is not React, uPlot or yaml."""
    script = ROOT / "labextension" / "sizes.mjs"
    run = subprocess.run(["node", str(script)], capture_output=True, text=True, check=True)
    found = [line.split() for line in run.stdout.splitlines()]
    return [Row(f"own code of the {name} entry, gzip", int(size) / 1000, "kB", 500) for name, size in found]


def measure(rounds: int) -> list[Row]:
    """Run everything; returns the rows of the table."""
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        build(folder)
        page_size = len(gzip.compress((folder / "harness.js").read_bytes()))
        with served(folder) as address, sync_playwright() as player:
            browser = player.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
            print(f"Chromium {browser.version}, {os.cpu_count()} cores, {platform.machine()}")
            print(f"load when it began: {os.getloadavg()[0]:.1f}")
            print(f"harness page with React, uPlot and yaml: {page_size / 1000:.0f} kB gzip\n")
            steps: list[Callable[[], list[Row]]] = [
                lambda: [first_paint(browser, address, rounds)],
                lambda: scrolling(browser, address, 60 * max(rounds // 2, 1)),
                lambda: runs_scrolling(browser, address, 60 * max(rounds // 2, 1)),
                lambda: curves(browser, address, rounds),
                lambda: [comparing(browser, address, rounds)],
                sizes,
            ]
            rows = [row for step in steps for row in step()]
            browser.close()
    return rows


def main() -> int:
    """Print the table; with --check the exit code says whether all targets are met."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--check", action="store_true", help="exit 1 when a target is missed")
    options = parser.parse_args()
    rows = measure(2 if options.quick else 6)
    wide = max(len(row.what) for row in rows)
    for row in rows:
        sign = ">=" if row.at_least else "<="
        verdict = "ok" if row.ok else "MISSED"
        note = f"   ({row.note})" if row.note else ""
        print(f"  {row.what:<{wide}}  {row.value:8.1f} {row.unit:<8} target {sign} {row.target:g}  {verdict}{note}")
    return int(options.check and not all(row.ok for row in rows))


if __name__ == "__main__":
    sys.exit(main())
