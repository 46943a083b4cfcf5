"""Patterns, rows and batches to try the engine with."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import strategies as st

from headwater.pipeline.patterns.automaton import compile_pattern
from headwater.pipeline.patterns.engine import Match
from headwater.pipeline.patterns.errors import PatternError

SYMBOLS = "ABC"
QUANTIFIERS = ["*", "+", "?", "{2}", "{1,}", "{2,}", "{1,2}", "{0,2}", "{,3}"]
FAR = 10**9
Row = tuple[Any, ...]


def _sequence(parts: list[tuple[str, str]]) -> str:
    return " ".join(f"{arrow} {part}" for arrow, part in parts).strip()


def _quantified(draw: tuple[str, str, str]) -> str:
    body, quantifier, reluctant = draw
    return f"({body}){quantifier}{reluctant}"


def _compiles(pattern: str) -> bool:
    try:
        compile_pattern(pattern)
    except PatternError:
        return False
    return True


def patterns(arrows: list[str], ends: list[str]) -> st.SearchStrategy[str]:
    """Patterns whose steps are joined by any of these arrows ("" is adjacent), and end with one of the ends."""
    whole = st.recursive(
        st.sampled_from(SYMBOLS),
        lambda inner: st.one_of(
            st.lists(st.tuples(st.sampled_from(arrows), inner), min_size=2, max_size=3).map(_sequence),
            st.lists(inner, min_size=2, max_size=3).map(lambda options: f"({' | '.join(options)})"),
            st.tuples(inner, st.sampled_from(QUANTIFIERS), st.sampled_from(["", "?"])).map(_quantified),
        ),
        max_leaves=6,
    )
    return (
        st.tuples(whole, st.sampled_from(ends))
        .map(lambda both: f"{both[0]} {both[1]}".strip())
        .filter(_compiles)
    )


STRICT = patterns([""], [""])
_ROUNDS = st.tuples(
    st.sampled_from(["-> B", "-> B C", "-> B | -> C", "->> B", "-> (A | B)"]), st.sampled_from(QUANTIFIERS)
)
LOOPS = st.tuples(
    st.sampled_from(SYMBOLS),
    _ROUNDS,
    st.sampled_from(["", "?"]),
    st.sampled_from(["-> C", "C", "->> C A", "-> (B | C) -> A", ""]),
).map(lambda parts: f"{parts[0]} ({parts[1][0]}){parts[1][1]}{parts[2]} {parts[3]}".strip())
"""Repetitions whose rounds have gaps."""
RELAXED = LOOPS.filter(_compiles) | patterns(
    ["", "", "->", "->>", "!C", "-> !C ->", "!(A | C) ->>", "-> !B ->>"], [""]
)
TIMED = patterns(["", "", "->", "->>"], ["", "-> !B for 3 ms", "-> !(A | C) for 1 ms", "| A -> !C for 2 ms"])

STEPS = st.lists(
    st.tuples(st.sampled_from([0, 1, 1, 2, 4]), st.integers(0, 7), st.integers(0, 5)), max_size=9
)


def rows_of(steps: list[tuple[int, int, int]]) -> list[Row]:
    """Rows by the milliseconds since the row before, the mask of the symbols A, B, C, and a value."""
    time, rows = 0, []
    for number, (after, mask, value) in enumerate(steps):
        time += after * 1000
        rows.append((time, number % 2, number, mask, number, value))
    return sorted(rows)


def masked(rows: list[Row], match: Match) -> list[Row]:
    """The same rows with the symbols' bits where the pattern has them."""
    return [(*row[:3], mask_of(row[3], match), *row[4:]) for row in rows]


def mask_of(mask: int, match: Match) -> int:
    return sum(1 << place for place, name in enumerate(match.symbols) if mask >> SYMBOLS.index(name) & 1)


def run(match: Match, rows: list[Row], key: tuple[Any, ...] = ("k",)) -> list[Row]:
    """The results if all rows come in one batch, and then time goes on."""
    step = match.step(key, None, masked(rows, match), 0)
    assert not step.out
    last = match.step(key, step.state, [], FAR)
    return last.out


def run_in_batches(match: Match, rows: list[Row], seed: int) -> list[Row]:
    """The results if rows come in some order and in some batches, with a watermark that no row is late for."""
    rng = random.Random(seed)
    rows = masked(rows, match)
    lateness = rng.choice([0, 2000, 5000, 20_000])
    arriving = sorted(rows, key=lambda row: (row[0] + rng.randint(0, lateness), rng.random()))
    out: list[Row] = []
    state, due, watermark = None, None, 0
    while arriving:
        size = rng.randint(1, 4)
        batch, arriving = arriving[:size], arriving[size:]
        passed = due is not None and due < watermark
        assert passed or batch
        step = match.step(("k",), state, batch, watermark)
        state, due = step.state, step.due
        out += step.out
        watermark = max([watermark, min([row[0] for row in arriving], default=watermark)])
        if rng.random() < 0.5 and due is not None and due < watermark:
            step = match.step(("k",), state, [], watermark)
            state, due = step.state, step.due
            out += step.out
    while due is not None:
        # Only timers: nothing may be forgotten that asked for none.
        step = match.step(("k",), state, [], due + 1)
        assert step.due is None or step.due > due
        state, due = step.state, step.due
        out += step.out
    return out
