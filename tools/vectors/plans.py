"""Vectors of what is public before a key exists: assignment, sharing graph, plan, admissible sets, contexts."""

from __future__ import annotations

from typing import Any

import msgspec
from material import document, hashed, stream

from heterosag.crypto.hashing import shuffle
from heterosag.errors import TooFewSurvivorsError
from heterosag.plan import Plan
from heterosag.plan import assignment as seating
from heterosag.plan.checks import seed_bytes
from heterosag.plan.codec import ARGUMENTS
from heterosag.protocol import RoundId
from heterosag.protocol import messages as wire
from heterosag.protocol.context import roster_context, sharers_context
from heterosag.protocol.masks import shared_cells
from heterosag.protocol.survivors import check_admissible, make_admissible

Document = dict[str, Any]

RANGE = [-1.0, 1.0]

PLAIN: Document = {
    "classes": [3, 6],
    "levels": [3, 16],
    "dimension": 10,
    "value_range": RANGE,
    "ranges": "single",
    "subgroup_size": 3,
    "min_survivors": 2,
    "rotate": False,
}
SIGNED: Document = {
    "classes": [4, 4],
    "levels": [4, 200],
    "dimension": 14,
    "value_range": [-0.75, 1.25],
    "subgroup_size": 2,
    "min_survivors": 2,
    "max_weight": 3,
    "users": ["ada", "bo", "cy", "dee", "eve", "fay", 600, 7],
    "assignment_seed": hashed("assignment seed")[:16],
    "fill_levels": True,
    "metrics": ["loss"],
    "rotate": True,
    "arrays": [5, 9],
    "scales": [0.5, 3.0],
}
ARGUMENTS_OF: dict[str, Document] = {
    "plain": PLAIN,
    "signed": SIGNED,
    "secagg": {
        "classes": [5],
        "levels": [16],
        "dimension": 3,
        "value_range": RANGE,
        "design": "secagg",
        "min_survivors": 3,
    },
    "multigroup": {
        "classes": [6],
        "levels": [4],
        "dimension": 5,
        "value_range": RANGE,
        "design": "multigroup",
        "subgroup_size": 3,
    },
    "paper": {
        "classes": [10],
        "levels": [8],
        "dimension": 9,
        "value_range": RANGE,
        "design": "paper",
        "subgroup_size": 2,
        "min_survivors": 2,
    },
    "paper-composite": {
        "classes": [8],
        "levels": [8],
        "dimension": 9,
        "value_range": RANGE,
        "design": "paper-composite",
        "subgroup_size": 2,
        "min_survivors": 2,
        "min_robustness": 0.25,
    },
    "ten subgroups": {
        "classes": [10, 10],
        "levels": [2, 9],
        "dimension": 30,
        "value_range": RANGE,
        "subgroup_size": 2,
        "min_survivors": 2,
    },
    "sixteen subgroups": {
        "classes": [32],
        "levels": [2],
        "dimension": 30,
        "value_range": RANGE,
        "subgroup_size": 2,
        "min_survivors": 2,
    },
    "26 instead of 28": {
        "classes": [20, 8],
        "levels": [2, 3],
        "dimension": 26,
        "value_range": RANGE,
        "subgroup_size": 1,
        "min_survivors": 2,
    },
    "sparse sharing": {
        "classes": [20],
        "levels": [4],
        "dimension": 6,
        "value_range": RANGE,
        "min_survivors": 3,
        "subgroup_size": 5,
        "sharing": "sparse",
        "assignment_seed": 77,
        "colluders": 1,
        "dropout": 0.15,
    },
    "noise": {
        "classes": [8, 8],
        "levels": [2, 16],
        "dimension": 3000,
        "clipping_norm": 0.5,
        "noise_multiplier": 3.0,
        "min_survivors": 3,
        "min_block_survivors": 6,
        "honest": 4,
        "subgroup_size": 4,
    },
    "noise with an adaptive clip": {
        "classes": [40],
        "levels": [4],
        "dimension": 3000,
        "design": "secagg",
        "clipping_norm": 2.0,
        "noise_multiplier": 3.0,
        "min_block_survivors": 30,
        "adaptive_clip": True,
        "subgroup_size": 40,
    },
}

ARGUMENTS_OF_ROUND: dict[str, Document] = {
    "sparse": {
        "classes": [6, 6],
        "levels": [4, 16],
        "dimension": 15,
        "value_range": [-1.0, 1.5],
        "subgroup_size": 3,
        "min_survivors": 2,
        "colluders": 2,
        "dropout": 0.05,
        "sharing": "sparse",
        "assignment_seed": 5,
    },
    "noise": {
        "classes": [4, 4],
        "levels": [5, 17],
        "dimension": 15,
        "clipping_norm": 0.5,
        "noise_multiplier": 2.0,
        "subgroup_size": 2,
        "min_survivors": 2,
        "min_block_survivors": 2,
        "honest": 1,
        "adaptive_clip": True,
    },
}
"""Plans of whole rounds that are not in plan.json."""


TWO_SUBGROUPS: Document = {
    "classes": [3, 9],
    "levels": [4, 16],
    "dimension": 6,
    "value_range": RANGE,
    "design": "paper",
    "subgroup_size": 9,
    "min_survivors": 3,
    "min_block_survivors": 2,
}
"""A plan whose first segment has one block and whose second has two."""


def arguments_of_round(name: str) -> Document:
    """What the plan of a whole round is built from."""
    return ARGUMENTS_OF_ROUND[name] if name in ARGUMENTS_OF_ROUND else ARGUMENTS_OF[name]


def plan_of(name: str) -> Plan:
    """The plan that several files use."""
    return Plan.build(**ARGUMENTS_OF[name])


def plan_of_round(name: str) -> Plan:
    """The plan of a whole round."""
    return Plan.build(**arguments_of_round(name))


def written(arguments: Document) -> Document:
    """Arguments as JSON: a seed of bytes in hexadecimal."""
    seed = arguments.get("assignment_seed")
    return {**arguments, "assignment_seed": seed.hex()} if isinstance(seed, bytes) else arguments


# --- assignment and sharing ---------------------------------------------------------------------------------------


def assignment() -> Document:
    """assignment.json."""
    cases: list[Document] = []
    for label, seed, count in (
        ("assignment/0", b"int" + bytes(8), 1),
        ("assignment/0", b"int" + bytes(8), 12),
        ("assignment/1", b"int" + bytes(8), 12),
        ("sharing-order", b"", 12),
        ("sharing-order", b"bytes" + hashed("a seed"), 33),
    ):
        order = shuffle(label, seed, count)
        cases.append({"function": "shuffle", "label": label, "seed": seed.hex(), "count": count, "order": order})
    for classes, counts, seed in (
        ([5, 7], [2, 3], None),
        ([5, 7], [2, 3], 0),
        ([5, 7], [2, 3], 2**63 - 1),
        ([9], [3], stream(64, "longest seed")),
    ):
        found = seating.assign(classes, counts, seed_bytes(seed))
        cases.append(
            {
                "function": "assign",
                "classes": classes,
                "counts": counts,
                "seed": seed.hex() if isinstance(seed, bytes) else seed,
                "seed_bytes": None if seed is None else (seed_bytes(seed) or b"").hex(),
                "subgroups": [[subgroup.user_class, list(subgroup.members)] for subgroup in found],
            }
        )
    must_fail: list[Document] = [
        {"name": name, "seed": seed, "error": "PlanError"}
        for name, seed in (("negative", -1), ("too large", 2**63), ("no bytes", ""), ("65 bytes", "00" * 65))
    ]
    about = (
        "The shuffle that everybody computes alike from a public seed, and the subgroups it gives. "
        "A seed in hexadecimal stands for bytes, a number for itself."
    )
    return document(about, cases, must_fail)


def sharing() -> Document:
    """sharing.json."""
    plans = {
        "complete": ARGUMENTS_OF["plain"],
        "sparse": ARGUMENTS_OF["sparse sharing"],
        "sparse, without a seed": {
            "classes": [16],
            "levels": [4],
            "dimension": 6,
            "value_range": RANGE,
            "sharing": "sparse",
        },
    }
    cases = []
    for name, arguments in plans.items():
        plan = Plan.build(**arguments)
        graph = plan.sharing
        cases.append(
            {
                "name": name,
                "recipe": written(arguments),
                "seed_bytes": (seed_bytes(arguments.get("assignment_seed")) or b"").hex(),
                "users": graph.users,
                "neighbours": graph.neighbours,
                "share_threshold": graph.threshold,
                "agree_quorum": plan.agree_quorum,
                "order": list(graph.order),
                "holders": [list(graph.holders(user)) for user in range(graph.users)],
            }
        )
    must_fail: list[Document] = [
        {"name": "odd", "order": [0, 1, 2, 3], "neighbours": 3, "error": "UsageError"},
        {"name": "as many as users", "order": [0, 1, 2, 3], "neighbours": 4, "error": "UsageError"},
        {"name": "none", "order": [0, 1, 2, 3], "neighbours": 0, "error": "UsageError"},
        {"name": "a user twice", "order": [0, 1, 1, 3], "neighbours": 2, "error": "UsageError"},
    ]
    about = (
        "Who holds whose shares, and how many rebuild a secret or agree on a survivor set. "
        "On a sparse graph users stand in a shuffled ring and share with the nearest on either side."
    )
    return document(about, cases, must_fail)


# --- the plan -----------------------------------------------------------------------------------------------------


def encoded() -> Document:
    """plan.json."""
    cases = [_plan_case(name, plan_of(name)) for name in ARGUMENTS_OF]
    about = (
        "A plan's canonical encoding and digest, and what a client computes from it: subgroups, segments, blocks and "
        "rings; a block is [subgroups, users, level, bits]. "
        "Bytes that their recipe does not make must be refused."  # codespell:ignore recipe
    )
    return document(about, cases, [{**bad, "error": "PlanError"} for bad in _bad_plans()])


def _plan_case(name: str, plan: Plan) -> Document:
    subgroups = range(len(plan.subgroups))
    return {
        "name": name,
        "recipe": written(ARGUMENTS_OF[name]),
        "encoding": plan.encode().hex(),
        "digest": plan.digest.hex(),
        "users": list(plan.users),
        "subgroups": [[subgroup.user_class, list(subgroup.members)] for subgroup in plan.subgroups],
        "segments": [
            {
                "start": segment.start,
                "stop": segment.stop,
                "blocks": [[list(block.subgroups), block.users, block.level, block.bits] for block in segment.blocks],
            }
            for segment in plan.segments
        ],
        "lanes": list(plan.lanes),
        "metric_lanes": [*plan.lanes[:-1], *plan.metrics] if plan.metrics else [],
        "share_threshold": plan.share_threshold,
        "agree_quorum": plan.agree_quorum,
        "guarded_blocks": [list(block) for block in plan.guarded_blocks()],
        "vector_sizes": list(plan.vector_sizes()),
        "shared_cells": [[list(shared_cells(plan, g, h)) for h in subgroups] for g in subgroups]
        if len(subgroups) < 6
        else None,
    }


def _bad_plans() -> list[Document]:
    good = plan_of("plain").encode()
    version, arguments, structure = msgspec.msgpack.decode(good)

    def changed(place: int, value: Any) -> bytes:
        return msgspec.msgpack.encode([version, [*arguments[:place], value, *arguments[place + 1 :]], structure])

    wrong_bits = msgspec.msgpack.decode(good)
    wrong_bits[2][2][0][1][0][2] += 1
    wrong_quorum = [version, arguments, [*structure[:-1], structure[-1] - 1]]
    noisy = msgspec.msgpack.decode(plan_of("noise").encode())

    def noisily(name: str, value: Any) -> bytes:
        place = (*ARGUMENTS, "noise_multiplier", "honest", "adaptive_clip").index(name)
        return msgspec.msgpack.encode([version, [*noisy[1][:place], value, *noisy[1][place + 1 :]], noisy[2]])

    found = {
        "no bytes": b"",
        "cut": good[:-1],
        "a byte too many": good + b"\0",
        "another version": msgspec.msgpack.encode([1, arguments, structure]),
        "a recipe of sixteen values": msgspec.msgpack.encode(  # codespell:ignore recipe
            [version, arguments[:-1], structure]
        ),
        "a ring too wide in the structure": msgspec.msgpack.encode(wrong_bits),
        "a lower quorum in the structure": msgspec.msgpack.encode(wrong_quorum),
        "range as integers": changed(4, [-1, 1]),
        "version not at its shortest": good[:1] + b"\xcc\x02" + good[2:],
        "range in falling order": changed(4, [1.0, -1.0]),
        "a floor below two": changed(6, 1),
        "an unknown design": changed(3, "unheard of"),
        "levels that fall": changed(1, [16, 3]),
        "sharing not resolved": changed(13, "auto"),
        "noise that is none": noisily("noise_multiplier", 0.0),
        "noise in a range that is not symmetric": noisily("value_range", [-1.0, 0.5]),
        "noise without rotation": noisily("rotate", False),
        "noise beside weights": noisily("max_weight", 3),
        "noise beside exact metrics": noisily("metrics", ["loss"]),
        "more honest users than survivors less colluders": noisily("honest", 6),
        "an adaptive clip that is neither true nor false": noisily("adaptive_clip", 1),
        "too little noise for two levels": noisily("noise_multiplier", 0.5),
    }
    return [{"name": name, "bytes": data.hex()} for name, data in found.items()]


# --- admissible sets ----------------------------------------------------------------------------------------------


def admissibility() -> Document:
    """admissibility.json."""
    sets: dict[str, list[list[int]]] = {
        "plain": [
            [*range(9)],
            [0, 1, 3, 4, 6, 7],
            [1, 2, 3, 5, 6, 7, 8],
            [0, *range(3, 9)],
            [*range(3, 9)],
            [0, 1, 3, 4],
        ],
        "signed": [[*range(8)], [0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5, 6], [0, 1, 2, 3]],
        "secagg": [[0, 1, 2], [0, 1]],
        "multigroup": [[0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4]],
        "ten subgroups": [[*range(2, 20)], [*range(18)], [*range(4, 20)], [*range(1, 20)]],
        "sparse sharing": [[*range(20)], [*range(11)], _without_holders("sparse sharing", 1)],
        "two subgroups": [[*range(12)], [*range(3, 12)], [0, 1, *range(3, 12)], [0, 1, 2, 3, 4, 5, 6]],
    }
    cases, must_fail = [], []
    for name, found in sets.items():
        plan = Plan.build(**TWO_SUBGROUPS) if name == "two subgroups" else plan_of(name)
        for users in found:
            entry: Document = {"plan": plan.encode().hex(), "name": name, "users": users}
            entry["made_admissible"] = _made_admissible(plan, users)
            try:
                check_admissible(plan, frozenset(users))
                cases.append(entry)
            except TooFewSurvivorsError as error:
                must_fail.append({**entry, "error": "TooFewSurvivorsError", "reason": error.reason})
    about = (
        "Sets of users that are admissible under a plan, and sets that are not, with the rule they break. "
        "made_admissible is what a server keeps of the set by leaving out whole subgroups, null where nothing is left."
    )
    return document(about, cases, must_fail)


def _without_holders(name: str, user: int) -> list[int]:
    """Everybody but those who hold shares of one user."""
    plan = plan_of(name)
    return sorted(set(range(len(plan.users))) - set(plan.sharing.holders(user)))


def _made_admissible(plan: Plan, users: list[int]) -> list[int] | None:
    try:
        return sorted(make_admissible(plan, users))
    except TooFewSurvivorsError:
        return None


# --- contexts -----------------------------------------------------------------------------------------------------


def contexts() -> Document:
    """contexts.json."""
    cases = []
    for name, round_id in (
        ("plain", RoundId(session=b"s")),
        ("signed", RoundId(session=stream(64, "session"), number=2**64 - 1, model=hashed("model"))),
        ("signed", RoundId(session=stream(64, "session"), number=7, model=hashed("model"), metrics_only=True)),
    ):
        plan = plan_of(name)
        present = [0, 1, 2, 3, 4, 6, 7]
        advertised = [
            wire.Advertised(index, hashed(name, index, "seal"), hashed(name, index, "mask"), b"") for index in present
        ]
        c0 = round_id.context(plan)
        c1 = roster_context(c0, advertised)
        sharers = present[1:]
        cases.append(
            {
                "plan": plan.encode().hex(),
                "plan_digest": plan.digest.hex(),
                "frame": plan.frame.hex(),
                "session": round_id.session.hex(),
                "number": round_id.number,
                "model": round_id.model.hex(),
                "metrics_only": round_id.metrics_only,
                "roster": [
                    {"user": user.user, "seal_key": user.seal_key.hex(), "mask_key": user.mask_key.hex()}
                    for user in advertised
                ],
                "sharers": sharers,
                "c0": c0.hex(),
                "c1": c1.hex(),
                "c2": sharers_context(c1, *round_id.content(plan), sharers).hex(),
            }
        )
    zero = bytes(32).hex()
    must_fail: list[Document] = [
        {"name": "no session", "session": "", "number": 0, "model": zero, "error": "UsageError"},
        {"name": "65 bytes of session", "session": "00" * 65, "number": 0, "model": zero, "error": "UsageError"},
        {"name": "a round too far", "session": "00", "number": 2**64, "model": zero, "error": "UsageError"},
        {"name": "a short model digest", "session": "00", "number": 0, "model": "00" * 31, "error": "UsageError"},
    ]
    about = (
        "The three contexts of a round, from its plan, session, number and model, the roster and the list of sharers. "
        "Signatures of the roster are not part of c1. `metrics_only`: the round sums metrics and no update."
    )
    return document(about, cases, must_fail)
