"""What went wrong, in one sentence."""

from __future__ import annotations

import doctest
import json
from pathlib import Path

import pytest

from headwater.pipeline import failures as module
from headwater.pipeline import runner, stderr
from headwater.pipeline.failures import sentence

WORKER = """[STREAM_FAILED] Query [id = 12, runId = 34] terminated with exception: Job aborted due to stage failure: \
Task 0 in stage 1.0 failed 1 times, most recent failure: Lost task 0.0 in stage 1.0 (TID 2) (localhost): \
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/lib/pyspark/worker.py", line 1225, in main
    process()
  File "/app/shop.py", line 12, in rate
    return a / b
ZeroDivisionError: division by zero

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:561)
"""


def test_the_end_of_a_workers_traceback() -> None:
    assert sentence(RuntimeError(WORKER)) == "/app/shop.py:12: ZeroDivisionError: division by zero"


def test_the_line_of_the_application_that_led_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    library = f'  File "{json.__file__}", line 346, in loads\n    return decode(s)\nZeroDivisionError'
    text = WORKER.replace("/app/shop.py", str(tmp_path / "shop.py")).replace("ZeroDivisionError", library)
    assert sentence(RuntimeError(text)) == "shop.py:12: ZeroDivisionError: division by zero"
    elsewhere = WORKER.replace("/app/shop.py", "/opt/spark/python/lib/pyspark.zip/pyspark/util.py")
    assert sentence(RuntimeError(elsewhere)) == "ZeroDivisionError: division by zero"


def test_our_own_errors_speak_for_themselves() -> None:
    text = WORKER.replace("ZeroDivisionError:", "headwater.pipeline.source.errors.RecordsLost:")
    assert sentence(RuntimeError(text)) == "division by zero"


def test_sparks_own_errors_lose_their_plan() -> None:
    text = (
        "[STREAM_FAILED] Query [id = 12, runId = 34] terminated with exception: [UNRESOLVED_COLUMN] no column x."
        " SQLSTATE: 42703\n== Plan ==\nProject"
    )
    assert sentence(RuntimeError(text)) == "[UNRESOLVED_COLUMN] no column x."


JAVA = """[STREAM_FAILED] Query [id = 12, runId = 34] terminated with exception: [FOREACH_BATCH_USER_FUNCTION_ERROR] \
An error occurred in the user provided function. Return Message: Traceback (most recent call last):
  File "/lib/py4j/protocol.py", line 327, in get_return_value
    raise Py4JJavaError(
py4j.protocol.Py4JJavaError: An error occurred while calling o400.getResult.
: org.apache.spark.SparkException: Exception thrown in awaitResult:\x20
\tat org.apache.spark.util.ThreadUtils$.awaitResult(ThreadUtils.scala:359)
Caused by: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 1 times, \
most recent failure: Lost task 0.0 in stage 0.0 (TID 0) (localhost executor driver): REASON
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:2898)
Caused by: REASON
\t... 1 more
Caused by: java.io.EOFException
"""


def test_the_cause_of_what_java_raised_in_a_sink() -> None:
    full = JAVA.replace("REASON", "java.io.IOException: No space left on device")
    assert sentence(RuntimeError(full)) == "No space left on device"
    assert sentence(RuntimeError(JAVA.partition("\n: ")[0])).endswith("calling o400.getResult.")


def test_a_worker_that_was_killed_is_told_of() -> None:
    killed = "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed). Consider setting"
    assert sentence(RuntimeError(JAVA.replace("REASON", killed))).startswith("a Python worker is gone: ")


def test_codes_are_left_out() -> None:
    text = "[UNRESOLVED_COLUMN] no column x. SQLSTATE: 42703;\n'Project ['x]"
    assert sentence(RuntimeError(text)) == "[UNRESOLVED_COLUMN] no column x."
    raised = "SparkRuntimeException: [USER_RAISED_EXCEPTION] shop.v: a row has no key SQLSTATE: P0001"
    text = WORKER.replace(
        "ZeroDivisionError: division by zero", f"pyspark.errors.exceptions.captured.{raised}"
    )
    assert sentence(RuntimeError(text)) == "shop.v: a row has no key"


def test_an_error_without_words_has_its_name() -> None:
    assert sentence(KeyError()) == "KeyError"


def test_a_sentence_has_an_end() -> None:
    assert len(sentence(RuntimeError("x" * 10_000))) == 600


SOURCE = [
    "Traceback (most recent call last):",
    '  File "/lib/pyspark/sql/streaming/python_streaming_source_runner.py", line 312, in <module>',
    "BrokenPipeError: [Errno 32] Broken pipe",
    "",
    "During handling of the above exception, another exception occurred:",
    "",
]


def test_a_source_that_was_stopped_says_nothing() -> None:
    assert list(stderr.filtered([*SOURCE, "WARN disk is full"])) == ["WARN disk is full"]
    assert list(stderr.filtered(SOURCE[:2])) == []
    assert list(
        stderr.filtered(["Starting Streaming TransformWithStateInPandas Python worker.", "kept"])
    ) == ["kept"]


def test_other_tracebacks_stay_whole() -> None:
    lines = ["Traceback (most recent call last):", '  File "/app/shop.py", line 1', "ValueError: no"]
    assert list(stderr.filtered([*lines, *SOURCE])) == lines


def test_examples() -> None:
    for each in (module, runner, stderr):
        assert doctest.testmod(each).failed == 0
