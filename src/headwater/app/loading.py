"""Loading an application: its file is run, and what it declares is checked as a whole."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from headwater.app.application import App
from headwater.app.errors import AppError, Location


def load(path: str | Path) -> App:
    """Run a file that declares an application, and return the application when it is sound."""
    app = _only_app(str(path), _run(Path(path)))
    app.check()
    return app


def _run(path: Path) -> ModuleType:
    """Run a file as a module, with its directory importable as it is under `python FILE`."""
    file = str(path)
    if not path.is_file():
        raise AppError(Location(file, 0), "there is no such file", "name the Python file that makes an App")
    # A name that nothing else has, and that is gone from `sys.modules` after the run: what Spark sends to
    # its workers is then sent whole, not as a name that they would have to find a file for.
    module = ModuleType(f"_headwater_app_{path.stem}")
    module.__file__ = file
    with _importable(path.resolve().parent, module):
        try:
            exec(compile(path.read_bytes(), file, "exec"), module.__dict__)  # noqa: S102
        except AppError:
            raise
        except SyntaxError as error:
            where = Location(error.filename or file, error.lineno or 1)
            raise AppError(where, f"this is no Python: {error.msg}", "correct the line") from error
        except (Exception, SystemExit) as error:
            raise _failure(file, error) from error
    return module


@contextmanager
def _importable(directory: Path, module: ModuleType) -> Iterator[None]:
    # The directory stays: functions may import when they are called.
    if str(directory) not in sys.path:
        sys.path.insert(0, str(directory))
    sys.modules[module.__name__] = module
    try:
        yield
    finally:
        del sys.modules[module.__name__]


def _failure(file: str, error: BaseException) -> AppError:
    """Return an error that names the last line of the user's own that was run, in this file or beside it."""
    directory = Path(file).resolve().parent
    frames = traceback.extract_tb(error.__traceback__)
    where = Location(file, 0)
    for frame in frames:
        if frame.lineno and Path(frame.filename).resolve().parent == directory:
            where = Location(frame.filename, frame.lineno)
    if isinstance(error, ModuleNotFoundError) and error.name == "pyspark":
        return AppError(where, "pyspark is not installed", "pip install 'headwater[spark]'")
    if _needs_spark(error, frames[-1].filename):
        problem = "this needs Spark, which is not there yet when the file is run"
        return AppError(where, problem, "move it into the function that uses it")
    said = ": ".join([type(error).__name__, *str(error).strip().splitlines()[:1]])
    problem = f"the file fails when it is run: {said}"
    if isinstance(error, ImportError) and (hiding := _hiding(directory, error, frames)):
        return AppError(
            where, problem, f"rename {hiding}, which is found where {hiding.stem} itself is meant"
        )
    return AppError(where, problem, f"correct it, until `python {file}` runs without an error")


def _hiding(directory: Path, error: ImportError, frames: Iterable[traceback.FrameSummary]) -> Path | None:
    """Return the file that an import has found in place of a module of Python's or Spark's, where that made it fail."""
    # The first is of the application's own run.
    run = [Path(frame.filename).resolve() for frame in frames if frame.name == "<module>"][1:]
    named = [directory / f"{(error.name or '').partition('.')[0]}.py"]
    for file in (*run, *named):
        if file.parent == directory and file.stem in {*sys.stdlib_module_names, "pyspark"} and file.is_file():
            return Path(file.name)
    return None


def _needs_spark(error: BaseException, file: str) -> bool:
    """Tell whether PySpark has missed its session, as it does for a column or a UDF outside of a function."""
    if "pyspark" not in Path(file).parts:
        return False
    return isinstance(error, AssertionError) or "SESSION_OR_CONTEXT_NOT_EXISTS" in str(error)


def _only_app(file: str, module: ModuleType) -> App:
    apps = {id(each): each for each in vars(module).values() if isinstance(each, App)}
    if not apps:
        raise AppError(Location(file, 0), "the file makes no App", 'begin it with app = App("NAME")')
    first, *others = apps.values()
    if others:
        problem = f"the file makes a second App, {others[0].name}, beside {first.name} ({first.where})"
        raise AppError(others[0].where, problem, "keep one App in a file")
    return first
