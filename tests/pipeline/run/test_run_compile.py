"""An application's functions as DataFrames, and what their checkpoints depend on."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headwater.app import AppError, load
from headwater.pipeline.checkpoint import Fingerprint, difference, fingerprint
from headwater.pipeline.compile import Query, Reading, compile_app

pytestmark = pytest.mark.real

HEAD = """
from pyspark.sql import functions as F
from headwater import App, deduplicate, join_within, tumbling

app = App("shop")
app.topic("orders", "order_id string, country string, amount double, placed_at timestamp",
          event_time="placed_at", lateness="1 second")
app.topic("payments", "order_id string, paid_at timestamp", event_time="paid_at")
"""

Compile = Callable[[str], list[Query]]


@pytest.fixture
def compiled(spark: SparkSession, tmp_path: Path) -> Compile:
    """Compiles the functions that a text declares, below the topics of `HEAD`."""

    def compile_text(text: str) -> list[Query]:
        file = tmp_path / "shop.py"
        file.write_text(HEAD + textwrap.dedent(text))
        return compile_app(spark, load(file), Reading("kafka://127.0.0.1:1"))

    return compile_text


def made(compiled: Compile, body: str, *, inputs: str = "orders") -> Fingerprint:
    text = f"""
    @app.view(key="country")
    def revenue({inputs}):
        return {body}
    """
    (query,) = compiled(text)
    return fingerprint(query)


def test_streams_are_read_with_the_schema_of_what_makes_them(compiled: Compile) -> None:
    large, twice = compiled("""
    @app.view(key="order_id")
    def twice(large):
        return large.select("order_id", (F.col("amount") * 2).alias("double"))

    @app.stream(key="order_id")
    def large(orders):
        return orders.where("amount > 100").select("order_id", "amount", F.lit(True).alias("_deleted"))
    """)
    assert (large.name, large.kind, large.topics, large.after) == (
        "shop.large",
        "stream",
        ("orders",),
        frozenset(),
    )
    assert (twice.name, twice.topics, twice.after) == ("shop.twice", ("large",), frozenset({"shop.large"}))
    assert twice.frame.dtypes == [("order_id", "string"), ("double", "double")]


def test_a_sink_of_a_view_gets_the_views_rows(compiled: Compile) -> None:
    _, query = compiled("""
    @app.view(key="order_id")
    def large(orders):
        return orders.select("order_id")

    @app.sink(of="large", key="order_id")
    def notify(deliveries):
        pass
    """)
    assert (query.frame.columns, query.topics) == (["order_id"], ("orders",))


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("orders.select('nothing')", "shop.py:12: revenue fails: [UNRESOLVED_COLUMN"),
        (
            "1 / 0",
            "shop.py:12: revenue fails: ZeroDivisionError: division by zero; correct it (orders has order_id",
        ),
        ("None", "shop.py:10: revenue returns nothing, not a DataFrame; end it with `return`"),
        ("'rows'", "shop.py:10: revenue returns a str, not a DataFrame"),
        ("orders.sparkSession.range(3)", "revenue returns a DataFrame that reads none of its inputs"),
        (
            "orders.select('order_id', F.col('country').alias('county'))",
            "revenue has the key country, and its rows no such column (did you mean county?); there are order_id",
        ),
        (
            "orders.select('country', 'country')",
            "revenue returns several columns called country; drop or rename",
        ),
    ],
)
def test_what_a_function_does_wrong_is_told_with_its_line(compiled: Compile, body: str, says: str) -> None:
    with pytest.raises(AppError) as caught:
        made(compiled, body)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_index_is_for_a_column_that_the_rows_have(compiled: Compile) -> None:
    with pytest.raises(
        AppError, match=r"sums has an index for contry, and its rows no such column \(did you"
    ):
        compiled("""
        @app.view(key="country", indexes=["amount", "contry"])
        def sums(orders):
            return orders.select("country", "amount")
        """)


GROUPED = "orders.groupBy('country').agg(F.sum('amount').alias('revenue'))"


def test_what_a_checkpoint_depends_on(compiled: Compile) -> None:
    found = made(compiled, GROUPED)
    assert (found.output, found.topics) == ("a view of mode rows", ("orders",))
    (operator,) = found.state
    assert (operator.kind, operator.key, operator.value) == ("aggregation", ("string",), ("sum as double",))


def test_what_the_checkpoint_of_an_operator_of_ours_depends_on(compiled: Compile) -> None:
    first = made(compiled, "deduplicate(orders, by='order_id', within='1 hour')")
    (operator,) = first.state
    assert (operator.kind, operator.key) == ("keyed state", ("string",))
    assert operator.value.count("double") == 1
    assert made(compiled, "deduplicate(orders.where('amount > 1'), by='order_id', within='1 hour')") == first
    by_amount = made(compiled, "deduplicate(orders, by='amount', within='1 hour')")
    assert "its state changed from keyed state" in str(difference(first, by_amount))
    fewer = made(compiled, "deduplicate(orders.drop('amount'), by='order_id', within='1 hour')")
    assert "its state changed from keyed state" in str(difference(first, fewer))


@pytest.mark.parametrize(
    "body",
    [
        "orders.where('amount > 1').groupBy('country').agg(F.sum('amount').alias('revenue'))",
        GROUPED + ".withColumn('tax', F.col('revenue') * 0.2)",
        GROUPED + ".where('revenue > 10')",
    ],
)
def test_a_filter_or_a_projection_goes_on(compiled: Compile, body: str) -> None:
    assert difference(made(compiled, GROUPED), made(compiled, body)) is None


@pytest.mark.parametrize(
    "body",
    [
        "orders.groupBy('country').agg(F.avg('amount').alias('revenue'))",
        "orders.groupBy('country', 'order_id').agg(F.sum('amount').alias('revenue'))",
        "orders.groupBy('country').agg(F.sum('amount').alias('revenue'), F.count('*').alias('n'))",
        "orders.select('country')",
        "orders.transform(tumbling('placed_at', '1 minute')).groupBy('window', 'country').count()",
    ],
)
def test_other_state_does_not_go_on(compiled: Compile, body: str) -> None:
    assert difference(made(compiled, GROUPED), made(compiled, body)) is not None


JOIN = "join_within(orders, payments, on='order_id', within='1 minute', how='left')"


def test_a_join_stores_the_columns_that_are_used_later(compiled: Compile) -> None:
    def joined(body: str) -> Fingerprint:
        return made(compiled, body, inputs="orders, payments")

    some = joined(JOIN + ".select('country', 'paid_at')")
    assert some.topics == ("orders", "payments")
    assert [each.kind for each in some.state] == ["left outer join"]
    assert difference(some, joined(JOIN + ".select('country', F.col('paid_at').isNull())")) is None
    what = difference(some, joined(JOIN + ".select('country', 'paid_at', 'amount')"))
    assert what is not None
    assert "amount" in what
    assert (
        difference(some, joined(JOIN.replace("left", "inner") + ".select('country', 'paid_at')")) is not None
    )
