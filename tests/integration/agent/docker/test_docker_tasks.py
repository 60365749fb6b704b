"""What containers add to the contract of runtimes, at a real Docker engine."""

import json
import os
import signal
import sys

import pytest
from agent_docker import exited, in_container, python
from agent_helpers import TRIALS, wait_until

from detlab.schemas import wire
from testbed.containers import docker_images

REPORTS = "import detlab.core as c\nwith c.init() as core:\n  core.train.report_training_metrics(1, {'loss': 0.5})\n"


def test_metrics_of_a_container_arrive(master, docker_agent):
    storage = {"checkpoint_storage": {"type": "directory", "container_path": "/data/checkpoints"}}
    task = in_container(master, python(REPORTS), config=storage, mounts=[mount(docker_agent.shared)])
    master.wait_for(exited(task), timeout=60)
    assert task.exits[0].exit_code == 0, (task.exits, master.texts(task))
    assert [(r["group"], r["metrics"]) for r in task.records["metrics"] if r["kind"] == "metrics"] == [
        ("training", {"loss": 0.5})
    ]


def test_a_checkpoint_storage_that_would_be_removed_with_the_container_is_refused(master, docker_agent):
    storage = {"checkpoint_storage": {"type": "directory", "container_path": "/tmp/checkpoints"}}
    task = in_container(master, python(REPORTS), config=storage)
    master.wait_for(exited(task), timeout=60)
    assert task.exits[0].exit_code == 1
    said = "\n".join(master.texts(task))
    assert "checkpoints would be lost: /tmp/checkpoints is in this container only" in said
    assert "bind_mounts" in said
    assert not task.records["metrics"]


def test_the_agent_says_what_it_can_run(master, docker_agent):
    assert master.hellos[-1].runtimes == ["process", "docker"]
    assert master.hellos[-1].address == "127.0.0.1"


LOOK = """
import json, os
def can(action):
    try:
        action()
        return True
    except OSError:
        return False
task = os.environ["DET_TASK_DIR"]
print(json.dumps({
    "uid": os.getuid(), "gid": os.getgid(), "home": os.environ["HOME"],
    "first": open("/proc/1/cmdline").read().split(chr(0))[4:6],
    "others": can(lambda: os.listdir(os.environ["OTHER"])),
    "tasks": can(lambda: os.listdir(os.path.dirname(task))) and sorted(os.listdir(os.path.dirname(task))),
    "own": can(lambda: open(os.path.join(task, "work", "x"), "w").write("x")),
    "home_works": can(lambda: open(os.path.expanduser("~/x"), "w").write("x")),
    "package": can(lambda: open("/opt/detlab/detlab/__init__.py", "a").write("x")),
    "setuid_root": can(lambda: os.setuid(0)),
    "privileges": [line.split()[1] for line in open("/proc/self/status") if line.startswith(("CapEff", "NoNewPrivs"))],
    "shm": os.statvfs("/dev/shm").f_frsize * os.statvfs("/dev/shm").f_blocks,
}))
"""


def test_the_container_is_its_owners_and_sees_no_other_task(master, docker_agent):
    other = in_container(master, python(TRIALS["NeverExits"]), owner="bob", slots=["cpu1"])
    master.wait_for(lambda: "up" in master.texts(other), timeout=40)
    task = in_container(master, python(LOOK), environment={"OTHER": str(docker_agent.task_dir(other))})
    master.wait_for(exited(task), timeout=40)
    seen = json.loads(master.texts(task)[-1])
    assert (seen["uid"], seen["gid"]) == (master.uids["alice"], master.uids["alice"])
    assert docker_agent.task_dir(other).stat().st_uid == master.uids["bob"]
    assert seen["home"] == str(docker_agent.task_dir(task) / "home")
    assert seen["first"] == ["detlab.launch.task", "--dir"]
    assert seen["tasks"] == [task.launch.allocation_id]
    assert seen["own"]
    assert seen["home_works"]
    assert not seen["others"]
    assert not seen["package"]
    assert not seen["setuid_root"]
    assert seen["privileges"] == ["0" * 16, "1"]
    assert seen["shm"] == 4 << 30
    master.send_kill(other)
    master.wait_for(exited(other))


def test_a_process_of_the_same_user_is_not_seen(master, docker_agent):
    plain = master.launch([sys.executable, "-u", "-c", TRIALS["NeverExits"]], slots=["cpu1"])
    task = in_container(
        master, python("import os; print([p for p in os.listdir('/proc') if p.isdigit()].__len__() < 4)")
    )
    master.wait_for(exited(task), timeout=40)
    assert master.texts(task) == ["True"]
    master.send_kill(plain)
    master.wait_for(exited(plain))


def test_a_memory_limit_is_told_apart_from_other_kills(master, docker_agent):
    program = "x = bytearray(400 << 20)\nfor i in range(0, len(x), 4096): x[i] = 1\nprint('still here')"
    task = in_container(master, python(program), memory=128 << 20)
    master.wait_for(exited(task), timeout=60)
    assert task.exits[0].reason == "oom"
    assert "128 MiB" in task.exits[0].message
    assert task.exits[0].exit_code == -signal.SIGKILL
    assert any("memory limit" in text for text in master.texts(task, "launcher"))
    killed = in_container(master, python("import os, signal; os.kill(os.getpid(), signal.SIGKILL)"), memory=128 << 20)
    master.wait_for(exited(killed), timeout=40)
    assert (killed.exits[0].reason, killed.exits[0].exit_code) == ("", -signal.SIGKILL)


def test_a_killed_container_leaves_no_output_behind(master, docker_agent):
    """The launcher is asked to deliver before it is killed itself; and if it dies, the agent delivers."""
    task = in_container(master, python(TRIALS["NeverExits"]))
    master.wait_for(lambda: "up" in master.texts(task) and task.starts, timeout=40)
    os.kill(task.starts[0].pid, signal.SIGKILL)
    master.wait_for(exited(task))
    assert task.exits[0].reason == "launcher_lost"
    assert task.exits[0].exit_code is None


def test_an_unknown_image_is_named_with_those_that_look_like_it(master, docker_agent):
    task = in_container(master, ["true"], image="localhost:9/testbed/empti:1")
    master.wait_for(exited(task), timeout=60)
    assert task.exits[0].reason == "setup"
    assert "localhost:9/testbed/empti:1 is not on this node and cannot be pulled" in task.exits[0].message
    assert docker_images.EMPTY in task.exits[0].message
    assert [stage.stage for stage in task.stages][:1] == ["pulling"]
    assert docker_agent.engine.containers() == []


@pytest.mark.parametrize("image", ["", "../../containers/json", "a b", "x" * 600, "--privileged", "a//b", "a/../b"])
def test_what_can_be_no_image_is_refused(master, docker_agent, image):
    task = in_container(master, ["true"], image=image)
    master.wait_for(exited(task), timeout=40)
    assert task.exits[0].reason == "setup"
    assert "image" in task.exits[0].message


def test_an_image_without_python_says_so(master, docker_agent):
    task = in_container(master, ["true"], image=docker_images.SHELL, system=False)
    master.wait_for(exited(task), timeout=40)
    assert task.exits[0].reason == "setup"
    assert "python3" in task.exits[0].message
    assert docker_agent.engine.containers() == []


def test_a_launch_without_a_container_is_refused(master, docker_agent):
    task = master.launch("true", runtime="docker")
    master.wait_for(exited(task), timeout=40)
    assert "image" in task.exits[0].message


def test_the_secret_of_a_registry_is_not_in_the_tasks_directory(master, docker_agent):
    auth = {"username": "u", "password": "registry-secret"}
    program = (
        "import os; print('-'.join(['registry', 'secret']) in open(os.environ['DET_TASK_DIR'] + '/launch.json').read())"
    )
    task = in_container(master, python(program), registry_auth=auth)
    master.wait_for(exited(task), timeout=40)
    assert master.texts(task) == ["False"]


def mount(host, container="/data", **more):
    return wire.Mount(host_path=str(host), container_path=container, **more)


def test_only_allowed_host_paths_are_mounted(master, docker_agent, open_tmp):
    allowed = docker_agent.shared
    (allowed / "x").write_text("shared")
    (allowed / "escape").symlink_to("/etc")
    fine = in_container(master, "cat /data/x; touch /data/y", mounts=[mount(allowed, read_only=True)])
    master.wait_for(exited(fine), timeout=40)
    assert master.texts(fine, "stdout") == ["shared"]
    assert any("Read-only" in text for text in master.texts(fine, "stderr"))
    for host in ("/etc", "/", "/var/run/docker.sock", f"{allowed}/../agent", f"{allowed}/escape", "relative"):
        task = in_container(master, ["true"], mounts=[mount(host)])
        master.wait_for(exited(task), timeout=40)
        assert task.exits[0].reason == "refused", host
        assert "bind mount" in task.exits[0].message
    missing = in_container(master, ["true"], mounts=[mount(allowed / "nothing")])
    master.wait_for(exited(missing), timeout=40)
    assert missing.exits[0].reason == "setup"
    for target in ("/", "/opt/detlab", "/proc/x", "/a/../b"):
        task = in_container(master, ["true"], mounts=[mount(allowed, target)])
        master.wait_for(exited(task), timeout=40)
        assert task.exits[0].reason == "refused", target


@pytest.mark.parametrize(
    "wish",
    [
        {"add_capabilities": ["SYS_ADMIN"]},
        {"devices": [wire.DeviceMount(host_path="/dev/null", container_path="/dev/x")]},
        {"network": "container:other"},
        {"network": "none"},
        {"network": "bridge"},
    ],
)
def test_privileges_and_networks_that_are_not_allowed_are_refused(master, docker_agent, wish):
    task = in_container(master, ["true"], **wish)
    master.wait_for(exited(task), timeout=40)
    assert task.exits[0].reason == "refused"
    assert docker_agent.engine.containers() == []


def test_limits_devices_and_capabilities_reach_the_container(master, open_tmp, docker_engine, docker_agents):
    agent = docker_agents("--allow-privileges")
    master.wait_for(master.connected, what="the agent connects")
    program = """
import os, pathlib
caps = next(l for l in open('/proc/1/status') if l.startswith('CapBnd')).split()[1]
root = pathlib.Path('/sys/fs/cgroup')
quota = root / 'cpu/cpu.cfs_quota_us'
cpu = int(quota.read_text()) / 100000 if quota.exists() else int((root / 'cpu.max').read_text().split()[0]) / 100000
print(bool(int(caps, 16) >> 23 & 1), bool(int(caps, 16) & 1), cpu, pathlib.Path('/dev/mine').is_char_device())
print(os.statvfs('/dev/shm').f_frsize * os.statvfs('/dev/shm').f_blocks)
"""
    task = in_container(
        master,
        python(program),
        add_capabilities=["SYS_NICE"],
        drop_capabilities=["CHOWN"],
        devices=[wire.DeviceMount(host_path="/dev/null", container_path="/dev/mine")],
        cpus=0.5,
        shm_size=16 << 20,
    )
    master.wait_for(exited(task), timeout=40)
    assert master.texts(task) == ["True False 0.5 True", str(16 << 20)], (task.exits, master.texts(task))
    wait_until(lambda: agent.engine.containers() == [], what="the container is removed after exit_ack")
