"""Kafka's command-line tools."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwater.testing.jars import KAFKA_4_3, JarSet, java_command

from .brokers import Broker
from .tool_runner import runner

TOOLS = "org.apache.kafka.tools"
CLUSTER = f"{TOOLS}.ClusterTool"
CONFIGS = "kafka.admin.ConfigCommand"
CONSOLE_CONSUMER = f"{TOOLS}.consumer.ConsoleConsumer"
CONSOLE_PRODUCER = f"{TOOLS}.ConsoleProducer"
CONSUMER_GROUPS = f"{TOOLS}.consumer.group.ConsumerGroupCommand"
DELETE_RECORDS = f"{TOOLS}.DeleteRecordsCommand"
GET_OFFSETS = f"{TOOLS}.GetOffsetShell"
GROUPS = f"{TOOLS}.GroupsCommand"
API_VERSIONS = f"{TOOLS}.BrokerApiVersionsCommand"
LOG_DIRS = f"{TOOLS}.LogDirsCommand"
SHARE_CONSUMER = f"{TOOLS}.consumer.ConsoleShareConsumer"
SHARE_GROUPS = f"{TOOLS}.consumer.group.ShareGroupCommand"
TOPICS = f"{TOOLS}.TopicCommand"
VERIFIABLE_CONSUMER = f"{TOOLS}.VerifiableConsumer"
VERIFIABLE_SHARE_CONSUMER = f"{TOOLS}.VerifiableShareConsumer"
VERIFIABLE_PRODUCER = f"{TOOLS}.VerifiableProducer"
_ENDED_BY_THEIR_JVM = (VERIFIABLE_CONSUMER, VERIFIABLE_PRODUCER, VERIFIABLE_SHARE_CONSUMER)


@dataclass(frozen=True)
class Ended:
    """What a tool left behind."""

    status: int
    output: str
    errors: str

    @property
    def lines(self) -> list[str]:
        return self.output.splitlines()

    def rows(self) -> list[dict[str, str]]:
        """Read the table that a tool printed, by the names of its columns."""
        table = [line.split() for line in self.lines if line.strip()]
        return [dict(zip(table[0], row, strict=False)) for row in table[1:]]

    def events(self, name: str) -> list[dict[str, Any]]:
        """Read the events of one name that a verifiable tool printed."""
        found = [json.loads(line) for line in self.lines]
        return [event for event in found if event["name"] == name]


def run_tool(jars: JarSet, tool: str, *arguments: str, given: str = "") -> Ended:
    """Run a tool to its end, however it ends."""
    if tool not in _ENDED_BY_THEIR_JVM:
        return Ended(*runner(jars).run(tool, *arguments, given=given))
    command = java_command(jars, tool, *arguments)
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=60)
    return Ended(done.returncode, done.stdout, done.stderr)


@dataclass(frozen=True)
class Tools:
    """The tools of one version, pointed at one broker."""

    broker: Broker
    scratch: Path
    jars: JarSet = KAFKA_4_3

    def start(self, tool: str, *arguments: str) -> subprocess.Popen[str]:
        """Start a tool that goes on until it is stopped."""
        return subprocess.Popen(
            java_command(self.jars, tool, *arguments, "--bootstrap-server", self.broker.bootstrap),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=self.scratch,
        )

    def try_(self, tool: str, *arguments: str, given: str = "") -> Ended:
        """Run a tool on the broker to its end, however it ends."""
        return run_tool(self.jars, tool, *arguments, "--bootstrap-server", self.broker.bootstrap, given=given)

    def run(self, tool: str, *arguments: str, given: str = "") -> Ended:
        """Run a tool that must succeed."""
        ended = self.try_(tool, *arguments, given=given)
        assert ended.status == 0, ended
        return ended
