"""Vectors of cohorts: the split of users, its encoding, and an enrolment in which they draw it."""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any

import msgspec
from enrolments import nonce_of, play, signer_of
from material import document, hashed
from msgspec.structs import replace
from plans import written

from heterosag.plan import CohortPlan, Plan
from heterosag.protocol import messages as wire
from heterosag.protocol.enrolment import Charter

Document = dict[str, Any]

BASE: Document = {
    "classes": [5, 6],
    "levels": [3, 16],
    "dimension": 6,
    "cohort_size": 4,
    "value_range": [-1.0, 1.0],
    "subgroup_size": 2,
    "min_survivors": 2,
}
NAMES = ["ada", "bo", "cy", "dee", "eve", "fay", "gus", 600, 7, "hal", "ivy"]
ARGUMENTS: dict[str, Document] = {
    "listed": BASE,
    "seeded by bytes, with names": BASE | {"assignment_seed": hashed("cohorts seed")[:16], "users": NAMES},
    "one cohort": BASE | {"cohort_size": 11, "assignment_seed": 7},
}
EPOCH = b"epoch of cohorts"


def encoded() -> Document:
    """cohorts.json."""
    cases = []
    for name, arguments in ARGUMENTS.items():
        whole = CohortPlan.build(**arguments)
        cases.append(
            {
                "name": name,
                "recipe": written(arguments),
                "encoding": whole.encode().hex(),
                "digest": whole.digest.hex(),
                "cohorts": [
                    {
                        "users": list(plan.users),
                        "classes": list(plan.classes),
                        "assignment_seed": _seed(plan.assignment_seed),
                        "digest": plan.digest.hex(),
                    }
                    for plan in whole.plans
                ],
            }
        )
    about = (
        "Cohorts: who is in which, each one's plan, and the canonical encoding and digest of the whole. "
        "Bytes with another split than the seed draws, or plans that are not alike, must be refused."
    )
    return document(about, [*cases, *_drawn()], [{**bad, "error": "PlanError"} for bad in _bad_encodings()])


_OWN = ("min_robustness", "colluders", "sharing")


def _drawn() -> list[Document]:
    """What a seed makes of a charter's cohorts, which may differ in what is each plan's own."""
    complete = {**BASE, "classes": [23], "levels": [4], "cohort_size": 12, "subgroup_size": 4, "min_survivors": 3}
    sparse = {**BASE, "levels": [4], "design": "secagg", "sharing": "sparse"}
    wide = CohortPlan.build(**sparse | {"classes": [32], "cohort_size": 16, "colluders": 1})
    charters = {
        "cohorts that are alike": CohortPlan.build(**complete | {"min_robustness": 0.25, "colluders": 2}),
        "cohorts of other robustness and colluders": _changed(
            CohortPlan.build(**complete), {"min_robustness": 0.25, "colluders": 0}, {"colluders": 2}
        ),
        "cohorts on other graphs": _changed(wide, {}, {"sharing": "complete"}),
        "sparse cohorts of other colluders": CohortPlan.build(**sparse | {"classes": [39], "cohort_size": 20}),
    }
    seed = hashed("a drawn seed")
    found = []
    for name, charter in charters.items():
        whole = CohortPlan.build(**charter.arguments() | {"assignment_seed": seed})
        case = {"function": "draw", "name": name, "charter": charter.encode().hex(), "seed": seed.hex()}
        own = [{key: plan.arguments()[key] for key in _OWN} for plan in whole.plans]
        found.append({**case, "digest": whole.digest.hex(), "cohorts": own})
    return found


def _changed(whole: CohortPlan, *changes: Document) -> CohortPlan:
    """Cohorts with other values of what is each plan's own."""
    plans = [Plan.build(**plan.arguments() | change) for plan, change in zip(whole.plans, changes, strict=True)]
    return dataclasses.replace(whole, plans=tuple(plans))


def _seed(seed: Any) -> Any:
    return seed.hex() if isinstance(seed, bytes) else seed


def _bad_encodings() -> list[Document]:
    small = {"classes": [9], "levels": [4], "dimension": 2, "cohort_size": 3, "design": "secagg", "min_survivors": 2}
    arguments: Document = {**small, "value_range": [-1.0, 1.0], "subgroup_size": 3, "assignment_seed": 7}
    good = CohortPlan.build(**arguments).encode()
    version, size, seed, names, plans = msgspec.msgpack.decode(good)
    other = CohortPlan.build(**arguments | {"value_range": [-2.0, 2.0]}).plans[2].encode()
    again = msgspec.msgpack.encode
    found = {
        "no bytes": b"",
        "a byte too many": good + b"\0",
        "another version": again([version + 1, size, seed, names, plans]),
        "a cohort missing": again([version, size, seed, names, plans[:-1]]),
        "no cohort": again([version, size, seed, names, []]),
        "cohorts in another order": again([version, size, seed, names, [plans[1], plans[0], plans[2]]]),
        "another seed": again([version, size, seed + 1, names, plans]),
        "another cohort size": again([version, 5, seed, names, plans]),
        "a cohort size of 1": again([version, 1, seed, names, plans]),
        "names that nobody needs": again([version, size, seed, list(range(9)), plans]),
        "a cohort with another range": again([version, size, seed, names, [*plans[:2], other]]),
        "size not at its shortest": good[:2] + b"\xcc" + good[2:],
    }
    return [{"name": name, "bytes": data.hex()} for name, data in found.items()]


# --- an enrolment -----------------------------------------------------------------------------------------------------


_NAME = "enrolment of cohorts"


def _charter() -> Charter:
    return Charter(epoch=EPOCH, plan=CohortPlan.build(**BASE))


def _nonce(index: int) -> bytes:
    return nonce_of(_NAME, index)


def _signer(index: int) -> Any:
    return signer_of(_NAME, index)


@cache
def _enrol() -> Document:
    return play(_charter(), _NAME)


def enrolled() -> Document:
    """enrolment_cohorts.json."""
    played = _enrol()
    charter, plan = _charter(), played["plan"]
    case = {
        "name": "eleven users in three cohorts",
        "epoch": EPOCH.hex(),
        "recipe": BASE,
        "charter_cohorts": charter.plan.encode().hex(),
        "charter_context": charter.context.hex(),
        "commitments_context": played["reveals"][0][5:37].hex(),
        "users": [
            {
                "index": index,
                "nonce": _nonce(index).hex(),
                "identity_private": hashed("enrolment of cohorts", index, "identity").hex(),
                "identity_public": _signer(index).public.hex(),
                "commitment_message": played["commitments"][index].hex(),
                "reveal_message": played["reveals"][index].hex(),
            }
            for index in range(len(plan.users))
        ],
        "commitments_message": played["listed"].hex(),
        "reveals_messages": [played["shown"][one.users[0]].hex() for one in plan.plans],
        "seed": plan.assignment_seed.hex(),
        "cohorts": plan.encode().hex(),
        "plan_digests": [one.digest.hex() for one in plan.plans],
    }
    about = (
        "An enrolment of cohorts: everybody's commitments are shown bare, and with everybody's nonces the signatures "
        "of the user's own cohort. A user refuses a list without its own commitment, nonces that do not open their "
        "commitments, and a cohort of which somebody has not signed."
    )
    return document(about, [case], _refused())


def _refused() -> list[Document]:
    """What user 0 refuses."""
    played, charter = _enrol(), _charter()
    listed = wire.decode(wire.CohortCommitments, played["listed"], plan=charter.plan)
    shown = wire.decode(wire.CohortReveals, played["shown"][0], plan=charter.plan)
    commitments, nonces, signatures = list(listed.commitments), list(shown.nonces), list(shown.signatures)
    other = hashed("another context")
    others = next(one for one in played["plan"].plans if 0 not in one.users)
    theirs = wire.decode(wire.CohortReveals, played["shown"][others.users[0]], plan=charter.plan)

    def refuses(name: str, step: str, message: wire.Message, error: str = "FaultyServerError") -> Document:
        return {"name": name, "user": 0, "step": step, "bytes": wire.encode(message).hex(), "error": error}

    swapped = [commitments[1], commitments[0], *commitments[2:]]
    return [
        refuses("another commitment of this user", "reveal", replace(listed, commitments=swapped)),
        refuses("a commitment missing", "reveal", replace(listed, commitments=commitments[:-1])),
        refuses("of another charter", "reveal", replace(listed, context=other)),
        refuses("a commitment of 31 bytes", "reveal", replace(listed, commitments=[bytes(31)] * 11), "WireError"),
        refuses("a nonce that does not open its commitment", "finish", replace(shown, nonces=[*nonces[:-1], other])),
        refuses("a nonce missing", "finish", replace(shown, nonces=nonces[:-1])),
        refuses("nonces of other commitments", "finish", replace(shown, context=other)),
        refuses("signatures of another cohort", "finish", replace(shown, signatures=theirs.signatures)),
        refuses("a signature missing", "finish", replace(shown, signatures=signatures[:-1])),
        refuses("no signature of one user", "finish", replace(shown, signatures=[*signatures[:-1], bytes(64)])),
        refuses("two signatures swapped", "finish", replace(shown, signatures=[*signatures[1::-1], *signatures[2:]])),
        refuses("a signature of 63 bytes", "finish", replace(shown, signatures=[bytes(63)]), "WireError"),
    ]
