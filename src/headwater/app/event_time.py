"""Event time where it is needed: operators on time are refused over inputs that declare none.

Spark would say so too, but only once it has started, in words about plans, or not at all: a state that
nothing ever evicts grows until the machine is full. What a function does is only known by running it on Spark;
what it mentions is known without. So this refuses what cannot be right, and lets pass what may be:

- a window needs one input with an event time, since which input it is over cannot be told;
- a join in time needs one on both sides: two of the inputs, or the only one, joined with itself;
- a function that sets a watermark of its own looks after itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headwater.app.code import Mention, mentions
from headwater.app.definitions import Function, Sink, Stream, Topic
from headwater.app.errors import AppError
from headwater.app.schema import Scalar

if TYPE_CHECKING:
    from headwater.app.application import App

_OPERATORS: Final = ("tumbling", "hopping", "sliding", "session", "match", "join_within", "versus_previous")
_METHODS: Final = ("dropDuplicatesWithinWatermark",)
_GROUPING: Final = ("groupBy", "groupby")


def check(app: App) -> None:
    """Refuse operators on time where the time is missing, or what it leads to cannot be published."""
    for function in app.ordered():
        if isinstance(function, Sink):
            continue
        found = mentions(function.function)
        if not any(mention.name == "withWatermark" for mention in found):
            _refuse_untimed(app, function, found)
        if isinstance(function, Stream) and function.mode == "append":
            _refuse_corrections(app, function, found)


def _refuse_untimed(app: App, function: Function, found: list[Mention]) -> None:
    inputs = [each for name in function.inputs if isinstance(each := app.definitions[name], Topic | Stream)]
    untimed = [each for each in inputs if each.event_time is None]
    timed = len(inputs) - len(untimed)
    for mention in filter(_needs_time, found):
        needed = min(2, len(inputs)) if mention.name == "join_within" else 1
        if timed >= needed or not untimed:
            continue
        missing, sides = untimed[0], " on both sides" if needed == 2 else ""
        problem = f"{function.name} uses {mention.name}, which needs an event time{sides}, and {missing.name} has none"
        raise AppError(
            mention.where, problem, f"declare {missing.name} ({missing.where}) with {_options(missing)}"
        )


def _needs_time(mention: Mention) -> bool:
    if mention.name in _METHODS:
        return True
    ours = mention.module == "headwater" or mention.module.startswith("headwater.pipeline")
    return ours and mention.name in _OPERATORS


def _options(definition: Topic | Stream) -> str:
    """Return the options to add, with the column where there is only one that it can be."""
    fields = definition.fields if isinstance(definition, Topic) else ()
    times = [field.name for field in fields if field.type == Scalar("timestamp")]
    return f'event_time="{times[0] if len(times) == 1 else "COLUMN"}", lateness="1 minute"'


def _refuse_corrections(app: App, function: Stream, found: list[Mention]) -> None:
    """Refuse corrections of results that are published once: they would only be published later."""
    for name in function.inputs:
        read = app.definitions[name]
        if not isinstance(read, Topic) or read.late != "correct":
            continue
        for mention in found:
            if mention.name in _GROUPING:
                problem = (
                    f'{function.name} publishes final results only (mode="append"), '
                    f"and the late events of {name} are to correct them"
                )
                fix = (
                    f'declare {function.name} with mode="changes", or {name} ({read.where}) with late="aside"'
                )
                raise AppError(mention.where, problem, fix)
