"""Alerts on their way out: each alert's sender follows its feed and sends every message.

A message is sent until it has arrived: with growing pauses, no sooner than `Retry-After` says, and after
`MAX_TRIES` it is given up and kept among the dead. A sender has a task and an outbox of its own and a few
messages on the way at once, so a slow receiver holds up nobody, and a message that fails does not hold up those
behind it.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from itertools import groupby

from headwater.core.boundaries import boundary
from headwater.core.errors import HeadwaterError
from headwater.serve.channels import Channel, Receiver, channel_of
from headwater.serve.message import Message
from headwater.serve.watch import Watch
from headwater.views import Delivery, ViewStore

__all__ = ["AlertSender"]

logger = logging.getLogger(__name__)

MAX_TRIES = 13
"""With doubling pauses from one second on, that is a bit more than an hour."""

_LONGEST_PAUSE = 3600.0
_SECONDS = 10.0
_AT_ONCE = 4
_IDLE_SECONDS = 30.0
_QUIET_STEP = 0.25
"""Quiet times of many groups end all the time: those of so many seconds are ended together."""
_LOOK_AHEAD = 100
_DIGEST_ROWS = 1000
"""How many rows one e-mail takes at most; more are another."""


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
        channel: Channel | None = None,
    ) -> None:
        self.receiver = receiver
        self.sent = 0
        self.failures = 0
        self._store = store
        self._watch = watch
        self._first_pause = first_pause
        self._channel = channel or channel_of(receiver, store, seconds=seconds)
        self._seen = 0
        self._on_the_way: set[int] = set()
        self._ended: set[int] = set()
        """Tokens to take off the way before the outbox is read again: what is being read may still tell of them."""
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
        view, outbox = self.receiver.view, self._store.outbox
        self._nudge.clear()
        # Noted before the feed is read: what comes meanwhile ends the wait behind this round.
        tokens = await asyncio.to_thread(self._store.tokens)
        self._seen = tokens.get(view, 0)
        if view not in tokens:
            return _IDLE_SECONDS
        pacing = self.receiver.pacing
        while await asyncio.to_thread(outbox.take, view, pacing=pacing, now=time.time()):
            pass
        quiet_until = await asyncio.to_thread(outbox.quiet_until, view)
        idle = _IDLE_SECONDS
        if quiet_until is not None:
            idle = min(max(quiet_until - time.time(), _QUIET_STEP), _IDLE_SECONDS)
        ahead = _LOOK_AHEAD if pacing.digest is None else _DIGEST_ROWS
        self._on_the_way -= self._ended
        self._ended.clear()
        for message in self._messages(await asyncio.to_thread(outbox.waiting, view, ahead)):
            if self._on_the_way.intersection(message.tokens):
                continue
            if len(self._tasks) >= _AT_ONCE:
                return idle  # whichever is done first nudges
            if (pause := message.deliveries[0].next_at - time.time()) > 0:
                return min(pause, idle)
            self._on_the_way.update(message.tokens)
            task = asyncio.create_task(self._deliver(message), name=f"alert {message.id}")
            self._tasks.add(task)
            task.add_done_callback(self._done)
        return idle

    def _messages(self, waiting: list[Delivery]) -> list[Message]:
        """Make messages of deliveries: of each by itself, or in a digest of those with the same time."""
        if self.receiver.pacing.digest is None:
            return [self._message(delivery) for delivery in waiting]
        return [self._message(*same) for _, same in groupby(waiting, key=lambda each: each.next_at)]

    def _message(self, *deliveries: Delivery) -> Message:
        # Tokens are never used twice in a store, keys of a query that started over are.
        tokens = "-".join(str(token) for token in sorted({deliveries[0].token, deliveries[-1].token}))
        identity = f"{self._store.identity}-{self.receiver.name}-{tokens}"
        return Message(identity, self.receiver.name, deliveries, self.receiver.pacing.group_by)

    async def _wait(self, seconds: float) -> None:
        """Wait for new messages, the end of one on its way, or the time of the next try."""
        changed = asyncio.create_task(self._watch.wait(self.receiver.view, self._seen, max(seconds, 0.0)))
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
        if not task.cancelled() and task.exception() is not None:
            logger.warning("alert %s: %s", self.receiver.name, task.exception())

    async def _deliver(self, message: Message) -> None:
        view, outbox = self.receiver.view, self._store.outbox
        try:
            try:
                error, retry_after = await self._channel.send(message)
            except Exception as failed:  # whatever it is, this message waits and the others do not
                error, retry_after = str(failed) or type(failed).__name__, None
            boundary("alert.sent")
            if error is None:
                self.sent += 1
                await asyncio.to_thread(outbox.delivered, view, message.tokens)
                return
            self.failures += 1
            tries = message.deliveries[0].tries + 1
            next_at = None if tries >= MAX_TRIES else time.time() + self._pause(tries, retry_after)
            log = logger.error if next_at is None else logger.info
            log("alert %s: try %d of %d failed: %s", self.receiver.name, tries, MAX_TRIES, error)
            await asyncio.to_thread(outbox.failed, view, message.tokens, error=error, next_at=next_at)
        finally:
            self._ended.update(message.tokens)

    def _pause(self, tries: int, retry_after: float | None) -> float:
        pause: float = self._first_pause * 2 ** (tries - 1) * random.uniform(0.75, 1.25)
        return min(max(pause, retry_after or 0.0), _LONGEST_PAUSE)
