from http import HTTPStatus

import pytest

from millstream.core import errors
from millstream.core.codes import CODES, FAULT, Code, code_of
from millstream.core.errors import MillError

TREE = {kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, MillError)}


def test_every_error_has_its_row():
    assert CODES.keys() == TREE


def test_every_status_is_one_that_http_knows():
    assert {HTTPStatus(code.http) for code in CODES.values()}


def test_every_code_is_one_that_grpc_knows():
    grpc = pytest.importorskip("grpc")
    assert {code.grpc for code in CODES.values()} <= {status.name for status in grpc.StatusCode}


def test_an_error_of_a_user_counts_as_what_it_was_derived_from_and_others_as_faults():
    class Mine(errors.Busy):
        pass

    assert code_of(Mine("no")) == CODES[errors.Busy] == Code("RESOURCE_EXHAUSTED", 429)
    assert code_of(ValueError("no")) == FAULT


def test_an_error_is_made_again_from_its_name_and_nothing_else_is():
    made = errors.named("Fenced", "go away")
    assert type(made) is errors.Fenced and str(made) == "go away"
    assert [errors.named(name, "") for name in ("Iterable", "difflib", "TEMPORARY", "Nothing", "")] == [None] * 5
