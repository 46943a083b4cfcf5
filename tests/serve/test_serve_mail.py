"""Alerts by e-mail: what is written, and a real mail server that takes it, refuses it, or hangs."""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Iterator
from email.message import EmailMessage
from email.parser import BytesParser
from email.policy import default
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session
from hypothesis import given, settings
from hypothesis import strategies as st

from clients.access.certificates import Authority
from effort import examples
from headwater.core.errors import SettingError
from headwater.serve import alerts, channels
from headwater.serve.channels import Receiver
from headwater.serve.mail import SmtpUrl, compose
from headwater.serve.message import Message
from headwater.testing.process import free_port
from headwater.views import Delivery, Pacing, ViewStore

from .receiving import alert, until
from .serve_helpers import served


class Mailbox:
    """What a server was given; `answer` decides, by the number of the message, what it says."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.tried: list[EmailMessage] = []
        self.envelopes: list[Envelope] = []

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        assert isinstance(envelope.content, bytes)
        parsed = BytesParser(policy=default).parsebytes(envelope.content)
        assert isinstance(parsed, EmailMessage)
        self.tried.append(parsed)
        self.envelopes.append(envelope)
        return self.answers.pop(0) if self.answers else "250 OK"


@pytest.fixture
def mailbox() -> Mailbox:
    return Mailbox()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alerts, "MAX_TRIES", 3)
    monkeypatch.setattr(channels, "_MAIL_SECONDS", 0.0)
    defaults = {"first_pause": 0.02, "seconds": 5.0, "channel": None}
    monkeypatch.setattr(alerts.AlertSender.__init__, "__kwdefaults__", defaults)


@pytest.fixture
def controller(mailbox: Mailbox) -> Iterator[Controller]:
    controller = Controller(mailbox, hostname="127.0.0.1", port=free_port())
    controller.start()
    yield controller
    controller.stop()


def port_of(controller: Controller) -> int:
    return int(controller.port)


def receiver(port: int, options: str = "", *, login: str = "", pacing: Pacing = Pacing()) -> Receiver:  # noqa: B008
    url = SmtpUrl.parse(f"smtp://{login}127.0.0.1:{port}?from=alerts@example.com{options}")
    return Receiver("fraud", "mailto:ops@example.com", pacing=pacing, smtp=url)


def message(*rows: dict[str, Any], group_by: tuple[str, ...] = (), held: int = 0) -> Message:
    found = [Delivery(n, str(n), json.dumps(row), held=held) for n, row in enumerate(rows, 1)]
    return Message("store-fraud-1", "fraud", tuple(found), group_by)


def test_a_row_is_a_readable_table() -> None:
    mail = compose(
        message({"card": "c1", "amount": 512.5, "country": None, "items": ["a"]}, group_by=("card",), held=3),
        sender="alerts@example.com",
        to=["ops@example.com", "two@example.com"],
    )
    assert mail["Subject"] == "fraud: card c1, 3 more"
    assert mail["To"] == "ops@example.com, two@example.com"
    assert mail["Message-ID"] == "<store-fraud-1@headwater>"
    assert mail.get_content_type() == "text/plain"
    assert mail.get_content() == (
        "3 more since the last message; this is the last of them.\n\n"
        "card     c1\namount   512.5\ncountry  null\nitems    [\"a\"]\n\n"
        "-- \nalert fraud, message store-fraud-1\n"
    )  # fmt: skip


def test_a_digest_has_all_rows_up_to_a_limit() -> None:
    mail = compose(message(*({"n": n} for n in range(250))), sender="a@example.com", to=["b@example.com"])
    assert mail["Subject"] == "fraud: 250 rows"
    assert mail.get_content().count("\nn  ") == 199
    assert "… and 50 more rows." in mail.get_content()


TEXT = st.text(st.characters())  # halves of surrogate pairs among them


@given(st.dictionaries(TEXT, TEXT | st.integers(), max_size=3), TEXT)
@settings(max_examples=examples(100), deadline=None)
def test_no_value_becomes_a_header(row: dict[str, Any], value: str) -> None:
    made = compose(
        message({**row, "card": value}, group_by=("card",)), sender="a@example.com", to=["b@example.com"]
    )
    read = BytesParser(policy=default).parsebytes(bytes(made))
    assert set(read.keys()) == {
        "From", "To", "Subject", "Date", "Message-ID", "Auto-Submitted", "Content-Type",
        "Content-Transfer-Encoding", "MIME-Version",
    }  # fmt: skip
    assert read["To"] == "b@example.com"


@pytest.mark.parametrize(
    "url",
    ["http://h", "smtp://", "smtp://h/path", "smtp://h:x", "smtp://h?to=a@b", "smtp://h?starttls=maybe",
     "smtp://u:hush@h?from=a%0D%0ABcc:x@y", "smtp://u:hush@h:99999"],
)  # fmt: skip
def test_addresses_of_mail_servers_that_do_not_fit(url: str) -> None:
    with pytest.raises(SettingError) as refused:
        SmtpUrl.parse(url)
    assert "hush" not in str(refused.value)


def test_the_address_of_a_mail_server() -> None:
    found = SmtpUrl.parse("smtps://ann:p%40ss@mail.example")
    assert (found.port, found.user, found.password, found.sender) == (
        465, "ann", "p@ss", "headwater@mail.example",
    )  # fmt: skip
    assert SmtpUrl.parse("smtp://mail.example").starttls
    assert not SmtpUrl.parse("smtp://127.0.0.1").starttls
    assert "p@ss" not in repr(found)


@pytest.mark.real
def test_a_message_is_sent_and_tried_again_with_the_same_id(
    store: ViewStore, controller: Controller, mailbox: Mailbox, quick: None
) -> None:
    mailbox.answers = ["451 try later"]
    alert(store, "fraud", 1)
    with served(store, receivers=[receiver(port_of(controller))]):
        until(lambda: len(mailbox.tried) == 2 and store.outbox.counts("!fraud") == (0, 0))
    assert mailbox.envelopes[0].mail_from == "alerts@example.com"
    assert mailbox.envelopes[0].rcpt_tos == ["ops@example.com"]
    assert len({mail["Message-ID"] for mail in mailbox.tried}) == 1
    assert mailbox.tried[0].get_content().splitlines()[0] == "n  1"


@pytest.mark.real
def test_a_digest_is_one_message(
    store: ViewStore, controller: Controller, mailbox: Mailbox, quick: None
) -> None:
    alert(store, "fraud", 1, 2)
    alert(store, "fraud", 3)
    with served(store, receivers=[receiver(port_of(controller), pacing=Pacing(digest=1.0))]):
        until(lambda: store.outbox.counts("!fraud") == (0, 0))
    [mail] = mailbox.tried
    assert mail["Subject"] == "fraud: 3 rows"
    assert [f"n  {n}" in mail.get_content() for n in (1, 2, 3)] == [True] * 3


@pytest.mark.real
def test_a_message_that_is_refused_is_kept(
    store: ViewStore, controller: Controller, mailbox: Mailbox, quick: None
) -> None:
    mailbox.answers = ["550 no thanks"] * 3
    alert(store, "fraud", 1)
    with served(store, receivers=[receiver(port_of(controller))]):
        until(lambda: store.outbox.counts("!fraud") == (0, 1))
    assert store.outbox.dead("!fraud")[0].error == "127.0.0.1 answered 550 no thanks"


@pytest.mark.real
def test_nothing_is_sent_in_clear_text_where_starttls_is_wanted(
    store: ViewStore, controller: Controller, mailbox: Mailbox, quick: None
) -> None:
    alert(store, "fraud", 1)
    with served(store, receivers=[receiver(port_of(controller), "&starttls=yes", login="ann:hush@")]):
        until(lambda: store.outbox.counts("!fraud") == (0, 1))
    assert "STARTTLS" in (store.outbox.dead("!fraud")[0].error or "")
    assert mailbox.tried == []


@pytest.mark.real
def test_starttls_and_a_login(
    store: ViewStore,
    mailbox: Mailbox,
    quick: None,
    openssl: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    authority = Authority(openssl, tmp_path, "authority")
    certificate = authority.issue("server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.cert, certificate.key)
    logins: list[LoginPassword] = []

    def authenticate(server: SMTP, session: Session, envelope: Envelope, kind: str, data: Any) -> AuthResult:
        logins.append(data)
        return AuthResult(success=data.password == b"hush", handled=False)

    controller = Controller(
        mailbox, hostname="127.0.0.1", port=free_port(), tls_context=context, require_starttls=True,
        auth_required=True, authenticator=authenticate,
    )  # fmt: skip
    controller.start()
    try:
        alert(store, "fraud", 1)
        with served(store, receivers=[receiver(port_of(controller), "&starttls=yes", login="ann:hush@")]):
            until(lambda: store.outbox.counts("!fraud") == (0, 1))
            assert "certificate verify failed" in (store.outbox.dead("!fraud")[0].error or "")
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.cert))
        store.outbox.redrive("!fraud")
        with served(store, receivers=[receiver(port_of(controller), "&starttls=yes", login="ann:wrong@")]):
            until(lambda: store.outbox.counts("!fraud") == (0, 1))
            error = store.outbox.dead("!fraud")[0].error or ""
            assert "127.0.0.1 refused the user ann (535): check HEADWATER_SMTP_URL" in error
        store.outbox.redrive("!fraud")
        with served(store, receivers=[receiver(port_of(controller), "&starttls=yes", login="ann:hush@")]):
            until(lambda: store.outbox.counts("!fraud") == (0, 0))
    finally:
        controller.stop()
    assert len(mailbox.tried) == 1
    assert {login.login for login in logins} == {b"ann"}


@pytest.mark.real
def test_tls_from_the_first_byte_on(
    store: ViewStore,
    mailbox: Mailbox,
    quick: None,
    openssl: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    authority = Authority(openssl, tmp_path, "authority")
    certificate = authority.issue("server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.cert, certificate.key)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.cert))
    port = free_port()
    # The controller knocks to see that it listens, with the same context: as a client it has none to check by.
    controller = Controller(mailbox, hostname="127.0.0.1", port=port, ssl_context=context)
    monkeypatch.setattr(
        controller, "_trigger_server", lambda: socket.create_connection(("127.0.0.1", port)).close()
    )
    controller.start()
    try:
        alert(store, "fraud", 1)
        url = SmtpUrl.parse(f"smtps://127.0.0.1:{port}?from=alerts@example.com")
        with served(store, receivers=[Receiver("fraud", "mailto:ops@example.com", smtp=url)]):
            until(lambda: store.outbox.counts("!fraud") == (0, 0))
    finally:
        controller.stop()
    assert len(mailbox.tried) == 1


@pytest.mark.real
def test_a_server_that_hangs_is_cut_off(
    store: ViewStore, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    defaults = {"first_pause": 0.02, "seconds": 0.5, "channel": None}
    monkeypatch.setattr(alerts.AlertSender.__init__, "__kwdefaults__", defaults)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        alert(store, "fraud", 1)
        with served(store, receivers=[receiver(silent.getsockname()[1])]):
            until(lambda: store.outbox.counts("!fraud") == (0, 1))
        assert "within 0.5 s" in (store.outbox.dead("!fraud")[0].error or "")
