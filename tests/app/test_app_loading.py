"""Loading runs one file, finds its one application, and says where a file fails."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark import SparkContext

from headwater.app import AppError, load

from .conftest import Write

APP = 'from headwater import App\napp = App("shop")\n'


def refusal(path: str | Path) -> str:
    with pytest.raises(AppError) as refused:
        load(path)
    return str(refused.value)


def test_the_one_app_of_the_file_is_loaded(write: Write) -> None:
    path = write(APP + "again = app\n")
    app = load(Path(path))
    assert (app.name, str(app.where), app.dead_letters) == ("shop", "shop.py:2", "shop.dead")


def test_no_such_file() -> None:
    says = "there is no such file; name the Python file that makes an App"
    assert refusal("nowhere.py") == f"nowhere.py: {says}"


def test_a_directory(tmp_path: Path) -> None:
    assert refusal(tmp_path).startswith(f"{tmp_path}: there is no such file")


def test_no_app(write: Write) -> None:
    assert refusal(write("x = 1\n")) == 'shop.py: the file makes no App; begin it with app = App("NAME")'


def test_without_pyspark(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    path = write("import pyspark\n" + APP)
    assert refusal(path) == "shop.py:1: pyspark is not installed; pip install 'headwater[spark]'"


def test_two_apps(write: Write) -> None:
    path = write(APP + 'other = App("other")\n')
    assert refusal(path) == (
        "shop.py:3: the file makes a second App, other, beside shop (shop.py:2); keep one App in a file"
    )


def test_an_app_whose_name_is_none(write: Write) -> None:
    assert refusal(write("from headwater import App\nApp('my shop')\n")).startswith(
        "shop.py:2: 'my shop' is no name for a topic"
    )


def test_a_syntax_error(write: Write) -> None:
    says = "this is no Python: '(' was never closed; correct the line"
    assert refusal(write(APP + "app.topic(\n")) == f"shop.py:3: {says}"


def test_text_in_no_encoding(write: Write) -> None:
    path = write(APP)
    Path(path).write_bytes(b"name = '\xff'\n")
    assert refusal(path).startswith("shop.py:1: this is no Python: ")


def test_a_file_that_fails_is_refused_at_its_own_last_line(write: Write) -> None:
    path = write(APP + "import json\n\ndef parse():\n    return json.loads('{')\n\nparse()\n")
    says = refusal(path)
    assert says.startswith(
        "shop.py:6: the file fails when it is run: JSONDecodeError: Expecting property name"
    )
    assert "\n" not in says


CALLS = {
    'app.topic("orders", "a int", latness="1 minute")': (
        "app.topic has no option latness (did you mean lateness?); it takes name, schema, key, event_time, "
        "lateness, idle, ahead, late, corrections, format, partitions, lost, metadata, source, max_rows, max_bytes"
    ),
    'app.topic("orders")': (
        "app.topic is called with missing a required argument: 'schema'; "
        "write app.topic(name=…, schema=…), and what else there is by name"
    ),
    'app.topic("orders", "a int", "a")': (
        "app.topic is called with too many positional arguments; "
        "write app.topic(name=…, schema=…), and what else there is by name"
    ),
    "@app.view\ndef f(orders): ...": "@app.view stands without its options; write @app.view(key=…)",
    "@app.sink\ndef f(orders): ...": "@app.sink stands without its options; write @app.sink(of=…, key=…)",
}


@pytest.mark.parametrize("code", CALLS)
def test_a_declaration_that_is_called_wrongly(code: str, write: Write) -> None:
    assert refusal(write(f"{APP}\n{code}\n")) == f"shop.py:4: {CALLS[code]}"


def test_what_the_file_imports_from_beside_it(write: Write) -> None:
    path = write("from shop_topics import app\n")
    Path("shop_topics.py").write_text(APP + 'app.topic("orders", "a int")\n')
    app = load(path)
    assert [*app.definitions] == ["orders"]
    assert app.definitions["orders"].where.line == 3
    sys.modules.pop("shop_topics")


def test_a_file_beside_it_that_fails_is_named(write: Write) -> None:
    path = write("import shop_rates\n")
    Path("shop_rates.py").write_text("rates = {}\nrates['EUR']\n")
    beside = Path("shop_rates.py").resolve()
    assert refusal(path) == (
        f"{beside}:2: the file fails when it is run: KeyError: 'EUR'; "
        "correct it, until `python shop.py` runs without an error"
    )


def test_what_spark_sends_to_its_workers_needs_no_file(write: Write, tmp_path: Path) -> None:
    path = write(APP + "\nRATE = 2\ndef price(amount):\n    return amount * RATE\n")
    script = (
        "import sys; from pyspark.cloudpickle import dumps; from headwater.app import loading\n"
        f"sys.stdout.buffer.write(dumps(vars(loading._run(loading.Path({path!r})))['price']))"
    )
    pickled = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True).stdout
    Path(path).unlink()
    script = "import pickle, sys; print(pickle.load(sys.stdin.buffer)(21))"
    done = subprocess.run([sys.executable, "-c", script], input=pickled, capture_output=True, check=True)
    assert done.stdout == b"42\n"


def test_an_import_that_is_missing(write: Write) -> None:
    assert refusal(write("import nothing_like_it\n")).startswith(
        "shop.py:1: the file fails when it is run: ModuleNotFoundError: No module named 'nothing_like_it'"
    )


@pytest.mark.parametrize(
    ("name", "beside", "advice"),
    [
        ("pyspark.py", None, "rename pyspark.py, which is found where pyspark itself is meant"),
        ("queue.py", None, "rename queue.py, which is found where queue itself is meant"),
        ("shop.py", "random.py", "rename random.py, which is found where random itself is meant"),
        ("shop.py", "shop_rates.py", "correct it, until `python shop.py` runs without an error"),
    ],
)
def test_a_file_that_hides_a_module_is_to_be_renamed(
    name: str, beside: str | None, advice: str, tmp_path: Path
) -> None:
    imports = (
        "import random\nfrom pyspark.sql import functions\nfrom queue import Queue\nimport nothing_like_it\n"
    )
    (tmp_path / name).write_text(imports)
    if beside:
        (tmp_path / beside).write_text("")
    command = [sys.executable, "-m", "headwater.cli", "check", name]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.endswith(f"; {advice}\n")


def test_a_file_that_ends_the_process_does_not_end_ours(write: Write) -> None:
    assert refusal(write(APP + "raise SystemExit(3)\n")).startswith(
        "shop.py:3: the file fails when it is run: SystemExit: 3"
    )


@pytest.mark.parametrize(
    ("raised", "said"), [("ValueError('a\\nb')", "ValueError: a"), ("ValueError()", "ValueError")]
)
def test_one_line_of_an_error_is_told(raised: str, said: str, write: Write) -> None:
    assert refusal(write(f"raise {raised}\n")).startswith(
        f"shop.py:1: the file fails when it is run: {said}; correct it"
    )


def test_main_is_not_run_and_dataclasses_work(write: Write) -> None:
    path = write(
        "from __future__ import annotations\n"
        "from dataclasses import dataclass\n"
        + APP
        + "@dataclass\nclass Order:\n    id: int\nif __name__ == '__main__':\n    1 / 0\n"
    )
    assert load(path).name == "shop"


def test_what_was_loaded_is_in_no_ones_way(write: Write) -> None:
    path = write(APP)
    before = set(sys.modules)
    load(path)
    assert set(sys.modules) == before


def test_the_same_file_can_be_loaded_twice(write: Write) -> None:
    path = write(APP)
    assert load(path) is not load(path)


def test_a_refusal_survives_pickling(write: Write) -> None:
    with pytest.raises(AppError) as refused:
        load(write("x = 1\n"))
    assert str(pickle.loads(pickle.dumps(refused.value))) == str(refused.value)


def test_loading_imports_no_spark(write: Write) -> None:
    path = write(APP + 'app.topic("orders", "a int")\n')
    code = f"import sys, headwater.app; headwater.app.load({path!r}); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert {name.partition(".")[0] for name in loaded.split()}.isdisjoint({"pyspark", "pyarrow", "pandas"})


@pytest.mark.parametrize(
    "outside", ['large = F.col("amount") > 500', 'twice = F.udf(lambda amount: 2 * amount, "double")']
)
def test_spark_outside_of_a_function(outside: str, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    assert refusal(write(f"from pyspark.sql import functions as F\n{outside}\n")) == (
        "shop.py:2: this needs Spark, which is not there yet when the file is run; "
        "move it into the function that uses it"
    )
