"""`DetKubeSpawner` without a cluster: the pod that it would make, what the Hub keeps of it, what its page says."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from spawn_master import listening, refused, spawn_view, user

from detlab_hub.spawners import SpawnFailed
from detlab_hub.spawners.kube import DetKubeSpawner
from testbed.kubernetes.pod_schema import faults
from testbed.kubernetes.pod_security import violations
from testbed.waiting import soon

IMAGE = "registry.example/lab:4"


@pytest.fixture(autouse=True)
def _no_cluster(monkeypatch):
    """There is no cluster here whose address could be found."""
    monkeypatch.setattr("kubespawner.spawner.load_config", lambda **kwargs: None)


def spawner(master, cls=DetKubeSpawner, **more):
    """A spawner as the Hub makes it at a site of this image and these resources."""
    site = {
        "image": IMAGE,
        "namespace": "lab",
        "cmd": ["jupyterhub-singleuser"],
        "mem_limit": "2G",
        "cpu_guarantee": 0.5,
        "extra_resource_limits": {"example.com/fpga": "1"},
        "node_selector": {"zone": "b"},
        "environment": {"SITE": "north"},
    }
    hub = SimpleNamespace(api_url="http://hub:8081/hub/api", base_url="/hub/", public_host="", server=None)
    made = cls(user=user(), hub=hub, service_url=master.url, service_token="dthub_x", **(site | more))
    made.api_token, made.oauth_client_id = "hub-token", "jupyterhub-user-ada"
    return made


async def pod_of(mine):
    return mine.api.api_client.sanitize_for_serialization(await mine.get_pod_manifest())


def terms_of(pod):
    near = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return near["nodeSelectorTerms"]


def nodes_of(pod):
    return [term["matchFields"][0]["values"] for term in terms_of(pod)]


async def test_the_pod_has_the_sites_image_and_the_slots_of_its_allocation_on_their_node():
    async with listening() as master:
        mine = spawner(master, cluster_url="https://hub.example/")
        mine.use(spawn_view(gpu_uuids=["GPU-1", "GPU-2"], agent_id="node-7"))
        pod = await pod_of(mine)
        (container,) = pod["spec"]["containers"]
        assert container["image"] == IMAGE
        assert container["args"][0] == "jupyterhub-singleuser"
        limits = container["resources"]["limits"]
        assert limits == {"memory": 2 * 2**30, "example.com/fpga": "1", "nvidia.com/gpu": "2"}
        assert container["resources"]["requests"]["cpu"] == 0.5
        assert pod["spec"]["nodeSelector"] == {"zone": "b", "kubernetes.io/hostname": "node-7"}
        assert pod["metadata"]["name"].startswith("jupyter-ada")
        assert pod["metadata"]["labels"]["detlab.io/held"] == "true", "the agent knows whose devices these are"
        env = {item["name"]: item.get("value") for item in container["env"]}
        assert env["DET_URL"] == "https://hub.example/"
        assert env["JUPYTERHUB_API_TOKEN"] == "hub-token"
        assert env["SITE"] == "north"
        assert "JUPYTERHUB_DEFAULT_URL" not in env
        assert "dthub_x" not in str(pod), "the spawners' token stays in the Hub"


async def test_a_servers_pod_is_admitted_by_pod_security_and_known_to_the_api():
    """It had no seccomp profile, and at a site without a uid it could be root."""
    sidecar = {"name": "side", "image": "lab/side:1"}
    async with listening() as master:
        for more in ({}, {"uid": 1000, "fs_gid": 1000, "extra_containers": [sidecar], "init_containers": [sidecar]}):
            mine = spawner(master, **more)
            mine.use(spawn_view(gpu_uuids=["GPU-1"], agent_id="node-7"))
            pod = await pod_of(mine)
            assert not list(violations(pod["spec"]))
            assert not [one for one in faults(pod) if "resources" not in one]  # KubeSpawner writes amounts as numbers


@pytest.mark.parametrize(
    ("site", "said"),
    [
        ({"privileged": True}, "notebook is privileged"),
        ({"allow_privilege_escalation": True}, "may escalate"),
        ({"uid": 0}, "run as root"),
        ({"volumes": [{"name": "x", "hostPath": {"path": "/srv"}}]}, "volume x: hostPath"),
        ({"container_security_context": {"capabilities": {"add": ["SYS_ADMIN"]}}}, "has capabilities"),
        ({"extra_pod_config": {"hostNetwork": True}}, "hostNetwork"),
        ({"pod_security_context": {"seccompProfile": {"type": "Unconfined"}}}, "seccomp"),
    ],
)
async def test_settings_of_a_site_that_break_pod_security_are_named_and_may_be_meant(site, said):
    async with listening() as master:
        mine = spawner(master, **site)
        with pytest.raises(SpawnFailed, match=said) as failed:
            await mine.get_pod_manifest()
        assert "pod_security = 'privileged'" in str(failed.value)
        await spawner(master, **site, pod_security="privileged").get_pod_manifest()


async def test_the_next_pod_has_the_next_allocations_slots_alone():
    async with listening() as master:
        mine = spawner(master)
        mine.use(spawn_view(gpu_uuids=["GPU-1"], agent_id="node-7"))
        mine.use(spawn_view(agent_id="node-8"))
        pod = await pod_of(mine)
        (container,) = pod["spec"]["containers"]
        assert "nvidia.com/gpu" not in container["resources"]["limits"]
        assert container["resources"]["limits"]["example.com/fpga"] == "1"
        assert pod["spec"]["nodeSelector"] == {"zone": "b", "kubernetes.io/hostname": "node-8"}


async def test_a_node_of_a_clusters_agent_has_the_agents_name_before_its_own():
    async with listening() as master:
        mine = spawner(master, gpu_resource="nvidia.com/mig-1g.5gb")
        mine.use(spawn_view(slots=["any0", "any3"], agent_id="kubernetes/node-7"))
        pod = await pod_of(mine)
        (container,) = pod["spec"]["containers"]
        assert container["resources"]["limits"]["nvidia.com/mig-1g.5gb"] == "2"
        assert "nvidia.com/gpu" not in container["resources"]["limits"]
        assert nodes_of(pod) == [["node-7"]]
        assert "kubernetes.io/hostname" not in pod["spec"]["nodeSelector"]
        mine.use(spawn_view(slots=["cpu0"], agent_id="kubernetes/node-8"))
        pod = await pod_of(mine)
        (container,) = pod["spec"]["containers"]
        assert container["resources"]["limits"].keys() == {"memory", "example.com/fpga"}
        assert nodes_of(pod) == [["node-8"]]


async def test_the_sites_own_affinity_stays_and_each_of_its_terms_is_bound_to_the_node():
    async with listening() as master:
        zone = {"key": "zone", "operator": "In", "values": ["b"]}
        terms = [{"matchExpressions": [zone]}, {"matchExpressions": [{"key": "fast", "operator": "Exists"}]}]
        mine = spawner(master, node_affinity_required=terms)
        for node in ("node-7", "node-8"):
            mine.use(spawn_view(agent_id=f"kubernetes/{node}"))
            pod = await pod_of(mine)
            assert nodes_of(pod) == [[node], [node]]
            assert terms_of(pod)[0]["matchExpressions"] == [zone]


async def test_a_shells_pod_opens_a_terminal_and_an_image_of_ones_own_is_refused():
    async with listening() as master:
        mine = spawner(master)
        mine.user_options = {"kind": "shell"}
        (container,) = (await pod_of(mine))["spec"]["containers"]
        assert {"name": "JUPYTERHUB_DEFAULT_URL", "value": "/terminals/1"} in container["env"]
        mine.user_options = {"image": "other.example/x:1"}
        assert "docker is not offered here" in (await refused(mine, master)).jupyterhub_message


async def test_the_hub_keeps_the_pod_and_the_allocation_and_forgets_both():
    async with listening() as master:
        mine = spawner(master)
        mine.load_state({"task_id": "notebook-5", "pod_name": "of-old", "namespace": "then", "dns_name": "of-old.then"})
        assert (mine.task_id, mine.pod_name, mine.namespace) == ("notebook-5", "of-old", "then")
        kept = mine.get_state()
        again = spawner(master)
        again.load_state(kept)
        assert again.get_state() == kept
        assert kept["task_id"] == "notebook-5"
        assert kept["pod_name"] == "of-old"
        master.views["notebook-5"] = spawn_view()
        again.clear_state()
        assert again.pod_name.startswith("jupyter-ada")
        assert "task_id" not in again.get_state()
        await soon(lambda: master.deleted == ["notebook-5"])
