"""The operator's mail server, by SMTP: one connection for each mail, in a thread, within bounded time.

The operator alone says which it is, so that it may be on any network; its certificate is checked, unless they have it
spoken to in the clear. Of what the server answers its number is told to people, and its words are in the log.
"""

from __future__ import annotations

import contextlib
import logging
import smtplib
import socket
import ssl
from email.message import EmailMessage
from functools import cache
from pathlib import Path

from detlab_hub.services.base.outgoing import OutgoingError
from detlab_hub.services.base.settings import SmtpServer

STEP_SECONDS = 20.0
"""For each step with the server: the connection, and each of its answers."""
_log = logging.getLogger(__name__)


class MailError(OutgoingError):
    """A mail that the server has not taken, as far as is known.

    Args:
        message: Why, without words of the server.
        final: It refuses this recipient, or this mail, and would again.
    """

    default_code = "outgoing.mail"

    def __init__(self, message: str, *, final: bool = False) -> None:
        super().__init__(message)
        self.final = final


class Delivery:
    """One attempt to hand a mail to the server.

    Args:
        server: The server.
        mail: What is sent.
        recipient: To whom, and to nobody else, whatever its headers say.
    """

    def __init__(self, server: SmtpServer, mail: EmailMessage, recipient: str) -> None:
        self._server, self._mail, self._recipient = server, mail, recipient
        self._over = False
        self.connection: smtplib.SMTP | None = None
        """Since it is about to be made."""

    def run(self) -> None:
        """Hand it over; blocks.

        Raises:
            MailError: The server has not taken it, as far as is known. Not after `give_up`: nobody asks any more.
        """
        try:
            self._try()
        except MailError:
            if not self._over:
                raise
        finally:
            if self.connection is not None:
                self.connection.close()

    def _try(self) -> None:
        password = self._password()
        try:
            self._send(password)
        except smtplib.SMTPRecipientsRefused as error:
            code, words = error.recipients[self._recipient]
            raise _refused("the address", code, words) from None
        except smtplib.SMTPDataError as error:
            raise _refused("the mail", error.smtp_code, error.smtp_error) from None
        except smtplib.SMTPResponseException as error:
            _log.warning("the mail server answered %d: %r", error.smtp_code, error.smtp_error)
            raise MailError(f"the mail server answered {error.smtp_code} before it took anything") from None
        except smtplib.SMTPNotSupportedError as error:
            _log.warning("the mail server: %s", error)
            raise MailError("the mail server does not offer what c.DetHub.smtp asks for") from None
        except (smtplib.SMTPException, OSError, ValueError) as error:
            _log.warning("the mail server: %r", error)
            raise MailError(f"the mail server is away ({type(error).__name__})") from None

    def give_up(self) -> None:
        """End it from another thread: what waits for the server fails, and nothing is sent any more."""
        self._over = True
        sock = None if self.connection is None else self.connection.sock
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def _password(self) -> str:
        if not self._server.user:
            return ""
        try:
            return Path(self._server.password_file).read_text(encoding="utf-8").strip("\r\n")
        except (OSError, ValueError) as error:
            raise MailError(f"the file of the mail server's password cannot be read ({type(error).__name__})") from None

    def _send(self, password: str) -> None:
        server = self._server
        context = None if server.security == "none" else ssl.create_default_context(cafile=server.ca_file or None)
        if server.security == "tls" and context is not None:
            smtp: smtplib.SMTP = _Encrypted(self, server, context)
        else:
            smtp = _Plain(self, server)
        if server.security == "starttls":
            smtp.starttls(context=context)
        if server.user:
            smtp.login(server.user, password)
        if self._over:
            raise TimeoutError
        smtp.send_message(self._mail, server.sender, [self._recipient])
        with contextlib.suppress(smtplib.SMTPException, OSError):  # it has the mail already
            smtp.quit()


class _Plain(smtplib.SMTP):
    """A connection that begins in the clear."""

    def __init__(self, delivery: Delivery, server: SmtpServer) -> None:
        delivery.connection = self
        super().__init__(server.host, server.port, _own_name(), STEP_SECONDS)


class _Encrypted(smtplib.SMTP_SSL):
    """A connection by TLS from its first byte."""

    def __init__(self, delivery: Delivery, server: SmtpServer, context: ssl.SSLContext) -> None:
        delivery.connection = self
        super().__init__(server.host, server.port, _own_name(), timeout=STEP_SECONDS, context=context)


def _refused(what: str, code: int, words: bytes | str) -> MailError:
    _log.warning("the mail server refuses %s: %d %r", what, code, words)
    return MailError(f"the mail server refused {what} ({code})", final=code >= 500)


@cache
def _own_name() -> str:
    """Return how this machine calls itself; without a domain, as an address, which servers take (RFC 5321, 4.1.3)."""
    name = socket.gethostname()
    return name if "." in name else "[127.0.0.1]"
