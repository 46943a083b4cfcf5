"""An application's functions as DataFrames, and what their checkpoints depend on."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headwater.app import AppError, load
from headwater.pipeline.checkpoint import Fingerprint, changed_expressions, difference, fingerprint
from headwater.pipeline.compile import Query, Reading, compile_app

pytestmark = pytest.mark.real

HEAD = """
from pyspark.sql import functions as F
from headwater import App, deduplicate, hopping, join_within, match, session, sliding, summarise, tumbling

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


def test_what_cannot_be_pickled_is_told_once(compiled: Compile, capfd: pytest.CaptureFixture[str]) -> None:
    body = "orders.select('country', F.udf(lambda value, lock=__import__('threading').Lock(): 1, 'int')('amount'))"
    with pytest.raises(AppError, match="revenue fails: PicklingError: Could not serialize object"):
        made(compiled, body)
    assert capfd.readouterr().err == ""


def test_an_error_in_a_text_of_sql_is_told_once(
    spark: SparkSession, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(PySparkException, match="DIVIDE_BY_ZERO"):
        spark.range(1).selectExpr("1 / id").collect()
    assert "SQLQueryContextLogger" not in capfd.readouterr().err


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


WINDOWS = "orders.transform({}).groupBy('window', 'country').agg(F.sum('amount').alias('revenue'))"
SUMMARY = (
    "summarise(orders.transform(tumbling('placed_at', '{}')), by='country', aggregate={{'s': '{}(amount)'}})"
)
SLIDING = "sliding(orders, 'placed_at', '1 minute', by='country', aggregate={})"
MATCH = "match(orders, by='country', pattern='{}', define={{'A': F.col('amount') > 1, 'B': '{}'}})"
WITHIN = "match(orders, by='country', pattern='a b', define={{}}, within='{}')"
LAST = "sliding(orders, 'placed_at', '{}', by='country', aggregate={{'n': 'count(*)'}})"
FIRST = "deduplicate(orders, by='country', within='1 minute', ordered={})"


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        (
            WINDOWS.format("tumbling('placed_at', '60 seconds')"),
            WINDOWS.format("tumbling('placed_at', '5 minutes')"),
            ", with windows of 5 minutes",
        ),
        (
            WINDOWS.format("tumbling('placed_at', '1 day', tz='Europe/Berlin')"),
            WINDOWS.format("tumbling('placed_at', '1 day', tz='Asia/Tokyo')"),
            ", with windows of 1 day in Asia/Tokyo",
        ),
        (
            WINDOWS.format("hopping('placed_at', '1 hour', every='5 minutes')"),
            WINDOWS.format("hopping('placed_at', '1 hour', every='2 hours')"),
            ", with windows of 1 hour every 2 hours",
        ),
        (
            WINDOWS.format("session('placed_at', '1 minute')"),
            WINDOWS.format("session('placed_at', '2 minutes')"),
            ", with sessions with gaps of 2 minutes",
        ),
        (
            SUMMARY.format("1 minute", "sum"),
            SUMMARY.format("1 minute", "max"),
            "with max, windows of 1 minute",
        ),
        (SUMMARY.format("1 minute", "sum"), SUMMARY.format("1 hour", "sum"), "with sum, windows of 1 hour"),
        (
            SLIDING.format({"n": "count(*)"}),
            SLIDING.format({"n": "count(*)", "s": "sum(amount)"}),
            "with events with values (double)",
        ),
        (
            MATCH.format("A B", "amount > 5"),
            MATCH.format("B A", "amount > 5"),
            "with matches of B A, B where",
        ),
        (
            MATCH.format("A B", "amount > 5"),
            MATCH.format("A B", "amount > A.amount"),
            "where amount > A.amount",
        ),
        (FIRST.format(False), FIRST.format(True), "with events that wait for their turn"),
    ],
)
def test_state_of_the_same_types_that_means_something_else_does_not_go_on(
    compiled: Compile, before: str, after: str, says: str
) -> None:
    one = made(compiled, before)
    assert difference(one, made(compiled, before.replace("60 seconds", "1 minute"))) is None
    assert says in str(difference(one, made(compiled, after)))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (SLIDING.format({"s": "sum(amount)"}), SLIDING.format({"s": "sum(tax)"})),
        (
            SLIDING.format({"s": "sum(amount)"}),
            SLIDING.replace("country", "order_id").format({"s": "sum(amount)"}),
        ),
        (FIRST.format(True), FIRST.replace("country", "order_id").format(True)),
        (WITHIN.format("1 minute"), WITHIN.format("1 hour")),
        (LAST.format("1 minute"), LAST.format("1 hour")),
    ],
)
def test_another_column_of_the_same_type_or_length_of_time_goes_on_and_is_told(
    compiled: Compile, before: str, after: str
) -> None:
    taxed = [
        text.replace("(orders", "(orders.withColumn('tax', F.col('amount') / 5)") for text in (before, after)
    ]
    one, other = (made(compiled, text) for text in taxed)
    assert difference(one, other) is None
    assert len(changed_expressions(one, other)) == 1


@pytest.mark.parametrize(
    "body",
    [
        "lookup(orders, users, on={'country': 'country'}, as_of='placed_at')",
        "lookup(orders, users, on='country')",
        "join_tables(users, places.renamed({'country': 'land'}), on={'city': 'city'}, how='left')",
    ],
)
def test_a_column_that_is_added_at_the_end_goes_on(compiled: Compile, body: str) -> None:
    def joined(users: str, places: str = "city string, country string") -> Fingerprint:
        (query,) = compiled(f"""
        from headwater import join_tables, lookup
        app.table("users", "{users}", key="country")
        app.table("places", "{places}", key="city")

        @app.stream(key="country", mode="changes")
        def found({"users, places" if "places" in body else "orders, users"}):
            return {body}
        """)
        return fingerprint(query)

    old = joined("country string, city string, name string")
    assert difference(old, joined("country string, city string, name string, age int")) is None
    assert (
        difference(
            old, joined("country string, city string, name string", "city string, country string, x int")
        )
        is None
    )
    for other in ("country string, name string, city string", "country string, city string, name int"):
        assert difference(old, joined(other)) is not None
    assert difference(old, joined("country string, city string")) is not None


@pytest.mark.parametrize("by", ["F.date_trunc('hour', 'placed_at')", "F.lit(1)", "F.col('amount') > 1"])
def test_a_group_by_an_expression(compiled: Compile, by: str) -> None:
    found = made(compiled, f"orders.withColumn('country', {by}).groupBy('country').count()")
    assert [each.layout for each in found.state] == [""]


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
