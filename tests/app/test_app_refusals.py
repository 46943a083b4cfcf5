"""Every refusal names the file, the line and the fix."""

from __future__ import annotations

import pytest

from headwater.app import AppError, load

from .conftest import Write

HEAD = """\
from headwater import App

app = App("shop")
app.topic("orders", "order_id string, amount double, placed_at timestamp", event_time="placed_at")
"""


def refusal(path: str) -> str:
    with pytest.raises(AppError) as refused:
        load(path)
    return str(refused.value)


TOPICS = {
    'app.topic("my orders", "a int")': (
        "'my orders' is no name for a topic: it holds more than letters, digits, '.', '_' and '-'; choose another"
    ),
    'app.topic("", "a int")': "a name is empty; choose another",
    'app.topic(7, "a int")': "a name is text, and 7 is not; choose another",
    'app.topic("..", "a int")': "'..' is no name; choose another",
    'app.topic("x" * 250, "a int")': "'xxxxxxxxxxxxxxxxxxxx…' is longer than 244 characters; choose another",
    'app.topic("orders", "a int")': (
        "orders is declared already: the topic orders, shop.py:4; rename one of them"
    ),
    'app.topic("t", "a int"); app.topic("t.x", "a int"); app.topic("t_x", "a int")': (
        "t_x is declared already: the topic t.x, shop.py:7 ('.' and '_' are the same in metrics); "
        "rename one of them"
    ),
    'app.topic("t", "a strng, b int")': (
        "a has the unknown type strng (did you mean string?); the types are array, bigint, binary, boolean, "
        "date, decimal, double, float, int, map, smallint, string, struct, timestamp, timestamp_ntz, tinyint"
        "\n    a strng, b int\n      ^"
    ),
    'app.topic("t", ["a int"])': (
        'the schema is list, not text; write it as text, as in "id string, placed_at timestamp"'
    ),
    'app.topic("t", "_wm int")': ("the schema has a column _wm, which Headwater keeps for itself; rename it"),
    'app.topic("t", "user_id int", key="userid")': (
        "key='userid' is no column of the schema (did you mean user_id?); the columns are user_id"
    ),
    'app.topic("t", "a int", key=["a", "a"])': (
        """key=['a', 'a'] names a column twice; name a column, key="a", or several, key=["a", "b"]"""
    ),
    'app.topic("t", "a int", key=[7])': (
        """key=[7] is no column; name a column, key="a", or several, key=["a", "b"]"""
    ),
    'app.topic("t", "a int", key=7)': (
        """key=7 is no column; name a column, key="a", or several, key=["a", "b"]"""
    ),
    'app.topic("t", "a int, at timestamp", event_time="time")': (
        "event_time='time' is no column of the schema; the columns are a, at"
    ),
    'app.topic("t", "a bigint", event_time="a")': (
        """event_time='a' is bigint, not timestamp; declare it as "a timestamp" in the schema"""
    ),
    'app.topic("t", "a timestamp", event_time="a", lateness="soon")': (
        "lateness='soon' is not a duration at 'soon'; write numbers and units, as in \"2 minutes\" or "
        '"1 hour 30 minutes"; the units are week, day, hour, minute, second and millisecond'
    ),
    'app.topic("t", "a timestamp", event_time="a", idle="0 seconds")': (
        """idle='0 seconds' is no time at all; write one, as in idle="1 minute\""""
    ),
    'app.topic("t", "a int", lateness="1 minute")': (
        """t has lateness='1 minute' and no event_time; """
        """name the column that holds the time, as in event_time="placed_at\""""
    ),
    'app.topic("t", "a int", ahead="1 minute")': (
        """t has ahead='1 minute' and no event_time; """
        """name the column that holds the time, as in event_time="placed_at\""""
    ),
    'app.topic("t", "a timestamp", event_time="a", ahead="0 seconds")': (
        """ahead='0 seconds' is no time at all; write one, as in ahead="1 minute\""""
    ),
    'app.topic("t", "a int", late="aside")': (
        """t has late="aside" and no event_time; """
        """name the column that holds the time, as in event_time="placed_at\""""
    ),
    'app.topic("t", "a int", late="asid")': (
        """late='asid' is unknown (did you mean aside?); late is one of "drop", "aside", "correct\""""
    ),
    'app.topic("t", "a timestamp", event_time="a", late="correct")': (
        """late="correct" without corrections; say for how long, as in corrections="1 hour\""""
    ),
    'app.topic("t", "a timestamp", event_time="a", corrections="1 hour")': (
        """corrections='1 hour' with late="drop"; add late="correct\""""
    ),
    'app.topic("t", "a int", format="JSON")': (
        """format='JSON' is unknown; format is one of "json", "avro", "arrow", "raw\""""
    ),
    'app.topic("t", "value string, a int", format="raw")': (
        'format="raw" has no column "a int"; the schema is "key binary, value binary", or one of these'
    ),
    'app.topic("t", "value string", event_time="_timestamp")': (
        'event_time="_timestamp", and the column is not asked for; add metadata="_timestamp"'
    ),
    'app.topic("t", "a int", lost=None)': """lost=None is unknown; lost is one of "fail", "skip\"""",
    'app.topic("t", "a int", source="java")': (
        """source='java' is unknown; source is one of "arrow", "jvm\""""
    ),
    'app.topic("t", "a int", partitions=0)': (
        "partitions=0 is no number of at least 1; write partitions=1 or more"
    ),
    'app.topic("t", "a int", max_rows="10")': (
        "max_rows='10' is no number of at least 1; write max_rows=1 or more"
    ),
    'app.topic("t", "a int", metadata=["_ofset"])': (
        "metadata='_ofset' is unknown (did you mean _offset?); "
        "there are _key, _partition, _offset, _timestamp, _headers"
    ),
    'app.topic("t", "_key int", metadata="_key")': (
        "metadata='_key' is a column of the schema too; rename the column"
    ),
    'app.table("users", key="id", source="users")': (
        "source='users' is no address; write a URL, as in source=\"postgresql://HOST/DATABASE#SCHEMA.TABLE\""
    ),
    'app.table("users", key=[], source="postgresql://h/d#t")': 'key names no column; write key="COLUMN"',
    'app.table("users", key="id", source="postgresql://h/d#t", schema="a int")': (
        "key='id' is no column of the schema; the columns are a"
    ),
    'app.table("users", key="id")': (
        "users has neither a schema nor a database that knows its columns; "
        'write its columns, as in app.table(…, "id bigint, name string")'
    ),
    'app.table("users", "id int, _Version int", key="id")': (
        "the table users has a column _Version, which says what became of a row; rename it"
    ),
    'app.table("users", "id int", key="id", envelope="avro")': (
        """envelope='avro' is unknown; envelope is one of "flat", "debezium\""""
    ),
    'app.table("users", "id int", key="id", event_time="at")': (
        "event_time='at' is no column of the schema; the columns are id"
    ),
}


@pytest.mark.parametrize("line", TOPICS)
def test_a_declaration_is_refused_at_its_line(line: str, write: Write) -> None:
    path = write(f"{HEAD}\n{line.replace('; ', chr(10))}\n")
    number = 6 + line.count("; ")
    assert refusal(path) == f"shop.py:{number}: {TOPICS[line]}"


FUNCTIONS = {
    "@app.view(key='a')\ndef f(ordres): ...": (
        "f reads ordres, which is not declared (did you mean orders?); there is orders"
    ),
    "@app.view(key='a')\ndef f(): ...": (
        "f has no parameters, so it reads nothing; name what it reads, as in def f(orders)"
    ),
    "@app.view(key='a')\ndef f(*orders): ...": "f takes *orders; name each input as a parameter of its own",
    "@app.view(key='a')\ndef f(**orders): ...": "f takes **orders; name each input as a parameter of its own",
    "@app.view(key='a')\ndef f(orders, /): ...": (
        "f takes orders by position only; leave out the `/`: inputs are given by name"
    ),
    "@app.view(key='a')\ndef f(orders, limit=3): ...": (
        "f has a default for limit; every parameter names an input; move constants out of the parameters"
    ),
    "@app.view(key='a')\nasync def f(orders): ...": ("f is async; write `def` instead of `async def`"),
    "@app.view(key='a')\ndef f(orders): yield orders": (
        "f is a generator; write it with `return` instead of `yield`"
    ),
    "app.view(key='a')(lambda orders: orders)": (
        "@app.view stands on a function without a name; "
        "put @app.view on a `def` whose parameters name its inputs"
    ),
    "@app.view(key='a')\nclass F: ...": (
        "@app.view stands on the class F, not a function; "
        "put @app.view on a `def` whose parameters name its inputs"
    ),
    "app.stream(key='a')('orders')": (
        "@app.stream stands on 'orders', not a function; "
        "put @app.stream on a `def` whose parameters name its inputs"
    ),
    "@app.view(key='a')\ndef orders(orders): ...": (
        "orders is declared already: the topic orders, shop.py:4; rename one of them"
    ),
    "@app.view(key='a', mode='append')\ndef f(orders): ...": (
        """mode='append' is unknown; mode is one of "rows", "changes\""""
    ),
    "@app.view(key='a', ttl='0 s')\ndef f(orders): ...": (
        """ttl='0 s' is no time at all; write one, as in ttl="1 minute\""""
    ),
    "@app.view(key='a', indexes=['b', 'b'])\ndef f(orders): ...": (
        """indexes=['b', 'b'] names a column twice; name a column, indexes="a", or several, indexes=["a", "b"]"""
    ),
    "@app.stream(key='a', mode='change')\ndef f(orders): ...": (
        """mode='change' is unknown (did you mean changes?); mode is one of "append", "changes\""""
    ),
    "@app.view(key='window, country')\ndef f(orders): ...": (
        """key='window, country' is one name with a comma in it; write key=["window", "country"]"""
    ),
    "@app.stream(key=())\ndef f(orders): ...": 'key names no column; write key="COLUMN"',
    "@app.stream(key='a', lateness='1 minute')\ndef f(orders): ...": (
        """f has lateness='1 minute' and no event_time; """
        """name the column that holds the time, as in event_time="placed_at\""""
    ),
    "@app.alert(to='hooks.example/x')\ndef f(orders): ...": (
        "to='hooks.example/x' is no http or https address; "
        'write the whole address, as in to="https://hooks.example/orders"'
    ),
    "@app.alert(to='ftp://hooks.example/x')\ndef f(orders): ...": (
        "to='ftp://hooks.example/x' is no http or https address; "
        'write the whole address, as in to="https://hooks.example/orders"'
    ),
    "@app.alert(to='https://')\ndef f(orders): ...": (
        "to='https://' is no http or https address; "
        'write the whole address, as in to="https://hooks.example/orders"'
    ),
    "@app.alert(to='https://h/x', secret_env='s3cr3t!')\ndef f(orders): ...": (
        "secret_env is no name of an environment variable; "
        'put the secret into one and name it, as in secret_env="HOOK_SECRET"'
    ),
    "@app.sink(of=['orders'], key='a')\ndef f(rows): ...": (
        """of=['orders'] is no name; name one topic, stream or view, as in of="orders\""""
    ),
    "app.sink(of='orders', key='a')(lambda rows: None)": (
        "@app.sink stands on a function without a name; put @app.sink on a `def` that takes a list"
    ),
    "@app.sink(of='order', key='a')\ndef f(rows): ...": (
        "f reads order, which is not declared (did you mean orders?); there is orders"
    ),
    "@app.sink(of='orders', key='id')\ndef f(rows): ...": (
        "key='id' is no column of the schema; the columns are order_id, amount, placed_at"
    ),
    "@app.sink(of='orders', key='a')\ndef f(): ...": (
        "f cannot be called with one list; write def f(deliveries), and get a list of headwater.Delivery"
    ),
    "@app.sink(of='orders', key='a')\ndef f(rows, more): ...": (
        "f cannot be called with one list; write def f(deliveries), and get a list of headwater.Delivery"
    ),
    "@app.sink(of='orders', key='a')\nasync def f(rows): ...": (
        "f is async; write `def` instead of `async def`"
    ),
}


@pytest.mark.parametrize("code", FUNCTIONS)
def test_a_function_is_refused_where_it_begins(code: str, write: Write) -> None:
    path = write(f"{HEAD}\n{code}\n")
    assert refusal(path) == f"shop.py:6: {FUNCTIONS[code]}"


GRAPHS = {
    "a view": (
        "@app.view(key='a')\ndef v(orders): ...\n@app.view(key='a')\ndef f(v): ...",
        "8: f reads the view v, and a view is only served; declare v with @app.stream to read it",
    ),
    "an alert": (
        "@app.alert(to='https://h/x')\ndef v(orders): ...\n@app.view(key='a')\ndef f(v): ...",
        "8: f reads the alert v, which holds no rows; read a topic or stream",
    ),
    "itself": (
        "@app.stream(key='a')\ndef f(f): ...",
        "6: f reads itself in the end: f → f; let one of them read a topic instead of the next",
    ),
    "a cycle": (
        "@app.stream(key='a')\ndef s(c): ...\n@app.stream(key='a')\ndef a(s, orders): ...\n"
        "@app.stream(key='a')\ndef b(a): ...\n@app.stream(key='a')\ndef c(b): ...",
        "6: s reads itself in the end: s → c → b → a → s; let one of them read a topic instead of the next",
    ),
}


@pytest.mark.parametrize("case", GRAPHS)
def test_what_cannot_be_read_is_refused(case: str, write: Write) -> None:
    code, says = GRAPHS[case]
    assert refusal(write(f"{HEAD}\n{code}\n")) == f"shop.py:{says}"


def test_an_applications_own_dead_letters_are_refused(write: Write) -> None:
    assert refusal(write(HEAD + 'app.topic("shop.dead", "a int")\n')) == (
        "shop.py:5: shop.dead is where the records go that shop cannot read, those of shop.dead too; "
        "read it in an application of its own"
    )


def test_a_topic_whose_name_no_parameter_can_have(write: Write) -> None:
    code = 'app.topic("shop.clicks", "a int")\n@app.view(key="a")\ndef f(shop_clicks): ...\n'
    assert refusal(write(HEAD + code)) == (
        "shop.py:6: f reads shop_clicks, which is not declared "
        "(shop.clicks has a name that no parameter can have); "
        "only topics whose names are names in Python can be read yet"
    )


def test_nothing_is_declared(write: Write) -> None:
    source = "from headwater import App\napp = App('shop')\n\n@app.view(key='a')\ndef f(orders): ...\n"
    assert refusal(write(source)).startswith("shop.py:4: f reads orders, which is not declared; declare it")
