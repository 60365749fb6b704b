"""`%det_model`: the words of `det model` in a notebook."""

from __future__ import annotations

import json
from collections.abc import Iterator
from urllib.parse import unquote

import httpx
import pytest

from detlab.client import Client
from detlab.client.registry.models import Model, ModelVersion
from detlab.client.transport.calls import Retries
from detlab.schemas.wire.registry import LabelMove, ModelList, ModelView, VersionView
from detlab_magics import modelacts
from detlab_magics.errors import MagicError
from detlab_magics.kernel import KernelSession

HOSTILE = "<script>alert(1)</script>\x1b[31m"
MODEL = ModelView(id=1, name="digits", owner="alice", description=HOSTILE, moving={"production": 2}, versions=2)
VERSION = VersionView(model_id=1, model="digits", version=2, checkpoint="3f2b", comment=HOSTILE)


def answer(request: httpx.Request) -> httpx.Response:
    path = unquote(request.url.path).partition("/api/v1/")[2]
    found = {
        ("GET", "models"): ModelList(items=[MODEL]),
        ("GET", "models/digits"): MODEL,
        ("GET", "models/digits/versions/production"): VERSION,
        ("POST", "models/digits/labels/staging"): LabelMove(label="staging", to_version=2),
    }.get((request.method, path))
    if found is None:
        return httpx.Response(404, json={"code": "not_found", "message": "there is no model 'x'"})
    return httpx.Response(200, json=json.loads(found.model_dump_json()))


@pytest.fixture
def session() -> Iterator[KernelSession]:
    transport = httpx.MockTransport(answer)
    with Client("http://hub.example", "t", transport=transport, backoff=Retries(attempts=0)) as client:
        yield KernelSession(connected=client)


def test_models_are_listed_shown_and_labelled(session: KernelSession) -> None:
    listed = modelacts.run(session, "list")
    assert isinstance(listed, str)
    assert "digits" in listed
    assert "production → 2" in listed
    assert "\x1b" not in listed
    model, version = modelacts.run(session, "show digits"), modelacts.run(session, "show digits@production")
    assert isinstance(model, Model)
    assert isinstance(version, ModelVersion)
    assert "&lt;script&gt;" in version._repr_html_()
    assert "<script" not in model._repr_html_() + version._repr_html_()
    assert modelacts.run(session, "label digits@production staging") == "digits@staging is version 2"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("label 'digits", "cannot be split"),
        ("show", "name a model"),
        ("compare", "Missing argument"),
        ("frobnicate", "No such command"),
        ("register digits", "name a checkpoint, or --experiment"),
        ("delete digits", "add --yes"),
    ],
)
def test_mistakes_are_said(session: KernelSession, line: str, said: str) -> None:
    with pytest.raises(MagicError, match=said):
        modelacts.run(session, line)


def test_the_help_of_a_word_that_is_none_is_not_named(session: KernelSession) -> None:
    for line, hint in (("digits", "%det_model --help"), ("compare", "%det_model compare --help")):
        with pytest.raises(MagicError) as caught:
            modelacts.run(session, line)
        assert str(caught.value).endswith(f"next: {hint}")


def test_help_needs_no_cluster() -> None:
    shown = modelacts.run(KernelSession(), "--help")
    assert isinstance(shown, str)
    assert "register-version" in shown


def test_words_are_completed() -> None:
    assert "show" in modelacts.offers([], "")
    assert modelacts.offers([], "regis") == ["register-version"]
    assert "--experiment" in modelacts.offers(["register-version", "digits"], "--")
