import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core.errors import SettingError
from headwater.core.settings import Kind, Setting, Settings, Value, between, one_of

PORT = Setting("port", Kind.INT, 9092, "Where to listen.", between(0, 65535))
POLICY = Setting(
    "policy", Kind.LIST, ("delete",), "What to do with old records.", one_of("delete", "compact")
)
FLAG = Setting("flag", Kind.BOOLEAN, True, "Whether.")


@given(st.integers(0, 65535))
def test_text_of_a_value_parses_to_the_value(number: int) -> None:
    text = PORT.text(number)
    assert text is not None
    assert PORT.parse(text) == number


@pytest.mark.parametrize(
    ("setting", "text", "value"),
    [
        (PORT, " 80 ", 80),
        (POLICY, "compact, delete", ("compact", "delete")),
        (POLICY, "", ()),
        (FLAG, "TRUE", True),
        (FLAG, "false", False),
        (Setting("ratio", Kind.DOUBLE, 0.5, ""), "0.25", 0.25),
        (Setting("name", Kind.STRING, "", ""), "x y", "x y"),
    ],
)
def test_parse(setting: Setting, text: str, value: Value) -> None:
    assert setting.parse(text) == value


@pytest.mark.parametrize(
    ("setting", "text", "reason"),
    [
        (PORT, "eighty", "whole number"),
        (PORT, "80_80", "whole number"),
        (PORT, "65536", "at most 65535"),
        (PORT, "-1", "at least 0"),
        (PORT, str(2**31), "range"),
        (POLICY, "delete,burn", "delete, compact"),
        (FLAG, "yes", "true or false"),
        (Setting("ratio", Kind.DOUBLE, 0.5, ""), "half", "number"),
        (Setting("ratio", Kind.DOUBLE, 0.5, ""), "0_1.5", "number"),
    ],
)
def test_what_does_not_fit_is_named_with_the_reason(setting: Setting, text: str, reason: str) -> None:
    with pytest.raises(SettingError, match=reason) as caught:
        setting.parse(text)
    assert setting.name in str(caught.value)


def test_a_table_resolves_given_texts_over_defaults() -> None:
    table = Settings(PORT, POLICY, FLAG)
    assert table.resolve({"port": "1"}) == {"port": 1, "policy": ("delete",), "flag": True}
    assert [setting.name for setting in table] == ["port", "policy", "flag"]
    assert "port" in table
    assert "prot" not in table


def test_a_table_refuses_unknown_and_repeated_names() -> None:
    with pytest.raises(
        SettingError, match=r"no setting named prot \(did you mean port\?\): `headwater settings`"
    ):
        Settings(PORT).resolve({"prot": "1"})
    with pytest.raises(ValueError, match="twice"):
        Settings(PORT, PORT)
