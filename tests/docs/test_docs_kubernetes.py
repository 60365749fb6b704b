"""What "On Kubernetes" tells people to type fits the chart: its commands render, and what they name is there."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from docs_snippets import DOCS, ROOT, blocks

from detlab.schemas.expconf.podspec import mistakes
from detlab.schemas.expconf.podspec.fields import Container, Metadata, PodFields, Volume, VolumeMount
from detlab_agent.runtimes.kubernetes.options import Home, KubernetesOptions, NodeGroup, read_options
from detlab_hub.core.scheduling import read_pools
from testbed import helm

PAGE = DOCS / "how-to" / "kubernetes.md"


def lines() -> list[str]:
    """Each command of the page's shell blocks in one line."""
    text = "\n".join(block.text for block in blocks(PAGE, "sh"))
    return [line.strip() for line in text.replace("\\\n", " ").splitlines() if line.strip()]


def rendered(line: str, *more: str) -> list[dict[str, Any]]:
    """What the chart makes by a command of the page."""
    program = helm.find()
    if program is None:
        pytest.skip("no Helm: python tests/testbed/helm.py .venv/bin/helm, as make setup-test does")
    words = [word for word in shlex.split(line)[1:] if word not in {"upgrade", "--install", "--create-namespace"}]
    done = subprocess.run([program, "template", *words, *more], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{line}: {done.stderr}"
    return [found for found in yaml.safe_load_all(done.stdout) if found]


def commands(*needed: str) -> list[str]:
    found = [line for line in lines() if line.startswith("helm upgrade") and all(word in line for word in needed)]
    assert found
    return found


def test_each_installation_on_the_page_renders(tmp_path: Path) -> None:
    (values,) = blocks(PAGE, "yaml")[:1]
    path = tmp_path / "values.yaml"
    path.write_text(values.text, encoding="utf-8")
    for line in commands():
        assert rendered(line.replace("values.yaml", str(path)))


def test_what_kubectl_is_told_is_in_the_release() -> None:
    (line,) = commands("cpu_slots")
    made = {(it["kind"].lower(), it["metadata"]["name"]): it for it in rendered(line)}
    named = [
        (kind, name)
        for text in lines()
        if text.startswith("kubectl")
        for kind, name in re.findall(r"\b(service|secret|configmap|deployment|statefulset)[/ ](detlab[a-z-]*)", text)
    ]
    assert len(named) == 4
    assert set(named) <= made.keys()
    ports = [port["port"] for port in made["service", "detlab-proxy"]["spec"]["ports"]]
    assert any(f"8443:{ports[0]}" in text for text in lines())
    keys = {key for text in lines() for key in re.findall(r'\.data "([^"]+)"', text)}
    assert keys <= made["secret", "detlab"]["data"].keys() | made["configmap", "detlab-certificate"]["data"].keys()
    settings = made["configmap", "detlab-agent"]["data"]["settings.yaml"]
    assert yaml.safe_load(settings)["cpu_slots"] == 2


def test_the_notes_of_the_installation_have_the_commands_of_the_page() -> None:
    program = helm.find()
    assert program is not None
    install = [program, "install", "detlab", "deploy/helm/detlab", "--namespace", "detlab", "--dry-run=client"]
    notes = subprocess.run(install, cwd=ROOT, capture_output=True, text=True, check=True).stdout.partition("NOTES:")[2]
    for line in (line for line in lines() if "port-forward" in line or "--output" in line):
        assert line in notes, line


def test_the_values_for_real_use_are_ones_that_agent_and_master_take(tmp_path: Path) -> None:
    (block,) = blocks(PAGE, "yaml")[:1]
    values = yaml.safe_load(block.text)
    path = tmp_path / "settings.yaml"
    path.write_text(yaml.safe_dump(values["agent"]["settings"]), encoding="utf-8")
    assert read_options(path).pools[0].name == "a100"
    config = SimpleNamespace(DetHub=SimpleNamespace())
    exec(values["master"]["extraConfig"], {"c": config})
    _, errors = read_pools(config.DetHub.pools, "default", "default")
    assert errors == []


def test_an_agent_only_makes_nothing_of_a_master() -> None:
    (line,) = commands("agentOnly=true")
    made = rendered(line)
    assert {it["metadata"]["name"] for it in made if it["kind"] in {"Deployment", "StatefulSet"}} == {"detlab-agent"}
    secret = next(text for text in lines() if "create secret generic" in text)
    assert "secret generic enrolment --from-file=enrolment-token=" in secret
    (pod,) = [it["spec"]["template"]["spec"] for it in made if it["kind"] == "StatefulSet"]
    (enrolment,) = [volume for volume in pod["volumes"] if volume["name"] == "enrolment"]
    assert enrolment["secret"]["secretName"] == "enrolment"
    assert enrolment["secret"]["items"][0]["key"] == "enrolment-token"


def test_the_reference_has_each_setting_of_the_agent_and_no_other() -> None:
    text = (DOCS / "reference" / "kubernetes-settings.md").read_text(encoding="utf-8").partition("\n## ")[0]
    cells = [line.split("|") for line in text.splitlines() if line.startswith("| `")]
    named = {name for cell in cells for name in re.findall(r"`(\w+)`", cell[1])}
    assert named == set(KubernetesOptions.model_fields)
    for key, kind in (("home", Home), ("autoscaled", NodeGroup)):
        (row,) = [cell[3] for cell in cells if f"`{key}`" in cell[1]]
        assert set(kind.model_fields) <= set(re.findall(r"`(\w+)`", row)), key


def test_the_reference_has_each_field_of_a_pod_spec_and_no_other() -> None:
    text = (DOCS / "reference" / "kubernetes-settings.md").read_text(encoding="utf-8")
    section = text.partition("\n## What a pod_spec may say")[2]
    rows = {
        re.sub("`", "", cell[1]).strip(): cell[2] for line in section.splitlines() if len(cell := line.split("|")) == 4
    }
    for where, model in (
        ("metadata", Metadata),
        ("spec", PodFields),
        ("other containers", Container),
        ("volumes", Volume),
        ("volumeMounts", VolumeMount),
    ):
        said = set(re.findall(r"`(\w+)", rows[where]))
        fields = {field.alias or name for name, field in model.model_fields.items()} - {"name"}
        missing = fields - said - {"livenessProbe", "readinessProbe", "startupProbe", "lifecycle"}  # "probes and hooks"
        assert not missing, f"{where}: {missing}"


def test_the_settings_on_the_page_are_valid(tmp_path: Path) -> None:
    starts = ("home:", "autoscaled:", "tolerations:")
    found = [block.text for block in blocks(PAGE, "yaml") if block.text.lstrip().startswith(starts)]
    (groups,) = [block.text for block in blocks(PAGE, "yaml") if "groups:" in block.text]
    found.append(yaml.safe_dump(yaml.safe_load(groups)["agent"]["settings"]))
    found += [
        text for text in re.findall(r"`(\w+: [\[{][^`]+)`", PAGE.read_text()) if text.startswith(("allow_", "pools"))
    ]
    assert len(found) == 8
    for text in found:
        file = tmp_path / "settings.yaml"
        file.write_text(text, encoding="utf-8")
        read_options(file)


def test_the_pod_specs_on_the_page_are_taken() -> None:
    found = [block.text for block in blocks(PAGE, "yaml") if "pod_spec:" in block.text]
    assert found
    for text in found:
        assert not list(mistakes(yaml.safe_load(text)["environment"]["pod_spec"]))
