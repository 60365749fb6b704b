"""Addresses that are taken, what a mail says and how, and the mail server in the configuration. Nothing is sent."""

from __future__ import annotations

from email import message_from_bytes, policy
from email.headerregistry import Address
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from traitlets.config import Config

from detlab.errors import DetlabError
from detlab.schemas.wire.notify.emails import email_address
from detlab_hub.app import DetHub
from detlab_hub.core.alerts.mails import (
    CODE_ALPHABET,
    alert_letter,
    code_letter,
    compose,
    grouped,
    plain_code,
    summary_letter,
)
from detlab_hub.services.alerts.emails import mailbox
from detlab_hub.services.base.settings import SmtpServer
from detlab_hub.services.notify.configuration import read_smtp

PAGE = "https://hub.example/services/detlab/"
SENDER, TO = Address("detlab", addr_spec="det@example.org"), Address(addr_spec="ada@example.org")
HOSTILE = [
    "has failed\r\nBcc: everybody@example.org",
    "a\nX-Other: b\n\nbody",
    "\u2028Bcc: x@example.org\x85\x0b\x0c\x1e",
    "<script>alert(1)</script><img src=x onerror=y>",
    "right \u202eto left\u202c \u200b\ufeff",
    "=?utf-8?q?encoded=0D=0ABcc:_x?=",
    ".\r\n..\r\n.\r\nMAIL FROM:<x@y.z>",
    "\x00\x1b[31m\ud800",
    "\N{GRINNING FACE} " * 300,
    "x" * 5000,
]

HEADERS = ["Auto-Submitted", "Content-Transfer-Encoding", "Content-Type", "Date", "From", "MIME-Version", "Message-ID"]
HEADERS += ["Subject", "To"]


def told(title: str = "has failed", text: str = "", **more: object) -> dict[str, object]:
    return {"kind": "alert", "level": "warn", "title": title, "text": text, "experiment": None} | more


# --- addresses


@pytest.mark.parametrize(
    ("given_address", "kept"),
    [
        ("ada@example.org", "ada@example.org"),
        ("Ada.Lovelace+gpu@Example.ORG", "Ada.Lovelace+gpu@example.org"),
        ("o'neil_7@mail.xn--bcher-kva.example", "o'neil_7@mail.xn--bcher-kva.example"),
        ("root@localhost", "root@localhost"),
    ],
)
def test_addresses(given_address: str, kept: str) -> None:
    assert email_address(given_address) == kept


@pytest.mark.parametrize(
    "address",
    [
        *("", "ada", "ada@", "@example.org", "a@b@c.org", "ada@example.org ", " ada@example.org", "ada @example.org"),
        *("ada@example.org\n", "ada@example.org\r\nBcc: b@c.org", "ada\r@example.org", "ada@exa\nmple.org"),
        *("ada@example.org,ben@example.org", "ada@example.org;b@c.org", "<ada@example.org>", "Ada <ada@example.org>"),
        *('"ada b"@example.org', "ada(x)@example.org", "@relay.org:ada@example.org", "ada%x.org@example.org"),
        *("x!ada@example.org", "|rm@example.org", "`id`@example.org", "-oQ/tmp@example.org", "$HOME@example.org"),
        *("ada@[127.0.0.1]", "ada@127.0.0.1", "ada@10", "ada@example..org", "ada@-x.org", "ada@x-.org", "ada@x_y.org"),
        *(".ada@example.org", "ada.@example.org", "a..b@example.org", "\u0430da@example.org", "ada@ex\u0430mple.org"),
        *("ada\uff20example.org", "ada@example\u3002org", "ada@example.org\u200b", "ada\x00@example.org", "a/b@x.org"),
        *("a" * 65 + "@example.org", "a@" + "b" * 64 + ".org", "a@" + "b." * 130 + "org", "ada@example.org."),
    ],
)
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(ValueError, match="address"):
        email_address(address)


@given(st.text(max_size=40) | st.emails())
def test_what_is_taken_is_one_word_of_plain_letters(text: str) -> None:
    try:
        found = email_address(text)
    except ValueError:
        return
    assert found.isascii()
    assert found.isprintable()
    assert set(' ,;:<>()[]"\\%!|`$/').isdisjoint(found)
    assert found.count("@") == 1
    assert email_address(found) == found


def test_one_mailbox_under_its_many_names() -> None:
    names = [
        "ada.lovelace@example.org",
        "Ada.Lovelace@example.org",
        "adalovelace+1@example.org",
        "a.da.lovelace@example.org",
    ]
    assert {mailbox(email_address(name)) for name in names} == {"adalovelace@example.org"}
    assert mailbox("ada@other.org") != mailbox("ada@example.org")


# --- letters


@pytest.mark.parametrize("said", HOSTILE)
def test_words_of_others_are_neither_headers_nor_markup(said: str) -> None:
    letter = alert_letter(told(said, said, trial_id=7), "https://hub.example/experiments/3", PAGE)
    raw = compose(letter, SENDER, TO, "<1.2@example.org>", 5.0).as_bytes()
    mail = message_from_bytes(raw, policy=policy.default)
    assert sorted(mail.keys()) == HEADERS
    assert (mail["To"], mail["From"]) == ("ada@example.org", "detlab <det@example.org>")
    assert mail.get_content_type() == "text/plain"
    assert not mail.is_multipart()
    assert mail["Subject"].startswith("[detlab] ")
    assert mail["Subject"].isprintable()
    assert max(map(len, raw.split(b"\r\n"))) < 998, "RFC 5322, 2.1.1"
    lines = mail.get_content().splitlines()
    assert not any(line.startswith((".", "<", "Bcc", "MAIL", "X-")) for line in lines)
    assert all(line.replace("\t", "").isprintable() for line in lines)
    ours = [line for line in lines if not line.startswith(">")]
    assert ours[0] == "An alert of your cluster:"
    assert "https://hub.example/experiments/3" in ours
    assert len(raw) < 60_000


def test_what_an_alert_says() -> None:
    text = alert_letter(told("loss is NaN", "at batch 3\nlr 0.1", run_id="0af3"), "", PAGE).text
    assert "> loss is NaN\n>\n> at batch 3\n> lr 0.1\n\nlevel: warn\nrun: 0af3\n" in text
    assert text.endswith(f"{PAGE}\n")
    assert "det alert email remove" in text


def test_what_is_beyond_the_limit_is_counted() -> None:
    letter = summary_letter(57, PAGE)
    assert letter.subject == "[detlab] 57 more alerts"
    assert "det alert list --unread" in letter.text


def test_a_code_survives_how_people_copy_it() -> None:
    code = CODE_ALPHABET[:12]
    letter = code_letter("a\r\nda <b>", grouped(code), 24, PAGE)
    assert f"det alert email confirm {code[:4]}-{code[4:8]}-{code[8:]}\n" in letter.text
    assert "> a\n> da <b>\n" in letter.text
    for written in (code, grouped(code), f" {grouped(code).upper()}\n", " ".join(code)):
        assert plain_code(written) == code


# --- the mail server in the configuration

FINE = {"host": "mail.example.org", "from": "The Lab <det@Example.org>"}


def test_a_mail_server_is_read(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("s3cret")
    server, errors = read_smtp(FINE)
    assert (server, errors) == (SmtpServer("mail.example.org", 587, "starttls", "det@example.org", "The Lab"), [])
    more = {"security": "tls", "user": "det", "password_file": str(password), "domains": ["Example.org"]}
    server, errors = read_smtp({**FINE, **more})
    assert server is not None
    assert (server.port, server.user, server.takes("a@example.org"), server.takes("a@evil.example.org")) == (
        465,
        "det",
        True,
        False,
    )
    assert read_smtp({}) == (None, [])


@pytest.mark.parametrize(
    ("given_smtp", "said"),
    [
        ({"host": "mail.example.org"}, "`from` is no address"),
        ({**FINE, "from": "det@example.org\r\nBcc: x@y.z"}, "`from` is no address"),
        ({"from": "det@example.org"}, "`host` is no name"),
        ({**FINE, "host": "a b"}, "`host` is no name"),
        ({**FINE, "host": 7}, "`host` is no text"),
        ({**FINE, "security": "ssl"}, "`security` is one of starttls, tls, none"),
        ({**FINE, "port": 0}, "`port` is no port"),
        ({**FINE, "port": True}, "`port` is no port"),
        ({**FINE, "user": "det"}, "belong together"),
        ({**FINE, "user": "det", "password_file": "/not/there"}, "there is no file /not/there"),
        ({**FINE, "user": "det", "password_file": __file__, "security": "none"}, "not sent in the clear"),
        ({**FINE, "ca_file": "/not/there"}, "there is no file /not/there"),
        ({**FINE, "domains": "example.org"}, "`domains` is no list"),
        ({**FINE, "domains": ["a b"]}, "`domains` is no list"),
        ({**FINE, "password": "s3cret"}, "there is no key 'password'"),
    ],
)
def test_mistakes_in_it_are_said(given_smtp: dict[str, object], said: str) -> None:
    server, errors = read_smtp(given_smtp)
    assert server is None
    assert said in "; ".join(errors)
    assert "s3cret" not in "; ".join(errors)


def test_the_master_refuses_to_start_with_mistakes(tmp_path: Path) -> None:
    (tmp_path / "db").mkdir()

    def master(smtp: dict[str, object]) -> DetHub:
        return DetHub(config=Config({"DetHub": {"state_dir": str(tmp_path), "smtp": smtp}}))

    assert master({**FINE, "security": "none"}).settings().smtp == SmtpServer(
        "mail.example.org", 25, "none", "det@example.org", "The Lab"
    )
    with pytest.raises(DetlabError, match="the configuration of the mail server is wrong") as refused:
        master({"host": "", "password": "s3cret"}).settings()
    assert "s3cret" not in refused.value.message
