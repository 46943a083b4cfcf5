"""What the OpenAPI document says of single routes."""

from __future__ import annotations

from typing import Any

__all__ = ["ERROR", "PIECES", "SCHEMAS", "WEBSOCKET"]

Piece = dict[str, Any]

WEBSOCKET = (
    "A WebSocket: the rows of the view first, then each change, as JSON messages like "
    '{"event": "change", "token": …, "key": …, "row": …}. It takes the parameters of /views/{view}/changes.'
)

SCHEMAS: Piece = {
    "Error": {
        "type": "object",
        "properties": {"error": {"type": "string"}},
        "required": ["error"],
    },
    "Row": {
        "type": "object",
        "properties": {"key": {"type": "string"}, "row": {"type": "object"}},
        "required": ["key", "row"],
    },
    "Change": {
        "type": "object",
        "properties": {"key": {"type": "string"}, "row": {"type": ["object", "null"]}},
        "required": ["key", "row"],
    },
    "Rows": {
        "type": "object",
        "properties": {
            "view": {"type": "string"},
            "token": {"type": ["string", "null"], "description": "Where /changes goes on."},
            "next": {"type": ["string", "null"], "description": "The address of the next page."},
            "rows": {"type": "array", "items": {"$ref": "#/components/schemas/Row"}},
        },
        "required": ["view", "token", "next", "rows"],
    },
    "Changes": {
        "type": "object",
        "properties": {
            "view": {"type": "string"},
            "token": {"type": "string"},
            "changes": {"type": "array", "items": {"$ref": "#/components/schemas/Change"}},
        },
        "required": ["view", "token", "changes"],
    },
    "Written": {
        "type": "object",
        "properties": {
            "topic": {"type": "string"},
            "token": {"type": "string", "description": "What a read can wait for."},
            "count": {"type": "integer"},
            "unread": {
                "type": "array",
                "items": {"type": "string"},
                "description": "Fields that the topic's schema does not have, where there are some.",
            },
            "records": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"partition": {"type": "integer"}, "offset": {"type": "integer"}},
                },
            },
        },
        "required": ["topic", "token"],
    },
    "NewEvent": {
        "type": "object",
        "properties": {
            "type": {"type": "string"},
            "data": {},
            "id": {"type": ["string", "null"]},
            "schema": {"type": ["integer", "null"]},
            "personal": {"type": ["array", "null"], "items": {"type": "string"}},
            "subject": {"type": ["string", "null"]},
        },
        "required": ["type"],
        "additionalProperties": False,
    },
}


def _json(schema: Piece) -> Piece:
    return {"application/json": {"schema": schema}}


def _ref(name: str) -> Piece:
    return _json({"$ref": f"#/components/schemas/{name}"})


def _answer(text: str, content: Piece, **headers: str) -> Piece:
    found: Piece = {"description": text, "content": content}
    if headers:
        found["headers"] = {
            name: {"description": about, "schema": {"type": "string"}} for name, about in headers.items()
        }
    return found


def _query(name: str, text: str, schema: Piece | None = None) -> Piece:
    return {"name": name, "in": "query", "description": text, "schema": schema or {"type": "string"}}


def _header(name: str, text: str) -> Piece:
    return {"name": name, "in": "header", "description": text, "schema": {"type": "string"}}


def _number(least: float, most: float, *, whole: bool = True) -> Piece:
    return {"type": "integer" if whole else "number", "minimum": least, "maximum": most}


ERROR = _ref("Error")
_OBJECT = {"type": "object"}
_ANY = _json(_OBJECT)
_FILTERS = {
    "name": "filters",
    "in": "query",
    "description": "COLUMN=VALUE, COLUMN[lt|lte|gt|gte]=VALUE, COLUMN[in]=VALUE,VALUE.",
    "style": "form",
    "explode": True,
    "schema": {"type": "object", "additionalProperties": {"type": "string"}},
}
_FIELDS = _query("fields", "The columns that come, separated by commas.")
_WAIT = [
    _query(
        "wait",
        "TOPIC:PARTITION:OFFSET, several with commas, or CAPTURE@POSITION of a database: answer when the view has it.",
    ),
    _query("timeout", "How many seconds to wait for that.", _number(0, 30, whole=False)),
]
_AT = _query(
    "at", "The moment to show the view at, with a time zone.", {"type": "string", "format": "date-time"}
)
_RECORDS = {"oneOf": [_OBJECT, {"type": "array", "items": _OBJECT}]}
_EVENT = {"$ref": "#/components/schemas/NewEvent"}
_EVENTS = {"oneOf": [_EVENT, {"type": "array", "items": _EVENT, "minItems": 1}]}
_STREAM = {"text/event-stream": {"schema": {"type": "string"}}}
_TEXT = {"text/plain": {"schema": {"type": "string"}}}

PIECES: dict[str, Piece] = {
    "GET /views": {"responses": {"200": _answer("Every view.", _ANY)}},
    "GET /views/{view}": {
        "parameters": [
            _FILTERS,
            _query("order", "A column to sort by; with a minus before it, the largest first."),
            _query("limit", "How many rows.", _number(1, 10_000)),
            _query("cursor", "Where another page ended, as its `next` says."),
            _query("after", "The key to go on behind, without an order."),
            _query("token", "The state that the rows are to belong to."),
            _AT,
            _FIELDS,
            *_WAIT,
        ],
        "responses": {"200": _answer("Rows.", _ref("Rows"))},
    },
    "GET /views/{view}/changes": {
        "parameters": [
            _FILTERS,
            _query("since", "The token to go on behind."),
            _query("wait", "How many seconds to wait for the first change.", _number(0, 30, whole=False)),
            _query("limit", "How many changes at once.", _number(1, 10_000)),
            _query("slow", "What a slow reader gets.", {"type": "string", "enum": ["squash", "cut"]}),
            _FIELDS,
        ],
        "responses": {
            "200": _answer(
                "Changes behind a token, once; or rows and changes as server-sent events, for those who accept these.",
                {**_ref("Changes"), **_STREAM},
            )
        },
    },
    "GET /views/{view}/{key}": {
        "parameters": [
            _AT,
            _query("history", "What the row is and was, newest first."),
            _query("limit", "How many versions.", _number(1, 10_000)),
            _FIELDS,
            *_WAIT,
        ],
        "responses": {"200": _answer("A row, or its history.", _ANY)},
    },
    "POST /topics/{topic}": {
        "parameters": [
            _query("key", "The key of the records, instead of the topic's."),
            _header("Idempotency-Key", "What comes twice under a key is written once."),
        ],
        "body": {
            **_json(_RECORDS),
            "application/x-ndjson": {"schema": {"type": "string"}},
        },
        "responses": {
            "200": _answer(
                "All records are in the topic.",
                _ref("Written"),
                **{"Idempotent-Replayed": "true for a repetition"},
            )
        },
    },
    "GET /topics/{topic}/{partition}": {
        "parameters": [
            _query("offset", "Where to begin: a number, earliest or latest."),
            _query("limit", "How many records.", _number(0, 1000)),
            _query("wait", "How many seconds to wait where there is none yet.", _number(0, 30)),
        ],
        "responses": {
            "200": _answer("Records, and where to go on.", _ANY),
            "416": _answer("The partition does not hold the offset.", _ref("Error")),
        },
    },
    "GET /events": {"responses": {"200": _answer("The names of the stores.", _ANY)}},
    "GET /events/{store}": {
        "parameters": [
            _query("after", "The name to go on behind."),
            _query("limit", "How many streams.", _number(0, 10_000)),
        ],
        "responses": {"200": _answer("Streams and their versions.", _ANY)},
    },
    "GET /events/{store}/{stream}": {
        "parameters": [
            _query("after", "The version to go on behind.", _number(0, 1 << 53)),
            _query("until", "The last version.", _number(0, 1 << 53)),
            _query("limit", "How many events.", _number(0, 10_000)),
            _query("at", "Up to a moment.", {"type": "string", "format": "date-time"}),
            _header("If-None-Match", "The version that is known, in quotes."),
        ],
        "responses": {
            "200": _answer("Events.", _ANY, ETag="the version, in quotes"),
            "304": {"description": "The version is known."},
        },
    },
    "POST /events/{store}/{stream}": {
        "parameters": [
            _header("If-Match", "The version that the stream has to have, in quotes, or *."),
            _header("If-None-Match", "* for a stream that is not there yet."),
            _header("Idempotency-Key", "What comes twice under a key is appended once."),
        ],
        "body": _json(_EVENTS),
        "responses": {
            "200": _answer("They were appended before.", _ANY, ETag="the version, in quotes"),
            "201": _answer("All are appended.", _ANY, ETag="the version, in quotes"),
        },
    },
    "DELETE /events/{store}/{stream}": {
        "responses": {"200": _answer("The personal data about the subject of that name are erased.", _ANY)}
    },
    "POST /hooks/{hook}": {"body": _ANY, "responses": {"200": _answer("The message is in the topic.", _ANY)}},
    "GET /alerts": {"responses": {"200": _answer("Alerts, with what waits and was given up.", _ANY)}},
    "GET /alerts/feed": {
        "parameters": [_query("since", "The token to go on behind.")],
        "responses": {"200": _answer("Messages to browsers, as they come.", _STREAM)},
    },
    "GET /alerts/{alert}/dead": {"responses": {"200": _answer("Messages that were given up.", _ANY)}},
    "POST /alerts/{alert}/redrive": {"responses": {"200": _answer("How many are tried again.", _ANY)}},
    "GET /live": {"responses": {"200": _answer("What the page lives on.", _STREAM)}},
    "GET /metrics": {"responses": {"200": _answer("Prometheus' text format.", _TEXT)}},
    "GET /health": {
        "responses": {"200": _answer("Whether all is well.", _ANY), "503": _answer("The store fails.", _ANY)}
    },
    "GET /openapi.json": {"responses": {"200": _answer("This document.", _ANY)}},
    "GET /session": {"responses": {"200": _answer("Whether a token is needed.", _ANY)}},
    "POST /session": {"responses": {"200": _answer("A cookie for the token that was shown.", _ANY)}},
    "DELETE /session": {"responses": {"200": _answer("The cookie is taken back.", _ANY)}},
}
