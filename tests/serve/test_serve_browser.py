"""The browser module in a real browser: live queries, cuts, signing in and notifications."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from headwater.serve.access import Access, add_holder
from headwater.views import Change, ViewDefinition, ViewError, ViewStore

from .serve_helpers import Served, served

pytestmark = pytest.mark.real

LIVE = """
async () => {
  const { live, query } = await import("/headwater.js");
  window.changes = [];
  window.ready = 0;
  window.states = [];
  window.view = live("sales", {
    where: { "revenue[gte]": 3 },
    onReady: () => { window.ready += 1; },
    onChange: (key, row, before) => window.changes.push([key, row && row.revenue, before && before.revenue]),
    onState: (state) => window.states.push(state),
  });
  const { rows } = await query("sales", { where: { "country[in]": ["DE", "FR"] }, order: "-revenue" });
  return rows.map((each) => each.key);
}
"""


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    page = browser.new_page()
    page.set_default_timeout(20_000)
    yield page
    page.close()


def until(page: Page, expression: str, seconds: float = 20) -> None:
    """Wait for something to be true; Playwright's own way needs `eval`, which the page's policy forbids."""
    deadline = time.monotonic() + seconds
    while not page.evaluate(expression):
        assert time.monotonic() < deadline, expression
        time.sleep(0.05)


def row(country: str, revenue: int) -> str:
    return json.dumps({"country": country, "revenue": revenue})


def test_a_live_query_goes_on_through_cuts(server: Served, store: ViewStore, page: Page) -> None:
    page.goto(server.url)
    assert page.evaluate(LIVE) == ["DE", "FR"]
    until(page, "window.ready === 1")
    assert page.evaluate("[...view.rows.keys()]") == ["DE", "a/b"]
    store.commit(
        "q", 1, "sales", [Change("FR", row("FR", 5)), Change("DE", row("DE", 1)), Change("IT", None)]
    )
    until(page, "window.changes.length === 2")
    assert page.evaluate("changes") == [["DE", None, 3], ["FR", 5, None]]
    page.evaluate("view.reconnect()")
    until(page, "states.includes('closed')")
    store.commit("q", 2, "sales", [Change("FR", row("FR", 6)), Change("a/b", None)])
    until(page, "window.changes.length === 4")
    assert page.evaluate("changes.slice(2)") == [["FR", 6, 5], ["a/b", None, 9]]
    # It went on where it was: the rows did not come again.
    assert page.evaluate("[ready, states.filter((s) => s === 'open').length]") == [1, 2]
    page.evaluate("view.close()")


def test_rows_of_alerts_are_no_rows_of_views(server: Served, store: ViewStore, page: Page) -> None:
    store.define(ViewDefinition("!fraud", ("id",)))
    store.commit("q", 1, "!fraud", [Change("1", "{}"), Change("2", "{}")])
    page.goto(server.url)
    until(
        page,
        "[...document.querySelectorAll('.tile')].some((tile) => tile.innerText === '4\\nrows in 1 view')",
    )


def test_a_topic_of_one_record_has_one(server: Served, page: Page) -> None:
    page.goto(server.url)
    show = """async (end) => {
        const { showTopics } = await import("/page/state.js");
        showTopics([{ name: "orders", end, partitions: 4 / end, history: [] }]);
        return document.querySelector("#topics .card p").textContent;
    }"""
    assert page.evaluate(show, 1) == "1 record · 4 partitions"
    assert page.evaluate(show, 4) == "4 records · 1 partition"


def test_charts_are_as_wide_as_their_panels_and_no_label_is_cut_off(
    server: Served, store: ViewStore, page: Page
) -> None:
    store.define(ViewDefinition("minutes", ("window",)))
    times = [f"2026-01-01T12:00:{second:02}.000Z" for second in range(0, 60, 10)]
    rows = [json.dumps({"window": {"start": at, "end": at}, "n": 1}) for at in times]
    store.commit("minutes", 0, "minutes", [Change(at, row) for at, row in zip(times, rows, strict=True)])
    store.define(ViewDefinition("prices", ("product", "price")))
    store.commit("prices", 0, "prices", [Change("mug,9.0", '{"product": "mug", "price": 9.0, "sold": 3}')])
    page.goto(server.url)
    until(page, "document.querySelectorAll('.chart svg').length === 3")
    widths = """[...document.querySelectorAll('.view')].map((view) =>
        view.clientWidth - 16 - view.querySelector('.chart svg').viewBox.baseVal.width)"""
    assert page.evaluate(widths) == [0, 0, 0]
    outside = """[...document.querySelectorAll('.chart text.axis')].filter((text) =>
        text.getBBox().x + text.getBBox().width > text.ownerSVGElement.viewBox.baseVal.width + 1).length"""
    assert page.evaluate("document.querySelectorAll('.chart text.axis').length") > 4
    assert page.evaluate(outside) == 0
    until(
        page, "document.querySelector('.chart').parentElement && document.body.innerText.includes('mug · 9')"
    )


def test_the_page_tells_why_nothing_is_heard_and_goes_on(
    server: Served, store: ViewStore, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_away() -> None:
        raise ViewError("the store is away")

    page.goto(server.url)
    until(page, "document.getElementById('health').innerText === 'all is well'")
    with monkeypatch.context() as patch:
        patch.setattr(store, "statuses", is_away)
        patch.setattr(store, "tokens", is_away)
        until(page, "document.getElementById('reasons').innerText === 'the store is away'")
        page.reload()
        until(page, "document.getElementById('reasons').innerText === 'the store is away'")
    until(page, "document.getElementById('health').innerText === 'all is well'")


def test_a_view_is_followed_to_a_server_that_was_started_anew(store: ViewStore, page: Page) -> None:
    with served(store) as first:
        page.goto(first.url)
        page.evaluate(LIVE)
        until(page, "window.ready === 1")
        port = int(first.url.rpartition(":")[2])
    until(page, "states.includes('closed')")
    store.commit("q", 1, "sales", [Change("FR", row("FR", 7))])
    with served(store, port=port):
        until(page, "window.changes.length === 1")
        assert page.evaluate("[ready, changes]") == [1, [["FR", 7, None]]]
        page.evaluate("view.close()")


def test_a_page_signs_in_and_another_origin_is_refused(
    store: ViewStore, server: Served, page: Page, tmp_path: Path
) -> None:
    token = add_holder(tmp_path / "tokens", "ann", ["read"])
    with served(store, access=Access(tmp_path / "tokens")) as locked:
        page.goto(locked.url)
        page.locator("#sign-in input").fill(token)
        page.locator("#sign-in button").click()
        until(page, "document.querySelectorAll('#views .view').length === 1")
        page.evaluate(LIVE)
        until(page, "window.ready === 1")
        assert "headwater=" not in page.evaluate("document.cookie")
        page.goto(server.url)
        cross = "(url) => fetch(url, { credentials: 'include' }).then((a) => a.status, (e) => 'refused')"
        assert page.evaluate(cross, f"{locked.url}/views") == "refused"
        socket = """(url) => new Promise((done) => {
            const socket = new WebSocket(url);
            socket.onopen = () => done("open");
            socket.onerror = () => done("refused");
        })"""
        assert page.evaluate(socket, locked.url.replace("http", "ws") + "/views/sales/live") == "refused"
