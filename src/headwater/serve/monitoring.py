"""`/metrics` in Prometheus' text format, and `/health`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from headwater import __version__
from headwater.core.exposition import CONTENT_TYPE, Page
from headwater.serve.alert_routes import counts
from headwater.serve.pipelines import lag, pipelines, watermark_seconds
from headwater.views import ViewError

if TYPE_CHECKING:
    from headwater.serve.site import Site

__all__ = ["Monitoring"]


class Monitoring:
    """The handlers for those who watch the server."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def routes(self) -> list[Route]:
        """Return what is served."""
        return [Route("/metrics", self.metrics), Route("/health", self.health)]

    async def metrics(self, request: Request) -> Response:
        """Answer with every metric."""
        page = await asyncio.to_thread(self._page)
        return Response(page.encode(), headers={"Content-Type": CONTENT_TYPE, "Cache-Control": "no-store"})

    async def health(self, request: Request) -> Response:
        """Answer 200 while views can be read, with what is wrong besides."""
        health = await asyncio.to_thread(self.state)
        return JSONResponse(
            health, 503 if health["status"] == "failed" else 200, {"Cache-Control": "no-store"}
        )

    def state(self) -> dict[str, object]:
        """Return whether all is well, and the reasons where it is not."""
        try:
            known = pipelines(self._site.store)
        except ViewError as error:
            return {"status": "failed", "reasons": [str(error)]}
        reasons = [
            f"the pipeline {status['name']} is {status.get('state')}: {status.get('error') or 'no reason given'}"
            for status in known
            if status.get("state") in ("failed", "restarting")
        ]
        broker = self._site.broker
        if broker is not None and broker.error is not None:
            reasons.append(broker.error)
        return {"status": "degraded" if reasons else "ok", "reasons": reasons}

    def _page(self) -> Page:
        page = Page()
        self._requests(page)
        self._views(page)
        self._pipelines(page)
        self._alerts(page)
        page.family(
            "headwater_serve_info", "gauge", "The version that runs.", [({"version": __version__}, 1)]
        )
        return page

    def _requests(self, page: Page) -> None:
        counters = self._site.counters
        page.family(
            "headwater_http_requests_total", "counter", "Requests answered, by status.",
            [({"status": status}, count) for status, count in sorted(counters.answers.items())],
        )  # fmt: skip
        page.gauge("headwater_http_open_requests", "Requests and event streams that are open.", counters.open)
        page.gauge("headwater_live_readers", "Readers of live feeds.", self._site.hub.count)
        if self._site.broker is not None:
            page.counter(
                "headwater_ingested_records_total",
                "Records posted that the broker acknowledged.",
                self._site.broker.acknowledged,
            )
            page.gauge(
                "headwater_broker_up", "1 while the broker answers.", int(self._site.broker.error is None)
            )

    def _views(self, page: Page) -> None:
        store = self._site.store
        views = [view.name for view in store.definitions()]
        page.family(
            "headwater_view_rows", "gauge", "Rows of a view.",
            [({"view": view}, store.count(view)) for view in views],
        )  # fmt: skip
        page.family(
            "headwater_view_changes_total", "counter", "Changes of a view's rows.",
            [({"view": view}, token) for view, token in store.tokens().items()],
        )  # fmt: skip

    def _pipelines(self, page: Page) -> None:
        known = pipelines(self._site.store)
        for field, name, text in (
            (
                "rows_per_second",
                "headwater_pipeline_rows_per_second",
                "Rows that a pipeline reads in a second.",
            ),
            ("state_bytes", "headwater_pipeline_state_bytes", "Memory of a pipeline's state."),
            ("epoch", "headwater_pipeline_epoch", "The last epoch of a pipeline."),
        ):
            page.family(
                name, "gauge", text,
                [({"pipeline": s["name"]}, s[field]) for s in known if isinstance(s.get(field), int | float)],
            )  # fmt: skip
        page.family(
            "headwater_pipeline_batch_seconds", "gauge", "How long a pipeline's last batch took.",
            [({"pipeline": s["name"]}, s["batch_ms"] / 1000) for s in known if s.get("batch_ms") is not None],
        )  # fmt: skip
        page.family(
            "headwater_pipeline_up", "gauge", "1 while a pipeline runs.",
            [({"pipeline": s["name"]}, int(s.get("state") == "running")) for s in known],
        )  # fmt: skip
        page.family(
            "headwater_pipeline_lag", "gauge", "Records that a pipeline has still to read.",
            [({"pipeline": s["name"]}, lag(s)) for s in known],
        )  # fmt: skip
        page.family(
            "headwater_pipeline_watermark_seconds", "gauge", "A pipeline's watermark, since the epoch.",
            [({"pipeline": s["name"]}, at) for s in known if (at := watermark_seconds(s)) is not None],
        )  # fmt: skip

    def _alerts(self, page: Page) -> None:
        alerts = counts(self._site.store)
        for field, text in (("waiting", "Messages that wait to be sent."), ("dead", "Messages given up.")):
            page.family(
                f"headwater_alert_{field}", "gauge", text,
                [({"alert": alert["name"]}, int(str(alert[field]))) for alert in alerts],
            )  # fmt: skip
        page.family(
            "headwater_alert_sent_total", "counter", "Messages that arrived.",
            [({"alert": sender.receiver.name}, sender.sent) for sender in self._site.senders],
        )  # fmt: skip
        page.family(
            "headwater_alert_failures_total", "counter", "Tries that failed.",
            [({"alert": sender.receiver.name}, sender.failures) for sender in self._site.senders],
        )  # fmt: skip
        page.family(
            "headwater_hook_messages_total", "counter", "Messages posted to a webhook, by what became of them.",
            [
                ({"hook": hook, "outcome": outcome}, count)
                for (hook, outcome), count in sorted(self._site.hooks.messages.items())
            ],
        )  # fmt: skip
