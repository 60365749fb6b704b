"""What the engine is told about a container, and what it is refused: no engine needed."""

import os
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detlab.launch.host.cgroup import oom_kills
from detlab.launch.host.identity import Identity
from detlab.launch.taskdir import TaskDir
from detlab.schemas import expconf, wire
from detlab.testing.master import MasterDouble
from detlab_agent.runtimes.base import RefusedTask, SetupFailed
from detlab_agent.runtimes.docker.container import (
    Allowance,
    check_image,
    choose_network,
    container_arguments,
    container_environment,
    is_loopback,
    mounts_for,
    parse_volume,
)
from detlab_agent.runtimes.docker.engine import ContainerEnd, EngineRefused
from detlab_agent.runtimes.docker.images import _progress, unknown_image
from detlab_agent.runtimes.docker.runtime import container_package
from detlab_agent.runtimes.docker.task import DockerTask
from detlab_agent.runtimes.ports import HeldPorts, ServiceAddress, hold_port
from detlab_agent.runtimes.preparation import Order
from detlab_agent.runtimes.tenancy import Homes, home_name

GPU = wire.SlotView(id="cuda1", kind="cuda", name="H200", uuid="GPU-1")
CPU = wire.SlotView(id="cpu0", kind="cpu", name="CPU")
AWAY = "http://10.0.0.1:8642/services/detlab/"
NEAR = "http://127.0.0.1:8642/services/detlab/"


def order(tmp_path, *slots, service=None, groups=()):
    launch = MasterDouble().allocate(["true"], owner="alice").launch
    task = TaskDir(tmp_path / "tasks" / launch.allocation_id)
    identity = Identity("alice", 23000, 23001, None, groups)
    return Order(launch, task, task.root.with_suffix(".json"), identity, list(slots), 3, None, service)


def arguments(made, spec, *, network="host", image=None, privileges=False):
    return container_arguments(
        made,
        spec,
        image or {"Id": "sha256:1"},
        name="n",
        labels={"detlab.agent": "a"},
        network=network,
        mounts=[],
        package=Path("/p"),
        environment={"A": "b"},
        allowance=Allowance((), privileges),
    )


def test_gpus_are_requested_by_uuid_and_hidden_from_those_without(tmp_path):
    spec = wire.ContainerSpec(image="i")
    (request,) = arguments(order(tmp_path, GPU), spec)["device_requests"]
    assert request["DeviceIDs"] == ["GPU-1"]
    assert request["Capabilities"] == [["gpu", "compute", "utility"]]
    assert arguments(order(tmp_path, CPU), spec)["device_requests"] == []
    env = container_environment(order(tmp_path, GPU), {}, user="alice", home=tmp_path, network="host", ca_file=False)
    assert (env["NVIDIA_VISIBLE_DEVICES"], env["CUDA_VISIBLE_DEVICES"]) == ("GPU-1", "GPU-1")
    env = container_environment(order(tmp_path, CPU), {}, user="alice", home=tmp_path, network="host", ca_file=False)
    assert (env["NVIDIA_VISIBLE_DEVICES"], env["CUDA_VISIBLE_DEVICES"]) == ("void", "")
    assert env["DET_UNIQUE_PORT_OFFSET"] == "3"


def test_a_container_has_its_users_ids_and_no_privileges(tmp_path):
    made = arguments(order(tmp_path, CPU, groups=(7,)), wire.ContainerSpec(image="i", memory=1 << 30, cpus=1.5))
    assert (made["user"], made["group_add"]) == ("23000:23001", ["7"])
    assert made["security_opt"] == ["no-new-privileges"]
    assert (made["mem_limit"], made["memswap_limit"], made["nano_cpus"]) == (1 << 30, 1 << 30, 1_500_000_000)
    assert made["shm_size"] == 4 << 30
    assert made["labels"]["detlab.run"] == "1"
    assert made["entrypoint"][0] == "python3"
    assert made["ports"] == {}


def test_a_service_is_published_only_where_the_network_is_another(tmp_path):
    served = order(tmp_path, CPU, service=ServiceAddress("node-2", 31000, "10.0.0.2"))
    spec = wire.ContainerSpec(image="i")
    assert arguments(served, spec, network="bridge")["ports"] == {"31000/tcp": ("10.0.0.2", 31000)}
    assert arguments(served, spec, network="host")["ports"] == {}
    inside = container_environment(served, {}, user="alice", home=tmp_path, network="bridge", ca_file=True)
    assert (inside["DET_SERVICE_ADDRESS"], inside["DET_SERVICE_PORT"]) == ("0.0.0.0", "31000")
    assert inside["SSL_CERT_FILE"] == "/opt/detlab-ca.pem"
    outside = container_environment(served, {}, user="alice", home=tmp_path, network="host", ca_file=False)
    assert outside["DET_SERVICE_ADDRESS"] == "10.0.0.2"


def test_an_images_own_variables_are_kept(tmp_path):
    image = {"Config": {"Env": ["PYTHONPATH=/theirs", "LANG=de_DE.UTF-8", "PATH=/opt/conda/bin"]}}
    env = container_environment(order(tmp_path, CPU), image, user="alice", home=tmp_path, network="host", ca_file=False)
    assert env["PYTHONPATH"] == "/opt/detlab:/theirs"
    assert env["LANG"] == "de_DE.UTF-8"
    assert "PATH" not in env


def test_whom_the_operator_trusts_on_this_machine_is_told_in_its_network_only(tmp_path):
    def told(network, trusted):
        made = order(tmp_path, CPU)
        return container_environment(
            made, {}, user="alice", home=tmp_path, network=network, ca_file=False, trusted_uids=trusted
        )

    assert told("host", "997")["DET_TRUSTED_UIDS"] == "997"
    assert "DET_TRUSTED_UIDS" not in told("bridge", "997")
    assert "DET_TRUSTED_UIDS" not in told("host", "")


@pytest.mark.parametrize(
    ("network", "master", "expected"),
    [(None, NEAR, "host"), (None, AWAY, "bridge"), ("host", AWAY, "host"), ("lab-net", AWAY, "lab-net")],
)
def test_the_network_follows_the_master(network, master, expected):
    assert choose_network(wire.ContainerSpec(image="i", network=network), master) == expected


@pytest.mark.parametrize(
    ("network", "master"), [("bridge", NEAR), ("none", AWAY), ("container:abc", AWAY), ("a b", AWAY), ("", "x://")]
)
def test_networks_that_cannot_be(network, master):
    if network == "":
        assert choose_network(wire.ContainerSpec(image="i", network=network), master) == "bridge"
        return
    with pytest.raises(RefusedTask, match="network"):
        choose_network(wire.ContainerSpec(image="i", network=network), master)


@pytest.mark.parametrize(("host", "expected"), [("localhost", True), ("::1", True), ("10.0.0.1", False), ("x", False)])
def test_loopback(host, expected):
    assert is_loopback(host) is expected


@pytest.mark.parametrize(
    "name", ["python", "python:3.11", "a/b/c:1", "reg.io:5000/a/b@sha256:" + "0" * 64, "A.b_c-d/e:T_1"]
)
def test_images_that_can_be(name):
    check_image(name)


@pytest.mark.parametrize("name", ["", " ", "../x", "a//b", "a b", "-x", "a:b:c", "a/../b", "x" * 501, "a\n"])
def test_images_that_cannot_be(name):
    with pytest.raises(SetupFailed, match="is no image"):
        check_image(name)


def test_a_mount_below_an_allowed_directory_through_a_link_leads_to_the_real_one(tmp_path):
    (tmp_path / "data" / "real").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "data")
    wanted = wire.Mount(host_path=str(tmp_path / "link" / "real"), container_path="in/work", read_only=True)
    made = order(tmp_path, CPU)
    spec = wire.ContainerSpec(image="i", mounts=[wanted])
    mounts = mounts_for(made, spec, Allowance([(tmp_path / "link").resolve()]), None)
    assert mounts[-1]["Source"] == str(tmp_path / "data" / "real")
    assert mounts[-1]["Target"] == str(made.task.work / "in/work")
    assert mounts[-1]["ReadOnly"] is True


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/data", ("/data", "/data", False)),
        ("/data:ro", ("/data", "/data", True)),
        ("/data/sets:/mnt", ("/data/sets", "/mnt", False)),
        ("/data:/mnt/:ro", ("/data", "/mnt", True)),
        ("/data:/mnt:rw", ("/data", "/mnt", False)),
    ],
)
def test_volumes_that_can_be(text, expected):
    made = parse_volume(text)
    assert (made.host_path, made.container_path, made.read_only) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ro",
        "data",
        "data:/mnt",
        "/data:mnt",
        "/a:/b:/c",
        "/a:/b:z",
        "/a:/",
        "/a:/proc/x",
        "/a:/opt/detlab/x",
        "/a/../b",
        "/a:/b/../c",
    ],
)
def test_volumes_that_cannot_be(text):
    with pytest.raises(ValueError, match="volume"):
        parse_volume(text)


def test_every_container_has_the_volumes_unless_its_task_mounts_something_else_there(tmp_path):
    allowance = Allowance([tmp_path], volumes=[parse_volume(f"{tmp_path}:/data:ro"), parse_volume(f"{tmp_path}:/more")])
    own = wire.Mount(host_path=str(tmp_path), container_path="/data")
    made = order(tmp_path, CPU)
    found = {m["Target"]: m for m in mounts_for(made, wire.ContainerSpec(image="i"), allowance, None)}
    assert (found["/data"]["ReadOnly"], found["/more"]["ReadOnly"]) == (True, False)
    found = {m["Target"]: m for m in mounts_for(made, wire.ContainerSpec(image="i", mounts=[own]), allowance, None)}
    assert found["/data"]["ReadOnly"] is False
    gone = Allowance(volumes=[parse_volume("/no/such/directory:/data")])
    with pytest.raises(SetupFailed, match="/no/such/directory"):
        mounts_for(made, wire.ContainerSpec(image="i"), gone, None)


def test_a_shared_mount_needs_privileges(tmp_path):
    wanted = wire.Mount(host_path=str(tmp_path), container_path="/x", propagation="rshared")
    spec = wire.ContainerSpec(image="i", mounts=[wanted])
    with pytest.raises(RefusedTask, match="rshared"):
        mounts_for(order(tmp_path, CPU), spec, Allowance([tmp_path]), None)


@pytest.mark.parametrize(
    "target",
    [
        "/data/of-ada/x",
        "/more/volume/of-ada/x",
        "/checkpoints/of-ada/x",
        "//checkpoints/of-ada/x",
        "/home/alice/x",
        "/more",
    ],
)
def test_no_mount_is_in_another_one_where_the_engine_would_make_its_folder_as_root(tmp_path, target):
    """A bind mount on /data/FOLDER OF ADA/x left a folder of root's in hers."""
    allowance = Allowance([tmp_path], volumes=[parse_volume(f"{tmp_path}:/more/volume")])
    made = order(tmp_path / "t", CPU)
    (tmp_path / "checkpoints").mkdir()
    mounts = [
        wire.Mount(host_path=str(tmp_path), container_path="/data"),
        wire.Mount(host_path=str(tmp_path / "checkpoints"), container_path="/checkpoints"),
    ]
    assert mounts_for(made, wire.ContainerSpec(image="i", mounts=mounts), allowance, Path("/home/alice"))
    wrong = wire.ContainerSpec(image="i", mounts=[*mounts, wire.Mount(host_path=str(tmp_path), container_path=target)])
    with pytest.raises(RefusedTask, match="in the way of"):
        mounts_for(made, wrong, allowance, Path("/home/alice"))


def test_a_mount_in_one_that_is_read_only_is_fine(tmp_path):
    outer = wire.Mount(host_path=str(tmp_path), container_path="/usr", read_only=True)
    inner = wire.Mount(host_path=str(tmp_path), container_path="/usr/lib")
    spec = wire.ContainerSpec(image="i", mounts=[inner, outer])
    assert len(mounts_for(order(tmp_path / "t", CPU), spec, Allowance([tmp_path]), None)) == 3


def test_mounts_in_the_tasks_own_directory_are_fine(tmp_path):
    made = order(tmp_path / "t", CPU)
    spec = wire.ContainerSpec(image="i", mounts=[wire.Mount(host_path=str(tmp_path), container_path="data")])
    assert f"{made.task.work}/data" in {m["Target"] for m in mounts_for(made, spec, Allowance([tmp_path]), None)}


@pytest.mark.parametrize(
    "propagation", ["rshared,exec", "RSHARED", "shared ", "bind-propagation=shared", "slave\n", "x"]
)
def test_a_propagation_that_is_none_is_refused_by_the_agent_and_at_submit(tmp_path, propagation):
    """Any text but the two names of shared ones went to the engine as it was."""
    wanted = wire.Mount(host_path=str(tmp_path), container_path="/x", propagation=propagation)
    spec = wire.ContainerSpec(image="i", mounts=[wanted])
    with pytest.raises(RefusedTask, match="is no propagation"):
        mounts_for(order(tmp_path, CPU), spec, Allowance([tmp_path]), None)
    mount = {"host_path": "/a", "container_path": "/x", "propagation": propagation}
    assert [one.path for one in expconf.check({"bind_mounts": [mount]})] == ["bind_mounts[0].propagation"]


@pytest.mark.parametrize("capability", ["", "sys_admin", "SYS ADMIN", "SYS_ADMIN\n", "--privileged", "CAP_", "A" * 50])
def test_what_is_no_name_of_a_capability_is_refused_by_the_agent_and_at_submit(tmp_path, capability):
    for kind in ("add_capabilities", "drop_capabilities"):
        spec = wire.ContainerSpec(image="i", **{kind: [capability]})
        with pytest.raises(RefusedTask, match="is no capability"):
            arguments(order(tmp_path, CPU), spec, privileges=True)
        told = expconf.check({"environment": {kind: [capability]}})
        assert [one.path for one in told] == [f"environment.{kind}[0]"]


def test_a_device_has_one_path_on_each_side_whatever_is_in_it(tmp_path):
    """`/dev/null:/dev/sda:rwm` as the path of a device was parted anew by the engine's client."""
    device = wire.DeviceMount(host_path="/dev/null:/dev/sda", container_path="/dev/x", mode="w,r:m x")
    made = arguments(order(tmp_path, CPU), wire.ContainerSpec(image="i", devices=[device]), privileges=True)
    (found,) = made["devices"]
    assert found == {"PathOnHost": "/dev/null:/dev/sda", "PathInContainer": "/dev/x", "CgroupPermissions": "rwm"}
    for path in ("dev/null", "/dev/../etc/shadow", ""):
        wrong = wire.DeviceMount(host_path=path, container_path="/dev/x")
        with pytest.raises(RefusedTask, match="must be an absolute path"):
            arguments(order(tmp_path, CPU), wire.ContainerSpec(image="i", devices=[wrong]), privileges=True)


TEXTS = st.sampled_from(
    ["", "a", "ALL", "SYS_ADMIN", "/", "/dev/sda", "host", "none", "container:x", "../..", "privileged"]
)


@given(
    st.builds(
        wire.ContainerSpec,
        image=TEXTS,
        add_capabilities=st.lists(TEXTS, max_size=2),
        drop_capabilities=st.lists(TEXTS, max_size=2),
        devices=st.lists(st.builds(wire.DeviceMount, host_path=TEXTS, container_path=TEXTS, mode=TEXTS), max_size=2),
        shm_size=st.none() | st.integers(0, 2**50),
        memory=st.none() | st.integers(0, 2**50),
        cpus=st.none() | st.floats(0.01, 1e6),
        force_pull=st.booleans(),
        registry_auth=st.none() | st.dictionaries(TEXTS, TEXTS, max_size=2),
    )
)
def test_whatever_a_config_says_the_engine_is_told_the_same_fields_and_no_privileges(spec):
    made_for = order(Path("/nowhere"), CPU)
    usual = arguments(made_for, wire.ContainerSpec(image="i"))
    try:
        made = arguments(made_for, spec)
    except RefusedTask:
        return
    assert made.keys() - {"mem_limit", "memswap_limit", "nano_cpus"} == usual.keys()
    assert (made["cap_add"], made["devices"], made["security_opt"]) == ([], [], ["no-new-privileges"])
    limits = {"shm_size", "cap_drop", "mem_limit", "memswap_limit", "nano_cpus"}
    assert {key: made[key] for key in usual.keys() - limits} == {key: usual[key] for key in usual.keys() - limits}


def test_a_pulls_progress_is_told_and_its_error_raised():
    lines = [
        {"status": "Pulling from x", "id": "1"},
        {"status": "Downloading", "id": "a", "progressDetail": {"current": 1, "total": 4}},
    ]
    assert list(_progress(iter(lines))) == [""]
    with pytest.raises(Exception, match="manifest unknown"):
        list(_progress(iter([{"error": "manifest unknown"}])))


def test_like_names_of_an_unknown_image():
    def images():
        return [{"RepoTags": ["pytorch/pytorch:2.9"]}, {"RepoTags": None}, {"RepoTags": ["<none>:<none>"]}]

    engine = SimpleNamespace(ask_again=lambda ask: ask(SimpleNamespace(api=SimpleNamespace(images=images))))
    assert "like name: pytorch/pytorch:2.9" in unknown_image(engine, "pytorch/pytorc:2.9", "no")
    assert "Images here: pytorch/pytorch:2.9" in unknown_image(engine, "zzz", "no")


@pytest.mark.parametrize(
    ("lost_at", "asked", "reason"),
    [(0.0, False, "launcher_lost"), (99.0, False, "machine_restarted"), (99.0, True, "launcher_lost")],
)
def test_an_end_with_the_engine_is_not_the_tasks_own(tmp_path, lost_at, asked, reason):
    engine = SimpleNamespace(lost_at=lost_at, said=lambda container: "")
    task = DockerTask("a", 1, (), tmp_path / "r", directory=TaskDir(tmp_path), owner=0, engine=engine, container="c")
    task._asked = asked
    assert task._exit(ContainerEnd(137, oom=False, error="", at=100.0)).reason == reason


@pytest.mark.parametrize(("url", "warned"), [("http://127.0.0.1:1/x/", True), ("https://login-1:1/x/", False)])
def test_a_master_that_tasks_elsewhere_cannot_reach_is_warned_of_once(tmp_path, caplog, url, warned):
    """Jobs on other nodes looked for it on their own machines, and their trials stayed starting."""
    made = order(tmp_path, CPU)
    made.launch.info.master_url = url
    made.parcel()
    made.parcel()
    assert [record.getMessage().count(url) for record in caplog.records] == [1] * warned


async def test_a_removal_that_the_engine_refuses_for_a_moment_is_tried_again(tmp_path):
    """It refused while it was starting or its disk was busy, and the container stayed until the engine's next start."""
    refusals = [EngineRefused("device or resource busy"), EngineRefused("removal is already in progress"), None]

    def remove(container):
        refusal = refusals.pop(0)
        if refusal is not None:
            raise refusal

    engine = SimpleNamespace(remove=remove)
    task = DockerTask("a", 1, (), tmp_path / "r", directory=TaskDir(tmp_path), owner=0, engine=engine, container="c")
    await task.remove(clean=False)
    assert refusals == []


def test_an_oom_of_the_launcher_itself(tmp_path):
    engine = SimpleNamespace(lost_at=0.0, said=lambda container: "")
    task = DockerTask(
        "a", 1, (), tmp_path / "r", directory=TaskDir(tmp_path), owner=0, engine=engine, container="c", memory=1 << 20
    )
    exit_ = task._exit(ContainerEnd(137, oom=True, error="", at=100.0))
    assert (exit_.reason, exit_.delivered) == ("oom", False)
    assert "1 MiB" in exit_.message


@pytest.mark.parametrize(
    ("user", "name"),
    [("alice", "alice"), ("a.b@c-d_e", "a.b@c-d_e"), ("..", "%2E."), ("a/b", "a%2Fb"), ("é", "%C3%A9")],
)
def test_names_of_homes(user, name):
    assert home_name(user) == name


_FOLDERS = [
    ".",
    "..",
    "...",
    "/",
    "//",
    "a/..",
    "../..",
    "/etc",
    "%2e%2e",
    "%2E%2E",
    "%2E.",
    "a/b",
    "a%2Fb",
    "a\0b",
    "a\nb",
]


def test_names_that_mean_a_folder_have_homes_of_their_own_in_the_homes(tmp_path):
    """Whatever the Hub would let through: one folder for each, and each directly in its place."""
    homes = Homes(tmp_path / "homes")
    made = [homes.home_of(Identity(user, os.getuid(), os.getgid())) for user in _FOLDERS]
    assert all(home.parent == homes.directory and home.resolve().parent == homes.directory for home in made)
    assert len(set(made)) == len(_FOLDERS)
    assert sorted(homes.directory.iterdir()) == sorted(made)
    assert list(tmp_path.iterdir()) == [homes.directory]


@pytest.mark.parametrize("user", ["", "é" * 100])
def test_names_that_have_no_home(user):
    with pytest.raises(SetupFailed, match="home"):
        home_name(user)


def test_a_port_belongs_to_its_service_from_the_choice_until_well_after_the_end(tmp_path):
    """Between the choice and the server's own bind, two seconds later, anybody could take it: 3 times of 3."""
    ports, record = HeldPorts(), tmp_path / "a.json"
    record.touch()
    service = ports.take(record, "127.0.0.1")
    assert not can_bind(service.port)
    socket.create_connection(("127.0.0.1", service.port)).close()  # waits for the server, and reaches nobody else
    ports.retire(record, "127.0.0.1", service.port)
    assert not can_bind(service.port), "the Hub's proxy may still lead here"
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", service.port))
    ports.close()
    assert can_bind(service.port)


def test_the_port_of_a_task_that_an_earlier_agent_started_is_kept_too(tmp_path):
    ports = HeldPorts()
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
    ports.know(tmp_path / "a.json", port)
    ports.retire(tmp_path / "a.json", "127.0.0.1", port)
    assert not can_bind(port)
    ports.close()


def can_bind(port):
    for reuse in (0, 1):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuse)
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, reuse)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return True
    return False


def test_ports_are_not_given_twice(tmp_path):
    made = hold_port("127.0.0.1")
    first = made.getsockname()[1]
    with pytest.raises(RefusedTask, match="no free port"):
        hold_port("127.0.0.1", (first, first))
    made.close()
    again = hold_port("127.0.0.1", (first, first))
    assert again.getsockname()[1] == first
    again.close()
    with pytest.raises(RefusedTask, match="no free port"):
        hold_port("127.0.0.1", (first, first), frozenset({first}))
    with pytest.raises(RefusedTask, match="--address"):
        hold_port("192.0.2.1")


def test_tasks_that_start_at_once_get_the_same_package(tmp_path):
    with ThreadPoolExecutor(4) as pool:
        found = set(pool.map(lambda _: container_package(tmp_path / "package"), range(8)))
    (package,) = found
    assert [path.name for path in (tmp_path / "package").iterdir()] == [package.name]
    assert (package / "launch" / "task.py").stat().st_mode & 0o777 == 0o644


def test_outside_of_a_container_the_kernels_count_is_a_number():
    assert oom_kills() >= 0


def test_a_home_is_made_once_and_kept(tmp_path):
    import os

    me = Identity("alice", os.getuid(), os.getgid())
    homes = Homes(tmp_path / "homes")
    assert homes.home_of(me) == homes.home_of(me) == tmp_path / "homes" / "alice"
    assert (tmp_path / "homes" / "alice").stat().st_mode & 0o777 == 0o700
