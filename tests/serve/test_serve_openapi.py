"""The API's own description: complete, and true, as far as schemathesis can tell."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from starlette.routing import Route

from headwater.core.urls import KafkaUrl
from headwater.serve.broker import Broker
from headwater.serve.event_stores import EventStores
from headwater.testing.process import BrokerProcess
from headwater.views import ViewStore

from .serve_helpers import Served, served


def test_every_route_is_described(server: Served) -> None:
    document = server.get("/openapi.json")
    assert document["openapi"] == "3.1.0"
    routes = [route for route in server.site.asgi().routes if isinstance(route, Route)]
    for route in routes:
        if route.path in ("/", "/headwater.js") or route.path.startswith("/page/"):
            continue
        item = document["paths"][re.sub(r":\w+\}", "}", route.path)]
        for method in (route.methods or set()) - {"HEAD"}:
            operation = item[method.lower()]
            assert operation["summary"].endswith(".")
            assert operation["responses"]["default"]["content"]["application/json"]
    described = document["paths"]["/views/{view}"]["get"]
    assert {"filters", "order", "limit", "cursor", "fields", "wait"} <= {
        parameter["name"] for parameter in described["parameters"]
    }
    assert "WebSocket" in document["paths"]["/views/{view}/live"]["description"]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("orders", 1)])["orders"].result(10)
        yield broker


CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,"
    "response_schema_conformance,unsupported_method,allow_header_conformance"
)
STREAMS = "^/(live|alerts/feed)$"


@pytest.mark.real
def test_schemathesis_finds_nothing(store: ViewStore, kafka: BrokerProcess, tmp_path: Path) -> None:
    url = KafkaUrl.parse(f"kafka://{kafka.bootstrap}")
    stores = EventStores(url, ["accounts"], tmp_path / "events")
    with served(store, broker=Broker(url), events=stores) as server:
        # What asks for names has to meet some that are there.
        document = server.get("/openapi.json")
        for name, value in (("view", "sales"), ("topic", "orders"), ("store", "accounts")):
            for path, item in document["paths"].items():
                for operation in (
                    each for each in item.values() if f"{{{name}}}" in path and isinstance(each, dict)
                ):
                    [parameter] = [each for each in operation["parameters"] if each["name"] == name]
                    parameter["schema"]["enum"] = [value, "nothing"]
        (tmp_path / "openapi.json").write_text(json.dumps(document))
        command = [str(Path(sys.executable).with_name("schemathesis")), "run", str(tmp_path / "openapi.json")]
        command += [f"--url={server.url}", f"--checks={CHECKS}", f"--exclude-path-regex={STREAMS}"]
        command += ["--phases=coverage,fuzzing", "--max-examples=15", "--seed=1", "--no-color", "--workers=2"]
        command += ["--suppress-health-check=all", "--generation-database=none", "--request-timeout=20"]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=100, cwd=tmp_path)
    assert ended.returncode == 0, ended.stdout[-8000:] + ended.stderr[-2000:]
