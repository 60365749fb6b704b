"""The master's one client for other servers: what it calls, where the connection goes, and what is told of answers."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from detlab_hub.services.base.outgoing import AddressRefused, Allowed, Outgoing, OutgoingError

PUBLIC = "93.184.216.34"
SECRET = b"the-words-of-the-answer"

NOT_PUBLIC = [
    "127.0.0.1",
    "127.9.9.9",
    "0.0.0.0",
    "10.1.2.3",
    "172.16.0.1",
    "192.168.1.1",
    "100.64.0.1",
    "100.100.100.200",
    "169.254.169.254",
    "168.63.129.16",
    "224.0.0.1",
    "255.255.255.255",
    "198.18.0.1",
    "240.0.0.1",
    "::",
    "::1",
    "::7f00:1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:169.254.169.254",
    "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::7f00:1",
    "2002:7f00:1::",
    "2001:0:7f00:1::",
    "fe80::1",
    "fe80::1%eth0",
    "fc00::1",
    "fd00:ec2::254",
    "fec0::1",
    "ff02::1",
    "2001:db8::1",
]


@pytest.mark.parametrize("address", NOT_PUBLIC)
def test_an_address_that_is_not_public_is_refused_in_every_form(address: str) -> None:
    with pytest.raises(AddressRefused, match="not public"):
        Allowed().check("hooks.example.org", address)


@pytest.mark.parametrize("address", [PUBLIC, "2606:2800:220:1::1", "::ffff:93.184.216.34", "64:ff9b::5db8:d822"])
def test_public_addresses_are_called(address: str) -> None:
    Allowed().check("hooks.example.org", address)


@pytest.mark.parametrize(
    ("named", "address"),
    [
        ("10.0.0.0/8", "10.1.2.3"),
        ("10.0.0.0/8", "::ffff:10.1.2.3"),
        ("127.0.0.1", "127.0.0.1"),
        ("fd00::/8", "fd00::1"),
        ("hooks.lab", "10.1.2.3"),
        ("HOOKS.lab.", "127.0.0.1"),
        ("hooks.lab", "100.64.0.1"),
        ("169.254.0.0/16", "169.254.1.1"),
    ],
)
def test_what_the_operator_names_is_called(named: str, address: str) -> None:
    Allowed([named]).check("hooks.lab", address)


@pytest.mark.parametrize(
    "address", ["169.254.169.254", "fe80::1", "100.100.100.200", "fd00:ec2::254", "224.0.0.1", "::"]
)
def test_a_name_of_the_operators_leads_not_to_where_clouds_keep_keys(address: str) -> None:
    with pytest.raises(AddressRefused):
        Allowed(["hooks.lab"], ["hooks.lab"]).check("hooks.lab", address)
    Allowed([], [address]).check(address, address)  # itself named


@pytest.mark.parametrize("text", ["", " ", "10.0.0.0/99", "::zz", "a/b"])
def test_what_is_no_network_is_refused_at_the_start(text: str) -> None:
    with pytest.raises(OutgoingError, match="outgoing_allowed"):
        Allowed([text])


Script = Callable[[bytes, asyncio.StreamWriter], None]


class Server:
    """Speaks raw HTTP on loopback and notes what came."""

    def __init__(self, reply: bytes | None) -> None:
        self.reply, self.heads, self.connections, self.port = reply, [], 0, 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            self.heads.append(await reader.readuntil(b"\r\n\r\n"))
            if self.reply is None:
                await reader.read()
            else:
                writer.write(self.reply)
                await writer.drain()
        finally:
            writer.close()


@asynccontextmanager
async def serving(reply: bytes | None) -> AsyncIterator[Server]:
    here = Server(reply)
    listener = await asyncio.start_server(here.serve, "127.0.0.1", 0)
    here.port = listener.sockets[0].getsockname()[1]
    yield here
    listener.close()


def resolving(*answers: str):
    """A resolver whose answers change from one question to the next, as an attacker's does."""
    asked: list[str] = []

    async def resolve(host: str, port: int) -> list[str]:
        asked.append(host)
        return [answers[min(len(asked), len(answers)) - 1]]

    resolve.asked = asked
    return resolve


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 23\r\n\r\n" + SECRET


async def test_the_connection_goes_to_the_address_that_was_checked() -> None:
    """By rebinding, a name that was public when it was checked is loopback when it is called."""
    async with serving(OK) as here:
        resolve = resolving("127.0.0.1", "127.0.0.2")
        client = Outgoing(Allowed(["hooks.lab"]), resolve=resolve)
        answer = await client.call("POST", f"http://hooks.lab:{here.port}/x?y", body=b"1")
        assert (answer.status, answer.body) == (200, b""), "nothing is read that was not asked for"
        assert resolve.asked == ["hooks.lab"], "looked up once"
        (head,) = here.heads
        assert head.startswith(b"POST /x?y HTTP/1.1\r\n")
        assert f"Host: hooks.lab:{here.port}".encode() in head


async def test_one_address_of_several_that_is_not_public_is_enough_to_refuse() -> None:
    async def both(host: str, port: int) -> list[str]:
        return [PUBLIC, "127.0.0.1"]

    with pytest.raises(AddressRefused):
        await Outgoing(Allowed(), resolve=both).call("GET", "http://both.example/")


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "2130706433", "0x7f.1", "127.1", "[::1]", "[::ffff:127.0.0.1]", "localhost"]
)
async def test_loopback_is_not_called_however_it_is_written(host: str) -> None:
    async with serving(OK) as here:
        with pytest.raises(OutgoingError):
            await Outgoing(Allowed()).call("GET", f"http://{host}:{here.port}/")
        assert here.connections == 0


async def test_no_redirect_is_followed_and_no_word_repeated() -> None:
    async with serving(OK) as inner:
        moved = f"HTTP/1.1 307 x\r\nLocation: http://127.0.0.1:{inner.port}/\r\nContent-Length: 23\r\n\r\n".encode()
        async with serving(moved + SECRET) as outer:
            client = Outgoing(Allowed(["127.0.0.1"]))
            answer = await client.call("GET", f"http://127.0.0.1:{outer.port}/")
            assert (answer.status, answer.fine) == (307, False)
            assert inner.connections == 0


@pytest.mark.parametrize("reply", [SECRET, b"HTTP/1.1 200 " + SECRET + b"\r\nContent-Length: x\r\n\r\n", b""])
async def test_an_answer_that_is_none_is_told_without_its_words(reply: bytes) -> None:
    async with serving(reply) as here:
        with pytest.raises(OutgoingError) as caught:
            await Outgoing(Allowed(["127.0.0.1"])).call("GET", f"http://127.0.0.1:{here.port}/", keep=10)
        assert SECRET.decode() not in str(caught.value)


async def test_an_answer_has_a_most_size() -> None:
    async with serving(OK) as here:
        client, url = Outgoing(Allowed(["127.0.0.1"])), f"http://127.0.0.1:{here.port}/"
        assert (await client.call("GET", url, keep=23)).body == SECRET
        with pytest.raises(OutgoingError, match="more than 22 bytes"):
            await client.call("GET", url, keep=22)


async def test_a_server_that_never_answers_is_left_after_seconds() -> None:
    async with serving(None) as here:
        client = Outgoing(Allowed(["127.0.0.1"]), seconds=0.2)
        with pytest.raises(OutgoingError, match=r"within 0.2 s"):
            await client.call("GET", f"http://127.0.0.1:{here.port}/")


async def test_a_server_for_names_that_never_answers_holds_up_only_who_named_it(monkeypatch) -> None:
    """It may be a user's own. The loop's own threads sign, and render; they are not for waiting on strangers."""
    known, answers = socket.getaddrinfo, threading.Event()

    def slow(host: str, *args: object, **more: object):
        if host.endswith(".mallory.example"):
            answers.wait(30)
        return known(host, *args, **more)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    client, begun = Outgoing(Allowed(), seconds=10.0), time.monotonic()
    hanging = [asyncio.create_task(client.check(f"http://{n}.mallory.example/", "mallory")) for n in range(40)]
    try:
        await asyncio.sleep(0.1)
        await asyncio.wait_for(client.check(f"http://{PUBLIC}/", "alice"), 4)
        await asyncio.wait_for(asyncio.to_thread(len, "signs"), 4)
        assert time.monotonic() - begun < 4.5
        told = await asyncio.gather(*hanging, return_exceptions=True)
        assert {type(one) for one in told} == {OutgoingError}
        assert time.monotonic() - begun < 9.0, "the others of mallory do not wait one by one"
    finally:
        answers.set()


@pytest.mark.parametrize("url", ["ftp://x/", "file:///etc/passwd", "http://u:p@h/", "http:///x", "gopher://x", "x"])
async def test_only_plain_web_addresses_are_called(url: str) -> None:
    with pytest.raises(OutgoingError):
        await Outgoing(Allowed(), resolve=resolving(PUBLIC)).call("GET", url)
