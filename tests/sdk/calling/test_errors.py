"""The tree of errors: complete, as drawn, and fit to travel."""

import inspect
import pickle

import pytest

from popmq import errors
from popmq_proto.v1 import popmq_pb2 as pb


def test_no_code_of_the_contract_is_without_a_class() -> None:
    assert errors.BY_CODE.keys() == set(pb.Code.keys())


def drawn() -> dict[str, str]:
    """Class → parent, read from the picture in the module's docstring."""
    parents: dict[str, str] = {}
    path: list[tuple[int, str]] = []
    for line in (errors.__doc__ or "").splitlines():
        name = line.strip(" │├└─").split(" ")[0]
        column = line.find(name) if name else -1
        if name.isidentifier() and hasattr(errors, name):
            path = [(at, parent) for at, parent in path if at < column]
            if path:
                parents[name] = path[-1][1]
            path.append((column, name))
    return parents


def test_the_picture_is_the_tree() -> None:
    classes = [item for _, item in inspect.getmembers(errors, inspect.isclass) if issubclass(item, errors.PopMQError)]
    assert drawn() == {item.__name__: item.__bases__[0].__name__ for item in classes if item is not errors.PopMQError}


@pytest.mark.parametrize(
    "error",
    [
        errors.StorageFull(
            "full", code="STORAGE_FULL", field="messages", action="wait", retryable=True, retry_after=1.5
        ),
        errors.PartlyRefused([None, errors.HandleLapsed("over")]),
    ],
)
def test_an_error_survives_the_way_to_another_process(error: errors.PopMQError) -> None:
    copied = pickle.loads(pickle.dumps(error))
    assert type(copied) is type(error)
    assert str(copied) == str(error)
    assert copied.__dict__.keys() == error.__dict__.keys()
    assert (copied.code, copied.retry_after) == (error.code, error.retry_after)


def test_a_batchs_error_tells_how_many_and_why_the_first() -> None:
    lapsed = errors.HandleLapsed("this delivery is over", code="HANDLE_LAPSED", action="drop it")
    error = errors.PartlyRefused([None, lapsed, None, lapsed])
    assert str(error) == "2 of 4 entries were refused; the first, entry 1: this delivery is over (drop it)"
    assert (error.code, list(error.errors)) == ("HANDLE_LAPSED", [1, 3])
