"""OCI artifacts: pushed to a real registry, pulled back by oras, and the same to the byte."""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import jsonschema
import oras.provider
import pytest

from detlab.errors import DetlabError
from detlab.export.oci import ARTIFACT, CODE, CONFIG, DOC, WEIGHT, WEIGHT_CONFIG, media_type, push_oci
from detlab.export.oci_registry import Login
from detlab.schemas.wire.registry import VersionView
from detlab.storage.formats import Format
from detlab.testing.ports import free_port
from testbed.processes import end
from testbed.waiting import until

PROGRAM = "docker-registry"
USERS = "ada:$2b$04$Rgm.7LUoxB8NEmXV.PILYOSPMdDNTV23NczsxHK14AYstFnLUk2hO\n"
"""As `htpasswd -B` writes it, for the password below."""
SECRET = "correct horse"


@contextmanager
def registry(folder: Path, auth: str = "") -> Iterator[str]:
    """A registry of containers on a port of this machine; yields `host:port`."""
    if shutil.which(PROGRAM) is None:
        assert "CI" not in os.environ, "make setup-test installs docker-registry"
        pytest.skip("no docker-registry: make setup-test, or apt-get install docker-registry")
    address = f"127.0.0.1:{free_port()}"
    folder.mkdir()
    config = folder / "config.yml"
    config.write_text(
        "version: 0.1\nlog: {level: error}\n"
        f"storage: {{filesystem: {{rootdirectory: {folder}/data}}}}\nhttp: {{addr: {address}}}\n{auth}"
    )
    server = subprocess.Popen([PROGRAM, "serve", str(config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until(lambda: answers(address), 20)
        yield address
    finally:
        end(server, 5)


def answers(address: str) -> bool:
    try:
        return httpx.get(f"http://{address}/v2/", trust_env=False).status_code in (200, 401)
    except httpx.TransportError:
        return False


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with registry(tmp_path_factory.mktemp("registry") / "open") as address:
        yield address


CONFIG_SCHEMA = {
    "type": "object",
    "required": ["descriptor", "config", "modelfs"],
    "additionalProperties": False,
    "properties": {
        "descriptor": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "createdAt": {"type": "string"},
                "authors": {"type": "array", "items": {"type": "string"}},
                "name": {"type": "string", "minLength": 1},
                "version": {"type": "string"},
                "title": {"type": "string"},
                "description": {"type": "string"},
            },
        },
        "config": {"type": "object", "additionalProperties": False, "properties": {"format": {"type": "string"}}},
        "modelfs": {
            "type": "object",
            "required": ["type", "diffIds"],
            "additionalProperties": False,
            "properties": {
                "type": {"enum": ["layers"]},
                "diffIds": {"type": "array", "minItems": 1, "items": {"pattern": "^sha256:[0-9a-f]{64}$"}},
            },
        },
    },
}
"""Of ModelPack's config: the part that we write."""


def digest(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def test_a_version_is_pushed_and_pulled_back_whole(
    version: VersionView, folder: Path, address: str, tmp_path: Path
) -> None:
    (folder / "README.md").write_text("# mine")
    (folder / "large.bin").write_bytes(os.urandom(40_000_000))  # in parts
    pushed = push_oci(version, folder, f"{address}/models/digits", Login(plain_http=True))
    assert pushed.reference == f"{address}/models/digits:3"
    client = oras.provider.Registry(insecure=True)
    manifest = client.get_manifest(f"{address}/models/digits@{pushed.digest}")
    assert manifest["artifactType"] == ARTIFACT
    assert manifest["config"]["mediaType"] == CONFIG
    kinds = {layer["annotations"]["org.cncf.model.filepath"]: layer["mediaType"] for layer in manifest["layers"]}
    assert kinds == {
        "model_0.safetensors": WEIGHT,
        "large.bin": WEIGHT,
        "load_data.json": WEIGHT_CONFIG,
        "code/model_def.py": CODE,
        "README.md": DOC,
        "model-card.md": DOC,
        "bom.cdx.json": DOC,
    }
    config = json.loads(client.get_blob(f"{address}/models/digits:3", manifest["config"]["digest"]).content)
    jsonschema.validate(config, CONFIG_SCHEMA)
    assert config["modelfs"]["diffIds"] == [layer["digest"] for layer in manifest["layers"]]
    assert config["descriptor"]["version"] == "1.2.0"
    client.pull(pushed.reference, outdir=str(tmp_path / "pulled"))
    for layer in manifest["layers"]:
        name = layer["annotations"]["org.opencontainers.image.title"]
        data = (tmp_path / "pulled" / name).read_bytes()
        assert (digest(data), len(data)) == (layer["digest"], layer["size"])
        if (folder / name).exists():
            assert data == (folder / name).read_bytes()
    assert (tmp_path / "pulled" / "model-card.md").read_text().startswith("---\nlibrary_name: ")


def test_the_same_version_again_is_the_same_artifact(version: VersionView, folder: Path, address: str) -> None:
    login = Login(plain_http=True)
    first = push_oci(version, folder, f"{address}/same:a", login)
    second = push_oci(version, folder, f"{address}/same:b", login)
    assert first.digest == second.digest
    assert second.reference.endswith("/same:b")


def test_a_label_that_moves_changes_no_artifact(version: VersionView, folder: Path, address: str) -> None:
    """The card and the bill of materials in it said where labels were, so the digest changed with them."""
    login = Login(plain_http=True)
    digests = set()
    for number, labels in enumerate([["production"], [], ["staging", "production"]]):
        moved = version.model_copy(update={"labels": labels})
        digests.add(push_oci(moved, folder, f"{address}/moving:{number}", login).digest)
    assert len(digests) == 1


def test_who_downloads_it_changes_no_artifact(version: VersionView, folder: Path, address: str) -> None:
    """With another umask the modes of the files were others, and the digest too."""
    login = Login(plain_http=True)
    first = push_oci(version, folder, f"{address}/umask:a", login)
    for path in folder.rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)
    assert push_oci(version, folder, f"{address}/umask:b", login).digest == first.digest


def test_a_tag_is_not_taken_from_another_artifact_unless_that_is_meant(
    version: VersionView, folder: Path, address: str
) -> None:
    """`:1` of two models with one name in a registry: the later one was under it, and nobody was told."""
    login = Login(plain_http=True)
    first = push_oci(version, folder, f"{address}/taken:1", login)
    assert push_oci(version, folder, f"{address}/taken:1", login) == first, "the same again is no replacement"
    other = version.model_copy(update={"model": "letters"})
    with pytest.raises(DetlabError, match=f"taken:1 is another artifact already: {first.digest}") as caught:
        push_oci(other, folder, f"{address}/taken:1", login)
    assert caught.value.code == "export.exists"
    assert "--replace" in str(caught.value.hint)
    client = oras.provider.Registry(insecure=True)
    assert client.get_manifest(f"{address}/taken:1") == client.get_manifest(f"{address}/taken@{first.digest}")
    second = push_oci(other, folder, f"{address}/taken:1", login, replace=True)
    assert second.digest != first.digest


def test_a_card_of_the_checkpoints_own_is_kept(version: VersionView, folder: Path, address: str) -> None:
    (folder / "model-card.md").write_text("mine")
    push_oci(version, folder, f"{address}/own:1", Login(plain_http=True))
    layers = oras.provider.Registry(insecure=True).get_manifest(f"{address}/own:1")["layers"]
    names = {layer["annotations"]["org.cncf.model.filepath"]: layer["digest"] for layer in layers}
    assert names["model-card.md"] == digest(b"mine")
    assert "detlab/model-card.md" in names


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A registry that wants a login."""
    folder = tmp_path_factory.mktemp("locked")
    (folder / "users").write_text(USERS)
    auth = f"auth: {{htpasswd: {{realm: models, path: {folder}/users}}}}\n"
    with registry(folder / "registry", auth) as address:
        yield address


def test_logins_from_arguments_and_from_docker_work(
    version: VersionView,
    folder: Path,
    locked: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    login = Login("ada", SECRET, plain_http=True)
    assert SECRET not in repr(login)
    push_oci(version, folder, f"{locked}/m:1", login)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    auth = base64.b64encode(f"ada:{SECRET}".encode()).decode()
    (tmp_path / "config.json").write_text(json.dumps({"auths": {locked: {"auth": auth}}}))
    push_oci(version, folder, f"{locked}/m:2", Login(plain_http=True))
    assert SECRET not in caplog.text
    assert auth not in caplog.text


@pytest.mark.parametrize("login", [Login("ada", "wrong horse", plain_http=True), Login(plain_http=True)])
def test_wrong_and_missing_logins_are_told_at_once(
    login: Login, version: VersionView, folder: Path, locked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.setattr("time.sleep", lambda _: pytest.fail("a refusal does not pass by itself"))
    with pytest.raises(DetlabError, match=f"registry {locked}: ") as caught:
        push_oci(version, folder, f"{locked}/m:1", login)
    assert caught.value.code == "export.denied"
    assert f"docker login {locked}" in str(caught.value.hint)
    assert "wrong horse" not in str(caught.value)


def test_nobody_there_and_plain_http_are_told_apart(
    version: VersionView, folder: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("detlab.export.oci_registry._PAUSES", (0.01,))
    nobody = f"127.0.0.1:{free_port()}"
    with pytest.raises(DetlabError, match=f"^registry {nobody} does not answer: nothing listens at that port\n"):
        push_oci(version, folder, f"{nobody}/m:1", Login(plain_http=True))
    with pytest.raises(DetlabError, match="certificate is not trusted") as caught:
        push_oci(version, folder, f"{address}/m:1")
    assert "--plain-http" in str(caught.value.hint)


@pytest.mark.parametrize(
    "reference", ["digits", "host/", "host/Upper", "host/a:b:c", "http://host/a", "host/a b", "host/../a", "host/a:\n"]
)
def test_what_is_no_reference_is_refused_before_anything_is_sent(
    reference: str, version: VersionView, folder: Path
) -> None:
    with pytest.raises(DetlabError, match="does not name a place in a registry"):
        push_oci(version, folder, reference)


def test_media_types_follow_names_and_bytes() -> None:
    assert media_type("code/anything.bin", Format.OTHER) == CODE
    assert media_type("deep/LICENSE", Format.TEXT) == DOC
    assert media_type("tokenizer.json", Format.JSON) == WEIGHT_CONFIG
    assert media_type("vocab.txt", Format.TEXT) == WEIGHT_CONFIG
    assert media_type("weights.txt", Format.PICKLE) == WEIGHT
