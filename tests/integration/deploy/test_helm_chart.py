"""The chart: what it makes, what it refuses, and that all its parts fit together."""

from __future__ import annotations

import base64
import ipaddress
import json
import re
import tomllib
from pathlib import Path

import pytest
import yaml
from chart import CHART, NAME, NAMESPACE, objects, one, pods, run, template

from detlab.schemas.podspec import reserved
from detlab.trust import pinning
from detlab_agent.commands import run as det_agent_run
from detlab_agent.runtimes.kubernetes.options import read_options
from detlab_agent.runtimes.kubernetes.preparation import EVERYWHERE, GROUPS, HOMES, NEEDED, SERVICES, USEFUL

WAYS = {
    "as it comes": (),
    "one namespace": (f"agent.namespace={NAMESPACE}",),
    "everything": (
        "networkPolicy.enabled=true",
        "ingress.enabled=true",
        "ingress.tlsSecretName=hub-tls",
        "publicUrl=https://hub.example.org",
        "images.pullSecrets={regcred}",
        "proxy.service.type=NodePort",
        "proxy.service.nodePort=30443",
        "auth.users={ada,ben}",
    ),
    "groups": (
        "networkPolicy.enabled=true",
        "agent.settings.groups.vision.namespace=vision",
        "agent.settings.users.ada.namespace=vision",
        "metrics.serviceMonitor.enabled=true",
        "metrics.serviceMonitor.tokenSecret=given",
    ),
    "tasks elsewhere": ("agent.namespace=tasks", "networkPolicy.enabled=true", "checkpoints.storage.type=gcs"),
    "given parts": (
        "secrets.existingSecret=given",
        "tls.secretName=given-tls",
        "publicUrl=https://hub.example.org",
        "database.url=postgresql://u:p@db/detlab",
        "database.hubUrl=postgresql://u:p@db/hub",
        f"agent.namespace={NAMESPACE}",
        "checkpoints.existingClaim=given-claim",
    ),
    "objects for checkpoints": ("checkpoints.storage.type=s3", "checkpoints.storage.bucket=lab"),
    "tasks of the agent": ("hub.spawner=detlab",),
    "no agent": ("agent.enabled=false",),
    "agent only": (
        "agentOnly=true",
        "agent.masterUrl=https://hub.example.org",
        "agent.enrolmentTokenSecret=given",
    ),
}
GIVEN = {"given", "given-tls", "given-claim", "regcred", "hub-tls", "default"}
"""Objects that the site makes."""

RULES = {
    ("rel-detlab-agent", "Role"): {
        "pods": "get list watch create delete",
        "secrets": "create patch delete",
        "leases": "get create update",
        "pods/exec": "get create",
        "pods/log": "get",
        "events": "list",
        "services": "list",
    },
    ("lab-rel-detlab-agent", "ClusterRole"): {"nodes": "list watch"},
    ("rel-detlab-hub", "Role"): {
        "pods": "get list watch create delete",
        "pods/log": "get",
        "events": "list watch",
        "persistentvolumeclaims": "get create delete",
    },
}
"""Every right that the chart gives. A further one needs a line here, and a reason in the template."""


@pytest.fixture(params=WAYS.values(), ids=WAYS.keys())
def made(request):
    return objects(*request.param)


def test_helm_finds_nothing_to_complain_about():
    done = run("lint", "--strict", str(CHART))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[WARNING]" not in done.stdout


def test_the_charts_version_is_that_of_detlab():
    project = tomllib.loads((CHART.parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert chart["appVersion"] == chart["version"] == project["version"]


def test_the_chart_gives_these_rights_and_no_others():
    found = {
        (it["metadata"]["name"], it["kind"]): {
            resource: " ".join(rule["verbs"]) for rule in it["rules"] for resource in rule["resources"]
        }
        for it in objects()
        if it["kind"] in {"Role", "ClusterRole"}
    }
    assert found == RULES


def test_settings_of_the_agent_that_need_more_rights_get_these():
    asked = ("home.size=1Gi", "gang=native", "count_others=true")
    found = {
        (it["kind"], right, verb)
        for it in objects(*(f"agent.settings.{one}" for one in asked))
        if it["kind"] in {"Role", "ClusterRole"} and it["metadata"]["name"].endswith("agent")
        for rule in it["rules"]
        for right in rule["resources"]
        for verb in rule["verbs"]
    }
    wanted = {(HOMES.plural, HOMES.verb), *((right.plural, right.verb) for right in GROUPS)}
    assert {("Role", *right) for right in wanted} <= found
    assert {("ClusterRole", right.plural, right.verb) for right in EVERYWHERE} <= found


def test_the_agents_rights_are_those_that_it_checks():
    asked: dict[bool, dict[str, set[str]]] = {True: {}, False: {}}
    for right in (*NEEDED, *USEFUL, SERVICES):
        name = f"{right.plural}/{right.sub}" if right.sub else right.plural
        asked[right.everywhere].setdefault(name, set()).add(right.verb)
    given = {key: {name: set(verbs.split()) for name, verbs in rules.items()} for key, rules in RULES.items()}
    assert asked[False] == given["rel-detlab-agent", "Role"]
    assert asked[True] == given["lab-rel-detlab-agent", "ClusterRole"]


@pytest.mark.parametrize("settings", WAYS.values(), ids=WAYS.keys())
def test_the_agent_takes_the_arguments_and_the_settings_of_the_chart(settings, tmp_path):
    found = [it for it in objects(*settings) if it["metadata"]["name"] == f"{NAME}-agent"]
    for it in found:
        if it["kind"] == "StatefulSet":
            (container,) = it["spec"]["template"]["spec"]["containers"]
            assert container["command"] == ["python", "-m", "detlab_agent"]
            parsed = det_agent_run.make_context("run", list(container["args"]), resilient_parsing=False).params
            assert parsed["kubernetes"] is True
            assert parsed["master"].startswith("https://")
            assert str(parsed["enrolment_token_file"]).startswith("/etc/detlab/enrolment/")
        if it["kind"] == "ConfigMap":
            path = tmp_path / "settings.yaml"
            path.write_text(it["data"]["settings.yaml"], encoding="utf-8")
            options = read_options(path)
            assert options.image == "detlab-tasks:0.1.0"
            assert options.service_account == f"{NAME}-tasks"
            claims = [volume["persistentVolumeClaim"]["claimName"] for volume in options.volumes]
            assert claims == [] or options.volume_mounts[0]["mountPath"] == "/srv/detlab/checkpoints"
    assert bool(found) is ("agent.enabled=false" not in settings)


def test_settings_of_the_site_come_over_the_charts_and_its_volumes_beside_them(tmp_path):
    data = "agent.settings.volumes[0].name=data,agent.settings.volumes[0].persistentVolumeClaim.claimName=sets"
    made = objects("agent.settings.cpu_slots=2", "agent.settings.image=other/x:1", data, f"agent.namespace={NAMESPACE}")
    path = tmp_path / "settings.yaml"
    path.write_text(one(made, "ConfigMap", f"{NAME}-agent")["data"]["settings.yaml"], encoding="utf-8")
    options = read_options(path)
    assert (options.cpu_slots, options.image) == (2, "other/x:1")
    assert [volume["name"] for volume in options.volumes] == ["checkpoints", "data"]


def test_rights_go_to_the_agent_and_the_hub_alone_and_only_they_have_a_token(made):
    bound = {
        (it["roleRef"]["name"], subject["name"], subject["namespace"])
        for it in made
        if it["kind"] in {"RoleBinding", "ClusterRoleBinding"}
        for subject in it["subjects"]
    }
    roles = {it["metadata"]["name"] for it in made if it["kind"] in {"Role", "ClusterRole"}}
    assert {role for role, _, _ in bound} == roles
    assert {account for _, account, _ in bound} <= {f"{NAME}-agent", f"{NAME}-hub"}
    assert {namespace for _, _, namespace in bound} <= {NAMESPACE}
    for name, spec in pods(made):
        has_rights = any(account == spec.get("serviceAccountName") for _, account, _ in bound)
        assert spec["automountServiceAccountToken"] is has_rights, name


def test_no_pod_is_privileged(made):
    for name, spec in pods(made):
        security = spec["securityContext"]
        assert security["runAsNonRoot"] is True, name
        assert security["runAsUser"] > 0, name
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys(), name
        assert all("hostPath" not in volume for volume in spec["volumes"]), name
        for container in [*spec["containers"], *spec.get("initContainers", [])]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }, name
            assert container["resources"]["limits"]["memory"], name


def test_everything_that_is_named_is_there(made):
    there = {(it["kind"], it["metadata"]["name"]) for it in made}
    named = set()
    for _, spec in pods(made):
        named.add(("ServiceAccount", spec.get("serviceAccountName", "default")))
        if "priorityClassName" in spec:
            named.add(("PriorityClass", spec["priorityClassName"]))
        named |= {("Secret", it["name"]) for it in spec.get("imagePullSecrets", [])}
        for volume in spec["volumes"]:
            for source in [volume, *volume.get("projected", {}).get("sources", [])]:
                if "secret" in source:
                    named.add(("Secret", source["secret"].get("secretName") or source["secret"]["name"]))
                if "configMap" in source:
                    named.add(("ConfigMap", source["configMap"]["name"]))
                if "persistentVolumeClaim" in source:
                    named.add(("PersistentVolumeClaim", source["persistentVolumeClaim"]["claimName"]))
        for container in spec["containers"]:
            mounts = {mount["name"] for mount in container["volumeMounts"]}
            assert mounts <= {volume["name"] for volume in spec["volumes"]} | {"state", "data"}
            for variable in container.get("env", []):
                if "valueFrom" in variable:
                    named.add(("Secret", variable["valueFrom"]["secretKeyRef"]["name"]))
    hosts = set(re.findall(r"//(?:[^/@\"]*@)?([a-z-]+)\.lab\.svc", json.dumps(made) + _secrets(made)))
    named |= {("Service", host) for host in hosts}
    assert {(kind, name) for kind, name in named if name not in GIVEN} <= there


def _secrets(made):
    return "".join(
        base64.b64decode(value).decode()
        for it in made
        if it["kind"] == "Secret"
        for value in it.get("data", {}).values()
    )


def test_services_select_the_pods_whose_ports_they_name(made):
    workloads = [it for it in made if it["kind"] in {"Deployment", "StatefulSet"}]
    for service in (it for it in made if it["kind"] == "Service"):
        selector = service["spec"]["selector"].items()
        (target,) = [it for it in workloads if selector <= it["spec"]["template"]["metadata"]["labels"].items()]
        ports = {port["name"] for port in target["spec"]["template"]["spec"]["containers"][0]["ports"]}
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports


PARTS = {"hub", "master", "proxy", "database", "agent"}


@pytest.mark.parametrize("settings", [(), (f"agent.namespace={NAMESPACE}",)], ids=["own namespace", "one namespace"])
def test_services_and_policies_go_by_a_label_that_no_pod_of_a_user_has(settings):
    """A user's pod with the labels of the master, and a port of its name, received the traffic of the cluster."""
    made = objects("networkPolicy.enabled=true", *settings)
    selectors = [it["spec"]["selector"] for it in made if it["kind"] == "Service"]
    policies = {it["metadata"]["name"]: it["spec"] for it in made if it["kind"] == "NetworkPolicy"}
    selectors += [policies[f"{NAME}-{part}"]["podSelector"]["matchLabels"] for part in PARTS - {"agent"}]
    for policy in policies.values():
        for rule in [*policy.get("ingress", []), *policy.get("egress", [])]:
            for peer in [*rule.get("from", []), *rule.get("to", [])]:
                selectors += [found] if (found := peer.get("podSelector", {}).get("matchLabels")) else []
    assert len(selectors) > 10
    for selector in selectors:
        keys = {key for key in selector if key.startswith("detlab.io/")}
        assert keys, selector
        assert all(reserved(key) for key in selector), "a user could set it"
    assert policies[f"{NAME}-tasks"]["podSelector"] == {
        "matchExpressions": [{"key": "detlab.io/part", "operator": "DoesNotExist"}]
    }
    for it in made:
        if it["kind"] in {"Deployment", "StatefulSet"}:
            assert it["spec"]["template"]["metadata"]["labels"]["detlab.io/part"] in PARTS
            assert "detlab.io/part" not in it["spec"]["selector"]["matchLabels"], "selectors cannot be changed"


def test_tasks_have_a_namespace_of_their_own_with_pod_security():
    made = objects()
    (namespace,) = [it for it in made if it["kind"] == "Namespace"]
    own = namespace["metadata"]["name"]
    assert own == "lab-rel-detlab-tasks"
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    assert namespace["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep", "homes of users are in it"
    agent = one(made, "StatefulSet", f"{NAME}-agent")["spec"]["template"]["spec"]["containers"][0]
    assert f"--namespace={own}" in agent["args"]
    assert {it["metadata"].get("namespace") for it in made if it["kind"] in {"Role", "RoleBinding"}} == {own}
    config = json.loads(base64.b64decode(one(made, "Secret", f"{NAME}-config")["data"]["config.json"]))
    assert config["tasksNamespace"] == own
    there = {it["kind"] for it in made if it["metadata"].get("namespace") == own}
    assert there == {"Role", "RoleBinding", "ServiceAccount", "ConfigMap"}, "no Service, and no secret of the Hub"
    assert not [it for it in objects(f"agent.namespace={NAMESPACE}") if it["kind"] == "Namespace"]


def test_the_level_of_pod_security_is_that_of_the_agent(tmp_path):
    made = objects("agent.podSecurity=privileged")
    (namespace,) = [it for it in made if it["kind"] == "Namespace"]
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "privileged"
    path = tmp_path / "settings.yaml"
    for level, found in (("privileged", made), ("restricted", objects())):
        path.write_text(one(found, "ConfigMap", f"{NAME}-agent")["data"]["settings.yaml"], encoding="utf-8")
        assert read_options(path).pod_security == level


def _egress(made):
    (policy,) = [it for it in made if it["kind"] == "NetworkPolicy" and it["metadata"]["name"] == f"{NAME}-tasks"]
    blocks = [one["ipBlock"] for rule in policy["spec"]["egress"] for one in rule["to"] if "ipBlock" in one]
    return policy["spec"]["egress"], blocks


def _reached(blocks, address):
    at = ipaddress.ip_address(address)
    at = getattr(at, "ipv4_mapped", None) or at  # such packets are IPv4 on the network

    def inside(text):
        network = ipaddress.ip_network(text)
        return network.version == at.version and at in network

    return any(inside(one["cidr"]) and not any(map(inside, one.get("except", []))) for one in blocks)


@pytest.mark.parametrize(
    "address",
    [
        "169.254.169.254", "fd00:ec2::254", "fe80::a9fe:a9fe", "::ffff:169.254.169.254", "10.96.0.1", "172.20.0.1",
        "192.168.0.10", "100.64.1.1", "127.0.0.1", "::1", "fd12:3456::1", "64:ff9b::a00:1",
    ],
)  # fmt: skip
def test_tasks_reach_no_private_address_by_either_protocol(address):
    """IPv6 was not named at all, and the API server, databases and services of the cluster could be reached."""
    _, blocks = _egress(objects("networkPolicy.enabled=true"))
    assert not _reached(blocks, address)


def test_every_exception_of_a_policy_is_part_of_its_block_as_the_server_reads_it():
    """The server reads `::ffff:0:0/96` as IPv4, and refused the whole release."""
    _, blocks = _egress(objects("networkPolicy.enabled=true"))
    for block in blocks:
        around = ipaddress.ip_network(block["cidr"])
        for within in map(ipaddress.ip_network, block.get("except", [])):
            assert within.version == around.version
            assert within.subnet_of(around)
            assert within != around
            assert getattr(within.network_address, "ipv4_mapped", None) is None, within


def test_tasks_reach_the_proxy_names_each_other_the_internet_and_what_the_site_allows():
    rules, blocks = _egress(objects("networkPolicy.enabled=true", "networkPolicy.allowedForTasks={10.1.0.0/16}"))
    assert _reached(blocks, "8.8.8.8")
    assert _reached(blocks, "2001:4860:4860::8888")
    assert _reached(blocks, "10.1.2.3")
    parts = [one["podSelector"].get("matchLabels", {}).get("detlab.io/part") for rule in rules for one in rule["to"]
             if "podSelector" in one]  # fmt: skip
    assert parts == ["proxy", None], "the proxy, and other tasks"
    assert [port["port"] for port in rules[0]["ports"]] == [53, 53]
    _, blocks = _egress(objects("networkPolicy.enabled=true", "networkPolicy.internetForTasks=false"))
    assert blocks == []


def test_groups_have_namespaces_in_which_the_agent_has_its_rights():
    made = objects("agent.settings.groups.vision.namespace=vision", "agent.settings.home.size=1Gi")
    namespaces = {"vision", "lab-rel-detlab-tasks"}
    for kind in ("Role", "RoleBinding"):
        found = [it for it in made if it["kind"] == kind and it["metadata"]["name"] == f"{NAME}-agent"]
        assert {it["metadata"]["namespace"] for it in found} == namespaces
    roles = [it["rules"] for it in made if it["kind"] == "Role" and it["metadata"]["name"] == f"{NAME}-agent"]
    assert roles[0] == roles[1]
    accounts = [it for it in made if it["kind"] == "ServiceAccount" and it["metadata"]["name"] == f"{NAME}-tasks"]
    assert {it["metadata"]["namespace"] for it in accounts} == namespaces


def test_a_service_monitor_reads_the_masters_metrics_with_a_token():
    asked = ("metrics.serviceMonitor.enabled=true", "metrics.serviceMonitor.tokenSecret=prometheus")
    made = objects(*asked, "metrics.serviceMonitor.labels.release=kps", "networkPolicy.enabled=true")
    monitor = one(made, "ServiceMonitor", f"{NAME}-master")
    assert monitor["metadata"]["labels"]["release"] == "kps"
    service = one(made, "Service", f"{NAME}-master")
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
    assert endpoint["path"] == "/services/detlab/api/v1/metrics"
    assert endpoint["authorization"]["credentials"] == {"name": "prometheus", "key": "token"}
    sources = one(made, "NetworkPolicy", f"{NAME}-master")["spec"]["ingress"][0]["from"]
    assert {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}} in sources
    assert not [it for it in objects() if it["kind"] == "ServiceMonitor"]


def test_no_two_objects_have_the_same_name_and_all_have_labels_of_the_release(made):
    names = [(it["kind"], it["metadata"].get("namespace", NAMESPACE), it["metadata"]["name"]) for it in made]
    assert len(names) == len(set(names))
    for it in made:
        assert it["metadata"]["labels"]["app.kubernetes.io/instance"] == "rel", it["metadata"]["name"]


def test_no_secret_is_in_a_configmap_or_in_a_command_line():
    made = objects("auth.users={ada}")
    secrets = {
        base64.b64decode(value).decode()
        for it in made
        if it["kind"] == "Secret" and it["metadata"]["name"] == NAME
        for value in it["data"].values()
    }
    assert len(secrets) == 12
    rest = json.dumps([it for it in made if it["kind"] != "Secret"])
    assert not [secret for secret in secrets if secret in rest]


def test_secrets_differ_from_one_installation_to_the_next():
    first, second = (one(objects(), "Secret", NAME)["data"] for _ in range(2))
    assert not [key for key in first if first[key] == second[key]]


def test_the_certificate_is_for_the_proxy_and_for_the_public_address_and_agents_pin_it():
    made = objects("publicUrl=https://hub.example.org")
    first, second = (it for it in made if it["kind"] == "ConfigMap" and it["metadata"]["name"] == f"{NAME}-certificate")
    assert first["metadata"]["namespace"] != second["metadata"]["namespace"]
    assert first["data"] == second["data"]
    pem = first["data"]["tls.crt"]
    assert base64.b64decode(one(made, "Secret", f"{NAME}-tls")["data"]["tls.crt"]).decode() == pem
    from cryptography import x509

    found = x509.load_pem_x509_certificate(pem.encode())
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value.get_values_for_type(
        x509.DNSName
    )
    assert {"hub.example.org", f"{NAME}-proxy.{NAMESPACE}.svc", "localhost"} <= set(names)
    assert pinning(pem).check_hostname is False  # the holder of this key, under any name
    agent = one(made, "StatefulSet", f"{NAME}-agent")["spec"]["template"]["spec"]["containers"][0]
    assert f"--master=https://{NAME}-proxy.{NAMESPACE}.svc" in agent["args"]
    assert {"name": "DET_MASTER_CERT_FILE", "value": "/etc/detlab/certificate/tls.crt"} in agent["env"]


def test_with_a_certificate_of_an_authority_agents_use_the_public_address_and_pin_nothing():
    made = objects("tls.secretName=given-tls", "publicUrl=https://hub.example.org/")
    agent = one(made, "StatefulSet", f"{NAME}-agent")["spec"]["template"]["spec"]["containers"][0]
    assert "--master=https://hub.example.org" in agent["args"]
    assert "env" not in agent
    assert "given-tls" in json.dumps(one(made, "Deployment", f"{NAME}-proxy"))


def test_tasks_never_push_out_pods_and_the_charts_own_come_before_them():
    made = [it for it in objects() if it["kind"] == "PriorityClass"]
    values = {it["metadata"]["name"].rsplit("-", 1)[1]: it for it in made}
    assert values["tasks"]["preemptionPolicy"] == "Never"
    assert values["service"]["value"] > values["tasks"]["value"]
    assert not [it for it in objects("priorityClasses.create=false") if it["kind"] == "PriorityClass"]


def test_images_have_the_sites_registry_and_the_applications_version():
    def images(*settings):
        return {c["image"] for _, spec in pods(objects(*settings)) for c in spec["containers"]}

    assert images() == {"detlab-hub:0.1.0", "detlab-agent:0.1.0", "postgres:16-bookworm"}
    registry = "images.registry=registry.example.org/lab/"
    assert "registry.example.org/lab/detlab-hub:v7" in images(registry, "images.tag=v7")
    assert "other.example/x:1" in images(registry, "images.hub=other.example/x:1")
    assert "localhost/detlab-hub:v1" in images("images.registry=localhost", "images.tag=v1")


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ("publicUrl=hub.example.org", "/publicUrl"),
        ("publicurl=https://x", "publicurl"),
        ("hub.spawner=docker", "/hub/spawner"),
        ("hub.podTimeout=1", "/hub/podTimeout"),
        ("hub.notebooks.gpuResource=gpu", "/hub/notebooks/gpuResource"),
        ("auth.admin=Ada Lovelace", "/auth/admin"),
        ("auth.users={../x}", "/auth/users/0"),
        ("images.pullPolicy=never", "/images/pullPolicy"),
        ("database.url=mysql://x", "/database/url"),
        ("proxy.service.port=70000", "/proxy/service/port"),
        ("checkpoints.storage.bucket=lab", "/checkpoints/storage"),
        ("checkpoints.size=-1Gi", "/checkpoints/size"),
        ("agent.name=a/b", "/agent/name"),
        ("agent.replicas=2", "replicas"),
        ("master.replicas=2", "replicas"),
        ("priorityClasses.service=2000000000", "/priorityClasses/service"),
        ("networkPolicy.blockedForTasks={everything}", "/networkPolicy/blockedForTasks/0"),
    ],
)
def test_a_wrong_value_is_refused_by_its_name(setting, named):
    done = template(setting)
    assert done.returncode != 0
    assert named in done.stderr


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (("agentOnly=true",), "agent.masterUrl"),
        (("agentOnly=true", "agent.masterUrl=https://x"), "det agent enrol"),
        (("agentOnly=true", "agent.masterUrl=https://x", "agent.enabled=false"), "nothing to install"),
        (("database.url=postgresql://u:p@db/x",), "database.hubUrl"),
        (("tls.enabled=false",), "in the clear"),
        (("tls.enabled=false", "publicUrl=http://x"), "in the clear"),
        (("ingress.enabled=true",), "publicUrl"),
        (("agent.namespace=tasks",), "checkpoints.storage"),
        (("checkpoints.existingClaim=mine",), "agent.namespace=lab"),
        (("metrics.serviceMonitor.enabled=true",), "tokenSecret"),
        (("agent.extraArgs={--allow-mount=/srv}",), "agent.podSecurity=privileged"),
    ],
)
def test_values_that_do_not_fit_together_are_refused_with_what_to_do(settings, said):
    done = template(*settings)
    assert done.returncode != 0
    assert said in done.stderr


def test_every_value_is_in_the_schema_and_has_an_explanation():
    """A value that the schema does not know could not be set; one without words would not be."""
    import sys

    sys.path.insert(0, str(CHART.parents[2] / "docs"))
    from reference_pages.helm_values import values

    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    names = {name for name, _, _ in values()}
    for name, _, about in values():
        assert about, name
        block = schema
        for key in name.split("."):
            assert key in block["properties"], name
            block = block["properties"][key]
    assert {name.split(".")[0] for name in names} == schema["properties"].keys() - {"global"}


def test_every_value_is_used():
    import sys

    sys.path.insert(0, str(CHART.parents[2] / "docs"))
    from reference_pages.helm_values import values

    used = "".join(path.read_text(encoding="utf-8") for path in sorted(CHART.glob("templates/*")))
    used += Path(CHART / "files" / "jupyterhub_config.py").read_text(encoding="utf-8")
    through = {"nodeSelector", "tolerations", "affinity"}  # by the helper for all parts
    for name, _, _ in values():
        key = name.rsplit(".", 1)[-1]
        assert key in through or f".{name}" in used or f'["{key}"]' in used or f"{key}:" in used, name


def test_the_notes_say_how_to_get_in():
    done = run("install", "rel", str(CHART), "--namespace", NAMESPACE, "--dry-run=client")
    notes = done.stdout.partition("NOTES:")[2]
    assert f"port-forward service/{NAME}-proxy 8443:443" in notes
    assert 'go-template={{index .data "password-admin" | base64decode}}' in notes
    assert "fingerprint" in notes
