"""`%det_governance`: the words of `det governance` in a notebook, beside `plan`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace
from urllib.parse import unquote

import httpx
import pytest

from detlab.client import Client
from detlab.client.transport.calls import Retries
from detlab.schemas.wire.governance.evidence import (
    EvidenceView,
    LedgerEntryView,
    LedgerPage,
    MatrixView,
    RefusalView,
    SigningKeyList,
    SigningKeyView,
)
from detlab_magics.completion import Completion
from detlab_magics.errors import MagicError
from detlab_magics.governancemagics import GovernanceMagics, said_of
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
