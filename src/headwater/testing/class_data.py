"""Archives of classes that JVMs share, so that what one has loaded and verified the next maps into memory.

Kafka's tools live for a second and its broker and Spark's session for a few in a test, and half of that goes into
loading thousands of classes. `python -m headwater.testing.class_data` runs each of Kafka's once and keeps what they
load, beside the classes of Spark that `headwater warm-up` keeps; an archive that is there and newer than its jars costs
a look. A JVM that cannot use one, another Java's for instance, says nothing and does without it.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from headwater.core.cache import exclusive
from headwater.core.errors import HeadwaterError
from headwater.pipeline.class_archive import archive_options, make_archive
from headwater.testing.jars import BRIEF, BRIEF_SPARK, KAFKA_4_3, java_command, shared_classes
from headwater.testing.kafka import RealKafka

__all__ = ["make_kafka_archive", "spark_options"]

_SECONDS = 300
_TOOLS = "org.apache.kafka.tools"


def _is_newer(archive: Path, jars: Path) -> bool:
    return archive.is_file() and archive.stat().st_mtime > max(
        (jar.stat().st_mtime for jar in jars.glob("*.jar")), default=0.0
    )


def make_kafka_archive() -> Path:
    """Archive the classes of Kafka's broker and tools unless that was done, and return the file."""
    jars, archive = KAFKA_4_3.fetch(), shared_classes(KAFKA_4_3)
    with exclusive(archive.with_suffix(".lock")), tempfile.TemporaryDirectory() as directory:
        if _is_newer(archive, jars):
            return archive
        scratch = Path(directory)
        loaded = scratch / "classes"
        loaded.write_text("\n".join(sorted(_loaded_by_kafka(scratch))))
        made = archive.with_suffix(".new")
        dump = ("-Xshare:dump", f"-XX:SharedClassListFile={loaded}", f"-XX:SharedArchiveFile={made}")
        _run(java_command(KAFKA_4_3, "unused", options=(*BRIEF[:2], *dump))[:-1], scratch)
        made.replace(archive)
    return archive


def _loaded_by_kafka(scratch: Path) -> set[str]:
    listed = scratch / "broker.list"
    with RealKafka(scratch / "broker", java=(*BRIEF, f"-XX:DumpLoadedClassList={listed}")) as broker:
        found = _loaded_by_tools(broker.bootstrap, scratch)
    return found | _listed(listed)  # which is written when the JVM ends


def _listed(file: Path) -> set[str]:
    return {line for line in file.read_text().splitlines() if not line.startswith(("#", "@"))}


def _loaded_by_tools(bootstrap: str, scratch: Path) -> set[str]:
    tools = (
        ("TopicCommand", "--create", "--topic=t"),
        ("ConsoleProducer", "--topic=t"),
        ("consumer.ConsoleConsumer", "--topic=t", "--group=g", "--from-beginning", "--max-messages=1"),
        ("consumer.group.ConsumerGroupCommand", "--describe", "--group=g"),
    )
    found: set[str] = set()
    for number, (tool, *arguments) in enumerate(tools):
        listed = scratch / f"{number}.list"
        options = (*BRIEF, f"-XX:DumpLoadedClassList={listed}")
        address = ("--bootstrap-server", bootstrap)
        _run(
            java_command(KAFKA_4_3, f"{_TOOLS}.{tool}", *arguments, *address, options=options),
            scratch,
            given="one\n",
        )
        found |= _listed(listed)
    return found


def spark_options() -> str:
    """Return Java's options for Spark to start soon, with the archive of its classes where there is one."""
    return " ".join((BRIEF_SPARK, *archive_options()))


def _run(command: list[str], directory: Path, *, given: str = "") -> None:
    done = subprocess.run(
        command,
        input=given,
        capture_output=True,
        text=True,
        cwd=directory,
        timeout=_SECONDS,
    )
    if done.returncode:
        raise HeadwaterError(f"{command[0]} could not archive classes:\n{done.stdout}{done.stderr}"[-4000:])


def main() -> None:
    """Make both archives, saying where they are."""
    for archive in (make_kafka_archive(), make_archive()):
        sys.stdout.write(f"{archive}\n")


if __name__ == "__main__":
    try:
        main()
    except HeadwaterError as error:
        sys.exit(str(error))
