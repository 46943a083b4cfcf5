"""`headwater broker`: what its options become."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from headwater.cli import main
from headwater.core.errors import SettingError
from headwater.net.serve import BrokerOptions


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[BrokerOptions]]:
    """The options of each broker that was started; none runs."""
    calls: list[BrokerOptions] = []

    def run_broker(options: BrokerOptions) -> int:
        calls.append(options)
        return 0

    monkeypatch.setattr("headwater.net.serve.run_broker", run_broker)
    root = logging.getLogger()
    before = root.handlers[:], root.level
    yield calls
    root.handlers[:], root.level = before


def test_defaults(started: list[BrokerOptions]) -> None:
    result = CliRunner().invoke(main, ["broker"])
    assert result.exit_code == 0, result.output
    assert started == [
        BrokerOptions(
            data=Path("headwater-data"),
            kafka=("127.0.0.1", 9092),
            amqp=("127.0.0.1", 5672),
            amqp_asked=False,
            durability="sync",
            config={},
            advertise=None,
        )
    ]


def test_every_option(started: list[BrokerOptions], tmp_path: Path) -> None:
    words = ["broker", "--data", str(tmp_path), "--kafka", "[::]:1234", "--advertise", "b.example:9092"]
    words += ["--amqp", "[::]:1235"]
    words += ["--durability", "os", "-c", "num.partitions=4", "--config", "a=b=c"]
    words += ["--log-format", "json", "--log-level", "warning"]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0, result.output
    assert started == [
        BrokerOptions(
            data=tmp_path,
            kafka=("::", 1234),
            amqp=("::", 1235),
            durability="os",
            config={"num.partitions": "4", "a": "b=c"},
            advertise=("b.example", 9092),
        )
    ]
    assert logging.getLogger().level == logging.WARNING


def test_without_queues(started: list[BrokerOptions]) -> None:
    assert CliRunner().invoke(main, ["broker", "--amqp", "none"]).exit_code == 0
    assert [options.amqp for options in started] == [None]


@pytest.mark.parametrize(
    "words",
    [
        ["--kafka", "9092"],
        ["--amqp", "5672"],
        ["--advertise", "host"],
        ["--durability", "never"],
        ["-c", "num.partitions"],
        ["--log-format", "xml"],
        ["--data", __file__],
        ["surplus"],
    ],
)
def test_wrong_usage_is_status_2(started: list[BrokerOptions], words: list[str]) -> None:
    result = CliRunner().invoke(main, ["broker", *words])
    assert (result.exit_code, started) == (2, [])
    assert result.stderr.startswith("Usage: ")


def test_a_directory_of_up_is_not_taken_for_an_empty_broker(
    started: list[BrokerOptions], tmp_path: Path
) -> None:
    (tmp_path / "broker").mkdir()
    (tmp_path / "broker" / "format").touch()
    result = CliRunner().invoke(main, ["broker", "--data", str(tmp_path)])
    assert (result.exit_code, started) == (1, [])
    assert f"give --data {tmp_path / 'broker'}, or another directory" in result.output
    assert CliRunner().invoke(main, ["broker", "--data", str(tmp_path / "broker")]).exit_code == 0


def test_a_refused_setting_is_status_1(started: list[BrokerOptions], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(options: BrokerOptions) -> int:
        raise SettingError(f"there is no setting named {next(iter(options.config))}")

    monkeypatch.setattr("headwater.net.serve.run_broker", refuse)
    result = CliRunner().invoke(main, ["broker", "-c", "no.such=1"])
    assert (result.exit_code, result.stderr) == (1, "Error: there is no setting named no.such\n")


def test_the_status_is_the_brokers(started: list[BrokerOptions], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.net.serve.run_broker", lambda options: 3)
    assert CliRunner().invoke(main, ["broker"]).exit_code == 3
