from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.core.spec import Box, Discrete, EnvSpec, MultiDiscrete, Space, space_from_json, space_to_json

numbers = st.floats(allow_nan=False, allow_infinity=False, width=32)


@st.composite
def boxes(draw: Any) -> Box:
    shape = tuple(draw(st.lists(st.integers(1, 3), max_size=3)))
    size = math.prod(shape)
    low = numbers | st.just(-math.inf)
    high = numbers | st.just(math.inf)
    many = draw(st.booleans()) and len(shape) > 0
    edges = [draw(st.lists(edge, min_size=size, max_size=size).map(tuple) if many else edge) for edge in (low, high)]
    return Box(shape, draw(st.sampled_from(["float32", "uint8", "int64"])), *edges)


spaces = boxes() | st.builds(Discrete, st.integers(1, 9)) | st.builds(
    MultiDiscrete, st.lists(st.integers(1, 5), min_size=1, max_size=3).map(tuple)
)  # fmt: skip
specs = st.builds(
    EnvSpec,
    id=st.text(max_size=5),
    observations=st.dictionaries(st.text(max_size=3), spaces, max_size=3),
    action=spaces,
    stack=st.integers(1, 4),
    masked=st.booleans(),
    max_episode_steps=st.none() | st.integers(1, 500),
    reward_threshold=st.none() | numbers,
    fps=st.integers(1, 60),
)


@given(spaces)
def test_any_space_comes_back_from_json(space: Space) -> None:
    assert space_from_json(json.loads(json.dumps(space_to_json(space), allow_nan=False))) == space


@given(specs)
def test_any_spec_comes_back_from_json_and_fits_itself(spec: EnvSpec) -> None:
    back = EnvSpec.from_json(json.loads(json.dumps(spec.to_json(), allow_nan=False)))
    assert back == spec and back.fps == spec.fps
    assert [*back.observations] == [*spec.observations]
    assert back.difference(spec) is None


def test_bounds_of_each_dimension_have_the_shape_of_the_box() -> None:
    low, high = Box((2, 2), low=(-1.0, -math.inf, -3.0, -4.0), high=5.0).bounds()
    assert low.tolist() == [[-1, -math.inf], [-3, -4]] and high.tolist() == [[5, 5], [5, 5]]


def test_a_single_number_has_bounds_too() -> None:
    low, high = Box((), low=-2.0).bounds()
    assert (low.shape, float(low), float(high)) == ((), -2, math.inf)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"action": Discrete(3)}, "chooses one of 2, this environment takes one of 3"),
        ({"action": MultiDiscrete((3, 2))}, "chooses one of 2, this environment takes one each of (3, 2)"),
        (
            {"observations": {"obs": Box((5,))}},
            "expects obs to be float32 of shape (4,), this environment shows float32 of shape (5,)",
        ),
        ({"observations": {"seen": Box((4,))}}, "expects the observations obs; this environment shows seen"),
        (
            {"observations": {"obs": Box((4,), high=0.41887903213500977)}},
            "expects obs to be float32 of shape (4,) from -inf to inf, "
            "this environment shows float32 of shape (4,) from -inf to 0.4189",
        ),
        ({"stack": 4}, "expects 1 frames at once, this environment shows 4"),
        ({"masked": True}, "expects no action masks, this environment shows action masks"),
    ],
)
def test_a_spec_says_what_the_policy_expects_and_what_the_environment_shows(change: dict[str, Any], words: str) -> None:
    one = EnvSpec("a", {"obs": Box((4,))}, Discrete(2))
    other = EnvSpec(**{"id": "a", "observations": one.observations, "action": one.action, **change})
    assert one.difference(other) == f"the policy {words}"


def test_another_name_or_limit_does_not_keep_a_policy_from_playing() -> None:
    one = EnvSpec("a", {"obs": Box((4,))}, Discrete(2))
    assert one.difference(EnvSpec("b", {"obs": Box((4,))}, Discrete(2), max_episode_steps=9, fps=3)) is None


def test_widths_count_what_a_network_sees() -> None:
    assert (Discrete(5).width, MultiDiscrete((2, 3)).width, Box((2, 3)).width) == (5, 5, 6)
    assert EnvSpec("a", {}, Box((2,))).mask_width == 0 and EnvSpec("a", {}, MultiDiscrete((2, 3))).mask_width == 5
    assert Box((8, 8), "uint8").is_image and not Box((8, 8)).is_image and not Box((8,), "uint8").is_image


def test_a_space_is_frozen() -> None:
    with pytest.raises(AttributeError):
        Box((4,)).dtype = "uint8"  # type: ignore[misc]
    assert np.dtype(Discrete.dtype) == np.int64
