"""Objects of the API: what the agent makes, reads, changes and deletes; and how it is refused."""

import base64

import httpx
import pytest

from testbed.kubernetes.api_client import Answer
from testbed.waiting import until

NOWHERE = {"nodeSelector": {"place": "nowhere"}}


def test_the_server_says_its_version_and_its_kinds(site):
    assert site.admin.get("/version")["major"] == "1"
    kinds = {one["name"] for one in site.admin.get("/api/v1")["resources"]}
    assert {"pods", "pods/log", "pods/eviction", "nodes", "secrets", "services", "events"} <= kinds
    groups = {one["name"] for one in site.admin.get("/apis")["groups"]}
    assert {"coordination.k8s.io", "scheduling.k8s.io"} <= groups
    with pytest.raises(Answer) as refused:
        site.admin.get("/apis/scheduling.k8s.io/v9")
    assert refused.value.code == 404


def test_a_pod_is_made_once(site):
    """Who made it and did not hear of it finds out by asking again."""
    made = site.start("one", "true", **NOWHERE)
    assert made["metadata"]["uid"]
    assert int(made["metadata"]["resourceVersion"]) > 0
    assert made["status"]["phase"] == "Pending"
    assert made["spec"]["containers"][0]["terminationMessagePath"] == "/dev/termination-log"
    with pytest.raises(Answer) as refused:
        site.start("one", "true", **NOWHERE)
    assert (refused.value.code, refused.value.status["reason"]) == (409, "AlreadyExists")
    named = site.pod("", "true", **NOWHERE)
    named["metadata"] = {"generateName": "many-"}
    assert site.admin.post(site.pods, named)["metadata"]["name"].startswith("many-")


def test_what_is_asked_of_gpus_is_in_requests_too(site):
    limits = {"resources": {"limits": {"nvidia.com/gpu": "1", "memory": "64Mi"}}}
    made = site.start("gpu", "true", container=limits, **NOWHERE)
    assert made["spec"]["containers"][0]["resources"]["requests"] == {"nvidia.com/gpu": "1", "memory": "64Mi"}


def refusal(site, change, path=None):
    pod = site.pod("bad", "true", **NOWHERE)
    change(pod)
    with pytest.raises(Answer) as refused:
        site.admin.post(path or site.pods, pod)
    return refused.value.code, refused.value.status["reason"], refused.value.status["message"]


def test_what_may_not_be_is_refused_and_named(site):
    def container(**fields):
        return lambda pod: pod["spec"]["containers"][0].update(fields)

    code, reason, message = refusal(site, container(name="Not A Name"))
    assert (code, reason) == (422, "Invalid")
    assert "spec.containers[0].name" in message
    code, _, message = refusal(site, container(resources={"requests": {"nvidia.com/gpu": "1"}}))
    assert code == 422
    assert "spec.containers[0].resources.limits: Required value: Limit must be set" in message
    code, _, message = refusal(site, container(resources={"limits": {"memory": "much"}}))
    assert code == 400
    code, _, message = refusal(site, container(volumeMounts=[{"name": "none", "mountPath": "/x"}]))
    assert code == 422
    assert "volumeMounts[0].name" in message
    code, _, message = refusal(site, lambda pod: pod["metadata"]["labels"].update(app="x" * 64))
    assert code == 422
    assert "metadata.labels" in message
    code, reason, message = refusal(site, lambda pod: pod["spec"].update(priorityClassName="no-such"))
    assert (code, reason) == (403, "Forbidden")
    assert "no PriorityClass with name no-such was found" in message
    code, reason, message = refusal(site, lambda pod: pod["spec"].update(serviceAccountName="no-such"))
    assert (code, reason) == (403, "Forbidden")
    assert 'serviceaccount "no-such" not found' in message
    code, reason, message = refusal(site, lambda pod: None, "/api/v1/namespaces/no-such/pods")
    assert (code, reason) == (404, "NotFound")
    assert 'namespaces "no-such" not found' in message


def test_a_quota_refuses_what_is_too_much(site):
    hard = {"hard": {"requests.nvidia.com/gpu": "1"}}
    site.admin.post(f"{site.at}/resourcequotas", {"metadata": {"name": "few"}, "spec": hard})
    path = f"{site.at}/resourcequotas/few"
    until(lambda: site.admin.get(path).get("status") or site.namespace, "the quota is not counted", 20)

    def two(pod):
        pod["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "2"}}

    code, reason, message = refusal(site, two)
    assert (code, reason) == (403, "Forbidden")
    assert "exceeded quota: few" in message


def test_lists_are_of_labels_fields_and_pages(site):
    for name in ("a", "b", "c"):
        site.start(name, "true", **NOWHERE)
    found = site.admin.get(site.pods, labelSelector="app in (a, c)")
    assert [one["metadata"]["name"] for one in found["items"]] == ["a", "c"]
    assert "kind" not in found["items"][0]
    found = site.admin.get(site.pods, fieldSelector="metadata.name=b,spec.nodeName=")
    assert [one["metadata"]["name"] for one in found["items"]] == ["b"]
    first = site.admin.get(site.pods, limit="2")
    assert len(first["items"]) == 2
    rest = site.admin.get(site.pods, limit="2", **{"continue": first["metadata"]["continue"]})
    assert [one["metadata"]["name"] for one in rest["items"]] == ["c"]
    assert not rest["metadata"].get("continue")
    assert not site.admin.get(site.pods, labelSelector="app=none")["items"]


def test_changes_are_taken_as_merges_and_as_operations(site):
    made = site.start("pod", "true", **NOWHERE)
    path = f"{site.pods}/pod"
    changed = site.admin.patch(path, {"metadata": {"labels": {"more": "yes"}, "annotations": {"a": "1"}}})
    assert changed["metadata"]["labels"] == {"app": "pod", "more": "yes"}
    changed = site.admin.patch(path, {"metadata": {"annotations": {"a": None}}}, "strategic")
    assert "a" not in (changed["metadata"].get("annotations") or {})
    wrong = {"op": "test", "path": "/metadata/labels/more", "value": "no"}
    with pytest.raises(Answer) as refused:
        site.admin.patch(path, [wrong], "json")
    assert refused.value.code == 422
    with pytest.raises(Answer) as refused:
        site.admin.ask("PUT", path, {**made, "metadata": {**made["metadata"], "labels": {"app": "new"}}})
    assert (refused.value.code, refused.value.status["reason"]) == (409, "Conflict")
    with pytest.raises(Answer) as refused:
        site.admin.patch(path, {"spec": {"restartPolicy": "Always"}})
    assert refused.value.code == 422
    condition = {"type": "Mine", "status": "True"}
    said = site.admin.patch(f"{path}/status", {"status": {"conditions": [condition]}}, "strategic")
    assert "Mine" in {one["type"] for one in said["status"]["conditions"]}


def test_a_pod_without_a_node_is_gone_at_once(site):
    made = site.start("pod", "true", **NOWHERE)
    path = f"{site.pods}/pod"
    with pytest.raises(Answer) as refused:
        site.admin.delete(path, {"preconditions": {"uid": "another"}})
    assert (refused.value.code, refused.value.status["reason"]) == (409, "Conflict")
    site.admin.delete(path, {"preconditions": {"uid": made["metadata"]["uid"]}})
    for ask in (site.admin.get, site.admin.delete):
        with pytest.raises(Answer) as refused:
            ask(path)
        assert (refused.value.code, refused.value.status["reason"]) == (404, "NotFound")


def test_pods_are_deleted_by_a_label_together(site):
    for name in ("a", "b"):
        site.admin.post(
            site.pods, {**site.pod(name, "true", **NOWHERE), "metadata": {"name": name, "labels": {"g": "1"}}}
        )
    site.start("c", "true", **NOWHERE)
    site.admin.delete(site.pods, labelSelector="g=1")
    assert [one["metadata"]["name"] for one in site.admin.get(site.pods)["items"]] == ["c"]


def test_what_belongs_to_a_removed_object_is_removed(site):
    owner = site.start("owner", "true", **NOWHERE)
    reference = {"apiVersion": "v1", "kind": "Pod", "name": "owner", "uid": owner["metadata"]["uid"]}
    secrets = f"{site.at}/secrets"
    body = {"metadata": {"name": "of-owner", "ownerReferences": [reference]}, "stringData": {"parcel": "x"}}
    made = site.admin.post(secrets, body)
    assert base64.b64decode(made["data"]["parcel"]) == b"x"
    site.admin.delete(f"{site.pods}/owner")

    def gone():
        try:
            return not site.admin.get(f"{secrets}/of-owner")
        except Answer as error:
            return error.code == 404

    until(gone, "the secret stays", 40)


def test_a_headless_service_has_no_address(site):
    spec = {"clusterIP": "None", "selector": {"g": "1"}, "publishNotReadyAddresses": True}
    made = site.admin.post(f"{site.at}/services", {"metadata": {"name": "ranks"}, "spec": spec})
    assert made["spec"]["clusterIP"] == "None"
    site.admin.delete(f"{site.at}/services/ranks")


def test_of_two_who_take_a_lease_one_is_told(site):
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{site.namespace}/leases"
    spec = {"holderIdentity": "a", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000000Z"}
    made = site.admin.post(leases, {"metadata": {"name": "agent"}, "spec": spec})
    renewed = site.admin.ask("PUT", f"{leases}/agent", {**made, "spec": {**spec, "holderIdentity": "b"}})
    assert renewed["spec"]["holderIdentity"] == "b"
    with pytest.raises(Answer) as refused:
        site.admin.ask("PUT", f"{leases}/agent", {**made, "spec": {**spec, "holderIdentity": "c"}})
    assert (refused.value.code, refused.value.status["reason"]) == (409, "Conflict")


@pytest.mark.parametrize("verb", ["create", "list", "delete"])
def test_a_right_that_lacks_is_named(site, verb):
    """By the review of one's own access before, and by the refusal after."""
    with site.without(verb, "pods") as client:

        def allowed(asked):
            attributes = {"namespace": site.namespace, "verb": asked, "resource": "pods"}
            body = {"spec": {"resourceAttributes": attributes}}
            return client.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body)["status"]["allowed"]

        until(lambda: allowed("get"), "the role is not known", 20)
        assert not allowed(verb)
        ask = {
            "create": lambda: client.post(site.pods, site.pod("x", "true")),
            "list": lambda: client.get(site.pods),
            "delete": lambda: client.delete(f"{site.pods}/x"),
        }[verb]
        with pytest.raises(Answer) as refused:
            ask()
    assert (refused.value.code, refused.value.status["reason"]) == (403, "Forbidden")
    message = refused.value.status["message"]
    assert f'cannot {verb} resource "pods" in API group "" in the namespace "{site.namespace}"' in message


def test_a_wrong_token_is_refused(site):
    url = site.admin.http.base_url.join("/api/v1/pods")
    reply = httpx.get(url, headers={"Authorization": "Bearer no"}, verify=False, timeout=20)
    assert reply.status_code == 401
    assert reply.json()["reason"] == "Unauthorized"
