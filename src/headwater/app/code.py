"""What a function's code mentions, read from its bytecode; nothing is called.

A mention is a name that is looked up, in the function or in what it is made of: nested functions, lambdas,
comprehensions, and the helpers it mentions that lie in the same directory. It is known by the module that it
comes from, so a column or variable that happens to be called `session` is not taken for Headwater's.
"""

from __future__ import annotations

import dis
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from inspect import unwrap
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from headwater.app.errors import Location

_GLOBALS = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF")
_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD")


@dataclass(frozen=True)
class Mention:
    """A name in the code; `module` is that of what it stands for, empty where only running would tell."""

    module: str
    name: str
    where: Location


def mentions(function: Callable[..., Any]) -> list[Mention]:
    """Return what a function mentions, in the order of the code."""
    plain = unwrap(function)
    if not isinstance(plain, FunctionType):
        return []
    directory = _directory(plain)
    found: list[Mention] = []
    waiting, seen = [plain], {plain.__code__}
    while waiting:
        for mention, value in _function_mentions(waiting.pop(0)):
            found.append(mention)
            # Libraries are not followed: what they mention says nothing about the user's rows.
            if isinstance(value, FunctionType) and value.__code__ not in seen:
                seen.add(value.__code__)
                if _directory(value) == directory:
                    waiting.append(value)
    return found


def _directory(function: FunctionType) -> Path:
    return Path(function.__code__.co_filename).resolve().parent


def _function_mentions(function: FunctionType) -> Iterator[tuple[Mention, object]]:
    names = dict(function.__globals__)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            names[name] = cell.cell_contents
        except ValueError:  # a variable that is assigned later
            names.pop(name, None)
    for code in _codes(function.__code__):
        yield from _code_mentions(code, names)


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _code_mentions(code: CodeType, names: dict[str, Any]) -> Iterator[tuple[Mention, object]]:
    line, imported = code.co_firstlineno, ""
    value: object = None  # what the instruction before this one looked up
    for instruction in dis.get_instructions(code):
        if instruction.positions is not None and instruction.positions.lineno is not None:
            line = instruction.positions.lineno
        name, module = str(instruction.argval), ""
        if instruction.opname in _GLOBALS:
            value = names.get(name)
            module = _module(value)
        elif instruction.opname in _ATTRIBUTES and isinstance(value, ModuleType):
            # `vars`, not `getattr`: a module that imports what it is asked for must not do so now.
            module, value = value.__name__, vars(value).get(name)
            module = _module(value) or module
        elif instruction.opname in _ATTRIBUTES:
            value = None
        elif instruction.opname == "IMPORT_FROM":
            module, value = imported, None
        else:
            imported = name if instruction.opname == "IMPORT_NAME" else imported
            value = None
            continue
        own_name = getattr(value, "__name__", name) if module else name
        yield Mention(module, own_name, Location(code.co_filename, line)), value


def _module(value: object) -> str:
    if isinstance(value, ModuleType):
        return value.__name__
    return str(getattr(value, "__module__", None) or "") if callable(value) else ""
