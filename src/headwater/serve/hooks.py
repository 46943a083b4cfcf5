"""`POST /hooks/NAME`: signed messages of other services, into a topic.

What is not signed with the hook's secret is refused before it is looked into, and so is a signature that is too
old, where the service signs a time. Services send again whatever they saw no answer to: a message that is in the
topic already is answered as it was then, and written no second time. Its id goes to the broker in the transaction
that writes it, as an idempotency key does, so that no crash comes between the two.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections import Counter
from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from headwater.app import App, Topic, Webhook
from headwater.core.errors import SettingError
from headwater.serve.broker import Broker, BrokerAway, RecordTooLarge, UnknownTopic
from headwater.serve.checks import problem
from headwater.serve.errors import HttpError
from headwater.serve.ingest import read_body
from headwater.serve.once import KeyReused, OnceWriter
from headwater.serve.records import Record, key_of, split
from headwater.serve.signatures import BadSignature, check

__all__ = ["Hooks", "hook_secrets"]


def hook_secrets(app: App, environment: Mapping[str, str] = os.environ) -> dict[str, bytes]:
    """Return the secrets of an application's webhooks, by name, from the environment."""
    secrets: dict[str, bytes] = {}
    for hook in app.webhooks.values():
        secret = environment.get(hook.secret_env)
        if not secret:
            raise SettingError(
                f"messages to the webhook {hook.name} are signed with {hook.secret_env}: "
                "set it in the environment"
            )
        secrets[hook.name] = secret.encode()
    return secrets


class Hooks:
    """The handler of `/hooks`."""

    def __init__(
        self,
        broker: Broker | None,
        once: OnceWriter | None,
        app: App | None,
        secrets: Mapping[str, bytes],
    ) -> None:
        self._broker = broker
        self._once = once
        self._app = app
        self._secrets = secrets
        self.messages: Counter[tuple[str, str]] = Counter()
        """How many messages of each hook were written, repeated or refused."""

    def routes(self) -> list[Route]:
        """Return what is served."""
        return [Route("/hooks/{hook}", self.post, methods=["POST"])]

    async def post(self, request: Request) -> Response:
        """Write a message to the hook's topic, unless it is there."""
        hook = self._app.webhooks.get(request.path_params["hook"]) if self._app is not None else None
        if hook is None or hook.name not in self._secrets:
            raise HttpError(404, "there is no webhook of this name")
        if self._broker is None or self._once is None:
            raise HttpError(503, "no broker is given: start with --broker kafka://HOST:PORT")
        try:
            answer = await self._take(hook, request, self._broker, self._once)
        except HttpError:
            self.messages[hook.name, "refused"] += 1
            raise
        self.messages[hook.name, "repeated" if answer["repeated"] else "written"] += 1
        return JSONResponse(answer)

    async def _take(
        self, hook: Webhook, request: Request, broker: Broker, once: OnceWriter
    ) -> dict[str, object]:
        body = await read_body(request)
        try:
            check(
                hook.scheme,
                self._secrets[hook.name],
                request.headers,
                body,
                now=time.time(),
                tolerance=hook.tolerance_ms / 1000,
            )
        except BadSignature as error:
            raise HttpError(401, str(error)) from None
        record, topic = _record(body), self._topic(hook)
        if found := problem(record.columns, topic.fields):
            raise HttpError(400, found)
        key = key_of(record, topic.key if hook.key is None else (hook.key,))
        payload = [(key, record.text.encode())]
        answer: dict[str, object] = {"topic": hook.topic}
        try:
            await broker.require(hook.topic)
            places, repeated = await once.write(hook.topic, payload, _identity(hook, record, body))
            answer |= {"partition": places[0][0], "offset": places[0][1], "repeated": repeated}
        except KeyReused:
            # A service may count its tries in the message; the id says that it is the same.
            answer |= {"repeated": True}
        except RecordTooLarge as error:
            raise HttpError(413, str(error)) from None
        except (UnknownTopic, BrokerAway) as error:
            raise HttpError(503, str(error), {"Retry-After": "5"}) from None
        return answer

    def _topic(self, hook: Webhook) -> Topic:
        assert self._app is not None
        topic = self._app.definitions[hook.topic]
        assert isinstance(topic, Topic)  # `App.check` has seen to it
        return topic


def _record(body: bytes) -> Record:
    records = split(body)
    if len(records) != 1 or body.lstrip()[:1] == b"[":
        raise HttpError(400, "the body is an array: send one JSON object")
    return records[0]


def _identity(hook: Webhook, record: Record, body: bytes) -> str:
    """Return what a message is known by when it comes again.

    Only what is signed counts: GitHub signs its body and not the id in X-GitHub-Delivery, which whoever replays a
    message could make up anew.
    """
    given = record.columns.get("id")
    if hook.scheme != "github" and isinstance(given, str | int) and not isinstance(given, bool):
        digest = hashlib.sha256(f"id {json.dumps(given)}".encode())
    else:
        digest = hashlib.sha256(b"body " + body)
    return f"hook {hook.name} {digest.hexdigest()}"
