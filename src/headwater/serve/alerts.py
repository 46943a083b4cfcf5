"""Alerts on their way out: each alert's sender follows its feed and posts every row, signed.

A message is sent until the receiver answers 2xx: with growing pauses, no sooner than `Retry-After`
says, and after `MAX_TRIES` it is given up and kept among the dead. A sender has a task and an outbox of its
own and a few messages on the way at once, so a slow receiver holds up nobody, and a message that
fails does not hold up those behind it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import time
from dataclasses import dataclass
from urllib.parse import urlsplit

from headwater.app import Alert, App
from headwater.core.errors import HeadwaterError, SettingError
from headwater.serve.watch import Watch
from headwater.serve.webhook import WebhookError, check_url, post, sign
from headwater.views import ALERT, Delivery, ViewStore

__all__ = ["AlertSender", "Receiver", "receivers"]

logger = logging.getLogger(__name__)

MAX_TRIES = 12
"""With doubling pauses from one second on, that is a bit more than an hour."""

_LONGEST_PAUSE = 3600.0
_SECONDS = 10.0
_AT_ONCE = 4
_IDLE_SECONDS = 30.0


@dataclass(frozen=True)
class Receiver:
    """Where an alert goes."""

    name: str
    url: str
    secret: bytes | None = None

    @property
    def view(self) -> str:
        """The view that holds the alert's messages."""
        return ALERT + self.name


def receivers(app: App) -> list[Receiver]:
    """Return where an application's alerts go, with the secrets from the environment."""
    return [_receiver(found) for found in app.definitions.values() if isinstance(found, Alert)]


def _receiver(alert: Alert) -> Receiver:
    check_url(alert.to)
    if alert.secret_env is None:
        return Receiver(alert.name, alert.to)
    secret = os.environ.get(alert.secret_env)
    if not secret:
        raise SettingError(
            f"the alert {alert.name} is signed with {alert.secret_env}: set it in the environment"
        )
    return Receiver(alert.name, alert.to, secret.encode())


class AlertSender:
    """Sends one alert's messages."""

    def __init__(
        self,
        receiver: Receiver,
        store: ViewStore,
        watch: Watch,
        *,
        first_pause: float = 1.0,
        seconds: float = _SECONDS,
    ) -> None:
        self.receiver = receiver
        self.sent = 0
        self.failures = 0
        self._store = store
        self._watch = watch
        self._first_pause = first_pause
        self._seconds = seconds
        self._seen = 0
        self._on_the_way: set[int] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._nudge = asyncio.Event()

    async def run(self) -> None:
        """Follow the feed and send, until cancelled."""
        try:
            while not self._watch.closed:
                try:
                    pause = await self._round()
                except HeadwaterError as error:
                    logger.warning("alert %s: %s", self.receiver.name, error)
                    pause = 1.0
                await self._wait(pause)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def nudge(self) -> None:
        """Look at the outbox now: there is something to try that the feed does not tell of."""
        self._nudge.set()

    async def _round(self) -> float:
        """Start what is due, and return how long nothing else is."""
        view = self.receiver.view
        self._nudge.clear()
        # Noted before the feed is read: what comes meanwhile ends the wait behind this round.
        tokens = await asyncio.to_thread(self._store.tokens)
        self._seen = tokens.get(view, 0)
        if view not in tokens:
            return _IDLE_SECONDS
        while await asyncio.to_thread(self._store.outbox.take, view):
            pass
        for delivery in await asyncio.to_thread(self._store.outbox.waiting, view, 100):
            if delivery.token in self._on_the_way:
                continue
            if len(self._on_the_way) >= _AT_ONCE:
                return _IDLE_SECONDS  # whichever is done first nudges
            if (pause := delivery.next_at - time.time()) > 0:
                return pause
            self._on_the_way.add(delivery.token)
            task = asyncio.create_task(self._deliver(delivery), name=f"alert {view} {delivery.token}")
            self._tasks.add(task)
            task.add_done_callback(self._done)
        return _IDLE_SECONDS

    async def _wait(self, seconds: float) -> None:
        """Wait for new messages, the end of one on its way, or the time of the next try."""
        changed = asyncio.create_task(self._watch.wait(self.receiver.view, self._seen, seconds))
        nudged = asyncio.create_task(self._nudge.wait())
        try:
            await asyncio.wait((changed, nudged), return_when=asyncio.FIRST_COMPLETED)
        finally:
            changed.cancel()
            nudged.cancel()
            await asyncio.gather(changed, nudged, return_exceptions=True)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._nudge.set()

    async def _deliver(self, delivery: Delivery) -> None:
        view, outbox = self.receiver.view, self._store.outbox
        try:
            error, retry_after = await self._send(delivery)
            if error is None:
                self.sent += 1
                await asyncio.to_thread(outbox.delivered, view, [delivery.token])
                return
            self.failures += 1
            tries = delivery.tries + 1
            next_at = None if tries >= MAX_TRIES else time.time() + self._pause(tries, retry_after)
            log = logger.error if next_at is None else logger.info
            log("alert %s: try %d of %d failed: %s", self.receiver.name, tries, MAX_TRIES, error)
            await asyncio.to_thread(outbox.failed, view, delivery.token, error=error, next_at=next_at)
        finally:
            self._on_the_way.discard(delivery.token)

    async def _send(self, delivery: Delivery) -> tuple[str | None, float | None]:
        """Return what went wrong, if anything, and how long the receiver wants to be left alone."""
        # Tokens are never used twice in a store, keys of a query that started over are.
        identity = f"{self._store.identity}-{self.receiver.name}-{delivery.token}"
        fields = f'"id":{json.dumps(identity)},"alert":{json.dumps(self.receiver.name)},"row":{delivery.row}'
        body = f"{{{fields}}}".encode()
        headers = {"Idempotency-Key": identity, "User-Agent": "headwater"}
        if self.receiver.secret is not None:
            headers["Headwater-Signature"] = sign(self.receiver.secret, body, int(time.time()))
        try:
            answer = await post(self.receiver.url, body, headers, seconds=self._seconds)
        except WebhookError as error:
            return str(error), None
        if 200 <= answer.status < 300:
            return None, None
        if answer.location is not None:
            to = urlsplit(answer.location).netloc or "another path"
            return f"answered {answer.status}, a redirect to {to}, which is not followed", None
        return f"answered {answer.status}", answer.retry_after

    def _pause(self, tries: int, retry_after: float | None) -> float:
        pause: float = self._first_pause * 2 ** (tries - 1) * random.uniform(0.75, 1.25)
        return min(max(pause, retry_after or 0.0), _LONGEST_PAUSE)
