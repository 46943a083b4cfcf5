"""Alerts by e-mail, over SMTP.

`smtp://USER:PASSWORD@HOST:587` is encrypted with STARTTLS, and nothing is sent where the server does not offer
it: a password or an alert would go in clear text otherwise. A server on this machine may do without, and
`?starttls=no` lets another. `smtps://` is encrypted from the first byte on.

The standard library's client blocks, so it has a thread. Its time-outs are for each answer, and a server that
answers drop by drop could go on for ever: when the time for all of it is over, the connection is cut.
"""

from __future__ import annotations

import asyncio
import smtplib
import socket
import ssl
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import formatdate
from ipaddress import ip_address
from urllib.parse import parse_qsl, unquote, urlsplit

from headwater.core.errors import SettingError
from headwater.serve.message import Message, Outcome

__all__ = ["MailChannel", "SmtpUrl", "compose"]

_FORM = "write smtp://USER:PASSWORD@HOST:587?from=alerts@example.com, or smtps://"


@dataclass(frozen=True)
class SmtpUrl:
    """A mail server's address, credentials and the sender of what goes through it.

    >>> SmtpUrl.parse("smtp://ann:secret@mail.example?from=alerts@example.com")
    SmtpUrl('smtp://ann:***@mail.example:587')
    """

    host: str
    port: int
    user: str | None = None
    password: str = ""
    sender: str = ""
    implicit_tls: bool = False
    starttls: bool = True

    @classmethod
    def parse(cls, text: str) -> SmtpUrl:
        """Return what `text` says, or raise a `SettingError` that shows no password."""
        try:
            parts = urlsplit(text)
            port, query = parts.port, dict(parse_qsl(parts.query, strict_parsing=True) if parts.query else [])
        except ValueError:
            raise SettingError(f"HEADWATER_SMTP_URL is no mail server's address: {_FORM}") from None
        host = parts.hostname
        if parts.scheme not in ("smtp", "smtps") or not host or parts.path not in ("", "/"):
            raise SettingError(f"HEADWATER_SMTP_URL is no mail server's address: {_FORM}")
        if unknown := query.keys() - {"from", "starttls"}:
            raise SettingError(f"HEADWATER_SMTP_URL has no parameter {min(unknown)}: it takes from, starttls")
        starttls = query.get("starttls", "no" if _is_here(host) else "yes")
        if starttls not in ("yes", "no"):
            raise SettingError(f"starttls={starttls} in HEADWATER_SMTP_URL does not fit: it is yes or no")
        sender = query.get(
            "from", f"headwater@{host if '.' in host and not _is_address(host) else 'localhost'}"
        )
        try:
            Address(addr_spec=sender)
        except (ValueError, IndexError):
            raise SettingError(f"from={sender!r} in HEADWATER_SMTP_URL is no e-mail address") from None
        implicit = parts.scheme == "smtps"
        return cls(
            host=host,
            port=port or (465 if implicit else 587),
            user=unquote(parts.username) if parts.username else None,
            password=unquote(parts.password or ""),
            sender=sender,
            implicit_tls=implicit,
            starttls=starttls == "yes",
        )

    def __str__(self) -> str:
        login = f"{self.user}:***@" if self.user else ""
        return f"smtp{'s' if self.implicit_tls else ''}://{login}{self.host}:{self.port}"

    def __repr__(self) -> str:
        return f"SmtpUrl({str(self)!r})"


def compose(message: Message, *, sender: str, to: Sequence[str]) -> EmailMessage:
    """Return an e-mail; a line break in a header is an error of `EmailMessage`, not another header."""
    mail = EmailMessage(policy=SMTP)
    mail["From"] = sender
    mail["To"] = ", ".join(to)
    mail["Subject"] = message.subject()
    mail["Date"] = formatdate()
    # The same at each try: mail programs show a message that came twice once.
    mail["Message-ID"] = f"<{message.id}@headwater>"
    mail["Auto-Submitted"] = "auto-generated"  # RFC 3834: nobody's vacation notice is to answer
    mail.set_content(message.text())
    return mail


class MailChannel:
    """Sends messages through a mail server."""

    def __init__(self, smtp: SmtpUrl, to: Sequence[str], *, seconds: float) -> None:
        self._smtp = smtp
        self._to = list(to)
        self._seconds = seconds

    async def send(self, message: Message) -> Outcome:
        """Hand a message to the server."""
        mail = compose(message, sender=self._smtp.sender, to=self._to)
        attempt = _Attempt(self._smtp, self._to, mail, self._seconds)
        try:
            # Threads of its own: one that hangs is not to take those that the store is read with.
            return Outcome(await attempt.run())
        finally:
            attempt.cut()


class _Attempt:
    """One connection to the server, in a thread that can be cut off."""

    def __init__(self, smtp: SmtpUrl, to: list[str], mail: EmailMessage, seconds: float) -> None:
        self._smtp = smtp
        self._to = to
        self._mail = mail
        self._seconds = seconds
        self._client: smtplib.SMTP | None = None

    async def run(self) -> str | None:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[str | None] = loop.create_future()

        def tell(error: str | None) -> None:
            if not done.done():
                done.set_result(error)

        def work() -> None:
            error = self._send()
            with suppress(RuntimeError):  # the loop may be gone
                loop.call_soon_threadsafe(tell, error)

        threading.Thread(target=work, name="mail", daemon=True).start()
        try:
            async with asyncio.timeout(self._seconds):
                return await done
        except TimeoutError:
            return f"{self._smtp.host} did not take the message within {self._seconds:g} s"

    def cut(self) -> None:
        """Wake a thread that still waits for the server."""
        connection = self._client.sock if self._client is not None else None
        if connection is not None:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _send(self) -> str | None:
        """Return what went wrong, if anything."""
        smtp = self._smtp
        try:
            tls = ssl.create_default_context()
            if smtp.implicit_tls:
                self._client = smtplib.SMTP_SSL(timeout=self._seconds, context=tls)
            else:
                self._client = smtplib.SMTP(timeout=self._seconds)
            with self._client as client:
                # What the constructor would do: then there is something to cut while it connects.
                client._host = smtp.host  # type: ignore[attr-defined]  # the name that TLS checks
                code, said = client.connect(smtp.host, smtp.port)
                if code != 220:
                    raise smtplib.SMTPConnectError(code, said)
                client.ehlo()
                if smtp.starttls and not smtp.implicit_tls:
                    client.starttls(context=tls)
                    client.ehlo()
                if smtp.user is not None:
                    client.login(smtp.user, smtp.password)
                refused = client.send_message(self._mail, from_addr=smtp.sender, to_addrs=self._to)
        except smtplib.SMTPRecipientsRefused as error:
            return f"{smtp.host} refused {', '.join(error.recipients)}"
        except smtplib.SMTPAuthenticationError as error:
            return f"{smtp.host} refused the user {smtp.user} ({error.smtp_code}): check HEADWATER_SMTP_URL"
        except smtplib.SMTPResponseException as error:
            reason = error.smtp_error
            text = reason.decode(errors="replace") if isinstance(reason, bytes) else reason
            return f"{smtp.host} answered {error.smtp_code} {' '.join(text.split())[:200]}"
        except smtplib.SMTPNotSupportedError as error:
            return f"{smtp.host}: {error} (with STARTTLS: ?starttls=no lets it be unencrypted)"
        except (OSError, smtplib.SMTPException, ValueError) as error:
            return f"cannot send through {smtp.host}:{smtp.port}: {getattr(error, 'strerror', None) or error}"
        # Those that were taken have it: to send it again for one address would double it for the others.
        return f"{smtp.host} refused {', '.join(refused)}" if len(refused) == len(self._to) else None


def _is_here(host: str) -> bool:
    return host == "localhost" or (_is_address(host) and ip_address(host).is_loopback)


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
