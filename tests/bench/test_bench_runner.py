"""The order of work, and what happens around each turn."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from bench import runner
from bench.brokers import SIDES, Broker
from bench.figures import HEADWATER, KAFKA, KAFKA_FLUSH, Better, Figure
from bench.results import Results
from bench.runner import Turn, running, turns
from bench.scenarios import SCENARIOS, Scale, Scenario
from headwater.testing.process import ProcessError

EVERYONE = frozenset(SIDES)


class FakeBroker:
    """A broker that remembers what was done to it."""

    bootstrap = "127.0.0.1:1"
    pid = 1

    def __init__(self, directory: Path) -> None:
        self.directory = self.data = directory
        self.up = False
        self.history: list[str] = []

    def start(self) -> None:
        self.up = True
        self.history.append("start")

    def stop(self) -> int:
        return self._end("stop")

    def kill(self) -> int:
        return self._end("kill")

    def errors(self) -> str:
        return "out of memory"

    def _end(self, how: str) -> int:
        if not self.up:
            raise ProcessError("not running")
        self.up = False
        self.history.append(how)
        return 0


class Fake(Scenario):
    """A scenario that notes where it ran."""

    name = "fake"
    figures = (Figure("speed", "speed", "1/s", Better.HIGHER),)
    sides = (KAFKA, HEADWATER)
    optional_sides = (KAFKA_FLUSH,)

    def __init__(self) -> None:
        self.directories: list[Path] = []

    def run(self, broker: Broker, scratch: Path, scale: Scale) -> Mapping[str, float]:
        assert list(scratch.iterdir()) == []
        assert isinstance(broker, FakeBroker)
        assert broker.up
        self.directories.append(broker.directory)
        return {"speed": float(scale.of(100))}


def sides_by_round(order: list[Turn]) -> list[list[str]]:
    rounds = max(turn.round for turn in order) + 1
    return [[turn.side for turn in order if turn.round == number] for number in range(rounds)]


def test_the_sides_take_turns_and_the_order_changes() -> None:
    order = turns([Fake()], 3, EVERYONE)
    assert sides_by_round(order) == [[KAFKA, HEADWATER], [HEADWATER, KAFKA], [KAFKA, HEADWATER]]
    assert [turn.round for turn in order] == [0, 0, 1, 1, 2, 2]


def test_only_the_chosen_sides_are_measured() -> None:
    assert {turn.side for turn in turns([Fake()], 2, frozenset({HEADWATER}))} == {HEADWATER}


def test_an_optional_side_is_measured_when_asked_for() -> None:
    assert KAFKA_FLUSH not in {turn.side for turn in turns([Fake()], 1, EVERYONE)}
    asked = turns([Fake()], 1, EVERYONE, frozenset({"fake"}))
    assert [turn.side for turn in asked] == [KAFKA, HEADWATER, KAFKA_FLUSH]


def test_every_turn_has_a_fresh_directory_that_goes_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers: list[FakeBroker] = []

    def make(directory: Path) -> Broker:
        brokers.append(FakeBroker(directory))
        return brokers[-1]

    monkeypatch.setattr(runner, "SIDES", dict.fromkeys(SIDES, make))
    scenario = Fake()
    results = Results({}, rounds=2, divisor=5)
    said: list[str] = []
    runner.run(turns([scenario], 2, EVERYONE), results, Scale(5), tmp_path, said.append)
    assert results.samples == {"speed": {KAFKA: [20.0, 20.0], HEADWATER: [20.0, 20.0]}}
    assert len(set(scenario.directories)) == 4
    assert list(tmp_path.iterdir()) == []
    assert [broker.history for broker in brokers] == [["start", "kill"]] * 4
    assert said[0].startswith("[1/4] fake, kafka, round 1: speed 20")


def test_a_broker_is_ended_when_its_scenario_fails(tmp_path: Path) -> None:
    broker = FakeBroker(tmp_path)
    with pytest.raises(RuntimeError, match="failed") as caught, running(broker):
        raise RuntimeError("failed")
    assert "out of memory" in caught.value.__notes__[0]
    assert broker.history == ["start", "kill"]


def test_a_broker_that_its_scenario_ended_is_left_alone(tmp_path: Path) -> None:
    broker = FakeBroker(tmp_path)
    with running(broker):
        broker.stop()
    assert broker.history == ["start", "stop"]


def test_names_are_unique_and_every_side_is_known() -> None:
    names = [scenario.name for scenario in SCENARIOS]
    figures = [figure.name for scenario in SCENARIOS for figure in scenario.figures]
    assert len(set(names)) == len(names)
    assert len(set(figures)) == len(figures)
    for scenario in SCENARIOS:
        assert {*scenario.sides, *scenario.optional_sides} <= EVERYONE
