"""What every test may ask for."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable

import hypothesis
import pytest

# A busy machine is no failure, and a run that decides over a change does not draw lots.
hypothesis.settings.register_profile("headwater", deadline=None, derandomize=bool(os.environ.get("CI")))
hypothesis.settings.load_profile("headwater")

Need = Callable[[str, str], str]


def need(program: str, package: str) -> str:
    """Return the path of a program; without it, skip here and fail where CI is set."""
    if path := shutil.which(program):
        return path
    reason = f"{program} not found: install Debian's package {package}"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep together what shares a server, where tests run side by side.

    The tests of one directory on one broker make a group, whose broker is started once; all others go by file.
    """
    for item in items:
        broker = next(
            (part for part in ("on-headwater", "on-kafka", "on-rabbitmq") if part in item.name), None
        )
        place = item.path.parent if broker else item.path
        item.add_marker(
            pytest.mark.xdist_group(f"{place.relative_to(item.config.rootpath)} {broker or ''}".strip())
        )
