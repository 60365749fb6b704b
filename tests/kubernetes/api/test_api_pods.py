"""Pods that run: how they start, what they see, how they end, and what the API says of it."""

import os
import time

import pytest
from tornado.httpclient import HTTPClientError

from testbed.kubernetes import images
from testbed.kubernetes.api_client import Answer
from testbed.waiting import until

UNTIL_SIGTERM = """
import signal, sys, time
def end(*_):
    print("asked", flush=True)
    sys.exit(7)
signal.signal(signal.SIGTERM, end)
print("up", flush=True)
while True:
    time.sleep(0.1)
"""


def python(text):
    return ("python3", "-u", "-c", text)


def test_output_exit_code_and_last_message_are_told(site):
    text = """
import sys
print("out")
print("err", file=sys.stderr)
open("/dev/termination-log", "w").write("said")
sys.exit(3)
"""
    site.start("pod", *python(text))
    status = site.phase("pod")
    assert status["phase"] == "Failed"
    ended = status["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"], ended["message"]) == (3, "Error", "said")
    assert ended["finishedAt"] >= ended["startedAt"]
    assert sorted(site.admin.get(f"{site.pods}/pod/log").splitlines()) == ["err", "out"]


def test_a_pod_that_ends_well_has_succeeded(site):
    site.start("pod", "true")
    status = site.phase("pod")
    assert status["phase"] == "Succeeded"
    assert status["containerStatuses"][0]["state"]["terminated"]["reason"] == "Completed"
    assert site.admin.get(f"{site.pods}/pod")["spec"]["nodeName"] == site.node


def test_a_pod_sees_what_its_spec_gives_it(site):
    secret = {"metadata": {"name": "parcel"}, "stringData": {"DET_PARCEL": "all of it", "key": "k"}}
    site.admin.post(f"{site.at}/secrets", secret)
    text = """
import os
print(os.environ["DET_PARCEL"], os.environ["PLAIN"], os.environ["BOTH"], os.environ["KEY"])
print(open("/secrets/key").read(), os.environ["NAME"], os.environ["NODE"], os.environ["ADDRESS"] != "")
print(os.getcwd(), os.getuid(), os.listdir("/scratch"), os.stat("/dev/shm").st_mode & 0o777 == 0o777)
"""
    container = {
        "envFrom": [{"secretRef": {"name": "parcel"}}],
        "env": [
            {"name": "PLAIN", "value": "plain"},
            {"name": "BOTH", "value": "$(PLAIN)-$$(PLAIN)"},
            {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "parcel", "key": "key"}}},
            {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            {"name": "ADDRESS", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        ],
        "volumeMounts": [
            {"name": "parcel", "mountPath": "/secrets", "readOnly": True},
            {"name": "scratch", "mountPath": "/scratch"},
        ],
        "workingDir": "/scratch",
    }
    volumes = [{"name": "parcel", "secret": {"secretName": "parcel"}}, {"name": "scratch", "emptyDir": {}}]
    user = {} if os.geteuid() != 0 else {"securityContext": {"runAsUser": 1234, "runAsGroup": 1234}}
    site.start("pod", *python(text), container=container, volumes=volumes, **user)
    assert site.phase("pod")["phase"] == "Succeeded", site.admin.get(f"{site.pods}/pod/log")
    lines = site.admin.get(f"{site.pods}/pod/log").splitlines()
    assert lines[0] == "all of it plain plain-$(PLAIN) k"
    assert lines[1] == f"k pod {site.node} True"
    assert lines[2] == f"/scratch {1234 if user else 0} [] True"


def test_a_deleted_pod_has_its_time_to_end(site):
    site.start("pod", *python(UNTIL_SIGTERM), terminationGracePeriodSeconds=20)
    until(lambda: site.phase("pod", "Running") and "up" in site.admin.get(f"{site.pods}/pod/log"), "not up", 30)
    since = site.admin.get(site.pods)["metadata"]["resourceVersion"]
    began = time.monotonic()
    site.admin.delete(f"{site.pods}/pod")
    codes, marked = [], False
    with site.admin.watch(site.pods, resourceVersion=since, timeoutSeconds="40") as events:
        for event in events:
            found = event["object"]
            marked = marked or bool(found["metadata"].get("deletionTimestamp"))
            state = found["status"]["containerStatuses"][0]["state"]
            codes += [state["terminated"]["exitCode"]] if "terminated" in state else []
            if event["type"] == "DELETED":
                break
    assert marked
    assert set(codes) == {7}, codes
    assert time.monotonic() - began < 19


def test_a_pod_that_ignores_sigterm_is_killed(site):
    text = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up'); time.sleep(600)"
    site.start("pod", *python(text), terminationGracePeriodSeconds=2)
    until(lambda: site.phase("pod", "Running") and "up" in site.admin.get(f"{site.pods}/pod/log"), "not up", 30)
    began = time.monotonic()
    site.admin.delete(f"{site.pods}/pod")

    def gone():
        try:
            return not site.admin.get(f"{site.pods}/pod")
        except Answer as error:
            return error.code == 404

    until(gone, "it stays", 40)
    assert time.monotonic() - began >= 1.9


def test_a_deletion_without_grace_takes_it_at_once(site):
    """Who deletes by force is told that it is gone before its node says so."""
    site.start("pod", "sleep", "600")
    site.phase("pod", "Running")
    site.admin.delete(f"{site.pods}/pod", {"gracePeriodSeconds": 0})
    with pytest.raises(Answer) as refused:
        site.admin.get(f"{site.pods}/pod")
    assert refused.value.code == 404
    site.start("pod", "true")
    assert site.phase("pod")["phase"] == "Succeeded"


def test_a_program_that_is_missing_is_named(site):
    site.start("pod", "python3", container={"image": images.BARE})
    status = site.phase("pod")
    ended = status["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (128, "StartError")
    assert "executable file not found in $PATH" in ended["message"]


def test_an_image_that_is_missing_is_waited_for(site):
    site.start("pod", "true", container={"image": "localhost/no-such:1"})
    state = site.state("pod", "waiting")
    assert state["reason"] == "ErrImageNeverPull"
    assert "localhost/no-such:1" in state["message"]
    assert site.status("pod")["phase"] == "Pending"


def test_a_secret_that_is_missing_is_waited_for(site):
    container = {"envFrom": [{"secretRef": {"name": "late"}}]}
    site.start("pod", *python("import os; print(os.environ['A'])"), container=container)
    state = site.state("pod", "waiting")
    assert (state["reason"], state["message"]) == ("CreateContainerConfigError", 'secret "late" not found')
    site.admin.post(f"{site.at}/secrets", {"metadata": {"name": "late"}, "stringData": {"A": "here"}})
    assert site.phase("pod", seconds=100)["phase"] == "Succeeded"


def test_an_init_container_that_fails_ends_the_pod(site):
    first = {"name": "code", "image": images.PYTHON, "imagePullPolicy": "Never", "command": ["sh", "-c", "exit 9"]}
    site.start("pod", "true", initContainers=[first])
    status = site.phase("pod")
    assert status["phase"] == "Failed"
    assert status["initContainerStatuses"][0]["state"]["terminated"]["exitCode"] == 9
    assert "running" not in str(status.get("containerStatuses"))


def test_a_pod_that_takes_too_long_is_ended(site):
    site.start("pod", "sleep", "600", activeDeadlineSeconds=1, terminationGracePeriodSeconds=1)
    status = site.phase("pod")
    assert (status["phase"], status["reason"]) == ("Failed", "DeadlineExceeded")


def test_a_container_is_started_again_where_that_is_asked_for(site):
    text = "import os, sys; first = not os.path.exists('/s/x'); open('/s/x', 'w').close(); sys.exit(4 if first else 0)"
    mounts = {"volumeMounts": [{"name": "s", "mountPath": "/s"}]}
    volumes = [{"name": "s", "emptyDir": {}}]
    site.start("pod", *python(text), container=mounts, volumes=volumes, restartPolicy="OnFailure")
    status = site.phase("pod")
    assert status["phase"] == "Succeeded"
    assert status["containerStatuses"][0]["restartCount"] == 1


def test_a_log_is_followed_to_its_end(site):
    text = "import time\nfor n in range(5): print('line', n, flush=True); time.sleep(0.3)"
    site.start("pod", *python(text))
    site.state("pod", "running")
    with site.admin.http.stream(
        "GET", f"{site.pods}/pod/log", params={"follow": "true", "timestamps": "true"}
    ) as reply:
        lines = [line for line in reply.iter_lines() if line]
    assert [line.split(" ", 1)[1] for line in lines] == [f"line {n}" for n in range(5)]
    stamp = lines[2].split(" ", 1)[0]
    assert stamp.endswith("Z")
    later = site.admin.get(f"{site.pods}/pod/log", tailLines="2").splitlines()
    assert later == ["line 3", "line 4"]
    with pytest.raises(Answer) as refused:
        site.admin.get(f"{site.pods}/pod/log", container="other")
    assert refused.value.code == 400


async def test_a_command_in_a_container_is_run_over_a_websocket(site):
    site.start("pod", *python(UNTIL_SIGTERM))
    until(lambda: site.phase("pod", "Running") and "up" in site.admin.get(f"{site.pods}/pod/log"), "not up", 30)
    channels, status = await site.execute(
        "pod", "python3", "-c", "import os; print(os.getpid() > 1, os.listdir('/proc/1/task'))"
    )
    assert (channels, status["status"]) == ("True ['1']\n", "Success")
    _, status = await site.execute("pod", "sh", "-c", "exit 3")
    assert (status["status"], status["reason"]) == ("Failure", "NonZeroExitCode")
    with pytest.raises(HTTPClientError) as refused:
        await site.execute("pod", "true", accept="application/json")
    assert refused.value.code == 406
    await site.execute("pod", "python3", "-c", "import os; os.kill(1, 15)")
    ended = site.phase("pod")["containerStatuses"][0]["state"]["terminated"]
    assert ended["exitCode"] == 7


def test_a_pod_is_bound_to_the_one_node_that_it_names(site):
    """By a field of the node, as the agent does, so that the scheduler still checks whether there is room."""

    def near(name):
        terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        return {"nodeAffinity": required}

    site.start("other", "true", affinity=near("no-such-node"))
    site.start("pod", "true", affinity=near(site.node))
    assert site.phase("pod")["phase"] == "Succeeded"
    conditions = site.status("other")["conditions"]
    assert "didn't match" in next(one["message"] for one in conditions if one["type"] == "PodScheduled")


def test_memory_is_limited_and_named(site):
    """Only the real node limits it; the fake one is told that it was so."""
    text = "print('up', flush=True); import time; time.sleep(0.5); x = bytearray(300 << 20); time.sleep(60)"
    site.start("pod", *python(text), container={"resources": {"limits": {"memory": "64Mi"}}})
    site.phase("pod", "Running")
    site.run_out_of_memory("pod")
    ended = site.phase("pod")["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (137, "OOMKilled")


def test_an_evicted_pod_is_deleted_like_any(site):
    site.start("pod", *python(UNTIL_SIGTERM), terminationGracePeriodSeconds=10)
    site.phase("pod", "Running")
    body = {
        "kind": "Eviction",
        "apiVersion": "policy/v1beta1",
        "metadata": {"name": "pod", "namespace": site.namespace},
    }
    site.admin.post(f"{site.pods}/pod/eviction", body)
    assert site.admin.get(f"{site.pods}/pod")["metadata"]["deletionTimestamp"]


def test_a_node_that_is_cordoned_takes_no_more(site):
    path = f"/api/v1/nodes/{site.node}"
    site.admin.patch(path, {"spec": {"unschedulable": True}})
    try:
        until(lambda: site.admin.get(path)["spec"].get("taints"), "not cordoned", 20)
        site.start("pod", "true")

        def refused():
            return next((one for one in site.status("pod").get("conditions", []) if one["status"] == "False"), None)

        assert "unschedulable" in until(refused, "not said", 20)["message"]
    finally:
        site.admin.patch(path, {"spec": {"unschedulable": None}})
        until(lambda: not site.admin.get(path)["spec"].get("taints"), "still cordoned", 20)
    assert site.phase("pod")["phase"] == "Succeeded"
