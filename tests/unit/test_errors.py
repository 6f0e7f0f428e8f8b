"""The exception tree: codes, messages and the one shape at every interface."""

from __future__ import annotations

import pickle
import traceback
from datetime import timedelta

import pytest

from toolcrib import errors
from toolcrib.errors import InvalidInput, ToolcribError, ToolFailed, ToolSignal, ToolSnooze, Violation


def tree(kind: type[ToolcribError] = ToolcribError) -> list[type[ToolcribError]]:
    return [kind, *(found for child in kind.__subclasses__() for found in tree(child))]


ALL = [kind for kind in tree() if kind.__module__ == "toolcrib.errors"]


def test_each_has_a_message_of_its_own_and_codes_of_http_and_the_command_line() -> None:
    for kind in ALL:
        error = kind()
        assert str(error) == error.message == (kind.__doc__ or "").splitlines()[0]
        assert 400 <= error.status < 600, kind
        assert 1 <= error.exit_code <= 130, kind


def test_codes_are_unique() -> None:
    codes = [kind.code for kind in ALL]

    assert len(codes) == len(set(codes))


def test_a_subclass_without_a_docstring_speaks_with_its_parents_voice() -> None:
    class Own(ToolFailed):
        pass

    assert Own().message == "The tool ran and failed."


def test_the_one_shape() -> None:
    error = InvalidInput("no", hint="mend", violations=[Violation("$.a", "is required")], details={"n": 1})

    assert error.as_dict() == {
        "code": "invalid_input",
        "message": "no",
        "retryable": False,
        "hint": "mend",
        "violations": [{"path": "$.a", "message": "is required"}],
        "details": {"n": 1},
    }


def test_a_traceback_shows_the_hint() -> None:
    shown = "".join(traceback.format_exception(InvalidInput("no", hint="Correct it.")))
    assert shown == "toolcrib.errors.InvalidInput: no\nhint: Correct it.\n"


def test_retryable_is_of_the_class_unless_said() -> None:
    assert errors.TimedOut().retryable
    assert not ToolFailed().retryable
    assert ToolFailed(retryable=True).as_dict()["retryable"]


@pytest.mark.parametrize("delay", [-5, float("-inf"), float("nan")])
def test_a_snooze_is_never_negative(delay: float) -> None:
    assert ToolSnooze(delay).delay == 0.0


def test_a_signal_takes_text_or_an_exception() -> None:
    assert errors.ToolCancel(ValueError("no")).reason == "no"
    assert errors.ToolDiscard("no").reason == "no"
    assert errors.RetryableError().reason == "RetryableError"


def test_a_snooze_takes_seconds_or_a_timedelta() -> None:
    assert ToolSnooze(timedelta(minutes=1, milliseconds=500)).delay == ToolSnooze(60.5).delay == 60.5
    assert ToolSnooze(timedelta(days=9)).delay == ToolSnooze.MAX_DELAY_S


@pytest.mark.parametrize(
    "error",
    [ToolSnooze(2.5, "busy"), errors.ToolCancel("no"), InvalidInput("no", violations=[Violation("$", "x")])],
    ids=lambda error: type(error).__name__,
)
def test_errors_survive_pickling(error: ToolcribError | ToolSignal) -> None:
    copy = pickle.loads(pickle.dumps(error))

    assert type(copy) is type(error)
    assert vars(copy) == vars(error)


def test_errors_are_read_back() -> None:
    wrong = [Violation("$.a", "is wrong")]
    for kind in ALL:
        error = kind("no", hint="do", violations=wrong, details={"b": 1}, retryable=True)
        read = ToolcribError.from_dict(error.as_dict())
        assert type(read) is kind
        assert read.as_dict() == error.as_dict()


def test_an_error_of_an_unknown_code_is_read_back_as_one() -> None:
    assert type(ToolcribError.from_dict({"code": "of_tomorrow", "message": "no"})) is ToolcribError
