"""Topic patterns: the trie against a matcher that tries every pattern."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.broker.queues.topic_trie import TopicTrie

KEYS = st.lists(st.sampled_from(["a", "b", ""]), max_size=6).map(".".join)
PATTERNS = st.lists(st.sampled_from(["a", "b", "", "*", "#"]), max_size=6).map(".".join)


def matches(pattern: list[str], words: list[str]) -> bool:
    """Whether words match a pattern: the definition, word by word."""
    if not pattern:
        return not words
    if pattern[0] == "#":
        return any(matches(pattern[1:], words[i:]) for i in range(len(words) + 1))
    return bool(words) and pattern[0] in ("*", words[0]) and matches(pattern[1:], words[1:])


def words_of(text: str) -> list[str]:
    return text.split(".") if text else []


@given(st.lists(PATTERNS, max_size=12), st.lists(st.integers(0, 11), max_size=8), KEYS)
def test_it_finds_the_patterns_that_match_and_no_others(
    patterns: list[str], removals: list[int], key: str
) -> None:
    trie: TopicTrie[int] = TopicTrie()
    kept = dict(enumerate(patterns))
    for value, pattern in kept.items():
        trie.add(pattern, value)
    for number in removals:
        if number in kept:
            trie.remove(kept.pop(number), number)
    found = trie.match(key)
    assert sorted(found) == [
        number for number, pattern in kept.items() if matches(words_of(pattern), words_of(key))
    ]


@pytest.mark.parametrize(
    ("pattern", "key", "expected"),
    [
        ("stock.*.nyse", "stock.usd.nyse", True),
        ("stock.*.nyse", "stock.nyse", False),
        ("stock.#", "stock", True),
        ("stock.#", "stock.usd.nyse", True),
        ("#.nyse", "nyse", True),
        ("#", "", True),
        ("*", "", False),
        ("", "", True),
        ("*.*", ".", True),
        ("a.", "a.", True),
        ("a.", "a", False),
        ("#.#", "", True),
        ("#.*.#", "a", True),
        ("#.*.#", "", False),
        ("a*", "ab", False),
    ],
)
def test_what_star_and_hash_stand_for(pattern: str, key: str, expected: bool) -> None:
    trie: TopicTrie[str] = TopicTrie()
    trie.add(pattern, "q")
    assert trie.match(key) == (["q"] if expected else [])


def test_what_was_added_twice_is_there_until_it_was_removed_twice() -> None:
    trie: TopicTrie[str] = TopicTrie()
    trie.add("a.#", "q")
    trie.add("a.#", "q")
    trie.remove("a.#", "q")
    assert trie.match("a.b") == ["q"]
    trie.remove("a.#", "q")
    assert trie.match("a.b") == []


def test_a_pattern_that_was_never_added_cannot_be_removed() -> None:
    trie: TopicTrie[str] = TopicTrie()
    trie.add("a.b", "q")
    with pytest.raises(KeyError):
        trie.remove("a.c", "q")


def test_nothing_stays_behind_of_patterns_that_are_gone() -> None:
    trie: TopicTrie[str] = TopicTrie()
    for pattern in ("a.*.b", "a.#", "#.#.c", ""):
        trie.add(pattern, "q")
    for pattern in ("a.#", "", "a.*.b", "#.#.c"):
        trie.remove(pattern, "q")
    assert trie._root.empty


def test_patterns_of_many_hashes_cost_no_more_than_their_words() -> None:
    trie: TopicTrie[str] = TopicTrie()
    trie.add(".".join(["#", "a"] * 60), "q")
    assert trie.match(".".join(["a"] * 59 + ["b"] * 60)) == []
    assert trie.match(".".join(["b", "a"] * 60)) == ["q"]
