from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headwater.broker.groups.timers import TimerKey, TimerKind, Timers

KEYS = [TimerKey(TimerKind.SESSION, "g", str(n)) for n in range(4)]
steps = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.sampled_from(KEYS), st.integers(0, 50)),
        st.tuples(st.just("cancel"), st.sampled_from(KEYS), st.just(0)),
        st.tuples(st.just("pop"), st.just(KEYS[0]), st.integers(0, 50)),
    ),
    max_size=60,
)


@given(steps)
def test_keys_fall_due_at_their_last_deadline(script: list[tuple[str, TimerKey, int]]) -> None:
    timers, model = Timers(), dict[TimerKey, int]()
    for what, key, at in script:
        if what == "set":
            timers.set(key, at)
            model[key] = at
        elif what == "cancel":
            timers.cancel(key)
            model.pop(key, None)
        else:
            popped = timers.pop_due(at)
            due = {k: d for k, d in model.items() if d <= at}
            if popped is None:
                assert not due
            else:
                assert model.pop(popped) == min(due.values())
        assert timers.next_deadline() == (min(model.values()) if model else None)
        assert len(timers) == len(model)


def test_moving_a_deadline_away_does_not_grow_the_heap() -> None:
    timers = Timers()
    for now in range(10_000):
        timers.set(KEYS[0], now + 45_000)
    assert len(timers._heap) == 1
    assert timers.next_deadline() == 54_999
