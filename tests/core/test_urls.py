from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core.errors import SettingError
from headwater.core.urls import MECHANISMS, AmqpUrl, KafkaUrl

_TEXT = st.text(st.characters(min_codepoint=33, max_codepoint=0x2FF), min_size=1, max_size=12)


def test_a_plain_address() -> None:
    url = KafkaUrl.parse("kafka://127.0.0.1:9093")
    assert url == KafkaUrl((("127.0.0.1", 9093),))
    assert url.properties() == {"bootstrap.servers": "127.0.0.1:9093"}


def test_several_hosts_ports_by_default_and_ipv6() -> None:
    url = KafkaUrl.parse("kafka://one,two:9093,[::1]:9094,[::1]/")
    assert url.hosts == (("one", 9092), ("two", 9093), ("::1", 9094), ("::1", 9092))
    assert url.bootstrap == "one:9092,two:9093,[::1]:9094,[::1]:9092"


def test_a_user_means_scram_and_a_ca_means_tls() -> None:
    url = KafkaUrl.parse("kafka://ann:p%40ss@one?ca=/ca.pem")
    assert (url.user, url.password, url.mechanism, url.tls) == ("ann", "p@ss", "SCRAM-SHA-512", True)
    assert url.properties() == {
        "bootstrap.servers": "one:9092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "ann",
        "sasl.password": "p@ss",
        "ssl.ca.location": "/ca.pem",
    }


@given(
    user=_TEXT,
    password=st.text(st.characters(min_codepoint=33, max_codepoint=0x2FF), max_size=12),
    mechanism=st.sampled_from(MECHANISMS),
    ca=st.none() | _TEXT,
)
def test_text_is_parsed_back_and_shown_without_the_password(
    user: str, password: str, mechanism: str, ca: str | None
) -> None:
    url = KafkaUrl((("one", 1),), user, password, mechanism, ca is not None, ca)
    assert KafkaUrl.parse(url.text()) == url
    assert str(url) == str(KafkaUrl((("one", 1),), user, "another", mechanism, ca is not None, ca))
    assert repr(url) == f"KafkaUrl({str(url)!r})"


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("one:9092", "kafka://HOST:PORT"),
        ("http://one:9092", "kafka://HOST:PORT"),
        ("kafka://", "HOST:PORT"),
        ("kafka://one:port", "'port'"),
        ("kafka://one:70000", "70000"),
        ("kafka://::1", "brackets"),
        ("kafka://ann@one", "USER:PASSWORD"),
        ("kafka://one?tls=yes", "tls=yes"),
        ("kafka://one?tls", "NAME=VALUE"),
        ("kafka://one?ssl=true", "'ssl'"),
        ("kafka://one?tls=true&tls=true", "twice"),
        ("kafka://one?ca=", "ca has no value"),
        ("kafka://one?mechanism=PLAIN", "needs a user"),
        ("kafka://a:b@one?mechanism=GSSAPI", "GSSAPI"),
        ("kafka://one?tls=false&ca=x", "contradict"),
        ("kafka://one?key=x", "cert=FILE"),
    ],
)
def test_what_does_not_fit_is_refused_by_its_part(text: str, part: str) -> None:
    with pytest.raises(SettingError, match=part.replace("?", r"\?")):
        KafkaUrl.parse(text)


def test_a_refusal_does_not_show_a_password() -> None:
    with pytest.raises(SettingError) as refused:
        KafkaUrl.parse("kakfa://ann:secret@one")
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("amqp://one", AmqpUrl("one", 5672)),
        ("amqp://one/", AmqpUrl("one", 5672)),
        ("amqp://[::1]:1/%2F", AmqpUrl("::1", 1)),
        ("amqps://one", AmqpUrl("one", 5671, tls=True)),
        ("amqp://ann:p%40s/s@one/a%2Fb", AmqpUrl("one", 5672, "ann", "p@s/s", "a/b")),
        (
            "amqps://one:1?ca=/ca.pem&cert=c&key=k",
            AmqpUrl("one", 1, tls=True, ca="/ca.pem", cert="c", key="k"),
        ),
    ],
)
def test_an_address_of_queues(text: str, url: AmqpUrl) -> None:
    assert AmqpUrl.parse(text) == url


@given(user=_TEXT, password=_TEXT, vhost=_TEXT, ca=st.none() | _TEXT)
def test_an_address_of_queues_is_parsed_back(user: str, password: str, vhost: str, ca: str | None) -> None:
    url = AmqpUrl("::1", 5672, user, password, vhost, tls=ca is not None, ca=ca)
    assert AmqpUrl.parse(url.text()) == url
    assert f":{password}@" not in str(url) or password == "***"


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("one:5672", "amqp://HOST:PORT"),
        ("kafka://one", "amqp://HOST:PORT"),
        ("amqp://", "HOST:PORT"),
        ("amqp://one:port", "'port'"),
        ("amqp://::1", r"\[::1\]:5672"),
        ("amqp://ann@one", "USER:PASSWORD"),
        ("amqp://one/a/b", "%2F"),
        ("amqp://one?ca=x", "amqps://"),
        ("amqps://one?heartbeat=1", "'heartbeat'"),
        ("amqps://one?key=x", "cert=FILE"),
    ],
)
def test_what_is_no_address_of_queues_is_refused_by_its_part(text: str, part: str) -> None:
    with pytest.raises(SettingError, match=part):
        AmqpUrl.parse(text)


def test_a_refusal_of_an_address_of_queues_does_not_show_a_password() -> None:
    with pytest.raises(SettingError) as refused:
        AmqpUrl.parse("amqp:/ann:secret@one")
    assert "secret" not in str(refused.value)
