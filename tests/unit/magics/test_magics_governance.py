"""`%det_governance`: the words of `det governance` in a notebook, beside `plan`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import unquote
from xml.etree import ElementTree

import httpx
import pytest

from detlab.client import Client
from detlab.client.transport.calls import Retries
from detlab.schemas.wire.governance.evidence import (
    DepthView,
    EvidenceView,
    LearningView,
    LedgerEntryView,
    LedgerPage,
    MatrixGroup,
    MatrixView,
    RefusalView,
    SigningKeyList,
    SigningKeyView,
)
from detlab_magics.completion import Completion
from detlab_magics.errors import MagicError
from detlab_magics.governancemagics import GovernanceMagics, learning_of, said_of
from detlab_magics.kernel import KernelSession

HASH = "sha256:" + "5" * 64
MATRIX = {
    "sources": ["trusted", "web"],
    "parameters": [["body.w", [2]], ["head.w", [2]]],
    "scales": [[1.0, 1.0], [0.0, 1.0]],
    "levels": [["direct", "direct"]] * 2,
    "default": None,
    "normalize": "global",
}
SEGMENT = LedgerEntryView(
    trial_id=12,
    index=0,
    kind="segment",
    checkpoint="good",
    body={"s_hash": HASH, "parent": None, "first_step": 0, "step": 400, "counts": {"trusted": 9600, "web": 3200}},
)


LEARNING = LearningView(
    trial_id=12,
    s_hash=HASH,
    sources=["trusted", "<b>web\x1b[2J"],
    groups=[
        MatrixGroup(label="body.*", count=4, scales=[1.0, 0.0], levels=["direct", "direct"]),
        MatrixGroup(label="head.w", scales=[1.0, 0.5], levels=["direct", "isolated"]),
    ],
    left_out=3,
    share={"trusted": 0.75, "<b>web\x1b[2J": 0.25},
    depth=DepthView(steps_completed=400, layers=["body.0", "head"], shares=[[0.9996, 0.0004], [0.0, 1.0]]),
)
LEVELS = {"trusted": "direct", "web": "isolated"}


def evidence(name: str) -> EvidenceView:
    said = {"key_id": "9c81", "trial": 12, "step": 400, "taint": {"trusted": [HASH], "web": [HASH]}}
    problems = [] if name == "good" else [RefusalView(code="CHAIN", message="entry 3 of the ledger was changed\x1b[2J")]
    return EvidenceView(
        checkpoint=name, trial_id=12, predicate=said, learnt_from=["trusted", "web"], levels=LEVELS, problems=problems
    )


def answer(request: httpx.Request) -> httpx.Response:
    path = unquote(request.url.path).partition("/api/v1/")[2]
    found = {
        "checkpoints/good/evidence": evidence("good"),
        "checkpoints/bad/evidence": evidence("bad"),
        "trials/12/ledger": LedgerPage(items=[SEGMENT]),
        "trials/12/governance": LEARNING,
        "trials/13/governance": LearningView(trial_id=13, refusals=[RefusalView(code="ENV", message="no proof")]),
        f"trials/12/matrices/{HASH}": MatrixView(s_hash=HASH, matrix=MATRIX),
        "signing-keys": SigningKeyList(items=[SigningKeyView(id="9c81", public_key="ab" * 32)]),
    }.get(path)
    if found is None or request.method != "GET":
        return httpx.Response(404, json={"code": "not_found", "message": "there is no checkpoint 'x'"})
    return httpx.Response(200, json=json.loads(found.model_dump_json()))


@pytest.fixture
def session() -> Iterator[KernelSession]:
    transport = httpx.MockTransport(answer)
    with Client("http://hub.example", "t", transport=transport, backoff=Retries(attempts=0)) as client:
        yield KernelSession(connected=client)


def test_evidence_layers_and_keys_are_shown_as_the_command_line_shows_them(session: KernelSession) -> None:
    verified = said_of(session, "verify good")
    assert "checkpoint good: the evidence is in order" in verified
    assert "learnt from: trusted (direct), web (isolated)" in verified
    assert [line.split(":")[0].strip() for line in verified.splitlines() if "not promised" in line] == [
        "direct",
        "isolated",
    ]
    assert "level:" not in verified
    touched = said_of(session, "who good --layer body")
    assert "trusted" in touched
    assert "web" not in touched
    assert "9c81" in said_of(session, "keys")
    assert "not promised: that it has no influence" in touched
    assert json.loads(said_of(session, "who good --source web --json"))[0]["layers"] == ["head"]


def test_both_matrices_of_a_trial_are_a_table_and_a_picture(session: KernelSession, tmp_path: Path) -> None:
    table = said_of(session, "show 12")
    lines = [" ".join(line.split()) for line in table.splitlines()]
    assert "body.* (4) open closed" in lines
    assert "head.w open x 0.5, isolated" in lines
    assert "... and 3 more" in lines
    assert "body.0 100.0 % 0" in lines
    assert "head < 0.1 % 100.0 %" in lines
    assert "\x1b" not in table
    bundle = learning_of(session, 12)._repr_mimebundle_()
    assert bundle["text/plain"] == table.rstrip("\n")
    assert "until step 400" in bundle["image/svg+xml"]
    assert "<b>" not in bundle["image/svg+xml"] + bundle["text/html"]
    assert json.loads(said_of(session, "show 12 --json"))["depth"]["shares"][1] == [0.0, 1.0]
    said_of(session, f"show 12 --svg {tmp_path / 'both.svg'}")
    assert (tmp_path / "both.svg").read_text() == bundle["image/svg+xml"]
    ElementTree.fromstring(bundle["image/svg+xml"])


def test_a_trial_that_could_not_begin_says_why(session: KernelSession) -> None:
    said = said_of(session, "show 13")
    assert "ENV: no proof" in said
    assert "no matrix is recorded" in said
    assert "no matrix is recorded yet" in learning_of(session, 13)._repr_mimebundle_()["image/svg+xml"]


def test_evidence_that_is_not_in_order_stops_the_notebook_and_says_why(session: KernelSession) -> None:
    with pytest.raises(MagicError, match="CHAIN: entry 3 of the ledger was changed") as caught:
        said_of(session, "verify bad")
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("verify", "Missing argument"),
        ("verify 'good", "cannot be split"),
        ("who good --layr body", "No such option"),
        ("frobnicate", "No such command"),
    ],
)
def test_mistakes_name_the_help(session: KernelSession, line: str, said: str) -> None:
    with pytest.raises(MagicError, match=said):
        said_of(session, line)


def test_help_needs_no_cluster_and_tab_offers_the_words() -> None:
    assert "Check the evidence of a checkpoint" in said_of(KernelSession(), "verify --help")
    completion = Completion(KernelSession(), {"det_governance": ["--config", "--parameters"]})
    assert {"verify", "who", "keys", "plan"} <= set(completion.offers([], "%det_governance ")[1])
    assert "--layer" in completion.offers([], "%det_governance who good --")[1]
    assert completion.offers([], "%det_governance plan net --")[1] == ["--config", "--parameters"]


def test_the_magic_takes_variables_of_the_notebook(session: KernelSession, capsys: pytest.CaptureFixture[str]) -> None:
    shell = SimpleNamespace(user_ns={"uuid": "good"})
    magics = GovernanceMagics.__new__(GovernanceMagics)
    magics.shell, magics.session = shell, session
    magics.det_governance("verify ${uuid}", local_ns={})
    assert "checkpoint good: the evidence is in order" in capsys.readouterr().out
    with pytest.raises(MagicError, match="name the variable of a model"):
        magics.det_governance("plan", local_ns={})
