"""The table of APIs and versions against kio's schemas, and what ApiVersions says of it."""

from __future__ import annotations

from typing import Any

import pytest
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader

from headwater.core.errors import ErrorCode
from headwater.wire.kafka.codec import encode_response
from headwater.wire.kafka.schema import request_type, response_type
from headwater.wire.kafka.versions import (
    SERVED,
    Api,
    api_versions_answer,
    is_served,
    request_is_flexible,
    response_header_is_flexible,
    unsupported_api_versions_answer,
)

from .messages import EVERY_VERSION, EVERY_VERSION_NAMES

UNSTABLE_NEWEST = {Api.INIT_PRODUCER_ID}


@pytest.mark.parametrize("api", Api, ids=lambda api: api.name)
def test_all_stable_versions_that_kafka_has_are_served(api: Api) -> None:
    known = schema_name_map[api_key_map[api]]
    assert api_key_map[api].upper() == api.name
    assert SERVED[api].first == min(known)
    assert SERVED[api].last == max(known) - (api in UNSTABLE_NEWEST)
    assert not is_served(api, SERVED[api].first - 1)
    assert not is_served(api, SERVED[api].last + 1)


@pytest.mark.parametrize(("api_key", "version"), EVERY_VERSION, ids=EVERY_VERSION_NAMES)
def test_headers_are_as_flexible_as_kafkas(api_key: int, version: int) -> None:
    request: Any = request_type(api_key, version)
    response: Any = response_type(api_key, version)
    assert is_served(api_key, version)
    assert request_is_flexible(api_key, version) == request.__flexible__
    assert request_is_flexible(api_key, version) == request.__header_schema__.__flexible__
    assert response_header_is_flexible(api_key, version) == response.__header_schema__.__flexible__


def test_an_unknown_api_is_not_served() -> None:
    assert not is_served(999, 0)
    assert not is_served(-1, 0)


def read_api_versions(version: int, answer: dict[str, Any]) -> Any:
    frame = encode_response(Api.API_VERSIONS, version, 1, answer)
    return entity_reader(response_type(Api.API_VERSIONS, version))(frame, 8)[0]


@pytest.mark.parametrize("version", range(5))
def test_api_versions_lists_what_is_served(version: int) -> None:
    response = read_api_versions(version, api_versions_answer(version))
    listed = {entry.api_key: (entry.min_version, entry.max_version) for entry in response.api_keys}
    assert response.error_code is ErrorCode.none
    assert listed.pop(Api.PRODUCE) == (0, 13)  # advertised from 0 for librdkafka
    assert listed == {api: (SERVED[api].first, SERVED[api].last) for api in Api if api != Api.PRODUCE}
    if version >= 3:
        assert [
            (feature.name, feature.min_version_level, feature.max_version_level)
            for feature in response.finalized_features
        ] == [("group.version", 1, 1), ("share.version", 1, 1), ("transaction.version", 2, 2)]
        assert response.finalized_features_epoch == 0
        # A feature that starts at level 0 is more than clients of version 3 can read.
        supported = ["group.version", "share.version", "transaction.version"] if version == 4 else []
        assert [entry.name for entry in response.supported_features] == supported


def test_an_unknown_version_of_api_versions_is_told_the_known_ones() -> None:
    response = read_api_versions(0, unsupported_api_versions_answer())
    (entry,) = response.api_keys
    assert response.error_code is ErrorCode.unsupported_version
    assert (entry.api_key, entry.min_version, entry.max_version) == (Api.API_VERSIONS, 0, 4)
