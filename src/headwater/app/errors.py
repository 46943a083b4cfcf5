"""What is refused, where it stands and what to do about it.

HeadwaterError
├── AppError                an application that cannot run as declared: "FILE:LINE: problem; fix"
├── SchemaError             a schema that does not parse; knows the position
└── SettingError (core)     a duration that does not parse
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from types import CodeType
from typing import Any

from headwater.core.errors import HeadwaterError

_HERE = str(Path(__file__).parent) + os.sep


@dataclass(frozen=True)
class Location:
    """A line of a user's file; line 0 is the file as a whole."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file

    @classmethod
    def of_caller(cls) -> Location:
        """Return the line, outside this package, that is being run."""
        frame = sys._getframe(1)
        while frame.f_code.co_filename.startswith(_HERE) and frame.f_back is not None:
            frame = frame.f_back
        return cls(frame.f_code.co_filename, frame.f_lineno)

    @classmethod
    def of_code(cls, code: CodeType) -> Location:
        """Return where a function begins: its first decorator, if it has one."""
        return cls(code.co_filename, code.co_firstlineno)


class AppError(HeadwaterError):
    """An application that cannot run as it is declared."""

    def __init__(self, where: Location, problem: str, fix: str) -> None:
        super().__init__(f"{where}: {problem}; {fix}")
        self.where = where
        self.problem = problem
        self.fix = fix

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.where, self.problem, self.fix)


class SchemaError(HeadwaterError):
    """A schema that does not parse; the text shows the place."""

    def __init__(self, ddl: str, position: int, problem: str, fix: str) -> None:
        super().__init__(f"{problem}; {fix}\n{marked(ddl, position)}")
        self.ddl = ddl
        self.position = position
        self.problem = problem
        self.fix = fix

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.ddl, self.position, self.problem, self.fix)


def marked(text: str, position: int) -> str:
    """Return the line of `text` that holds `position`, and a line below it that points there."""
    start = text.rfind("\n", 0, position) + 1
    end = text.find("\n", position)
    line = text[start : end if end >= 0 else len(text)]
    return f"    {line}\n    {' ' * (position - start)}^"


def did_you_mean(name: str, known: list[str]) -> str:
    """Return " (did you mean NAME?)" for the closest of the known names, or nothing."""
    close = get_close_matches(name, known, n=1)
    return f" (did you mean {close[0]}?)" if close else ""
