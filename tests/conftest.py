"""What every test may ask for."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from xdist.scheduler import LoadScopeScheduling

from needs import need

# A busy machine is no failure, and a run that decides over a change does not draw lots.
hypothesis.settings.register_profile("headwater", deadline=None, derandomize=bool(os.environ.get("CI")))
hypothesis.settings.load_profile("headwater")


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


class ByServer(LoadScopeScheduling):  # type: ignore[misc]
    """Keeps together what shares a server: the tests of a directory on one broker; all others go by file."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        for broker in ("on-headwater", "on-kafka", "on-rabbitmq"):
            if broker in nodeid:
                return f"{Path(file).parent} {broker}"
        return file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling | None:
    """Say which tests go to the same process, where `--dist loadscope` asks for that."""
    return ByServer(config, log) if config.getvalue("dist") == "loadscope" else None
