"""Vectors of the limits of a plan's arguments: the last value that is a plan, and the first that is none."""

from __future__ import annotations

from typing import Any

import msgspec
import plans
from material import document

from heterosag.plan import Plan
from heterosag.plan.codec import ARGUMENTS, PLAN_VERSION

Document = dict[str, Any]

NAMES = (*ARGUMENTS, "noise_multiplier", "honest", "adaptive_clip")
_INFINITE, _NAN = "inf", "nan"
_LONG = "n" * 256

_BASES = {"plain": "plain", "weighted": "signed", "sparse": "sparse sharing", "noise": "noise"}


def limited() -> Document:
    """plan_limits.json."""
    about = (
        "Arguments of a plan at their limits, which make the plan with this digest, and beyond them. A case changes "
        "some arguments of one of the bases, which are written as they are encoded; texts inf and nan are floats. With "
        "`encoding` only the encoding is no plan: its arguments beside the structure of the base."
    )
    cases = [_accepted(*case) for case in _at_limits()]
    must_fail = [
        *(_refused(name, base, change) for name, base, change in _beyond_limits()),
        *(_refused(name, base, change, encoding=True) for name, base, change in _encoded_otherwise()),
    ]
    return {**document(about, cases, must_fail), "bases": {name: _arguments(name) for name in _BASES}}


def _encoding(base: str) -> Any:
    return msgspec.msgpack.decode(plans.plan_of(_BASES[base]).encode())


def _arguments(base: str) -> Document:
    """The arguments of a base by name; a seed of bytes in hexadecimal."""
    found = dict(zip(NAMES, _encoding(base)[1], strict=False))
    return plans.written(found)


def _accepted(name: str, base: str, change: Document) -> Document:
    """A case: the structure beside the arguments follows from them, so the digest is enough."""
    arguments = dict(zip(NAMES, _encoding(base)[1], strict=False)) | change
    plan = _built(arguments)
    encoded = msgspec.msgpack.decode(plan.encode())
    assert encoded[:2] == [PLAN_VERSION, list(arguments.values())], f"{name}: not written as it is encoded"
    assert Plan.decode(plan.encode()).digest == plan.digest
    return {"name": name, "base": base, "change": change, "digest": plan.digest.hex()}


def _built(arguments: Document) -> Plan:
    given = dict(arguments)
    if "noise_multiplier" in given:
        given["clipping_norm"] = given.pop("value_range")[1]
    return Plan.build(**given)


def _refused(name: str, base: str, change: Document, *, encoding: bool = False) -> Document:
    more = {"encoding": True} if encoding else {}
    return {"name": name, "base": base, "change": change, "error": "PlanError", **more}


Limit = tuple[str, str, Document]


def _at_limits() -> list[Limit]:
    names = [_LONG, "a b", "\u00e9", *range(3, 8), 2**64 - 1]
    return [
        ("the most levels", "plain", {"levels": [2, 2**32]}),
        ("as many elements as segments", "plain", {"dimension": 3}),
        ("the most elements", "plain", {"dimension": 2**63 - 1}),
        ("a range without zero", "plain", {"value_range": [0.5, 1.0]}),
        ("a range that ends at zero, with weights", "weighted", {"value_range": [-1.0, 0.0]}),
        ("subgroups larger than the plan", "plain", {"subgroup_size": 2**63 - 1, "min_robustness": 0.0}),
        ("all users of a subgroup survive", "plain", {"min_survivors": 3, "min_block_survivors": 3}),
        ("all users of the smallest block survive", "plain", _alone(3)),
        ("the greatest weight", "weighted", {"max_weight": 2**32}),
        ("no robustness", "plain", {"min_robustness": 0.0}),
        ("everybody else colludes", "plain", {"colluders": 8, "dropout": 0.0}),
        ("names of all kinds", "plain", {"users": names}),
        ("the most dropout", "plain", {"dropout": 0.4444444444444445}),
        ("much dropout on a sparse graph", "sparse", {"dropout": 0.44}),
        ("metrics with long names", "plain", {"metrics": [_LONG, "clipped"]}),
        ("arrays without scales", "weighted", {"scales": []}),
        ("the least and the greatest scale", "weighted", {"scales": [2.0**-64, 2.0**64]}),
        ("the most levels with noise", "noise", {"levels": [2, 2**16]}),
        ("the most honest users", "noise", {"honest": 5}),
        ("one honest user", "noise", {"honest": 1}),
        ("little noise", "noise", {"noise_multiplier": 0.51, "honest": 1}),
        ("the most users with metrics", "plain", _metrics_of(2**14)),
        ("all users of a subgroup survive that is alone in the second segment", "plain", _two_subgroups(3)),
        ("noise with the only subgroup alone in its block", "noise", _one_subgroup("perfect")),
        ("noise with the design multigroup on one subgroup", "noise", _one_subgroup("multigroup")),
        ("a small clipping norm", "noise", {"value_range": [-1e-199, 1e-199]}),
        ("a large clipping norm", "noise", {"value_range": [-1e199, 1e199]}),
        ("a theta that rounding lifts above its limit", "noise", _LIFTED),
    ]


_LIFTED: Document = {
    "classes": [16],
    "levels": [17],
    "dimension": 100,
    "design": "secagg",
    "subgroup_size": 16,
    "min_block_survivors": 10,
    "min_robustness": 0.0,
    "noise_multiplier": 1.2,
    "honest": 9,
}


def _one_subgroup(design: str) -> Document:
    return {"classes": [16], "levels": [16], "subgroup_size": 16, "design": design, "min_robustness": 0.0}


def _two_subgroups(survivors: int) -> Document:
    """One block in the first segment, two in the second."""
    change = {"design": "paper", "subgroup_size": 6, "min_robustness": 0.0}
    return {**change, "min_survivors": survivors, "min_block_survivors": 2}


def _metrics_of(users: int) -> Document:
    change = {"classes": [users], "subgroup_size": users, "levels": [2], "design": "secagg", "dimension": 1}
    return {**change, "metrics": ["loss"], "min_robustness": 0.0}


def _alone(survivors: int) -> Document:
    """Every subgroup alone in its block."""
    return {"design": "multigroup", "min_block_survivors": survivors, "min_robustness": 0.0}


def _beyond_limits() -> list[Limit]:
    return [*_shape(), *_ranges(), *_survivors(), *_names(), *_arrays(), *_noise()]


def _shape() -> list[Limit]:
    many = {"classes": [2**20 - 1], "levels": [2], "design": "secagg", "dimension": 1, "min_robustness": 0.0}
    return [
        ("no classes", "plain", {"classes": [], "levels": []}),
        ("a class of nobody", "plain", {"classes": [0, 9]}),
        ("more users than places", "plain", many),
        ("a level for one of two classes", "plain", {"levels": [3]}),
        ("a level too many", "plain", {"levels": [3, 16, 16]}),
        ("one level", "plain", {"levels": [1, 16]}),
        ("more levels than words", "plain", {"levels": [3, 2**32 + 1]}),
        ("levels that fall", "plain", {"levels": [16, 3]}),
        ("no elements", "plain", {"dimension": 0}),
        ("fewer elements than segments", "plain", {"dimension": 2}),
        ("more elements than 63 bits", "plain", {"dimension": 2**63}),
        ("subgroups of nobody", "plain", {"subgroup_size": 0}),
        ("subgroups of more than 63 bits", "plain", {"subgroup_size": 2**63}),
        ("the paper's design on four subgroups", "weighted", {"design": "paper", "min_robustness": 0.0}),
    ]


def _ranges() -> list[Limit]:
    return [
        ("a range of one value", "plain", {"value_range": [1.0, 1.0]}),
        ("a range with an infinite end", "plain", {"value_range": [-1.0, _INFINITE]}),
        ("a range with an end that is no number", "plain", {"value_range": [_NAN, 1.0]}),
        ("a range wider than a float", "plain", {"value_range": [-1e308, 1e308]}),
        ("a range too narrow for its levels", "plain", {"value_range": [-5e-324, 5e-324]}),
        ("a range of one end", "plain", {"value_range": [1.0]}),
        ("a range without zero, with weights", "plain", {"value_range": [0.5, 1.0], "max_weight": 2}),
        ("a range without zero, with several ranges", "plain", {"value_range": [0.5, 1.0], "ranges": "levels"}),
        ("unknown ranges", "plain", {"ranges": "double"}),
        ("a weight of nobody", "plain", {"max_weight": 0}),
        ("more weight than 32 bits", "weighted", {"max_weight": 2**32 + 1}),
    ]


def _survivors() -> list[Limit]:
    return [
        ("a survivor of a subgroup alone", "plain", {"min_survivors": 1}),
        ("more survivors than a subgroup has users", "plain", {"min_survivors": 4}),
        ("a survivor of a block alone", "plain", {"min_block_survivors": 1}),
        ("more survivors than the smallest block has users", "plain", _alone(4)),
        ("less robustness than none", "plain", {"min_robustness": -0.25}),
        ("more robustness than the plan's", "plain", {"min_robustness": 0.6666666666666667}),
        ("robustness that is no number", "plain", {"min_robustness": _NAN}),
        ("everybody colludes", "plain", {"colluders": 9, "dropout": 0.0}),
        ("more colluders than the quorum allows", "plain", {"colluders": 8}),
        ("less dropout than none", "plain", {"dropout": -0.125}),
        ("everybody drops out", "plain", {"dropout": 1.0}),
        ("more dropout than the quorum allows", "plain", {"dropout": 0.44444444444444453}),
        ("dropout that is no number", "plain", {"dropout": _NAN}),
        ("more dropout than a sparse graph has", "sparse", {"dropout": 0.45}),
        ("a sparse graph on which a threshold leaves no dropout", "plain", {"sharing": "sparse"}),
        ("unknown sharing", "plain", {"sharing": "ring"}),
        ("more survivors than a subgroup that is alone in the second segment", "plain", _two_subgroups(4)),
    ]


def _names() -> list[Limit]:
    def with_first(name: Any) -> Document:
        return {"users": [name, *range(1, 9)]}

    return [
        ("a user twice", "plain", with_first(8)),
        ("a user too few", "plain", {"users": list(range(1, 9))}),
        ("a user without a name", "plain", with_first("")),
        ("a user with a long name", "plain", with_first(_LONG + "n")),
        ("a user with a line break in its name", "plain", with_first("a\nb")),
        ("a user with a no-break space in its name", "plain", with_first("a\u00a0b")),
        ("a user with a zero-width space in its name", "plain", with_first("a\u200bb")),
        ("a user of more than 64 bits", "plain", with_first(2**64)),
        ("a user who is true", "plain", with_first(True)),
        ("a user who is a float", "plain", with_first(0.5)),
        ("a metric twice", "plain", {"metrics": ["loss", "loss"]}),
        ("a metric called count", "plain", {"metrics": ["count"]}),
        ("a metric called weight", "plain", {"metrics": ["weight"]}),
        ("a metric without a name", "plain", {"metrics": [""]}),
        ("a metric with a long name", "plain", {"metrics": [_LONG + "n"]}),
        ("a metric with a tabulator in its name", "plain", {"metrics": ["a\tb"]}),
        ("metrics of too many users", "plain", _metrics_of(2**14 + 1)),
    ]


def _arrays() -> list[Limit]:
    return [
        ("arrays with fewer elements than the update", "weighted", {"arrays": [5, 8]}),
        ("an array of no elements", "weighted", {"arrays": [0, 14]}),
        ("a scale too few", "weighted", {"scales": [0.5]}),
        ("scales without arrays", "plain", {"scales": [1.0]}),
        ("a scale below the least", "weighted", {"scales": [2.0**-65, 1.0]}),
        ("a scale above the greatest", "weighted", {"scales": [1.0, 2.0**65]}),
        ("a scale of zero", "weighted", {"scales": [0.0, 1.0]}),
        ("a negative scale", "weighted", {"scales": [-1.0, 1.0]}),
        ("a scale that is no number", "weighted", {"scales": [_NAN, 1.0]}),
    ]


def _noise() -> list[Limit]:
    odd = {"classes": [12], "levels": [16], "subgroup_size": 4, "min_robustness": 0.0, "min_block_survivors": 4}
    return [
        ("negative noise", "noise", {"noise_multiplier": -3.0}),
        ("infinite noise", "noise", {"noise_multiplier": _INFINITE}),
        ("noise on no honest user", "noise", {"honest": 0}),
        ("noise on more honest users than survive beside colluders", "noise", {"honest": 6}),
        ("noise in blocks that colluders may be all of", "noise", {"colluders": 6, "honest": 1}),
        ("noise with a subgroup alone in its block", "noise", {**odd, "honest": 1, "noise_multiplier": 6.0}),
        ("noise with the design multigroup", "noise", {**odd, "design": "multigroup", "honest": 1}),
        ("too little noise for its levels", "noise", {"noise_multiplier": 0.2, "honest": 1}),
        ("more levels than noise may have", "noise", {"levels": [2, 2**16 + 1]}),
        ("noise beside arrays", "noise", {"arrays": [3000]}),
        ("a clipping norm of zero", "noise", {"value_range": [0.0, 0.0]}),
        ("a clipping norm too small", "noise", {"value_range": [-1e-201, 1e-201]}),
        ("a clipping norm too large", "noise", {"value_range": [-1e201, 1e201]}),
        ("hardly any noise", "noise", {"noise_multiplier": 1e-200}),
    ]


def _encoded_otherwise() -> list[Limit]:
    """Values that `Plan.build` takes and writes otherwise, so that their encoding is not canonical."""
    return [
        ("sharing that is not resolved", "plain", {"sharing": "auto"}),
        ("users by number, written out", "plain", {"users": list(range(9))}),
        ("a composite design on three subgroups", "plain", {"design": "paper-composite", "min_robustness": 0.0}),
        ("dropout as an integer", "plain", {"dropout": 0}),
        ("robustness as an integer", "plain", {"min_robustness": 0}),
        ("a scale as an integer", "weighted", {"scales": [1, 3.0]}),
        ("rotation as an integer", "plain", {"rotate": 0}),
        ("filled levels as nil", "plain", {"fill_levels": None}),
        ("least survivors of a block as nil", "plain", {"min_block_survivors": None}),
        ("colluders as nil", "plain", {"colluders": None}),
        ("a seed as text", "plain", {"assignment_seed": "seed"}),
        ("noise with several ranges", "noise", {"ranges": "levels"}),
        ("a noise multiplier as an integer", "noise", {"noise_multiplier": 3}),
        ("honest users as nil", "noise", {"honest": None}),
        ("a weight that is true", "plain", {"max_weight": True}),
        ("a range that ends at a negative zero", "plain", {"value_range": [-1.0, -0.0]}),
        ("dropout of a negative zero", "plain", {"dropout": -0.0}),
        ("robustness of a negative zero", "plain", {"min_robustness": -0.0}),
    ]
