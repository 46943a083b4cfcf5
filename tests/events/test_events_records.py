"""Events as records: what is written reads back, and what nobody wrote is left out; without I/O."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from headwater.events import BadEvent, Event, EventError, NewEvent
from headwater.events.batches import TooLarge, encode_batches
from headwater.events.envelope import NotAnEvent, decode, encode, read_value
from headwater.events.event import to_json
from headwater.events.plan import Head, Plan, Planned, Request, prepare
from headwater.events.sealing import new_key, seal
from headwater.events.sift import Found, Skipped, sift
from headwater.record.records import Record, decode_batch

names = st.text(
    st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp", "Cf", "Cn", "Co", "Zs"]),
    min_size=1,
    max_size=40,
)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)
ids = st.none() | names
events = st.builds(
    Event,
    stream=names,
    version=st.integers(1, 2**50),
    type=names,
    data=st.dictionaries(names, values, max_size=4),
    id=names,
    time_ms=st.integers(0, 4_000_000_000_000),
    schema=st.integers(1, 9),
    command_id=ids,
    causation_id=ids,
    correlation_id=ids,
    metadata=st.dictionaries(names, values, max_size=2),
)


def written(event: Event, offset: int = 0) -> Record:
    return encode(event, to_json(event.data, "data"), to_json(event.metadata, "metadata"), offset)


@given(events)
def test_what_is_written_reads_back(event: Event) -> None:
    record = written(event, 7)
    assert decode(record.key, record.value, 3, 7) == replace(event, partition=3, offset=7)
    assert record.timestamp == event.time_ms


def test_the_form_of_a_record() -> None:
    event = Event(
        "ann", 2, "Deposited", {"amount": 5}, "e1", 1_767_225_600_250, command_id="c1", causation_id="c1"
    )
    record = written(event)
    assert record.key == b"ann"
    assert json.loads(record.value or b"") == {
        "id": "e1",
        "stream": "ann",
        "version": 2,
        "type": "Deposited",
        "schema": 1,
        "time": "2026-01-01T00:00:00.250Z",
        "command_id": "c1",
        "causation_id": "c1",
        "data": {"amount": 5},
    }
    assert record.headers == (
        ("event-id", b"e1"),
        ("event-type", b"Deposited"),
        ("event-version", b"2"),
        ("command-id", b"c1"),
        ("causation-id", b"c1"),
    )


@given(st.none() | st.binary(), st.none() | st.binary())
def test_random_bytes_are_no_event(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(NotAnEvent):
        decode(key, value)


WHOLE = json.loads(written(Event("ann", 1, "A", {}, "e1", 0)).value or b"")


@given(st.sampled_from(sorted(WHOLE)), values)
def test_an_event_with_a_field_of_another_kind_is_refused_or_read(field: str, value: object) -> None:
    text = json.dumps({**WHOLE, field: value}).encode()
    try:
        event = decode(b"ann", text)
    except NotAnEvent:
        return
    assert (event.stream, type(event.version), type(event.data)) == ("ann", int, dict)


def test_each_missing_field_is_named() -> None:
    for field in WHOLE:
        text = json.dumps({name: value for name, value in WHOLE.items() if name != field}).encode()
        with pytest.raises(NotAnEvent, match=field):
            decode(b"ann", text)


@settings(max_examples=examples(100))
@given(st.data())
def test_foreign_records_among_events_are_counted_and_change_nothing(data: st.DataObject) -> None:
    lengths = {"ann": data.draw(st.integers(0, 4)), "bob": data.draw(st.integers(0, 4))}
    left = {
        name: [Event(name, n, "A", {}, f"{name}{n}", 0) for n in range(1, count + 1)]
        for name, count in lengths.items()
    }
    records: list[tuple[Record, bool]] = []
    foreign = 0
    while any(left.values()):
        kind = data.draw(st.sampled_from(["event", "bytes", "plain", "replayed", "ahead"]))
        name = data.draw(st.sampled_from([name for name, rest in left.items() if rest]))
        following = left[name][0]
        offset = len(records)
        match kind:
            case "event":
                records.append((written(left[name].pop(0), offset), True))
                continue
            case "bytes":
                records.append(
                    (Record(offset, 0, data.draw(st.none() | st.binary(max_size=5)), b"\xff{}"), True)
                )
            case "plain":
                records.append((written(following, offset), False))
            case "replayed":
                records.append(
                    (written(replace(following, version=following.version - 1 or 9), offset), True)
                )
            case _:
                records.append((written(replace(following, version=following.version + 1), offset), True))
        foreign += 1
    found = list(sift(0, records, lambda _: Head()))
    assert sum(isinstance(each, Skipped) for each in found) == foreign
    kept = [each.event for each in found if isinstance(each, Found)]
    for name, count in lengths.items():
        assert [event.version for event in kept if event.stream == name] == list(range(1, count + 1))


class _Nothing:
    def head(self, stream: str) -> Head:
        return Head()

    def command(self, stream: str, command_id: str) -> tuple[Event, ...]:
        return ()

    def state(self, fold: object, stream: str) -> object:
        raise AssertionError(stream)


def planned(*sizes: int) -> list[Planned]:
    plan = Plan(_Nothing(), 0)  # type: ignore[arg-type]
    for size in sizes:
        plan.add(Request("ann", prepare(NewEvent("A", {"text": "x" * size}))))
    return plan.planned


@given(st.lists(st.integers(0, 600), min_size=1, max_size=12))
def test_batches_keep_to_the_limit_and_hold_every_event_in_order(sizes: list[int]) -> None:
    limit = 1100
    batches = encode_batches(planned(*sizes), limit)
    assert all(len(batch.data) <= limit for batch in batches)
    records = [record for batch in batches for record in decode_batch(batch.data)]
    assert [decode(record.key, record.value).version for record in records] == list(range(1, len(sizes) + 1))
    base = 10
    for batch in batches:
        placed = batch.place(2, base)
        assert [each.event.offset for each in placed] == list(range(base, base + len(placed)))
        base += len(placed)


def test_an_event_larger_than_a_batch_is_refused_by_name() -> None:
    with pytest.raises(
        TooLarge, match=r"A of ann takes \d+ bytes, and the topic's max.message.bytes is 1000"
    ):
        encode_batches(planned(10, 2000), 1000)


@given(events, st.data())
def test_what_is_sealed_reads_back_with_its_key_alone(event: Event, data: st.DataObject) -> None:
    fields = (
        tuple(data.draw(st.lists(st.sampled_from(sorted(event.data)), unique=True))) if event.data else ()
    )
    event = replace(event, personal=fields, key_id="k1")
    key = new_key()
    shown = {name: value for name, value in event.data.items() if name not in fields}
    private = {name: event.data[name] for name in fields}
    sealed = seal(key, event.id, to_json(private, "data"))
    value = encode(event, to_json(shown, "data"), to_json(event.metadata, "metadata"), 0, sealed).value
    assert value is not None
    assert read_value(value, key=key) == event
    assert read_value(value) == replace(event, data=shown | dict.fromkeys(fields), erased=True)
    with pytest.raises(BadEvent, match="do not open with their key"):
        read_value(value, key=new_key())
    other = value.replace(json.dumps(event.id, ensure_ascii=False).encode(), b'"another"', 1)
    if event.id != "another":
        with pytest.raises(BadEvent, match="do not open with their key"):
            read_value(other, key=key)


@pytest.mark.parametrize(
    "personal",
    [7, {}, {"key": "k", "fields": "name", "sealed": ""}, {"key": "k", "fields": [1], "sealed": ""}],
)
def test_personal_data_without_a_key_are_no_event(personal: object) -> None:
    value = {
        "id": "e",
        "stream": "s",
        "version": 1,
        "type": "T",
        "schema": 1,
        "time": "2026-01-01",
        "data": {},
    }
    with pytest.raises(NotAnEvent, match="personal data"):
        read_value(json.dumps(value | {"personal": personal}).encode())


@dataclass
class Registered:
    number: int
    name: str = dataclasses.field(metadata={"personal": True})


def test_personal_data_are_kept_apart_from_the_others() -> None:
    [prepared] = prepare(Registered(17, "Ann"))
    assert prepared.data == {"number": 17, "name": "Ann"}
    assert prepared.text == '{"number":17}'
    assert prepared.private is not None
    assert prepared.private == (None, ("name",), '{"name":"Ann"}')


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (NewEvent("T", {"n": 1}, personal="n"), "are a list of names in its data, not 'n'"),
        (NewEvent("T", {"n": 1}, personal=["m"]), r"are a list of names in its data, not \['m'\]"),
        (NewEvent("T", {"n": 1}, personal=["n"], subject=""), "the subject of T is text of 1 to 255"),
    ],
)
def test_personal_data_that_cannot_be(event: NewEvent, reason: str) -> None:
    with pytest.raises(BadEvent, match=reason):
        prepare(event)


def test_who_cannot_seal_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.events.sealing.find_spec", lambda name: None)
    with pytest.raises(EventError, match=r"pip install 'headwater\[erasure\]'"):
        prepare(NewEvent("T", {"n": 1}, personal=["n"]))
