"""The functions that an application decorates: where they stand, and what their parameters name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from inspect import Parameter
from typing import Any

from headwater.app.errors import AppError, Location

_STARS = {Parameter.VAR_POSITIONAL: "*", Parameter.VAR_KEYWORD: "**"}


def location(function: Callable[..., Any]) -> Location:
    """Return where a function begins."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return Location.of_code(code) if code is not None else Location.of_caller()


def name_of(where: Location, function: object, decorator: str) -> str:
    """Return a function's name, or refuse what is no plain function."""
    parameters = "that takes a list" if decorator == "sink" else "whose parameters name its inputs"
    fix = f"put @app.{decorator} on a `def` {parameters}"
    if not callable(function) or inspect.isclass(function) or not hasattr(function, "__name__"):
        raise AppError(where, f"@app.{decorator} stands on {_describe(function)}, not a function", fix)
    name = str(function.__name__)
    if not name.isidentifier():
        raise AppError(where, f"@app.{decorator} stands on a function without a name", fix)
    plain = inspect.unwrap(function)
    if inspect.iscoroutinefunction(plain) or inspect.isasyncgenfunction(plain):
        raise AppError(where, f"{name} is async", "write `def` instead of `async def`")
    if inspect.isgeneratorfunction(plain):
        raise AppError(where, f"{name} is a generator", "write it with `return` instead of `yield`")
    return name


def inputs_of(where: Location, function: Callable[..., Any]) -> tuple[str, ...]:
    """Return the names that a function's parameters have: those of what it reads."""
    name = function.__name__
    parameters = inspect.signature(function).parameters.values()
    for parameter in parameters:
        if parameter.kind in _STARS:
            problem = f"{name} takes {_STARS[parameter.kind]}{parameter.name}"
            raise AppError(where, problem, "name each input as a parameter of its own")
        if parameter.kind is Parameter.POSITIONAL_ONLY:
            problem = f"{name} takes {parameter.name} by position only"
            raise AppError(where, problem, "leave out the `/`: inputs are given by name")
        if parameter.default is not Parameter.empty:
            problem = f"{name} has a default for {parameter.name}"
            raise AppError(
                where, problem, "every parameter names an input; move constants out of the parameters"
            )
    if not parameters:
        problem = f"{name} has no parameters, so it reads nothing"
        raise AppError(where, problem, f"name what it reads, as in def {name}(orders)")
    return tuple(parameter.name for parameter in parameters)


def refuse_unless_one_list(where: Location, function: Callable[..., Any]) -> None:
    """Refuse a sink's function that cannot be called with one list."""
    try:
        inspect.signature(function).bind([])
    except TypeError:
        fix = f"write def {function.__name__}(deliveries), and get a list of headwater.Delivery"
        raise AppError(where, f"{function.__name__} cannot be called with one list", fix) from None


def _describe(thing: object) -> str:
    return f"the class {thing.__name__}" if isinstance(thing, type) else f"{thing!r}"
