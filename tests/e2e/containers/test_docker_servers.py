"""Notebooks, shells and TensorBoards in containers of a real engine, through the Hub and its proxy."""

import contextlib
import json

import httpx
import nbformat
import pytest
import websocket

from testbed.cluster import running_cluster
from testbed.containers import docker_images
from testbed.front.kernels import Notebook
from testbed.servers import Kernel, kill_part, logged_in, open_terminal, until, user, xsrf

pytestmark = [pytest.mark.hub, pytest.mark.slow, pytest.mark.timeout(300)]

BOX = {"runtime": "docker", "image": docker_images.EMPTY}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory, docker_engine):
    """A cluster whose agent gives every container this machine's programs; three slots, so that stays are seen."""
    config = f"c.EmbeddedCluster.extra_users = ['ada']\n{docker_images.cluster_config(docker_images.EMPTY)}"
    root = tmp_path_factory.mktemp("boxes")
    with running_cluster(root, slots=3, config=config, extra={"DOCKER_HOST": docker_engine.url}) as running:
        yield running


ada = user("ada")


@pytest.fixture(scope="module")
def uid(cluster, notebook):
    """Of ada on this machine."""
    return cluster.uids["ada"]


@pytest.fixture(scope="module")
def notebook(ada):
    """The address of a notebook in a container that was started by the form of the Hub's page."""
    if ada.model("boxed"):  # a first try that was too slow has asked for it
        return ada.ready("boxed", 150)
    with contextlib.closing(logged_in(ada.cluster, "ada")) as page:
        form = page.get("/hub/spawn/ada/boxed").text
        assert f'value="{docker_images.EMPTY}"' in form, "the site's images are proposed"
        chosen = {"kind": "notebook", "slots": "1", "idle_timeout": "", **BOX}
        reply = page.post("/hub/spawn/ada/boxed", params={"_xsrf": xsrf(page)}, data=chosen)
        assert reply.status_code in {200, 302}, reply.text
    return ada.ready("boxed", 150)


def container_of(engine, task):
    """The engine's view of a task's container; None when there is none."""
    status, reply = engine.request("GET", f"/containers/detlab-{task['id']}.1/json")
    return json.loads(reply) if status == 200 else None


WHO = "import os; print(os.getuid(), os.path.isdir('/opt/detlab/detlab'), os.environ['HOME'] == os.getcwd())"


def test_a_notebook_in_a_container_runs_as_its_user_in_their_home(ada, notebook, uid, docker_engine):
    kernel = Kernel(notebook, ada.token)
    assert kernel.run(WHO).split() == [str(uid), "True", "True"]
    assert "detlab" in kernel.run("import detlab; print(detlab.__file__)")
    page = httpx.get(f"{notebook}lab", headers={"Authorization": f"token {ada.token}"}, trust_env=False, timeout=60)
    assert page.status_code == 200, "JupyterLab itself is there"
    task = ada.task("boxed")
    found = container_of(docker_engine, task)
    assert found["Config"]["Labels"]["detlab.allocation"] == f"{task['id']}.1"
    assert found["Config"]["User"].startswith(f"{uid}:")
    assert len(task["slots"]) == 1


def test_the_same_kernel_answers_after_agent_and_hub_were_killed(ada, notebook, cluster, docker_engine):
    kernel = Kernel(notebook, ada.token)
    kernel.run("answer = 41")
    task = ada.task("boxed")
    container = container_of(docker_engine, task)["Id"]
    for part in ("agent", "hub"):
        kill_part(cluster, part)
        ada.ready("boxed")
        until(lambda: connected(ada), cluster.logs)
        assert "41" in Kernel(notebook, ada.token, kernel.id).run("print(answer)"), part
        assert ada.until_task(name="boxed", id=task["id"])["display_state"] == "RUNNING", part
        assert container_of(docker_engine, task)["Id"] == container, part


def connected(who):
    try:
        return [agent["state"] for agent in who.get("agents").json()] == ["connected"]
    except (httpx.HTTPError, KeyError, TypeError, ValueError):
        return False


def test_files_outlive_the_container_and_a_process_finds_them(ada, notebook, docker_engine):
    if not ada.model("boxed"):  # the second try of this test
        ada.start("boxed", slots=1, **BOX)
    Kernel(ada.ready("boxed"), ada.token).run("open('kept.txt', 'w').write('made in a container')")
    task = ada.task("boxed")
    ada.stop("boxed")
    assert ada.until_task(name="boxed", state="CANCELED")["end_reason"] == "killed"
    until(lambda: container_of(docker_engine, task) is None, ada.cluster.logs)
    assert ada.get("cluster").json()["slots_used"] == 0
    ada.start("plain", runtime="process")
    said = Kernel(ada.ready("plain"), ada.token).run(f"{WHO}; print(open('kept.txt').read())")
    assert "False" in said
    assert "made in a container" in said
    ada.stop("plain")


NAMED = 'echo "<$(id -un) $USER $LOGNAME $(eval echo "~$USER") $HOME>"'
STUBBORN = "setsid sh -c \"trap '' TERM HUP INT; while :; do sleep 1; done\" &"


@pytest.mark.soak
def test_a_shell_in_a_container_ends_although_a_program_in_it_ignores_sigterm(ada, docker_engine):
    ada.start("sh", kind="shell", slots=1, **BOX)
    server = ada.ready("sh")
    header = {"Authorization": f"token {ada.token}"}
    url = open_terminal(server, ada.token)
    with contextlib.closing(websocket.create_connection(url, header=header, timeout=60)) as terminal:
        terminal.send(
            json.dumps(["stdin", f"ls -d /opt/detlab/*; det user whoami; {NAMED}; {STUBBORN} echo $((6*7))\r"])
        )
        seen = ""
        while "42\\r" not in seen:
            seen += terminal.recv()
    assert "/opt/detlab/detlab\\r" in seen, seen
    assert "ada" in seen.rpartition("whoami")[2], seen
    home = ada.cluster.folder / "homes" / "ada"
    assert f"<ada ada ada {home} {home}>" in seen, "its user has a name, and a home under that name"
    assert "have no name" not in seen
    task = ada.task("sh")
    ada.stop("sh")
    until(lambda: container_of(docker_engine, task) is None, ada.cluster.logs)
    assert ada.get("cluster").json()["slots_used"] == 0


def test_an_image_that_does_not_exist_is_told_on_the_page_with_those_that_do(ada):
    reply = ada.start("unknown", runtime="docker", image="localhost:9/testbed/empti:1")
    assert reply.status_code == 400, reply.text
    said = reply.json()["message"]
    assert "localhost:9/testbed/empti:1 is not on this node and cannot be pulled" in said
    assert docker_images.EMPTY in said
    with contextlib.closing(logged_in(ada.cluster, "ada")) as page:
        shown = page.get("/hub/spawn-pending/ada/unknown").text
    assert "localhost:9/testbed/empti:1 is not on this node" in shown
    assert docker_images.EMPTY in shown


def test_an_image_without_jupyterhub_is_told_what_it_lacks(ada, docker_engine):
    reply = ada.start("bare", runtime="docker", image=docker_images.BARE)
    assert reply.status_code == 400, reply.text
    said = reply.json()["message"]
    assert "jupyterhub" in said, said
    assert "jupyterlab" in said, said
    assert docker_images.BARE in said, said
    until(lambda: docker_engine.containers() == [], ada.cluster.logs)


def test_without_an_image_a_container_is_refused_with_what_to_do(ada):
    reply = ada.start("imageless", runtime="docker")
    assert reply.status_code == 400
    assert "Image" in reply.json()["message"], reply.text
    assert "default_image" in reply.json()["message"], reply.text
    config = {"entrypoint": "true", "runtime": "docker", "searcher": {"name": "single", "metric": "loss"}}
    reply = ada.post("experiments", {"config": config})
    assert reply.status_code == 422
    assert "environment.image" in reply.text
    assert "default_image" in reply.text


CURVE = """python3 -c "
import detlab as det
with det.core.init() as core:
    core.train.report_validation_metrics(1, {'loss': 1.0})
"
"""


def test_a_tensorboard_in_a_container_shows_what_a_trial_in_one_reported(ada, docker_engine):
    environment = {"runtime": "docker", "environment": {"image": docker_images.EMPTY}}
    config = {"name": "curve", "entrypoint": CURVE, "searcher": {"name": "single", "metric": "loss"}, **environment}
    made = ada.post("experiments", {"config": config})
    assert made.status_code == 200, made.text
    number = made.json()["experiment"]["id"]
    request = {"kind": "tensorboard", "experiment_ids": [number], "config": environment}
    reply = ada.post("tasks", request)
    assert reply.status_code == 201, reply.text
    name = reply.json()["task"]["server_name"]
    board = ada.ready(name)

    def runs():
        header = {"Authorization": f"token {ada.token}"}
        page = httpx.get(f"{board}data/plugin/scalars/tags", headers=header, trust_env=False, timeout=30)
        return page.json() if page.status_code == 200 else {}

    shown = until(runs, ada.cluster.logs)
    assert any("validation/loss" in tags for tags in shown.values()), shown
    assert container_of(docker_engine, ada.task(name)) is not None
    ada.post(f"tasks/{ada.task(name)['id']}/kill")
    until(lambda: docker_engine.containers() == [], ada.cluster.logs)


# --- what runs once: commands, notebook runs, cells on borrowed slots

IN_BOX = ["--runtime", "docker", "--image", docker_images.EMPTY]
HERE = (
    "import os, sys; print('slots', os.environ['DET_SLOT_IDS'], 'in a container', os.path.isdir('/opt/detlab/detlab'))"
)


def all_given_back(ada, engine):
    """Wait until no container is left and nobody holds a slot."""
    until(lambda: engine.containers() == [], ada.cluster.logs)
    until(lambda: ada.get("cluster").json()["slots_used"] == 0, ada.cluster.logs)


def test_a_command_in_a_container_has_its_files_and_brings_output_and_exit_code(ada, docker_engine, tmp_path):
    (tmp_path / "work.py").write_text(f"{HERE}\nprint(open('data.txt').read())\nsys.exit(7)\n")
    (tmp_path / "data.txt").write_text("of the context")
    done = ada.cluster.det(
        "cmd", "run", *IN_BOX, "--slots", "1", "--context", str(tmp_path), "--", "python3", "work.py"
    )
    assert done.returncode == 7, done.stdout + done.stderr
    slots, words = done.stdout.splitlines()
    assert slots.startswith("slots [")
    assert slots.endswith("in a container True")
    assert words == "of the context"
    assert "failed, exit code 7" in done.stderr
    all_given_back(ada, docker_engine)


def test_a_notebook_run_in_a_container_prints_its_parameter_and_brings_the_executed_notebook(
    ada, docker_engine, tmp_path
):
    notebook = nbformat.v4.new_notebook()
    notebook.metadata["kernelspec"] = {"name": "python3", "language": "python", "display_name": "Python 3"}
    notebook.cells = [nbformat.v4.new_code_cell(text) for text in ("lr = 1", f"{HERE}; print('lr is', lr)")]
    notebook.cells[0].metadata["tags"] = ["parameters"]
    nbformat.write(notebook, tmp_path / "run.ipynb")
    paths = [str(tmp_path / name) for name in ("run.ipynb", "out.ipynb")]
    done = ada.cluster.det("notebook", "run", paths[0], *IN_BOX, "-p", "lr", "3", "-o", paths[1])
    assert done.returncode == 0, done.stdout + done.stderr
    cells = nbformat.read(paths[1], as_version=4).cells
    said = "".join(output.get("text", "") for cell in cells for output in cell.get("outputs", []))
    assert "in a container True" in said
    assert "lr is 3" in said
    all_given_back(ada, docker_engine)


def test_a_cell_runs_on_a_borrowed_slot_in_a_container_and_its_variable_comes_back(ada, docker_engine, tmp_path):
    env = {**ada.cluster.environment, "DET_URL": ada.cluster.url, "DET_TOKEN": ada.cluster.token}
    with contextlib.closing(Notebook(tmp_path, env)) as notebook:
        notebook.run("%load_ext detlab_magics\ny = 20")
        cell = notebook.run(f"%%det_run {' '.join(IN_BOX)} --in y --out x\n{HERE}\nx = y + 1", timeout=120)
        assert cell.status == "ok", cell.traceback
        assert "in a container True" in cell.stdout
        assert notebook.run("x").result["text/plain"] == "21"
    all_given_back(ada, docker_engine)
