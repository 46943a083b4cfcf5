"""What `headwater up` starts, looked at before it is started."""

from __future__ import annotations

import socket
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headwater.cli.stack import (
    StackOptions,
    _broker,
    _capture,
    _derived,
    _has_derived,
    _has_queries,
    _has_sources,
    check,
)
from headwater.core.errors import HeadwaterError
from headwater.serve.access import add_holder
from headwater.testing.process import free_port


def options(tmp_path: Path, **more: Any) -> StackOptions:
    addresses = {"kafka": ("127.0.0.1", free_port()), "http": ("127.0.0.1", free_port())}
    return StackOptions(app=None, data=tmp_path, **(addresses | more))


def test_the_broker_is_told_where_to_serve_queues(tmp_path: Path) -> None:
    assert "--amqp=127.0.0.1:5673" in _broker(options(tmp_path, amqp=("127.0.0.1", 5673))).command


def test_without_an_address_there_are_no_queues(tmp_path: Path) -> None:
    assert "--amqp=none" in _broker(options(tmp_path)).command


@pytest.mark.parametrize("option", ["kafka", "amqp"])
def test_the_broker_is_for_this_machine(tmp_path: Path, option: str) -> None:
    with pytest.raises(
        HeadwaterError, match=f"--{option} 0.0.0.0:9092 can be .* run `headwater broker` by itself"
    ):
        check(options(tmp_path, **{option: ("0.0.0.0", 9092)}))


def test_the_page_is_for_others_where_they_need_tokens(tmp_path: Path) -> None:
    anywhere = options(tmp_path, http=("0.0.0.0", free_port()))
    with pytest.raises(
        HeadwaterError, match=f"tokens add NAME --tokens {tmp_path}/tokens`, or listen on 127.0.0.1$"
    ):
        check(anywhere)
    add_holder(tmp_path / "tokens", "ann", ["read"])
    check(anywhere)


def test_an_address_that_is_not_ours_is_nobody_elses_either(tmp_path: Path) -> None:
    add_holder(tmp_path / "tokens", "ann", ["read"])
    with pytest.raises(
        HeadwaterError, match=r"cannot be listened on \(.*\): give another address with --http$"
    ):
        check(options(tmp_path, http=("192.0.2.77", 8080)))


def test_a_taken_port_says_how_to_do_without(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(HeadwaterError, match=f"127.0.0.1:{port} cannot be listened on.*--amqp none"):
            check(options(tmp_path, amqp=("127.0.0.1", port)))


def test_tables_with_a_source_are_captured(tmp_path: Path) -> None:
    app = tmp_path / "shop.py"
    text = (
        "from headwater import App\napp = App('shop')\n"
        "app.table('users', 'id bigint', key='id'{})\n"
        "@app.view(key='id')\ndef known(users):\n    return users\n"
    )
    app.write_text(text.format(""))
    assert not _has_sources(app)
    app.write_text(text.format(", source='sqlite:///shop.db#users'"))
    assert _has_sources(app)
    role = _capture(replace(options(tmp_path), app=app))
    assert role.command[-4:-1] == ["capture", "run", str(app)]


def test_stores_of_tables_are_kept_in_step(tmp_path: Path) -> None:
    app = tmp_path / "shop.py"
    declared = 'from headwater import App\napp = App("shop")\napp.table("users", "id bigint", key="id")\n'
    app.write_text(declared)
    assert not _has_derived(app)
    app.write_text(declared + 'app.cache("profiles", of="users")\n')
    assert _has_derived(app)
    role = _derived(replace(options(tmp_path), app=app))
    assert role.command[-5:-2] == ["derived", "run", str(app)]


def test_a_warehouse_is_a_query_of_spark_or_a_store_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = tmp_path / "shop.py"
    lines = ["from headwater import App", 'app = App("shop")', 'app.table("users", "id bigint", key="id")']
    declared = "\n".join([*lines, 'app.warehouse("files", of="users"{})', ""])
    app.write_text(declared.format(', engine="process"'))
    assert (_has_queries(app), _has_derived(app)) == (False, True)
    app.write_text(declared.format(""))
    assert (_has_queries(app), _has_derived(app)) == (True, False)
    monkeypatch.setattr("headwater.cli.extras.find_spec", lambda name: None if name == "pyspark" else True)
    with pytest.raises(
        HeadwaterError, match=r"pip install 'headwater\[spark\]', or declare files with engine=\"process\""
    ):
        check(replace(options(tmp_path), app=app))
    app.write_text(declared.format("") + '@app.view(key="id")\ndef people(users):\n    return users\n')
    with pytest.raises(HeadwaterError, match=r"headwater\[spark\]'$"):
        check(replace(options(tmp_path), app=app))


def test_files_of_the_directory_that_it_is_started_in_hide_nothing(tmp_path: Path) -> None:
    (tmp_path / "queue.py").write_text("raise SystemExit('the wrong queue')")
    role = _broker(options(tmp_path))
    done = subprocess.run(
        [*role.command[: role.command.index("broker")], "--version"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    code = "import sys; assert '' not in sys.path; import queue; print(queue.Queue.__name__)"
    done = subprocess.run([*role.command[:2], "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "Queue\n"), done.stderr
