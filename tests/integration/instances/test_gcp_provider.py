"""Instances of Google Compute Engine: the testbed's fake one checks requests by Google's own description."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from provider_contract import ProviderContract, living, order

from detlab_hub.backends.instances import ProviderError, Trouble
from detlab_hub.backends.instances.gcp import GcpProvider
from detlab_hub.backends.instances.gcp_settings import GcpSettings
from detlab_hub.core.provisioning import InstanceState
from testbed.gcp.compute import Google, compute

MASTER = "https://hub.example.org/services/detlab/"
IMAGE = "projects/lab-project/global/images/detlab-1"


@pytest.fixture
def google(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Google]:
    with compute() as found:
        found.credentials(tmp_path / "account.json")
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "account.json"))
        yield found
        assert found.refused == [], "a request breaks Google's description of its API"


@pytest.fixture
def said(google: Google) -> dict[str, Any]:
    return {
        "project": "lab-project",
        "zone": "europe-west4-a",
        "boot_disk_source_image": IMAGE,
        "agent_arguments": ["--pool", "elastic"],
        "endpoint_url": google.address,
    }


@pytest.fixture
def provider(said: dict[str, Any]) -> GcpProvider:
    return GcpProvider(GcpSettings.model_validate(said), "c1", "elastic", MASTER)


@pytest.fixture
def another(said: dict[str, Any]) -> GcpProvider:
    return GcpProvider(GcpSettings.model_validate(said), "c1", "elastic", MASTER)


class TestGcp(ProviderContract):
    """The contract."""


class TestSlowGcp(ProviderContract):
    """The contract, where operations last until somebody looks at the list a second time."""

    @pytest.fixture(autouse=True)
    def slow(self, google: Google, monkeypatch: pytest.MonkeyPatch) -> None:
        google.slow = True
        lists = 0
        answer = Google.answer

        def settling(self: Google, *asked: Any) -> Any:
            nonlocal lists
            lists += asked[1].endswith("/instances") and asked[0] == "GET"
            if lists % 3 == 0:
                self.settle()
            return answer(self, *asked)

        monkeypatch.setattr(Google, "answer", settling)


def test_every_key_of_determined_is_in_the_request(google: Google, said: dict[str, Any]) -> None:
    full = said | {
        "boot_disk_size": 300,
        "boot_disk_type": "projects/lab-project/zones/europe-west4-a/diskTypes/pd-ssd",
        "network_interface": {
            "network": "projects/lab-project/global/networks/lab",
            "subnetwork": "projects/lab-project/regions/europe-west4/subnetworks/lab",
            "external_ip": True,
        },
        "network_tags": ["detlab-agents", "ssh"],
        "service_account": {"email": "agents@lab-project.iam.gserviceaccount.com", "scopes": []},
        "instance_type": {
            "machine_type": "n1-standard-16",
            "gpu_type": "nvidia-tesla-t4",
            "gpu_num": 2,
            "preemptible": True,
        },
        "labels": {"team": "vision"},
        "label_key": "run-by",
        "label_value": "the-lab",
        "name_prefix": "lab-",
        "operation_timeout_period": "5m",
        "cpu_slots_allowed": False,
    }
    made = GcpProvider(GcpSettings.model_validate(full), "c1", "elastic", MASTER).launch(order("elastic-1"))
    assert made.spot
    (call,) = google.requests("instances.insert")
    body = dict(call.body)
    script = body.pop("metadata")["items"][0]
    assert script["key"] == "startup-script"
    assert "DET_TASK_METADATA=block" in script["value"]
    assert call.path == {"project": "lab-project", "zone": "europe-west4-a"}
    assert body == {
        "name": "lab-elastic-1",
        "machineType": "zones/europe-west4-a/machineTypes/n1-standard-16",
        "labels": {
            "team": "vision",
            "run-by": "the-lab",
            "detlab-cluster": "c1",
            "detlab-pool": "elastic",
            "detlab-agent": "elastic-1",
        },
        "disks": [
            {
                "boot": True,
                "autoDelete": True,
                "initializeParams": {
                    "sourceImage": IMAGE,
                    "diskSizeGb": "300",
                    "diskType": "zones/europe-west4-a/diskTypes/pd-ssd",
                },
            }
        ],
        "networkInterfaces": [
            {
                "network": "projects/lab-project/global/networks/lab",
                "subnetwork": "projects/lab-project/regions/europe-west4/subnetworks/lab",
                "accessConfigs": [{"type": "ONE_TO_ONE_NAT", "name": "External NAT", "networkTier": "PREMIUM"}],
            }
        ],
        "tags": {"items": ["detlab-agents", "ssh"]},
        "serviceAccounts": [
            {
                "email": "agents@lab-project.iam.gserviceaccount.com",
                "scopes": ["https://www.googleapis.com/auth/cloud-platform"],
            }
        ],
        "guestAccelerators": [
            {
                "acceleratorType": "projects/lab-project/zones/europe-west4-a/acceleratorTypes/nvidia-tesla-t4",
                "acceleratorCount": 2,
            }
        ],
        "scheduling": {
            "preemptible": True,
            "provisioningModel": "SPOT",
            "instanceTerminationAction": "STOP",
            "automaticRestart": False,
            "onHostMaintenance": "TERMINATE",
        },
    }


@pytest.mark.parametrize(
    "machine",
    [
        {"machine_type": "e2-standard-4", "gpu_num": 0},
        {"machine_type": "g2-standard-24", "gpu_num": 2},
        {"machine_type": "n1-standard-8", "gpu_type": "nvidia-tesla-v100", "gpu_num": 1},
    ],
)
def test_other_machines_are_asked_for_as_google_wants(
    google: Google, said: dict[str, Any], machine: dict[str, Any]
) -> None:
    GcpProvider(GcpSettings.model_validate(said | {"instance_type": machine}), "c1", "elastic", MASTER).launch(
        order("a")
    )
    (call,) = google.requests("instances.insert")
    assert call.body["networkInterfaces"] == [{"network": "global/networks/default"}]
    assert ("guestAccelerators" in call.body) is ("gpu_type" in machine)
    assert "serviceAccounts" not in call.body
    assert call.body["scheduling"]["onHostMaintenance"] == ("TERMINATE" if machine["gpu_num"] else "MIGRATE")


def test_labels_say_whose_it_is_and_others_are_left_alone(
    google: Google, said: dict[str, Any], provider: GcpProvider
) -> None:
    settings = GcpSettings.model_validate(said)
    foreign = GcpProvider(settings, "Cluster Two", "elastic", MASTER)
    theirs = foreign.launch(order("theirs"))
    sibling = GcpProvider(settings, "c1", "other", MASTER).launch(order("of-another-pool", "other"))
    ours = provider.launch(order("ours"))
    assert living(provider) == {"ours": ours.id}
    assert living(foreign) == {"theirs": theirs.id}
    provider.terminate([theirs.id, sibling.id])
    assert set(google.instances) == {theirs.id, sibling.id, ours.id}


def test_the_script_writes_the_token_into_a_file_and_says_it_nowhere_else(
    google: Google, provider: GcpProvider
) -> None:
    wanted = order("n-1")
    provider.launch(wanted)
    (call,) = google.requests("instances.insert")
    lines = call.body["metadata"]["items"][0]["value"].splitlines()
    assert [line for line in lines if wanted.enrolment_token in line] == [
        f"(umask 077 && printf '%s\\n' {wanted.enrolment_token} > /var/lib/detlab/enrolment_token)",
    ]
    said = repr({**call.body, "metadata": None})
    assert wanted.enrolment_token not in said + call.body["name"]
    assert lines[-1].endswith("--enrolment-token-file /var/lib/detlab/enrolment_token --pool elastic >>"
                              " /var/log/detlab-agent.log 2>&1 &")  # fmt: skip
    done = subprocess.run(["/bin/sh", "-n"], input="\n".join(lines), text=True, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_list_of_several_pages_is_read_to_its_end(google: Google, provider: GcpProvider) -> None:
    google.page = 2
    for number in range(5):
        provider.launch(order(f"n-{number}"))
    assert set(living(provider)) == {f"n-{number}" for number in range(5)}


# --- operations


@pytest.mark.parametrize(
    ("code", "trouble", "words"),
    [
        (
            "ZONE_RESOURCE_POOL_EXHAUSTED",
            Trouble.CAPACITY,
            "the zone has no n1-standard-32 with 4 nvidia-tesla-t4 left",
        ),
        ("ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", Trouble.CAPACITY, "the zone has no"),
        ("QUOTA_EXCEEDED", Trouble.QUOTA, "as much as it may have"),
        ("PERMISSIONS_ERROR", Trouble.CREDENTIALS, "do not allow"),
        ("RESOURCE_NOT_FOUND", Trouble.CONFIGURATION, "refuses the request"),
        ("INTERNAL_ERROR", Trouble.UNREACHABLE, "busy"),
        ("SOMETHING_NEW", Trouble.OTHER, "Google says"),
    ],
)
def test_what_an_accepted_request_fails_with_is_said_once_it_has(
    google: Google, provider: GcpProvider, code: str, trouble: Trouble, words: str
) -> None:
    google.slow = True
    google.fails(code, "the region is full.")
    wanted = order("n-1")
    made = provider.launch(wanted)
    assert [(one.id, one.state) for one in provider.list()] == [(made.id, InstanceState.PENDING)]
    google.settle()
    for _ in range(2):  # until it is ended
        (failed,) = provider.list()
        assert (failed.id, failed.agent_id, failed.state) == (made.id, "n-1", InstanceState.STOPPED)
        assert failed.trouble == trouble
        assert words in failed.why
        assert f"the region is full. [{code}]" in failed.why
    provider.terminate([made.id])
    assert provider.list() == ()


def test_an_operation_that_does_not_end_is_given_up_and_what_comes_of_it_later_is_ended(
    google: Google, said: dict[str, Any]
) -> None:
    now = [1000.0]
    settings = GcpSettings.model_validate(said | {"operation_timeout_period": 60})
    provider = GcpProvider(settings, "c1", "elastic", MASTER, clock=lambda: now[0])
    google.slow, google.invisible = True, {"det-n-1"}
    wanted = order("n-1")
    made = provider.launch(type(wanted)(wanted.agent_id, wanted.pool, now[0], wanted.enrolment_token))
    kept = google.instances.pop("det-n-1")
    now[0] += 59
    assert provider.list()[0].state is InstanceState.PENDING
    now[0] += 2
    (late,) = provider.list()
    assert late.state is InstanceState.STOPPED
    assert "operation_timeout_period" in late.why
    provider.terminate([made.id])
    assert provider.list() == ()
    google.instances["det-n-1"], google.invisible = kept, set()
    google.slow = False
    google.settle()
    assert [one.state for one in provider.list()] == [InstanceState.STOPPED]
    provider.terminate([made.id])
    assert google.instances == {}


def test_a_failure_to_end_one_is_said_at_the_next_try(google: Google, provider: GcpProvider) -> None:
    made = provider.launch(order("n-1"))
    google.slow = True
    provider.terminate([made.id])
    (name,) = [one["name"] for one in google.operations.values() if one["operationType"] == "delete"]
    google.operations[name]["_error"] = {"errors": [{"code": "RESOURCE_IN_USE", "message": "a disk is."}]}
    google.settle()
    google.instances[made.id]["status"] = "RUNNING"
    google.slow = False
    with pytest.raises(ProviderError, match="a disk is"):
        provider.terminate([made.id])
    assert google.instances == {}


def test_a_preempted_one_says_that_it_was(google: Google, said: dict[str, Any]) -> None:
    machine = {"machine_type": "g2-standard-4", "gpu_num": 1, "preemptible": True}
    provider = GcpProvider(GcpSettings.model_validate(said | {"instance_type": machine}), "c1", "spot", MASTER)
    first, second = provider.launch(order("a", "spot")), provider.launch(order("b", "spot"))
    google.preempt(first.id)
    google.instances[second.id]["status"] = "TERMINATED"  # by its own shutdown
    assert {(i.id, i.state, i.why, i.trouble) for i in provider.list()} == {
        (first.id, InstanceState.STOPPED, "Google took it back: it was preempted", "capacity"),
        (second.id, InstanceState.STOPPED, "", ""),
    }
    provider.terminate([first.id, second.id])
    assert google.instances == {}


# --- never two for one wish


def test_a_lost_answer_makes_no_second_one(google: Google, provider: GcpProvider) -> None:
    google.fails("", lost=True)
    google.invisible = {"det-n-1"}
    wanted = order("n-1")
    with pytest.raises(ProviderError) as raised:
        provider.launch(wanted)
    assert raised.value.trouble is Trouble.UNREACHABLE
    assert raised.value.may_be_done
    assert len(google.requests("instances.insert")) == 1, "the library tried it again by itself"
    made = provider.launch(wanted)
    assert made.id == "det-n-1"
    assert set(google.instances) == {"det-n-1"}
    first, second = google.requests("instances.insert")
    assert first.query["requestId"] == second.query["requestId"]


def test_one_whose_request_google_has_forgotten_is_found_by_its_name(google: Google, provider: GcpProvider) -> None:
    wanted = order("n-1")
    made = provider.launch(wanted)
    google.operations.clear()
    google.invisible = {made.id}
    assert provider.launch(wanted).id == made.id


def test_an_instance_of_that_name_that_is_not_ours_is_said(google: Google, provider: GcpProvider) -> None:
    google.instances["det-n-1"] = {"name": "det-n-1", "labels": {}, "selfLink": "/x"}
    with pytest.raises(ProviderError, match="not this cluster's") as raised:
        provider.launch(order("n-1"))
    assert raised.value.trouble is Trouble.CONFIGURATION


def test_a_later_master_counts_what_has_only_been_asked_for(
    google: Google, provider: GcpProvider, another: GcpProvider, said: dict[str, Any]
) -> None:
    """A list may lack an instance while its operation runs: an earlier master knew, this one asks for operations."""
    google.slow, google.invisible = True, {"det-n-1"}
    made = provider.launch(order("n-1"))
    assert living(another) == {"n-1": made.id}
    assert living(GcpProvider(GcpSettings.model_validate(said), "c2", "elastic", MASTER)) == {}


# --- errors of requests


@pytest.mark.parametrize(
    ("status", "code", "trouble", "may_be_done"),
    [
        (403, "quotaExceeded", Trouble.QUOTA, False),
        (403, "rateLimitExceeded", Trouble.UNREACHABLE, False),
        (403, "forbidden", Trouble.CREDENTIALS, False),
        (403, "accessNotConfigured", Trouble.CREDENTIALS, False),
        (404, "notFound", Trouble.CONFIGURATION, False),
        (400, "invalid", Trouble.CONFIGURATION, False),
        (400, "somethingNew", Trouble.OTHER, False),
        (412, "conditionNotMet", Trouble.CONFIGURATION, False),
        (500, "somethingNew", Trouble.OTHER, True),
        (503, "backendError", Trouble.UNREACHABLE, True),
    ],
)
def test_refusals_are_said_in_words(
    google: Google, provider: GcpProvider, status: int, code: str, trouble: Trouble, may_be_done: bool
) -> None:
    google.fails(code, "because.", status=status)
    with pytest.raises(ProviderError, match="because") as raised:
        provider.launch(order("e"))
    assert raised.value.trouble is trouble
    assert raised.value.may_be_done is may_be_done
    assert code in raised.value.message


def test_credentials_that_are_missing_wrong_or_refused_and_no_network_are_said_in_words(
    google: Google, said: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(settings: dict[str, Any] = said) -> ProviderError:
        with pytest.raises(ProviderError) as raised:
            GcpProvider(GcpSettings.model_validate(settings), "c1", "elastic", MASTER).list()
        return raised.value

    assert fails(said | {"endpoint_url": "http://127.0.0.1:9"}).trouble is Trouble.UNREACHABLE
    google.credentials(tmp_path / "of-another-key.json")
    unknown = fails()
    assert unknown.trouble is Trouble.CREDENTIALS
    assert "does not recognise" in unknown.message
    text = (tmp_path / "account.json").read_text()
    (tmp_path / "account.json").write_text(text.replace("BEGIN PRIVATE", "BEGIN NOTHING"))
    assert fails().trouble is Trouble.CREDENTIALS
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    missing = fails()
    assert missing.trouble is Trouble.CREDENTIALS
    assert "GOOGLE_APPLICATION_CREDENTIALS" in missing.hint


def test_without_the_library_the_error_says_what_to_install(
    provider: GcpProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "google.cloud", None)
    with pytest.raises(ProviderError) as raised:
        provider.list()
    assert raised.value.trouble is Trouble.CONFIGURATION
    assert "detlab[gcp]" in raised.value.hint


def test_the_master_loads_the_library_only_for_such_a_pool() -> None:
    text = (
        "import sys, detlab, detlab_hub.app, detlab_hub.backends.instances.configuration;"
        "print([name for name in sys.modules if name.startswith(('google.cloud', 'google.auth', 'grpc'))])"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_instance_pins_the_certificate_that_the_pool_names(said: dict[str, Any]) -> None:
    made = order("pins")
    pinned = GcpProvider(GcpSettings.model_validate(said | {"fingerprint": "AB" * 32}), "c1", "elastic", MASTER)
    assert f"{made.enrolment_token}@sha256:{'ab' * 32}" in pinned.startup(made)
    with pytest.raises(ValueError, match="not a fingerprint"):
        GcpSettings.model_validate(said | {"fingerprint": "sha256:12"})
