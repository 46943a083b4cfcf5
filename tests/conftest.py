"""What every test may ask for."""

from __future__ import annotations

import gc
import os
import signal
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from xdist.scheduler import LoadScopeScheduling

from headwater.testing.class_data import spark_options
from needs import need, needs_servers
from scopes import ByServer
from wanted import holds_nothing

# Nothing of what is collected is garbage before the end: it is looked at once, and not again with each test's.
gc.disable()

# A busy machine is no failure, and a run that decides over a change does not draw lots. `make check` draws a fifth.
for profile, examples in (("quick", 20), ("thorough", 100)):
    hypothesis.settings.register_profile(
        profile, max_examples=examples, deadline=None, derandomize=bool(os.environ.get("CI"))
    )
hypothesis.settings.load_profile("thorough")

# A run that a script puts into the background ignores Ctrl-C, and so would all that it starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Whatever starts Spark, in this process or below it, starts with the classes that `tools/setup real` has archived.
os.environ.setdefault("SPARK_SUBMIT_OPTS", spark_options())


@pytest.fixture(scope="session")
def java() -> str:
    """The Java that runs Kafka and its tools, with Maven there to fetch them."""
    need("mvn", "maven")
    return need("java", "openjdk-17-jre-headless")


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of a browser without a window."""
    return need("chromium", "chromium")


@pytest.fixture(scope="session")
def openssl() -> str:
    """The path of the openssl command, which makes certificates."""
    return need("openssl", "openssl")


@pytest.fixture(scope="session")
def kcat() -> str:
    """The path of kcat."""
    return need("kcat", "kcat")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out files in which nothing is wanted, without importing them."""
    return True if holds_nothing(collection_path, config.option.markexpr) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse a test that needs what only `tools/setup real` installs, and is not marked as such."""
    for item in items:
        if item.get_closest_marker("real") is None and needs_servers(item):
            raise pytest.UsageError(
                f"{item.nodeid} needs a real server or client: mark it with pytest.mark.real"
            )


def pytest_collection_finish() -> None:
    """Leave what was collected out of the collection of garbage from here on."""
    gc.freeze()
    gc.enable()


def pytest_unconfigure() -> None:
    """Let modules that look for leaks at the end find none."""
    gc.unfreeze()


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling | None:
    """Say which tests go to the same process, where `--dist loadscope` asks for that."""
    return ByServer(config, log) if config.getvalue("dist") == "loadscope" else None
