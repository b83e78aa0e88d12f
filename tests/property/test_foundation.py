"""Properties: packing is an identity, layouts come back, plans encode one way, segments cover the vector."""

from typing import Any

import numpy as np
from cases import examples
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from heterosag.errors import PlanError, WireError
from heterosag.plan import Plan
from heterosag.vector import ring
from heterosag.vector.arrays import Layout

FLOATS = st.sampled_from([np.float16, np.float32, np.float64])


@given(bits=st.integers(1, 63), data=st.data())
def test_packing_is_an_identity(bits: int, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.integers(0, (1 << bits) - 1), max_size=200))
    lanes = np.array(values, dtype=ring.lane_dtype(bits))
    assert ring.unpack(ring.pack(lanes, bits), bits, len(values)).tolist() == values


@given(bits=st.integers(1, 63), count=st.integers(0, 50), data=st.binary(max_size=450))
def test_unpacking_accepts_exactly_what_packing_makes(bits: int, count: int, data: bytes) -> None:
    try:
        lanes = ring.unpack(data, bits, count)
    except WireError:
        return
    assert ring.pack(lanes, bits) == data


@given(
    arrays=st.dictionaries(
        st.text(max_size=5),
        arrays_of.arrays(
            dtype=FLOATS,
            shape=arrays_of.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
            elements={"allow_nan": False, "allow_infinity": False},
        ),
        min_size=1,
        max_size=5,
    )
)
def test_arrays_come_back_exactly(arrays: dict[str, np.ndarray]) -> None:
    assume(any(array.size for array in arrays.values()))
    layout = Layout.of(arrays)
    back = layout.restore(layout.flatten(arrays))
    assert list(back) == list(arrays)
    for name, array in arrays.items():
        assert back[name].dtype == array.dtype
        assert np.array_equal(back[name], array)


@st.composite
def requirements(draw: st.DrawFn) -> dict[str, Any]:
    classes = draw(st.lists(st.integers(1, 30), min_size=1, max_size=5))
    return {
        "classes": classes,
        "levels": sorted(draw(st.lists(st.integers(2, 300), min_size=len(classes), max_size=len(classes)))),
        "dimension": draw(st.integers(1, 5000)),
        "value_range": 1.0,
        "design": draw(st.sampled_from(["perfect", "paper", "paper-composite", "secagg", "multigroup"])),
        "subgroup_size": draw(st.integers(1, 10)),
        "min_survivors": draw(st.integers(2, 5)),
        "max_weight": draw(st.sampled_from([1, 1, 7])),
        "colluders": draw(st.integers(0, 3)),
        "dropout": draw(st.sampled_from([0.0, 0.05, 0.2])),
        "assignment_seed": draw(st.none() | st.integers(0, 99) | st.binary(min_size=1, max_size=8)),
        "fill_levels": draw(st.booleans()),
    }


@examples(60)
@given(requirements=requirements())
def test_a_plan_is_whole_or_refused(requirements: dict[str, Any]) -> None:
    try:
        plan = Plan.build(**requirements)
    except PlanError:
        return
    assert sorted(i for s in plan.subgroups for i in s.members) == list(range(sum(requirements["classes"])))
    assert plan.segments[0].start == 0
    assert plan.segments[-1].stop == requirements["dimension"]
    for before, after in zip(plan.segments, plan.segments[1:], strict=False):
        assert before.stop == after.start
    for segment in plan.segments:
        assert segment.size >= 1
        for block in segment.blocks:
            assert block.users >= plan.min_block_survivors
            assert block.users * (block.level - 1) < 2**block.bits
            assert block.level >= min(plan.levels[plan.subgroups[g].user_class] for g in block.subgroups)
    if plan.has_several_blocks:
        assert min(len(subgroup.members) for subgroup in plan.subgroups) >= plan.min_survivors
    assert 0 <= plan.failure_probability() <= 1
    leak = plan.leak_probability()
    assert 0 <= leak.block <= leak.any + 1e-12
    assert Plan.decode(plan.encode()) == plan == Plan.from_toml(plan.to_toml())
