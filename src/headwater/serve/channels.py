"""Where alerts go, and what carries them there: a webhook, an e-mail, or the browsers that look."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import urlsplit

from headwater.app import Alert, App
from headwater.core.errors import SettingError
from headwater.serve.addresses import Resolver, resolve
from headwater.serve.alert_feed import BrowserChannel
from headwater.serve.mail import MailChannel, SmtpUrl
from headwater.serve.message import Message, Outcome
from headwater.serve.signatures import SIGNATURE, sign
from headwater.serve.webhook import WebhookError, check_url, post
from headwater.views import ALERT, Pacing, ViewStore
from headwater.views.outbox import AT_ONCE

__all__ = ["Channel", "Receiver", "WebhookChannel", "channel_of", "receivers"]

SMTP_URL = "HEADWATER_SMTP_URL"
"""The environment variable with the mail server's address, which may hold a password."""

_MAIL_SECONDS = 30.0


class Channel(Protocol):
    """Carries messages."""

    async def send(self, message: Message) -> Outcome:
        """Try once."""
        ...


@dataclass(frozen=True)
class Receiver:
    """Where an alert goes, and how its rows become messages."""

    name: str
    url: str
    secret: bytes | None = field(default=None, repr=False)
    pacing: Pacing = AT_ONCE
    smtp: SmtpUrl | None = None
    allow_private: bool = False

    @property
    def view(self) -> str:
        """The view that holds the alert's messages."""
        return ALERT + self.name


def receivers(
    app: App, *, allow_private: bool = False, environment: Mapping[str, str] = os.environ
) -> list[Receiver]:
    """Return where an application's alerts go, with the secrets from the environment."""
    found = [each for each in app.definitions.values() if isinstance(each, Alert)]
    return [_receiver(alert, allow_private, environment) for alert in found]


def channel_of(receiver: Receiver, store: ViewStore, *, seconds: float) -> Channel:
    """Return what carries messages to a receiver; a request may take so many seconds."""
    if receiver.url == "browser:":
        return BrowserChannel(store)
    if receiver.smtp is not None:
        to = receiver.url.removeprefix("mailto:").split(",")
        return MailChannel(receiver.smtp, to, seconds=max(seconds, _MAIL_SECONDS))
    return WebhookChannel(receiver, seconds=seconds)


class WebhookChannel:
    """Posts messages to a URL, signed."""

    def __init__(self, receiver: Receiver, *, seconds: float, resolver: Resolver = resolve) -> None:
        self._receiver = receiver
        self._seconds = seconds
        self._resolver = resolver

    async def send(self, message: Message) -> Outcome:
        """Post a message; only a 2xx answer is a success."""
        receiver, body = self._receiver, message.json().encode()
        headers = {"Idempotency-Key": message.id, "User-Agent": "headwater"}
        if receiver.secret is not None:
            headers[SIGNATURE] = sign(receiver.secret, body, int(time.time()))
        try:
            answer = await post(
                receiver.url,
                body,
                headers,
                seconds=self._seconds,
                allow_private=receiver.allow_private,
                resolver=self._resolver,
            )
        except WebhookError as error:
            return Outcome(str(error))
        if 200 <= answer.status < 300:
            return Outcome()
        if answer.location is not None:
            to = urlsplit(answer.location).netloc or "another path"
            return Outcome(f"answered {answer.status}, a redirect to {to}, which is not followed")
        return Outcome(f"answered {answer.status}", answer.retry_after)


def _receiver(alert: Alert, allow_private: bool, environment: Mapping[str, str]) -> Receiver:
    pacing = Pacing(alert.group_by, _seconds(alert.throttle_ms), _seconds(alert.digest_ms))
    if alert.to == "browser:":
        return Receiver(alert.name, alert.to, pacing=pacing)
    if alert.to.startswith("mailto:"):
        smtp = environment.get(SMTP_URL)
        if not smtp:
            raise SettingError(
                f"the alert {alert.name} is sent by e-mail: set {SMTP_URL} in the environment, like "
                "smtp://USER:PASSWORD@HOST:587?from=alerts@example.com"
            )
        return Receiver(alert.name, alert.to, pacing=pacing, smtp=SmtpUrl.parse(smtp))
    check_url(alert.to, allow_private=allow_private)
    secret = None
    if alert.secret_env is not None:
        secret = environment.get(alert.secret_env)
        if not secret:
            raise SettingError(
                f"the alert {alert.name} is signed with {alert.secret_env}: set it in the environment"
            )
    return Receiver(
        alert.name,
        alert.to,
        secret.encode() if secret is not None else None,
        pacing,
        allow_private=allow_private,
    )


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000
