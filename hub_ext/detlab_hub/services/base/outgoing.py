"""The one client for requests of the master to addresses outside of the cluster: webhooks, and what comes after them.

An address is checked after its name was resolved, and the connection is made to the address that was checked, so that
a name cannot change its meaning in between. Addresses that are not public are refused unless the operator names them,
also where they are written as, or inside of, others (IPv4 in IPv6, NAT64, 6to4, Teredo). No redirect is followed, no
proxy of the environment used, and of an answer nothing but its status is told to people. A server for names may be a
user's, too, and never answer: names are looked up in threads of their own, in the turn of whoever named them.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

import httpx

from detlab.errors import DetlabError, Unavailable
from detlab_hub.services.base.threads import Threads, TooSlow, Workers

SECONDS = 20.0
"""For a whole call: the name, the connection, the request and its answer."""
_UNICAST = ipaddress.IPv6Network("2000::/3")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_CLOUDS = frozenset(map(ipaddress.ip_address, ("168.63.129.16", "100.100.100.200", "fd00:ec2::254")))
"""Where clouds answer a machine with its own keys or settings, and which are not link-local."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""From a host and a port to its addresses."""


class OutgoingError(DetlabError):
    """A call to another server was not made, or did not go through; it has no words of that server."""

    default_code = "outgoing.failed"


class AddressRefused(OutgoingError):
    """An address that the master does not call."""

    default_code = "outgoing.refused"


@dataclass(frozen=True)
class Answer:
    """What a server has answered.

    Attributes:
        status: The HTTP status.
        body: For programs: as many bytes as the call asked for, and never shown to people.
    """

    status: int
    body: bytes = b""

    @property
    def fine(self) -> bool:
        """Whether it is a success; a redirect is none."""
        return 200 <= self.status < 300


class Allowed:
    """The addresses that are not public and that the operator has named.

    Args:
        named: Networks, addresses and host names, of the operator's configuration.
        hosts: Hosts of addresses that the operator has configured to be called: theirs may be private or loopback,
            but link-local (where clouds keep their machines' keys) only if the address itself is named.

    Raises:
        OutgoingError: Something named is neither.
    """

    def __init__(self, named: Sequence[str] = (), hosts: Sequence[str] = ()) -> None:
        self._networks: list[Network] = []
        self._hosts = {host.lower().rstrip(".") for host in hosts}
        for text in named:
            try:
                self._networks.append(ipaddress.ip_network(text, strict=False))
            except ValueError:
                if "/" in text or ":" in text or not text.strip():
                    raise OutgoingError(
                        f"c.DetHub.outgoing_allowed: {text[:80]!r} is no network, address or host"
                    ) from None
                self._hosts.add(text.lower().rstrip("."))

    def check(self, host: str, address: str) -> None:
        """Check one address of a host.

        Raises:
            AddressRefused: It is not public, and not named.
        """
        forms = _forms(address)
        if all(_is_public(form) for form in forms):
            return
        if any(form in network for form in forms for network in self._networks if network.version == form.version):
            return
        if host.lower().rstrip(".") in self._hosts and (_is_address(host) or not any(map(_is_special, forms))):
            return
        raise AddressRefused(
            f"the master does not call {host[:200]}: its address is not public",
            hint="an operator names it, or its network, in c.DetHub.outgoing_allowed",
        )


def _forms(address: str) -> list[Address]:
    """Return an address, or the one that is written inside of it, or both where both are gone to."""
    found: Address = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv4Address):
        return [found]
    if found.ipv4_mapped is not None:
        return [found.ipv4_mapped]
    return [found, ipaddress.IPv4Address(int(found) & 0xFFFFFFFF)] if found in _NAT64 else [found]


def _is_public(form: Address) -> bool:
    """Whether an address is one of the public internet; 6to4, Teredo and what is not assigned yet are none."""
    if not form.is_global or form.is_multicast or form in _CLOUDS:
        return False
    return form.version == 4 or form in _UNICAST or form in _NAT64


def _is_special(form: Address) -> bool:
    return form.is_link_local or form.is_multicast or form.is_unspecified or form in _CLOUDS


def _is_address(host: str) -> bool:
    try:
        return bool(ipaddress.ip_address(host))
    except ValueError:
        return False


class Outgoing:
    """Calls servers outside of the cluster.

    Args:
        allowed: What may be called besides public addresses.
        names: Threads in which the system's resolver is asked.
        resolve: Replaces that resolver (for a test).
        transport: Replaces httpx's (for a test).
        seconds: For a whole call.
    """

    def __init__(
        self,
        allowed: Allowed,
        names: Threads | None = None,
        *,
        resolve: Resolve | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
        seconds: float = SECONDS,
    ) -> None:
        self._allowed, self._given, self._seconds = allowed, resolve, seconds
        self._names = names or Workers().names
        # A transport follows no redirects and keeps no cookies. Connections are not kept either: two hosts at one
        # address would share the one whose certificate was checked for the first of them.
        self._transport = transport or httpx.AsyncHTTPTransport(
            trust_env=False, limits=httpx.Limits(max_keepalive_connections=0)
        )

    async def check(self, url: str, whose: str = "") -> None:
        """Check that an address may be called now, without calling it; `call` checks again.

        Args:
            url: The address.
            whose: The user who names it; empty: the operator.

        Raises:
            AddressRefused: It is not an address that the master calls.
            OutgoingError: Its host was not found in time.
            Unavailable: Too many names are looked up already.
        """
        try:
            async with asyncio.timeout(self._seconds):
                await self._checked(*_place(httpx.URL(url)), whose)
        except TimeoutError:
            raise OutgoingError(f"the host was not found within {self._seconds:g} s") from None
        except (httpx.InvalidURL, OSError, ValueError):
            raise OutgoingError("it is no address") from None

    async def call(
        self,
        method: str,
        url: str,
        *,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        keep: int = 0,
        whose: str = "",
    ) -> Answer:
        """Make one request.

        Args:
            method: The HTTP method.
            url: http or https.
            body: What is sent.
            headers: Further headers.
            keep: Bytes of the answer that are read; 0: none.
            whose: The user who names the address; empty: the operator.

        Raises:
            AddressRefused: It is not an address that the master calls.
            OutgoingError: There was no answer in time, or it has more than `keep` bytes.
        """
        try:
            async with asyncio.timeout(self._seconds):  # httpx limits each read alone, so that one may drip for ever
                target = httpx.URL(url)
                address = await self._checked(*_place(target), whose)
                return await self._call(method, target, address, body, dict(headers or {}), keep)
        except TimeoutError:
            raise OutgoingError(f"there was no answer within {self._seconds:g} s") from None
        except Unavailable:
            raise OutgoingError("too many names of hosts are looked up at once") from None
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
            raise OutgoingError(f"the call failed ({type(error).__name__})") from None

    async def _call(
        self, method: str, target: httpx.URL, address: str, body: bytes, headers: dict[str, str], keep: int
    ) -> Answer:
        # To the address that was checked, under the name that was asked for: a second look-up could give another one.
        request = httpx.Request(
            method,
            target.copy_with(host=address.partition("%")[0]),
            content=body,
            headers={**headers, "Host": target.netloc.decode("ascii")},
            extensions={
                "sni_hostname": target.raw_host.decode("ascii"),
                "timeout": httpx.Timeout(self._seconds).as_dict(),
            },
        )
        reply = await self._transport.handle_async_request(request)
        try:
            return Answer(reply.status_code, await _read(reply, keep) if keep else b"")
        finally:
            await reply.aclose()

    async def _checked(self, host: str, port: int, whose: str) -> str:
        """Return the address to call; all that the host has must be allowed."""
        try:
            found = list(dict.fromkeys(await self._resolve(host, port, whose)))
        except TooSlow:
            raise OutgoingError("the host was not found in time") from None
        except OSError:
            raise OutgoingError(f"there is no such host: {host}") from None
        if not found:
            raise OutgoingError(f"there is no such host: {host}")
        for address in found:
            self._allowed.check(host, address)
        return found[0]

    async def _resolve(self, host: str, port: int, whose: str) -> Sequence[str]:
        if self._given is not None:
            return await self._given(host, port)
        return await self._names.run(whose, _look_up, host, port)


def _place(target: httpx.URL) -> tuple[str, int]:
    """Return the host and the port of an address.

    Raises:
        AddressRefused: The master does not call its kind.
    """
    if target.scheme not in {"http", "https"} or not target.host or target.userinfo:
        raise AddressRefused("the master calls http:// and https:// addresses with a host and without a password")
    return target.host, target.port or (443 if target.scheme == "https" else 80)


async def _read(reply: httpx.Response, most: int) -> bytes:
    found = bytearray()
    async for chunk in reply.aiter_raw():
        found += chunk
        if len(found) > most:
            raise OutgoingError(f"the answer has more than {most:,} bytes")
    return bytes(found)


def _look_up(host: str, port: int) -> Sequence[str]:
    return [str(address[0]) for *_, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
