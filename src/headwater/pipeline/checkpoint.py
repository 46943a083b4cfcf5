"""Whether a query may go on from its checkpoint.

Spark resumes a query by position: its sources in the order of the plan, its stateful operators likewise, each
with the types of its key and value. An application that changed in one of those fails deep inside Spark, or
reads state that means something else. So what the checkpoint was made with is kept in a file beside it
(`QUERY.json` beside `QUERY/`) and compared before anything is started.

A filter, a projection after the state, another expression of the same type: these resume. What the types of what is
stored do not tell, such as the length of windows or the pattern that partial matches are of, operators say
themselves (`packing.Kept`, `windows.described`).
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from headwater.app import Warehouse
from headwater.core.errors import HeadwaterError
from headwater.pipeline.compile import Query
from headwater.pipeline.packing import BUCKET, LATEST
from headwater.pipeline.windows import described

__all__ = ["Checkpoint", "CheckpointError", "Fingerprint", "Operator", "difference", "fingerprint"]


class CheckpointError(HeadwaterError):
    """Queries that cannot go on from their checkpoints, and what to do."""


@dataclass(frozen=True)
class Operator:
    """A stateful operator: the types that its state is stored in, and its expressions for people."""

    kind: str
    key: tuple[str, ...]
    value: tuple[str, ...]
    text: str
    layout: str = ""
    """What types do not tell of what is stored; nothing in files of before this was noted."""
    parts: tuple[tuple[str, ...], ...] = ()
    """The names of the last values, where more may be added at the end of each part."""

    def __str__(self) -> str:
        value = f", holding {', '.join(self.value)}" if self.value else ""
        layout = f", with {self.layout}" if self.layout else ""
        return f"{self.kind} by ({', '.join(self.key)}){value}{layout}"

    def stores_like(self, other: Operator) -> bool:
        """Tell whether the state of one can be read by the other, which is newer."""
        alike = self.layout == other.layout or not self.layout or not other.layout
        return alike and (self.kind, self.key) == (other.kind, other.key) and self._holds_like(other)

    def _holds_like(self, other: Operator) -> bool:
        if not self.parts or not other.parts:
            return self.value == other.value
        (head, *mine), (their_head, *theirs) = self._named(), other._named()
        pairs = zip(mine, theirs, strict=True)
        return head == their_head and all(new[: len(old)] == old for old, new in pairs)

    def _named(self) -> list[list[tuple[str, str]]]:
        """Return names and types of what is held: of the values without names, and then part by part."""
        unnamed = ("",) * (len(self.value) - sum(map(len, self.parts)))
        types = iter(self.value)
        return [[(name, next(types)) for name in part] for part in (unnamed, *self.parts)]


@dataclass(frozen=True)
class Fingerprint:
    """What a checkpoint depends on."""

    output: str
    topics: tuple[str, ...]
    state: tuple[Operator, ...]

    def to_json(self) -> str:
        """Return the text of the file beside the checkpoint."""
        return json.dumps(asdict(self), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Fingerprint:
        """Read what `to_json` wrote."""
        document = json.loads(text)
        state = tuple(
            Operator(
                each["kind"],
                tuple(each["key"]),
                tuple(each["value"]),
                each["text"],
                each.get("layout", ""),
                tuple(map(tuple, each.get("parts", ()))),
            )
            for each in document["state"]
        )
        return cls(document["output"], tuple(document["topics"]), state)


class Checkpoint:
    """The directory that Spark keeps for a query, and our file beside it."""

    def __init__(self, directory: Path, query: str) -> None:
        self.query = query
        self.path = directory / query
        self.file = directory / f"{query}.json"

    def exists(self) -> bool:
        """Tell whether the query has begun an epoch: until then there is nothing to go on from."""
        return any(file.name.isdigit() for file in (self.path / "offsets").glob("*"))

    def saved(self) -> Fingerprint | None:
        """Return what the checkpoint was made with, or None where there is none."""
        if not self.exists() or not self.file.exists():
            return None
        return Fingerprint.from_json(self.file.read_text())

    def save(self, fingerprint: Fingerprint) -> None:
        """Keep what the query is started with."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        written = self.file.with_suffix(".json.new")
        written.write_text(fingerprint.to_json())
        written.replace(self.file)

    def remove(self) -> None:
        """Forget how far the query came, and its state."""
        shutil.rmtree(self.path, ignore_errors=True)
        self.file.unlink(missing_ok=True)


def difference(old: Fingerprint, new: Fingerprint) -> str | None:
    """Return what keeps a query from going on, or None where it may."""
    if old.output != new.output:
        return f"it was {old.output} and is now {new.output}"
    if old.topics != new.topics:
        return f"it read {_listed(old.topics)} and now reads {_listed(new.topics)}"
    if len(old.state) != len(new.state):
        return f"its state was {_listed(old.state)} and is now {_listed(new.state)}"
    for before, after in zip(old.state, new.state, strict=True):
        if not before.stores_like(after):
            return f"its state changed from {before} to {after}"
    return None


def changed_expressions(old: Fingerprint, new: Fingerprint) -> list[tuple[str, str]]:
    """Return the operators that go on with state made by another expression: what it was, and what it is."""
    pairs = zip(old.state, new.state, strict=True)
    return [(before.text, after.text) for before, after in pairs if before.text and before.text != after.text]


def refusal(app_file: str, differences: Sequence[tuple[str, str]]) -> CheckpointError:
    """Return the error for queries that cannot go on; nothing was touched."""
    lines = [f"{query} cannot go on from its checkpoint: {what}." for query, what in differences]
    resets = " ".join(f"--reset {query}" for query, _ in differences)
    lines.append(
        f"`headwater run {app_file} {resets}` starts over, and reads its topics again from their start;"
        " or rename the function, and what it made so far stays. Nothing was touched."
    )
    return CheckpointError("\n".join(lines))


def fingerprint(query: Query) -> Fingerprint:
    """Return what a query's checkpoint will depend on; a warehouse does not depend on one."""
    if isinstance(query.function, Warehouse):
        return Fingerprint(f"a {query.kind}", query.topics, ())
    nodes = list(_nodes(_optimized(query.frame)))
    mode = getattr(query.function, "mode", None)
    return Fingerprint(
        output=f"a {query.kind}" + (f" of mode {mode}" if mode else ""),
        topics=tuple(topic for node in nodes if (topic := _topic(node))),
        state=tuple(operator for node in nodes if (operator := _operator(node))),
    )


def _optimized(frame: DataFrame) -> Any:
    """Return the plan that Spark will run: what a join stores depends on the columns it leaves out."""
    session: Any = frame.sparkSession
    analyzed = frame._jdf.queryExecution().analyzed()
    return session._jsparkSession.sessionState().optimizer().execute(analyzed)


# Spark's plan, over py4j: a node's name, its children, its expressions and the types of both.


def _nodes(plan: Any) -> Iterator[Any]:
    """Yield the nodes of a plan, each after its children, as Spark numbers operators."""
    for child in _items(plan.children()):
        yield from _nodes(child)
    yield plan


def _topic(node: Any) -> str | None:
    """Return the topic of a streaming source."""
    if not node.nodeName().startswith("StreamingRelation"):
        return None
    options = node.extraOptions()
    source = options.get("source")  # ours; Spark's own connector has the topic as an option of its own
    return str(json.loads(source)["topic"] if source else options.get("subscribe") or node.sourceName())


def _operator(node: Any) -> Operator | None:
    if not node.isStreaming():
        return None
    match node.nodeName():
        case "Aggregate":
            return _aggregate(node)
        case "Join":
            return _join(node)
        case "Deduplicate" | "DeduplicateWithinWatermark" as name:
            kind = "deduplication" + (" within the watermark" if name.endswith("Watermark") else "")
            keys = _items(node.keys())
            return Operator(kind, _types(keys), (), _texts(keys))
        case "TransformWithStateInPySpark":
            return _keyed(node)
        case "FlatMapGroupsInPandasWithState" | "TransformWithState" as name:
            grouping = _items(node.groupingAttributes())
            [about, *_] = [*map(_metadata, grouping), {}]
            text = about.get("headwater.text") or _texts(grouping)
            return Operator(name, _types(grouping), (), text, about.get("headwater.layout", ""))
        case "GlobalLimit":
            return Operator("limit", (), (), "")
        case _:
            return None


def _keyed(node: Any) -> Operator:
    """Return what an operator of ours keeps: what it packs, which Spark does not see (`packing`)."""
    [child, *_] = _items(node.children())
    below = child
    while below.nodeName() == "Project":
        [below] = _items(below.children())
    if below.nodeName() != "MapInArrow":
        grouping = _items(child.output())[: node.groupingAttributesLen()]
        return Operator("keyed state", _types(grouping), (), _texts(grouping))
    [packed] = _items(below.children())
    columns = [each for each in _items(packed.output()) if each.name() not in (BUCKET, LATEST)]
    key = [each for each in columns if re.fullmatch(r"k\d+", each.name())]
    value = _types([each for each in columns if each not in key])
    [about] = [_metadata(each) for each in _items(packed.output()) if each.name() == BUCKET]
    return Operator(
        "keyed state",
        _types(key),
        value,
        about.get("headwater.text", ""),
        about.get("headwater.layout", ""),
        tuple(map(tuple, json.loads(about.get("headwater.parts", "[]")))),
    )


def _aggregate(node: Any) -> Operator:
    grouping = _items(node.groupingExpressions())
    text = _texts(_items(node.aggregateExpressions()))
    functions = [each for each in _items(node.aggregateExpressions()) if _function(each.sql())]
    # What is stored follows from the function and the type that it makes.
    value = tuple(f"{_function(each.sql())} as {_type(each)}" for each in functions)
    layout = ", ".join(made for each in grouping for made in described(_metadata(each)))
    return Operator("aggregation", _types(grouping), value, text, layout)


def _function(sql: str) -> str | None:
    """Return the function that an aggregate's SQL begins with; a grouping column has none.

    >>> _function("sum(orders.amount) AS revenue"), _function("orders.country")
    ('sum', None)
    """
    found = re.match(r"\(?(\w+)\(", sql)
    return found[1].lower() if found else None


def _join(node: Any) -> Operator | None:
    left, right = node.left(), node.right()
    if not (left.isStreaming() and right.isStreaming()):
        return None  # with a table that does not change: no state
    sides = tuple(f"{name} ({side.schema().toDDL()})" for name, side in (("left", left), ("right", right)))
    condition = node.condition()
    text = condition.get().sql() if condition.isDefined() else ""
    return Operator(f"{node.joinType().sql().lower()} join", (), sides, text)


def _metadata(expression: Any) -> dict[str, Any]:
    """Return what was said of a column when it was made."""
    if expression.nodeName() != "AttributeReference":
        return {}
    found: dict[str, Any] = json.loads(expression.metadata().json())
    return found


def _items(sequence: Any) -> list[Any]:
    return [sequence.apply(index) for index in range(sequence.size())]


def _types(expressions: Sequence[Any]) -> tuple[str, ...]:
    return tuple(map(_type, expressions))


def _type(expression: Any) -> str:
    return str(expression.dataType().simpleString())


def _texts(expressions: Sequence[Any]) -> str:
    return ", ".join(str(each.sql()) for each in expressions)


def _listed(things: Sequence[object]) -> str:
    return ", ".join(map(str, things)) or "nothing"
