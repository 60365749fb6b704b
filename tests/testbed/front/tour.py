"""The tour of docs/tutorial/the-tour.md, taken step by step in a real browser.

A step has the words of its heading on the page; what it chooses, types and runs are the page's own words too
(tests/e2e/front/test_tour.py holds the two together). docs/screenshots.py takes the same steps, with a camera.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect

from testbed.cluster import Cluster, running_cluster
from testbed.containers import docker_images
from testbed.containers.docker import Engine
from testbed.servers import person

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "examples" / "digits_trial"
SLOTS = 4
SECONDS = 30_000
LONG = 240_000
"""How long (ms) a server, or a trial on a busy machine, may take."""
WIDTH, HEIGHT = 1280, 800

Camera = Callable[[str, Page], None]


def _blind(name: str, page: Page) -> None:
    """Take no picture."""


@contextmanager
def ready(root: Path, engine: Engine | None) -> Iterator[Cluster]:
    """A cluster that `det up` has just started, with containers where there is an engine, and a second user's work.

    Args:
        root: An empty folder.
        engine: A Docker engine with the images of `testbed.containers.docker_images`.
    """
    config = "c.EmbeddedCluster.operator = 'ada'\nc.EmbeddedCluster.extra_users = ['ben']\n"
    config += docker_images.cluster_config(docker_images.EMPTY) if engine else ""
    extra = {"DOCKER_HOST": engine.url} if engine else {}
    with running_cluster(root, slots=SLOTS, config=config, extra=extra) as cluster:
        ben = person(cluster, "ben")
        work = {"entrypoint": ["sleep", "100000"], "resources": {"slots": 1}}
        reply = ben.post("tasks", {"kind": "command", "name": "preprocessing", "config": work})
        assert reply.status_code == 201, reply.text
        ben.close()
        yield cluster


@dataclass
class Tour:
    """One person's way through a cluster.

    Attributes:
        cluster: It is up.
        browser: Headless chromium.
        image: Image of the notebook's container; None where there is no Docker engine: it is a process then.
        camera: Called with a picture's name and the page, where the tutorial has a picture.
    """

    cluster: Cluster
    browser: Browser
    image: str | None = None
    camera: Camera = _blind
    context: BrowserContext = field(init=False)
    page: Page = field(init=False)
    """JupyterLab, once it is there."""
    hub: Page = field(init=False)
    """The hub page."""
    experiment: int = field(init=False, default=0)
    ran: list[str] = field(default_factory=list)
    """Commands that were typed."""
    wrong: list[str] = field(default_factory=list)
    """Errors that our scripts threw."""

    def __post_init__(self) -> None:
        self.context = self.browser.new_context(viewport={"width": WIDTH, "height": HEIGHT}, accept_downloads=True)
        self.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=self.cluster.url)
        self.context.on("page", self._watch)
        self.page = self.context.new_page()

    def _watch(self, page: Page) -> None:
        ours = re.compile(r"labextensions/@detlab|services/detlab")
        page.on("pageerror", lambda e: self.wrong.append(f"{e}\n{e.stack}") if ours.search(e.stack or "") else None)

    def close(self) -> None:
        """Close the browser's windows."""
        self.context.close()

    # --- what the steps share

    def picture(self, name: str, page: Page | None = None) -> None:
        """Take a picture, if anybody wants one."""
        self.camera(name, page or self.page)

    def det(self, command: str, **words: str) -> str:
        """Run a `det …` of the page in the folder of the cluster; return what it printed.

        Args:
            command: As on the page.
            words: What stands for a word of it that the page leaves to the reader.
        """
        self.ran.append(command)
        done = self.cluster.det(*[words.get(word, word) for word in command.split()[1:]], timeout=180)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout

    def python(self, command: str) -> str:
        """Run `python SCRIPT FOLDER` of the page: the script is the project's, the folder is the cluster's."""
        self.ran.append(command)
        _, script, folder = command.split()
        done = subprocess.run(
            [sys.executable, str(ROOT / script), str(self.cluster.root / folder)],
            env=self.cluster.environment, capture_output=True, text=True, timeout=180, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout

    @property
    def panel(self) -> Locator:
        """The panel of JupyterLab."""
        return self.page.locator("#detlab-panel")

    @property
    def view(self) -> Locator:
        """The view of the experiment in JupyterLab."""
        return self.page.locator(f"[id='detlab-experiment:{self.experiment}']")

    def item(self) -> Locator:
        """The search in the panel."""
        return self.panel.locator(".det-item").filter(has=self.page.get_by_text(f"#{self.experiment}", exact=True))

    def show_panel(self) -> None:
        """Bring the panel to the front of the sidebar."""
        if not self.panel.is_visible():
            self.page.get_by_role("tab", name="detlab: experiments and cluster").click()

    def follow(self, name: str) -> None:
        """Go to a view of the hub page by its link."""
        self.hub.get_by_role("navigation", name="Views").get_by_role("link", name=re.compile(f"^{name}")).click()
        self.hub.wait_for_selector("main h1")
        expect(self.hub.locator("main .det-empty[role=status]")).to_have_count(0)


Step = Callable[[Tour], None]
STEPS: dict[str, Step] = {}
"""The steps in their order, by the page's headings."""


def step(heading: str) -> Callable[[Step], Step]:
    """Make a function a step."""

    def register(taken: Step) -> Step:
        STEPS[heading] = taken
        return taken

    return register


@step("Start a cluster")
def start(tour: Tour) -> None:
    tour.ran.append(f"det up --slots {tour.cluster.slots}")  # whoever made the tour did that
    assert "healthy" in tour.det("det status")


@step("Log in")
def log_in(tour: Tour) -> None:
    page = tour.page
    page.goto(tour.cluster.url)
    page.get_by_label("Username:").fill(tour.cluster.user)
    page.get_by_label("Password:").fill(tour.cluster.password)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", name="Start a server")).to_be_visible(timeout=SECONDS)


@step("Start a notebook in a container")
def start_a_notebook(tour: Tour) -> None:
    page = tour.page
    expect(page.get_by_label("Start", exact=True)).to_have_value("notebook")
    page.get_by_label("Runtime").select_option(label="A container" if tour.image else "A process on the node")
    if tour.image:
        page.get_by_label("Image").fill(tour.image)
    tour.picture("spawn-form")
    page.get_by_role("button", name="Start").click()
    page.wait_for_url(re.compile(r"/user/[^/]+/lab"), timeout=LONG, wait_until="commit")
    expect(page.locator(".jp-Launcher")).to_be_visible(timeout=LONG)
    news = page.locator(".Toastify__toast").get_by_role("button", name="No")
    if news.count():
        news.first.click()


@step("Open the panel")
def open_the_panel(tour: Tour) -> None:
    page = tour.page
    page.get_by_role("tab", name="detlab: experiments and cluster").click()
    expect(tour.panel).to_contain_text("My work", timeout=SECONDS)
    expect(tour.panel.locator(".det-item").first).to_contain_text("notebook", timeout=SECONDS)
    expect(tour.panel).to_contain_text("Queue")
    expect(tour.panel).to_contain_text(re.compile(r"Cluster\d/4 slots in use"))
    tour.picture("panel-empty")


@step("Submit the digits search from the form")
def submit(tour: Tour) -> None:
    page = tour.page
    page.get_by_role("tab", name=re.compile("^File Browser")).click()
    page.get_by_role("button", name="New Folder").click()
    page.locator(".jp-DirListing-editor").fill("digits")
    page.keyboard.press("Enter")
    page.locator(".jp-DirListing-item", has_text="digits").dblclick()
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Upload Files").click()
    chooser.value.set_files([EXAMPLE / "train.py", EXAMPLE / "search.yaml"])
    page.locator(".jp-DirListing-item", has_text="search.yaml").click(button="right")
    page.get_by_role("menuitem", name="Run as Experiment").click()
    form = page.locator(".det-form")
    expect(form.get_by_text("no errors")).to_be_visible(timeout=SECONDS)
    trials = form.get_by_label("max trials")
    trials.fill("many")
    expect(form.get_by_role("status").filter(has_text="1 error")).to_be_visible(timeout=SECONDS)
    expect(form.get_by_role("button", name="Submit")).to_have_attribute("aria-disabled", "true")
    trials.evaluate("field => field.scrollIntoView({ block: 'center' })")
    tour.picture("form-mistake")
    trials.fill("6")
    form.get_by_label("max concurrent trials").fill("2")
    expect(form.get_by_text("no errors")).to_be_visible(timeout=SECONDS)
    tour.picture("form")
    form.get_by_role("button", name="Submit").click()
    view = page.locator("[id^='detlab-experiment:']")
    expect(view).to_contain_text("digits-trial-search", timeout=SECONDS)
    tour.experiment = int(str(view.get_attribute("id")).rpartition(":")[2])


@step("Follow it in the panel")
def follow_in_the_panel(tour: Tour) -> None:
    view = tour.view
    tour.show_panel()
    expect(tour.item()).to_contain_text(re.compile(r"best 0\.\d+"), timeout=2 * LONG)
    expect(view.locator("canvas").first).to_be_visible(timeout=SECONDS)
    tour.picture("panel")
    view.get_by_role("tab", name="Trials").click()
    rows = view.get_by_role("row")
    expect(rows.nth(2)).to_be_visible(timeout=LONG)
    tour.picture("trials")


@step("Follow it on the hub page")
def follow_on_the_hub_page(tour: Tour) -> None:
    tour.hub = hub = tour.context.new_page()
    hub.goto(f"{tour.cluster.url}/hub/home")
    hub.get_by_role("link", name="Cluster", exact=True).click()
    expect(hub.locator("main h1")).to_have_text("My work", timeout=SECONDS)
    mine = hub.get_by_role("list", name="My work")
    expect(mine).to_contain_text("digits-trial-search", timeout=SECONDS)
    tour.picture("hub-work", hub)
    mine.get_by_role("link", name="digits-trial-search").click()
    expect(hub.locator("main canvas").first).to_be_visible(timeout=LONG)
    tour.picture("hub-experiment", hub)


@step("Open a shell")
def open_a_shell(tour: Tour) -> None:
    hub = tour.hub
    hub.bring_to_front()
    tour.follow("My work")
    hub.get_by_role("button", name="Notebook, shell …").click()
    hub.get_by_role("menuitem", name="New shell …").click()
    dialog = hub.get_by_role("dialog", name="New shell")
    said: list[str] = []

    def listen(page: Page) -> None:
        page.on("websocket", lambda one: one.on("framereceived", lambda frame: said.append(str(frame))))

    tour.context.on("page", listen)
    with hub.expect_popup(timeout=LONG) as opened:
        dialog.get_by_role("button", name="Start", exact=True).click()
    tour.context.remove_listener("page", listen)
    shell = opened.value
    expect(shell.locator(".xterm").first).to_be_visible(timeout=LONG)
    shell.locator(".xterm").first.click()
    command = "det experiment list"
    tour.ran.append(command)
    _typed(shell, said, command, ANSWERED)
    tour.picture("shell", shell)
    shell.close()
    dialog.get_by_role("button", name="Close").last.click()
    item = hub.get_by_role("listitem").filter(has=hub.get_by_role("button", name=re.compile("^Actions of shell")))
    with hub.expect_popup(timeout=LONG) as opened_again:
        item.get_by_role("button", name="Open").click()
    expect(opened_again.value.locator(".xterm").first).to_be_visible(timeout=LONG)
    opened_again.value.close()


ANSWERED = r'digits-trial-search[\s\S]*[$#] "'
"""The frame that brings the next prompt ends with it."""


def _typed(shell: Page, said: list[str], command: str, answer: str) -> None:
    """Type a command in a terminal and wait until it has answered."""
    _heard(shell, said, r"[$#] ")
    shell.keyboard.type(command)
    shell.keyboard.press("Enter")
    _heard(shell, said, answer)


def _heard(shell: Page, said: list[str], pattern: str) -> None:
    """Wait until a terminal has written something."""
    for _ in range(LONG // 100):
        if re.search(pattern, "".join(said)):
            return
        shell.wait_for_timeout(100)
    raise AssertionError(f"the shell never said {pattern!r} but {''.join(said)[-2000:]}")


@step("Open a TensorBoard")
def open_a_tensorboard(tour: Tour) -> None:
    page = tour.page
    page.bring_to_front()
    page.get_by_role("button", name=f"Actions of experiment {tour.experiment}", exact=True).click()
    page.get_by_role("menuitem", name="TensorBoard", exact=True).click()
    item = tour.panel.locator(".det-item").filter(has_text="TensorBoard")
    ready = item.get_by_role("button", name="Open")
    expect(ready).not_to_have_attribute("aria-disabled", "true", timeout=LONG)
    with page.expect_popup() as opened:
        ready.click()
    board = opened.value
    expect(board.get_by_text("validation/accuracy").first).to_be_visible(timeout=LONG)
    tour.picture("tensorboard", board)
    board.close()


@step("Kill a trial")
def kill_a_trial(tour: Tour) -> None:
    page, view = tour.page, tour.view
    view.get_by_role("tab", name="Trials").click()
    view.get_by_role("row").filter(has_text="running").first.click()
    trial = page.locator("[id^='detlab-trial:']")
    expect(trial).to_contain_text("Metrics", timeout=SECONDS)
    trial.get_by_role("tab", name="Logs").click()
    expect(trial.locator(".det-log-line").first).to_be_visible(timeout=LONG)
    tour.picture("logs")
    trial.get_by_role("button", name="Kill").click()
    page.get_by_role("dialog").get_by_role("button", name="Kill").click()
    expect(trial.locator(".det-badge").first).to_contain_text(re.compile("(?<!being )killed|canceled"), timeout=LONG)
    tour.picture("killed")
    page.locator(".lm-TabBar-tab", has_text="Trial").locator(".lm-TabBar-tabCloseIcon").click()


@step("Download the best checkpoint")
def download(tour: Tour) -> None:
    page, view = tour.page, tour.view
    expect(tour.item()).to_contain_text("completed", timeout=3 * LONG)
    view.get_by_role("tab", name="Parallel coordinates").click()
    expect(view.locator(".det-tab-panel canvas").first).to_be_visible(timeout=SECONDS)
    tour.picture("parallel")
    view.get_by_role("tab", name="Checkpoints").click()
    best = view.locator(".det-checkpoint").first
    expect(best).to_contain_text("best", timeout=SECONDS)
    tour.picture("checkpoints")
    best.locator("summary").click()
    with page.expect_download() as started:
        best.get_by_role("link", name="model_0.safetensors").click()
    assert Path(started.value.path()).stat().st_size > 1000
    best.get_by_role("button", name="Copy uuid").click()
    uuid = str(page.evaluate("() => navigator.clipboard.readText()"))
    folder = tour.cluster.root / "best"
    tour.det("det checkpoint download UUID --output-dir best", UUID=uuid)
    assert (folder / "model_0.safetensors").read_bytes() == Path(started.value.path()).read_bytes()
    said = tour.python("python examples/digits_trial/score.py best")
    assert float(said.split("accuracy ")[1].split(",")[0]) > 0.8, said


@step("See who holds what")
def who_holds_what(tour: Tour) -> None:
    hub = tour.hub
    hub.bring_to_front()
    tour.follow("Nodes")
    expect(hub.get_by_role("list", name="Slot holders")).to_contain_text("ben", timeout=SECONDS)
    tour.picture("hub-nodes", hub)
    tour.follow("All work")
    expect(hub.get_by_role("region", name="Users")).to_contain_text("ben")
    tour.picture("hub-everybody", hub)
    tour.follow("Usage")
    expect(hub.get_by_role("img", name=re.compile("Slot-hours by day"))).to_be_visible()
    tour.picture("hub-usage", hub)
    tour.follow("Audit log")
    expect(hub.get_by_role("region", name="Audit log")).to_contain_text("trial.kill")
    tour.picture("hub-audit", hub)
    tour.follow("Tokens")
    tour.follow("Service")


@step("Stop")
def stop(tour: Tour) -> None:
    assert "Stopped" in tour.det("det down")
