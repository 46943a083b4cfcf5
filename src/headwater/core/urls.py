"""Addresses of brokers: where they are, how to get in, in one line that fits a command and a setting."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import parse_qsl, quote, unquote

from headwater.core.errors import SettingError

__all__ = ["MECHANISMS", "AmqpUrl", "KafkaUrl"]

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_DEFAULT_MECHANISM = "SCRAM-SHA-512"
_DEFAULT_PORT = 9092
_PARAMETERS = ("tls", "ca", "cert", "key", "mechanism")
_AMQP_PORTS = {"amqp": 5672, "amqps": 5671}
_AMQP_PARAMETERS = ("ca", "cert", "key")


@dataclass(frozen=True)
class KafkaUrl:
    """A cluster's address and credentials.

    >>> url = KafkaUrl.parse("kafka://ann:secret@one:9092,two:9093?tls=true&ca=/etc/ca.pem")
    >>> url.hosts, url.mechanism
    ((('one', 9092), ('two', 9093)), 'SCRAM-SHA-512')
    >>> print(url)
    kafka://ann:***@one:9092,two:9093?tls=true&ca=/etc/ca.pem
    """

    hosts: tuple[tuple[str, int], ...]
    user: str | None = None
    password: str | None = None
    mechanism: str | None = None
    tls: bool = False
    ca: str | None = None
    cert: str | None = None
    key: str | None = None

    @classmethod
    def parse(cls, text: str) -> KafkaUrl:
        """Return what `text` says, or raise a `SettingError` that names the part and the fix."""
        scheme, separator, rest = text.partition("://")
        if scheme != "kafka" or not separator:
            raise SettingError(
                f"{_hidden(text)!r} is not a broker's address: write kafka://HOST:PORT, like "
                "kafka://127.0.0.1:9092"
            )
        place, _, query = rest.partition("?")
        login, at, servers = place.rpartition("@")
        user, password = _login(login) if at else (None, None)
        parameters = _parameters(query, _PARAMETERS)
        tls = _boolean(parameters.pop("tls", None), any(name in parameters for name in ("ca", "cert", "key")))
        mechanism = parameters.pop("mechanism", None)
        if mechanism is not None and mechanism not in MECHANISMS:
            raise SettingError(f"mechanism={mechanism} is not known: use one of {', '.join(MECHANISMS)}")
        if mechanism is not None and user is None:
            raise SettingError(f"mechanism={mechanism} needs a user: write kafka://USER:PASSWORD@HOST:PORT")
        if "key" in parameters and "cert" not in parameters:
            raise SettingError("key=FILE is the key of a certificate: give cert=FILE too")
        if not tls and parameters:
            raise SettingError(f"tls=false and {', '.join(parameters)} contradict each other: drop one")
        return cls(
            hosts=tuple(_host(server, _DEFAULT_PORT) for server in servers.rstrip("/").split(",")),
            user=user,
            password=password,
            mechanism=(mechanism or _DEFAULT_MECHANISM) if user is not None else None,
            tls=tls,
            **parameters,
        )

    @property
    def bootstrap(self) -> str:
        """The hosts as `bootstrap.servers` wants them."""
        return ",".join(_join(host, port) for host, port in self.hosts)

    def properties(self) -> dict[str, str]:
        """Return librdkafka's properties for this address."""
        found = {"bootstrap.servers": self.bootstrap}
        protocol = ("SASL_" if self.user is not None else "") + ("SSL" if self.tls else "PLAINTEXT")
        if protocol != "PLAINTEXT":
            found["security.protocol"] = protocol
        if self.user is not None:
            found["sasl.mechanism"] = self.mechanism or _DEFAULT_MECHANISM
            found["sasl.username"] = self.user
            found["sasl.password"] = self.password or ""
        files = {
            "ssl.ca.location": self.ca,
            "ssl.certificate.location": self.cert,
            "ssl.key.location": self.key,
        }
        return found | {name: file for name, file in files.items() if file is not None}

    def text(self) -> str:
        """Return the address with its password, as `parse` takes it."""
        return self._text(quote(self.password or "", safe=""))

    def __str__(self) -> str:
        return self._text("***")

    def __repr__(self) -> str:
        return f"KafkaUrl({str(self)!r})"

    def _text(self, password: str) -> str:
        login = f"{quote(self.user, safe='')}:{password}@" if self.user is not None else ""
        said = {
            "tls": "true" if self.tls else None,
            "ca": self.ca,
            "cert": self.cert,
            "key": self.key,
            "mechanism": self.mechanism if self.mechanism != _DEFAULT_MECHANISM else None,
        }
        query = "&".join(f"{name}={quote(value)}" for name, value in said.items() if value is not None)
        return f"kafka://{login}{self.bootstrap}{'?' if query else ''}{query}"


@dataclass(frozen=True)
class AmqpUrl:
    """A queue broker's address, credentials and virtual host, in the form that AMQP's clients share.

    >>> url = AmqpUrl.parse("amqps://ann:secret@one/shop?ca=/etc/ca.pem")
    >>> url.host, url.port, url.vhost, url.tls
    ('one', 5671, 'shop', True)
    >>> print(url)
    amqps://ann:***@one:5671/shop?ca=/etc/ca.pem
    >>> AmqpUrl.parse("amqp://one").user, AmqpUrl.parse("amqp://one").vhost
    ('guest', '/')
    """

    host: str
    port: int
    user: str = "guest"
    password: str = "guest"  # noqa: S105  # what every AMQP client sends unless told otherwise
    vhost: str = "/"
    tls: bool = False
    ca: str | None = None
    cert: str | None = None
    key: str | None = None

    @classmethod
    def parse(cls, text: str) -> AmqpUrl:
        """Return what `text` says, or raise a `SettingError` that names the part and the fix."""
        scheme, separator, rest = text.partition("://")
        if scheme not in _AMQP_PORTS or not separator:
            raise SettingError(
                f"{_hidden(text)!r} is not a queue broker's address: write amqp://HOST:PORT, like "
                "amqp://127.0.0.1:5672, or amqps:// for TLS"
            )
        place, _, query = rest.partition("?")
        parameters = _parameters(query, _AMQP_PARAMETERS)
        if scheme == "amqp" and parameters:
            raise SettingError(f"{', '.join(parameters)} is for TLS: write amqps://, or leave it out")
        if "key" in parameters and "cert" not in parameters:
            raise SettingError("key=FILE is the key of a certificate: give cert=FILE too")
        login, at, place = place.rpartition("@")
        user, password = _login(login) if at else (cls.user, cls.password)
        server, _, vhost = place.partition("/")
        if "/" in vhost:
            raise SettingError(f"a slash in the name of a virtual host is written %2F, not as in /{vhost}")
        host, port = _host(server, _AMQP_PORTS[scheme])
        # A slash and nothing after it is no name, as in most clients.
        named = unquote(vhost) or cls.vhost
        return cls(host, port, user, password, named, tls=scheme == "amqps", **parameters)

    @property
    def address(self) -> str:
        """Where the broker is, without who asks and for what."""
        return _join(self.host, self.port)

    def text(self) -> str:
        """Return the address with its password, as `parse` takes it."""
        return self._text(quote(self.password, safe=""))

    def __str__(self) -> str:
        return self._text("***")

    def __repr__(self) -> str:
        return f"AmqpUrl({str(self)!r})"

    def _text(self, password: str) -> str:
        is_guest = (self.user, self.password) == (AmqpUrl.user, AmqpUrl.password)
        login = "" if is_guest else f"{quote(self.user, safe='')}:{password}@"
        vhost = "" if self.vhost == AmqpUrl.vhost else f"/{quote(self.vhost, safe='')}"
        files = {"ca": self.ca, "cert": self.cert, "key": self.key}
        query = "&".join(f"{name}={quote(file)}" for name, file in files.items() if file is not None)
        scheme = "amqps" if self.tls else "amqp"
        return f"{scheme}://{login}{self.address}{vhost}{'?' if query else ''}{query}"


def _hidden(text: str) -> str:
    """Take out what may be a password before a text is shown."""
    before, at, after = text.rpartition("@")
    return f"…@{after}" if at and before else text


def _login(text: str) -> tuple[str, str]:
    user, colon, password = text.partition(":")
    if not user or not colon:
        raise SettingError("what stands before @ in a broker's address is USER:PASSWORD, with the colon")
    return unquote(user), unquote(password)


def _parameters(query: str, known: tuple[str, ...]) -> dict[str, str]:
    try:
        pairs = parse_qsl(query, strict_parsing=True, keep_blank_values=True) if query else []
    except ValueError:
        raise SettingError(f"{query!r} is not NAME=VALUE&NAME=VALUE, like ca=FILE&cert=FILE") from None
    found: dict[str, str] = {}
    for name, value in pairs:
        if name not in known:
            raise SettingError(f"a broker's address has no parameter {name!r}: it takes {', '.join(known)}")
        if name in found:
            raise SettingError(f"{name} is given twice in a broker's address: give it once")
        if not value:
            raise SettingError(f"{name} has no value in a broker's address: give one, or leave it out")
        found[name] = value
    return found


def _boolean(text: str | None, default: bool) -> bool:
    if text is None:
        return default
    if text not in ("true", "false"):
        raise SettingError(f"tls={text} does not fit: it must be true or false")
    return text == "true"


def _host(text: str, default_port: int) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if text.endswith("]") or not colon:
        host, port = text, str(default_port)
    host = host.removeprefix("[").removesuffix("]")
    if not host or (":" in host and not text.startswith("[")):
        raise SettingError(
            f"{text!r} is not HOST:PORT: an IPv6 address stands in brackets, [::1]:{default_port}"
        )
    if not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise SettingError(f"{port!r} in {text!r} is not a port: use 1 to 65535")
    return host, int(port)


def _join(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
