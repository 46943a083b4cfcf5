"""Declarations that are called wrongly: refused like any other mistake, instead of by a `TypeError`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from inspect import Parameter, Signature
from typing import ParamSpec, TypeVar

from headwater.app.errors import AppError, Location, did_you_mean

P = ParamSpec("P")
R = TypeVar("R")


def declaration(method: Callable[P, R]) -> Callable[P, R]:
    """Have a method of `App` refuse options that it does not have, and say which it needs."""
    signature = inspect.signature(method)

    @wraps(method)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            signature.bind(*args, **kwargs)
        except TypeError as error:
            raise _refusal(method.__name__, signature, args[1:], kwargs, error) from None
        return method(*args, **kwargs)

    return checked


def _refusal(
    name: str, signature: Signature, given: tuple[object, ...], named: dict[str, object], error: TypeError
) -> AppError:
    where = Location.of_caller()
    parameters = [each for each in signature.parameters.values() if each.name != "self"]
    needed = [each.name for each in parameters if each.default is Parameter.empty]
    form = f"app.{name}({', '.join(f'{each}=…' for each in needed)})"
    if len(given) == 1 and callable(given[0]):
        return AppError(where, f"@app.{name} stands without its options", f"write @{form}")
    known = [each.name for each in parameters]
    for option in named:
        if option not in known:
            problem = f"app.{name} has no option {option}{did_you_mean(option, known)}"
            return AppError(where, problem, f"it takes {', '.join(known)}")
    return AppError(
        where, f"app.{name} is called with {error}", f"write {form}, and what else there is by name"
    )
