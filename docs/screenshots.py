"""Take the pictures of all views into docs/images/: `python docs/screenshots.py [FOLDER]`, as root, with Docker.

It takes the tutorial's tour (tests/testbed/front/tour.py) on a real cluster, with a real search, and stops here and
there for what the tutorial does not show. Where no Docker engine can be started, the notebook is a process.
"""

from __future__ import annotations

import io
import re
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, expect

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from detlab.client import Client, build_bundle
from testbed.containers import docker, docker_images
from testbed.front.hub_page import hub_tab, start_dialog
from testbed.front.lab import chromium
from testbed.front.tour import HEIGHT, LONG, STEPS, WIDTH, Tour, ready
from testbed.servers import person

ROOT = Path(__file__).resolve().parents[1]
COLOURS = 256
"""Of a picture: a third of the bytes, and nobody sees it."""


def camera(folder: Path) -> Callable[[str, Page], None]:
    """What saves a page as a small PNG in a folder."""

    def take(name: str, page: Page) -> None:
        if name == "tensorboard":  # without a graphics card it draws its curves as SVG only
            page.goto(f"{page.url.partition('#')[0]}?forceSVG=true")
            expect(page.locator("line-chart svg path").first).to_be_attached(timeout=LONG)
        page.evaluate("document.querySelectorAll('.jp-Notification-Toast-Close').forEach(close => close.click())")
        page.wait_for_timeout(700)  # what fades has faded, what was pressed is no longer pressed
        picture = Image.open(io.BytesIO(page.screenshot(caret="initial"))).convert("RGB")
        small = picture.quantize(COLOURS, dither=Image.Dither.NONE)
        small.save(folder / f"{name}.png", optimize=True)
        print(f"{name}.png  {(folder / f'{name}.png').stat().st_size // 1024} kB", flush=True)

    return take


def waiting_server(tour: Tour) -> None:
    """The Hub's page of a server that waits: ben asks for more than is free."""
    with hub_tab(tour.browser, tour.cluster, "ben", size=(WIDTH, 640)) as tab:
        page = tab.page
        page.goto(f"{tour.cluster.url}/hub/spawn")
        page.get_by_label("Slots").fill("4")
        page.get_by_role("button", name="Start").click()
        expect(page.locator("body")).to_contain_text("place 1", timeout=LONG)
        tour.picture("spawn-queued", page)
        tour.hub.bring_to_front()
        tour.follow("Queue")
        table = tour.hub.get_by_role("region", name="Queue")
        table.get_by_role("button", name=re.compile("needs 4 slots")).click(timeout=LONG)
        expect(table).to_contain_text("in pool default", timeout=LONG)
        tour.picture("hub-queue", tour.hub)
        tour.follow("My work")
        page.get_by_role("button", name="Stop Server").click()
        page.wait_for_url("**/hub/home", timeout=LONG)


def grown_curves(tour: Tour) -> None:
    """The search once more, when there is more to see than a first point."""
    for tab, name in (("Learning curves", "panel"), ("Trials", "trials")):
        tour.view.get_by_role("tab", name=tab).click()
        tour.picture(name)


def looks_of_the_panel(tour: Tour) -> None:
    """The panel dark and narrow; the trial's and the experiment's other tabs."""
    page, view = tour.page, tour.view
    make_models(tour)
    models_in_the_panel(tour)
    for tab, name in (("Learning curves", "curves"), ("Events", "events"), ("Config", "config"), ("Code", "code")):
        view.get_by_role("tab", name=tab).click()
        page.wait_for_timeout(1000)
        tour.picture(name)
    view.get_by_role("tab", name="Trials").click()
    view.get_by_role("row").nth(1).click()
    trial = page.locator("[id^='detlab-trial:']")
    expect(trial.locator("canvas").first).to_be_visible(timeout=LONG)
    tour.picture("trial")
    page.locator(".lm-TabBar-tab", has_text="Trial").locator(".lm-TabBar-tabCloseIcon").click()
    view.get_by_role("tab", name="Learning curves").click()
    with_theme(tour, "JupyterLab Dark")
    tour.picture("panel-dark")
    with_theme(tour, "JupyterLab Light")
    page.set_viewport_size({"width": 760, "height": HEIGHT})
    tour.picture("panel-narrow")
    page.set_viewport_size({"width": WIDTH, "height": HEIGHT})


def with_theme(tour: Tour, theme: str) -> None:
    """JupyterLab in another theme, as its settings say it; it opens again with what was open."""
    page = tour.page
    page.evaluate(
        """async theme => {
          const base = location.pathname.split('/lab')[0];
          const reply = await fetch(`${base}/lab/api/settings/@jupyterlab/apputils-extension:themes`, {
            method: 'PUT',
            headers: {'X-XSRFToken': decodeURIComponent(/_xsrf=([^;]+)/.exec(document.cookie)[1])},
            body: JSON.stringify({raw: JSON.stringify({theme})}),
          });
          if (!reply.ok) throw new Error(await reply.text());
        }""",
        theme,
    )
    page.wait_for_timeout(2000)  # Lab saves what is open a second after it was changed
    page.reload()
    light = str(theme.endswith("Light")).lower()
    expect(page.locator(f"body[data-jp-theme-light='{light}']")).to_be_attached(timeout=LONG)
    expect(tour.view.locator("canvas").first).to_be_visible(timeout=LONG)
    page.wait_for_timeout(1000)


BROKEN = """import csv
from pathlib import Path

import detlab as det


def held_out(folder: Path) -> list[list[str]]:
    with (folder / "held_out.csv").open() as file:
        return list(csv.reader(file))


with det.core.init() as core:
    for epoch in range(1, 6):
        print(f"epoch {epoch}: loss {1 / epoch:.3f}")
        core.train.report_validation_metrics(epoch, {"loss": 1 / epoch})
    held_out(Path("data"))
"""
COMMAND = 'for i in 1 2 3 4 5; do echo "shard $i of 8: 125,000 rows"; done; sleep 600'


def started_on_the_hub_page(tour: Tour) -> None:
    """The dialogs that start something, and the view of what one of them has started."""
    hub = tour.hub
    tour.follow("My work")
    start_dialog(hub, "notebook").get_by_label("Name").fill("look at the data")
    tour.picture("start", hub)
    hub.keyboard.press("Escape")
    dialog = start_dialog(hub, "command")
    dialog.get_by_label("Command line").fill(COMMAND)
    dialog.get_by_label("Name").fill("shards")
    dialog.get_by_label("Slots").fill("1")
    dialog.get_by_role("button", name="Start").click()
    expect(dialog.get_by_text("Running.")).to_be_visible(timeout=LONG)
    dialog.get_by_role("button", name="Details and logs").click()
    expect(hub.get_by_role("log")).to_contain_text("shard 5 of 8", timeout=LONG)
    tour.picture("task", hub)


def quotas(tour: Tour) -> None:
    """A quota that is set in the form, and one that somebody waits under."""
    with tour.cluster.client() as client:
        client.put("quotas", json={"kind": "user", "name": "ben", "slots": 2}).raise_for_status()
    ben = person(tour.cluster, "ben")
    config = {"entrypoint": ["sleep", "600"], "resources": {"slots": 2}}
    over = ben.post("tasks", {"kind": "command", "name": "all shards", "config": config}).json()["task"]["id"]
    tour.follow("Quotas")
    form = tour.hub.get_by_role("form", name="Set a quota")
    form.get_by_label("Name").fill("ada")
    form.get_by_label("Slots").fill("4")
    form.get_by_role("button", name="Set quota").click()
    expect(tour.hub.get_by_role("region", name="Quotas")).to_contain_text("you", timeout=LONG)
    expect(tour.hub.get_by_role("row").filter(has_text="ben")).to_contain_text("2", timeout=LONG)
    tour.picture("hub-quotas", tour.hub)
    ben.post(f"tasks/{over}/kill")
    ben.close()


def failed_trial(tour: Tour) -> None:
    """A trial that raised, with the card that says what, where, and what to do."""
    with Client(tour.cluster.url, tour.cluster.token) as client:
        searcher = {"name": "single", "metric": "loss"}
        config = {"name": "forgets a file", "entrypoint": "python3 train.py", "searcher": searcher, "max_restarts": 0}
        experiment = client.submit(config, bundle=build_bundle(files={"train.py": BROKEN})).experiment
        experiment.wait(LONG / 1000)
        trial = experiment.list_trials()[0].id
    tour.hub.goto(f"{tour.cluster.service}trials/{trial}")
    expect(tour.hub.get_by_role("region", name="Failure")).to_contain_text("held_out.csv", timeout=LONG)
    tour.picture("failure", tour.hub)


NOTES = """# What it is for

Reads **single digits** of forms, 8 x 8 pixels; not whole numbers.
"""


def make_models(tour: Tour) -> None:
    """Two models: the best of the search, with labels that have moved, and one that nobody has described."""
    with Client(tour.cluster.url, tour.cluster.token) as client:
        best, *others = client.get_experiment(tour.experiment).top_n_checkpoints(3)
        model = client.create_model(
            "digits", "Handwritten digits, 8 x 8 pixels", {"dataset": "v3"}, ["vision"], notes=NOTES
        )
        first = {"labels": ["production"], "reason": "there is no other"}
        model.register_version(others[-1].uuid, semver="1.0.0", comment="Good enough to begin with", **first)
        model.register_version(others[0].uuid, semver="1.1.0", labels=["staging"], reason="nightly search")
        model.register_version(best.uuid, semver="1.2.0", comment="The best of the search", labels=["candidate"])
        model.move_label("production", 2, reason="beats 1.0.0 on the new test set")
        model.share(group="vision")
        model.share(user="ben", write=True)
        client.create_model("digits-small", labels=["vision"]).register_version(others[0].uuid, labels=["staging"])


def models_and_storage(tour: Tour) -> None:
    """The registry and what is stored, on the hub page: for the how-tos."""
    hub = tour.hub
    tour.follow("Models")
    hub.get_by_role("button", name="Find versions …").click()
    hub.get_by_label("Best by metric").fill("accuracy")
    hub.get_by_label("Among").fill("label = vision and hp.lr < 0.1")
    hub.get_by_role("button", name="Find", exact=True).click()
    expect(hub.get_by_role("region", name="Versions found")).to_be_visible(timeout=LONG)
    tour.picture("hub-models", hub)
    hub.get_by_role("region", name="Models", exact=True).get_by_role("link", name="digits", exact=True).click()
    expect(hub.get_by_role("grid")).to_contain_text("1.2.0", timeout=LONG)
    tour.picture("hub-model", hub)
    hub.get_by_role("tab", name="Sharing").click()
    expect(hub.get_by_role("region", name="Shared with")).to_contain_text("vision", timeout=LONG)
    tour.picture("hub-model-sharing", hub)
    hub.goto(f"{tour.cluster.service}models/digits/versions/3")
    expect(hub.locator("main")).to_contain_text("Metrics at this step", timeout=LONG)
    tour.picture("hub-version", hub)
    hub.get_by_role("tab", name="Lineage graph").click()
    expect(hub.get_by_role("list", name="Lineage")).to_be_visible(timeout=LONG)
    tour.picture("hub-lineage", hub)
    hub.goto(f"{tour.cluster.service}models/digits/compare?versions=1,3")
    expect(hub.get_by_role("table")).to_contain_text("Hyperparameters", timeout=LONG)
    tour.picture("hub-compare", hub)
    hub.goto(f"{tour.cluster.service}experiments/{tour.experiment}")
    hub.get_by_role("tab", name="Checkpoints").click()
    hub.get_by_role("button", name="What would be deleted? …").click()
    expect(hub.get_by_role("dialog").get_by_role("table")).to_be_visible(timeout=LONG)
    tour.picture("hub-what-goes", hub)
    hub.keyboard.press("Escape")
    tour.follow("Storage")
    hub.get_by_role("button", name="Experiment", exact=True).click()
    expect(hub.get_by_role("region", name="Storage by experiment")).to_be_visible(timeout=LONG)
    tour.picture("hub-storage", hub)


def models_in_the_panel(tour: Tour) -> None:
    """Models in JupyterLab: in the panel and in tabs."""
    page = tour.page
    tour.show_panel()
    tour.panel.get_by_role("button", name="digits", exact=True).click()
    expect(page.locator(".det-model").get_by_role("grid")).to_contain_text("1.2.0", timeout=LONG)
    tour.picture("panel-model")
    page.locator(".lm-TabBar-tab.lm-mod-current", has_text="digits").locator(".lm-TabBar-tabCloseIcon").click()


def rest_of_the_hub_page(tour: Tour) -> None:
    """The views that the tutorial only names, the dark theme, and a telephone."""
    models_and_storage(tour)
    for name in ("Cluster", "Tokens", "Service"):
        tour.follow(name)
        tour.picture(f"hub-{name.lower()}", tour.hub)
    quotas(tour)
    started_on_the_hub_page(tour)
    failed_trial(tour)
    tour.hub.get_by_role("button", name="Switch to dark colours").click()
    tour.picture("failure-dark", tour.hub)
    tour.follow("My work")
    tour.picture("hub-dark", tour.hub)
    tour.hub.set_viewport_size({"width": 390, "height": HEIGHT})
    tour.picture("hub-narrow", tour.hub)


AFTER: dict[str, Callable[[Tour], None]] = {
    "Follow it on the hub page": waiting_server,
    "Open a TensorBoard": grown_curves,
    "Download the best checkpoint": looks_of_the_panel,
    "See who holds what": rest_of_the_hub_page,
}
"""What is looked at after a step beside the tutorial's way."""


def main(folder: Path) -> None:
    """Take the tour with a camera."""
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="detlab-pictures-")))
        engine = None
        try:
            engine = stack.enter_context(docker.engine())
            docker_images.build_all(engine)
        except docker.CannotRun as why:
            print(f"the notebook is a process: {why}")
        cluster = stack.enter_context(ready(root, engine))
        browser = stack.enter_context(chromium())
        tour = Tour(cluster, browser, docker_images.EMPTY if engine else None, camera(folder))
        for heading, take in STEPS.items():
            take(tour)
            AFTER.get(heading, lambda _: None)(tour)
        tour.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "images")
