"""The package against the published test vectors, file by file, and the files against their generator."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
from cases import each
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from vectors.replays import (
    FOLDER,
    Case,
    Enrolled,
    Replay,
    Script,
    cases,
    load,
    plan_of,
    round_id_of,
    secrets_of,
    unhex,
)

from heterosag import errors
from heterosag.aggregation.combine import combine
from heterosag.aggregation.rules import RULES
from heterosag.crypto import hashing, shamir
from heterosag.crypto.field import element_from_bytes, element_to_bytes
from heterosag.crypto.identity import Identity, verify
from heterosag.crypto.keys import (
    check_public_key,
    exchange_keys,
    mask_private_key,
    pair_mask_key,
    public_bytes,
    self_mask_key,
)
from heterosag.crypto.keystream import keystream
from heterosag.crypto.seal import Seal
from heterosag.plan import Cell, CohortPlan, Plan, PlannedBlock
from heterosag.plan.assignment import assign
from heterosag.plan.checks import seed_bytes
from heterosag.plan.codec import ARGUMENTS
from heterosag.plan.noise import noise_range
from heterosag.plan.sharing import sparse_graph
from heterosag.privacy.mechanism import count_trials, decode_mean, thresholds, word_starts
from heterosag.protocol import MemoryReleaseLog, Server, masks
from heterosag.protocol import messages as wire
from heterosag.protocol.cells import CellLanes, check_packed_cells, empty_cells, pack_cells, unpack_cells
from heterosag.protocol.context import roster_context, sharers_context
from heterosag.protocol.encoding import decode, fill_cells
from heterosag.protocol.enrolment import Charter, Enrolling, Enrolment
from heterosag.protocol.policy import Policy
from heterosag.protocol.rounding import Rounding
from heterosag.protocol.survivors import check_admissible, make_admissible
from heterosag.protocol.transitions import Phase
from heterosag.protocol.update import Update
from heterosag.vector import ring
from heterosag.vector.quantize import dequantize, quantize
from heterosag.vector.rotation import rotate, unrotate


def must_fail(name: str) -> Any:
    """Every must-fail case of a file, one after the other."""
    found = load(name)["must_fail"]
    return each("bad", found, ids=[f"{bad.get('kind', '')} {bad['name']}".strip() for bad in found])


def raises(bad: Case, act: Callable[[], object]) -> Any:
    """Exactly the named kind of error, not one that inherits from it."""
    with pytest.raises(errors.HeteroSagError) as refusal:
        act()
    assert type(refusal.value).__name__ == bad["error"]
    return refusal.value


# --- the files ----------------------------------------------------------------------------------------------------


def test_the_generator_makes_exactly_these_files() -> None:
    run = [sys.executable, str(FOLDER.parents[1] / "tools" / "vectors" / "generate.py"), "--check"]
    found = subprocess.run(run, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr


def test_every_file_says_what_it_is() -> None:
    names = {path.stem for path in FOLDER.glob("*.json")}
    page = (FOLDER.parents[1] / "docs" / "wire-format.md").read_text(encoding="utf-8")
    for name in names:
        text = (FOLDER / f"{name}.json").read_text(encoding="utf-8")
        found = load(name)
        assert found["about"].count(". ") >= 1
        assert (found["format"], found["wire_version"]) == (1, wire.WIRE_VERSION)
        assert found["cases"] or found["must_fail"]
        assert text.endswith("}\n")
        assert list(found) == sorted(found)
        assert all(bad["name"] and hasattr(errors, bad["error"]) for bad in found["must_fail"])
        assert f"`{name}.json`" in page
    assert sum((FOLDER / f"{name}.json").stat().st_size for name in names) < 900_000


def test_every_kind_of_message_and_every_step_is_covered() -> None:
    kinds = {kind.__name__ for kind in wire._DECODERS}
    assert {case["kind"] for case in cases("messages")} == kinds
    assert {bad["kind"] for bad in load("messages")["must_fail"]} == kinds
    phases = {phase.value for phase in Phase}
    assert {sent["phase"] for sent in cases("round_signed")[0]["users_send"]} == phases
    assert {sent["phase"] for sent in cases("round_plain")[0]["users_send"]} == phases - {"agree"}
    assert {bad["step"] for bad in load("refusals_client")["must_fail"]} == phases - {"advertise"}
    assert {bad["phase"] for bad in load("refusals_server")["must_fail"]} == phases
    assert {bad["step"] for bad in load("enrolment")["must_fail"]} == {"commit", "reveal", "finish"}
    refused = {bad["error"] for path in FOLDER.glob("*.json") for bad in load(path.stem)["must_fail"]}
    assert refused == {
        "FaultyBlockError",
        "FaultyServerError",
        "FaultyUserError",
        "PlanError",
        "TooFewSurvivorsError",
        "UsageError",
        "WireError",
        "WithheldError",
    }


# --- cryptography -------------------------------------------------------------------------------------------------


def test_labels() -> None:
    for case in cases("labels", "digest", "derive"):
        parts = [unhex(part) for part in case["parts"]]
        first = [unhex(case["secret"])] if case["function"] == "derive" else []
        assert getattr(hashing, case["function"])(case["label"], *first, *parts).hex() == case["result"]
    for case in cases("labels", "index_bytes"):
        assert hashing.index_bytes(*case["numbers"]).hex() == case["result"]
    for case in cases("labels", "commit"):
        where = case["kind"], unhex(case["context"]), case["dealer"], case["holder"]
        assert hashing.commit(*where, unhex(case["value"])).hex() == case["result"]


def test_keys() -> None:
    for case in cases("keys", "mask_private_key"):
        key = mask_private_key(element_from_bytes(unhex(case["mask_secret"])))
        assert key.private_bytes_raw().hex() == case["private"]
        assert public_bytes(key).hex() == case["public"]
    for case in cases("keys", "self_mask_key"):
        secret = element_from_bytes(unhex(case["self_secret"]))
        assert self_mask_key(secret, unhex(case["context"]), case["user"]).hex() == case["key"]
    for case in cases("keys", "pair_mask_key"):
        shared = exchange_keys(X25519PrivateKey.from_private_bytes(unhex(case["private"])), unhex(case["public"]))
        assert shared.hex() == case["shared"]
        assert pair_mask_key(shared, unhex(case["context"]), case["user"], case["other"]).hex() == case["key"]
        assert case["adds"] == (case["user"] < case["other"])


@must_fail("keys")
def test_keys_that_must_be_refused(bad: Case) -> None:
    raises(bad, lambda: check_public_key(unhex(bad["bytes"])))


def test_signatures() -> None:
    for case in cases("signatures"):
        signer, parts = Identity.from_private_bytes(unhex(case["private"])), [unhex(part) for part in case["parts"]]
        assert signer.public.hex() == case["public"]
        assert hashing.digest(f"sign/{case['label']}", *parts).hex() == case["signed"]
        assert signer.sign(case["label"], *parts).hex() == case["signature"]
        verify(signer.public, unhex(case["signature"]), case["label"], *parts)


@must_fail("signatures")
def test_signatures_that_must_be_refused(bad: Case) -> None:
    parts = [unhex(part) for part in bad["parts"]]
    raises(bad, lambda: verify(unhex(bad["public"]), unhex(bad["signature"]), bad["label"], *parts))


def seal_of(case: Case) -> Seal:
    return Seal.of(unhex(case["shared"]), unhex(case["context"]), case["dealer"], case["holder"])


def test_seals() -> None:
    for case in cases("seal"):
        pair = element_from_bytes(unhex(case["mask_share"])), element_from_bytes(unhex(case["self_share"]))
        assert seal_of(case).close(*pair).hex() == case["sealed"]
        assert seal_of(case).open(unhex(case["sealed"])) == pair
        cipher = ChaCha20Poly1305(unhex(case["key"]))
        plaintext = unhex(case["mask_share"]) + unhex(case["self_share"])
        sealed = cipher.encrypt(unhex(case["nonce"]), plaintext, unhex(case["associated"]))
        assert sealed.hex() == case["sealed"]


@must_fail("seal")
def test_seals_that_must_not_open(bad: Case) -> None:
    raises(bad, lambda: seal_of(bad).open(unhex(bad["sealed"])))


def test_shares() -> None:
    for case in cases("shamir"):
        polynomial = [element_from_bytes(unhex(one)) for one in case["polynomial"]]
        shares = shamir.split(polynomial, case["places"])
        assert [element_to_bytes(share).hex() for share in shares] == case["shares"]
        assert len(polynomial) == case["threshold"]
        weights = shamir.coefficients(tuple(case["rebuilt_from"]))
        assert [element_to_bytes(weight).hex() for weight in weights] == case["coefficients"]
        chosen = [shares[case["places"].index(place)] for place in case["rebuilt_from"]]
        assert element_to_bytes(shamir.combine(weights, chosen)).hex() == case["secret"]


@must_fail("shamir")
def test_shares_that_must_be_refused(bad: Case) -> None:
    acts: dict[str, Callable[[], object]] = {
        "element": lambda: element_from_bytes(unhex(bad["bytes"])),
        "split": lambda: shamir.split([1, 2], bad["places"]),
        "coefficients": lambda: shamir.coefficients(tuple(bad["places"])),
    }
    raises(bad, acts[bad["step"]])


# --- numbers ------------------------------------------------------------------------------------------------------


def test_keystream() -> None:
    for case in cases("keystream", "keystream"):
        assert keystream(unhex(case["key"]), case["size"], start=case["start"]).hex() == case["bytes"]
    for case in cases("keystream", "words"):
        assert Rounding(unhex(case["key"])).words(case["start"], case["count"]).tolist() == case["words"]
    for case in cases("keystream", "simulated_rounding"):
        rounding = Rounding.from_seed(case["seed"], case["user"], case["round"])
        assert rounding.words(0, case["count"]).tolist() == case["words"]


@must_fail("keystream")
def test_keystreams_that_must_be_refused(bad: Case) -> None:
    raises(bad, lambda: keystream(unhex(bad["key"]), bad["size"], start=bad["start"]))


def cells_of(shapes: list[list[int]]) -> list[Cell]:
    found = []
    for place, (bits, size, auxiliary) in enumerate(shapes):
        block = PlannedBlock(subgroups=(0,), users=1, level=2, bits=bits)
        found.append(Cell(segment=place, start=0, stop=size, block=block, lanes=("lane",) * auxiliary))
    return found


def written(lanes: list[CellLanes]) -> list[Case]:
    return [{"elements": cell.elements.tolist(), "auxiliary": cell.auxiliary.tolist()} for cell in lanes]


def test_masks() -> None:
    for case in cases("masks"):
        cells = cells_of(case["cells"])
        lanes = empty_cells(cells)
        for content, plain in zip(lanes, case["plain"], strict=True):
            content.elements[:] = plain["elements"]
            content.auxiliary[:] = plain["auxiliary"]
        masks.apply(lanes, [masks.Mask(unhex(m["key"]), m["add"], tuple(m["cells"])) for m in case["masks"]])
        assert pack_cells(lanes, cells).hex() == case["packed"]
        assert written(list(unpack_cells(memoryview(unhex(case["packed"])), cells))) == case["masked"]


def test_masks_by_the_offsets_alone() -> None:
    """As another implementation does it: numbers read from the stream at the offsets given."""
    for case in cases("masks"):
        for place, ((bits, size, auxiliary), plain) in enumerate(zip(case["cells"], case["plain"], strict=True)):
            lane = next(width for width in (1, 2, 4, 8) if bits <= 8 * width)
            elements, lanes = list(plain["elements"]), list(plain["auxiliary"])
            for mask in case["masks"]:
                if place not in mask["cells"]:
                    continue
                start, sign = mask["offsets"][mask["cells"].index(place)], 1 if mask["add"] else -1
                stream = keystream(unhex(mask["key"]), size * lane + 8 * auxiliary, start=start)
                for i in range(size):
                    elements[i] += sign * int.from_bytes(stream[i * lane : (i + 1) * lane], "little")
                for i in range(auxiliary):
                    at = size * lane + 8 * i
                    lanes[i] += sign * int.from_bytes(stream[at : at + 8], "little")
            found = {"elements": [e % 2**bits for e in elements], "auxiliary": [a % 2**64 for a in lanes]}
            assert found == case["masked"][place]


@must_fail("masks")
def test_vectors_that_must_be_refused(bad: Case) -> None:
    cells = cells_of(bad["cells"])
    raises(bad, lambda: check_packed_cells(memoryview(unhex(bad["bytes"])), cells))
    raises(bad, lambda: list(unpack_cells(memoryview(unhex(bad["bytes"])), cells)))


def test_quantizer() -> None:
    for case in cases("quantize"):
        out = np.empty(len(case["values"]), dtype=ring.lane_dtype(case["bits"]))
        words, ends = np.array(case["words"], dtype=np.uint32), tuple(case["range"])
        values = np.array(case["values"], dtype=np.float64)
        clipped = quantize(values, case["level"], ends, words, out=out)
        assert (out.tolist(), clipped) == (case["quantized"], case["clipped"])
        assert dequantize(out, 1, case["level"], ends).tolist() == case["decoded"]


@must_fail("quantize")
def test_values_that_must_be_refused(bad: Case) -> None:
    values = np.array([float(value) for value in bad["values"]])
    words, out = np.array(bad["words"], dtype=np.uint32), np.zeros(len(values), dtype=np.uint8)
    raises(bad, lambda: quantize(values, bad["level"], tuple(bad["range"]), words, out=out))


def test_noise() -> None:
    for case in cases("noise"):
        if case["function"] == "word_starts":
            assert word_starts(case["sizes"], case["trials"]) == case["starts"]
        elif case["function"] == "noise_range":
            given = [case[name] for name in ("noise_multiplier", "clipping_norm", "honest", "trials", "size")]
            found = noise_range(*given)
            for name in ("block_range", "coordinate_limit", "theta"):
                assert getattr(found, name) == pytest.approx(case[name], rel=1e-15)
        else:
            values, out = np.array(case["values"], dtype=np.float64), np.empty(len(case["values"]), dtype=np.uint8)
            ranges = {"block_range": case["block_range"], "theta": case["theta"]}
            trials, key, first = case["trials"], unhex(case["key"]), case["first_word"]
            assert thresholds(values, case["factor"], **ranges).tolist() == case["thresholds"]
            count_trials(values, case["factor"], trials=trials, key=key, first_word=first, out=out, **ranges)
            assert out.tolist() == case["counts"]
            assert decode_mean(out, 1, trials, case["block_range"]).tolist() == case["decoded"]


@must_fail("noise")
def test_noise_that_must_be_refused(bad: Case) -> None:
    raises(bad, lambda: noise_range(bad["noise_multiplier"], 1.0, bad["honest"], bad["trials"], bad["size"]))


def test_rotation() -> None:
    for case in cases("rotation"):
        turned = rotate(np.array(case["values"]), case["segment"])
        assert turned.tolist() == case["rotated"]
        assert unrotate(turned, case["segment"]).tolist() == case["restored"]
        size = len(case["signs"])
        stream = keystream(hashing.digest("rotation", hashing.index_bytes(case["segment"], size)), (size + 7) // 8)
        assert [1 - 2 * (stream[i // 8] >> i % 8 & 1) for i in range(size)] == case["signs"]


def test_packing() -> None:
    assert {case["bits"] for case in cases("packing")} == set(range(1, 65))
    for case in cases("packing"):
        elements, bits = case["elements"], case["bits"]
        assert ring.pack(np.array(elements, dtype=ring.lane_dtype(bits)), bits).hex() == case["bytes"]
        assert ring.unpack(unhex(case["bytes"]), bits, len(elements)).tolist() == elements
        planes, below = b"", 0
        for width in [*(8 * size for size in (8, 4, 2, 1) if bits // 8 & size), bits % 8]:
            joined = sum((element >> below) % 2**width << i * width for i, element in enumerate(elements))
            planes += joined.to_bytes((len(elements) * width + 7) // 8, "little")
            below += width
        assert planes.hex() == case["bytes"]


@must_fail("packing")
def test_packed_bytes_that_must_be_refused(bad: Case) -> None:
    raises(bad, lambda: ring.unpack(unhex(bad["bytes"]), bad["bits"], bad["count"]))


# --- what is public before a round --------------------------------------------------------------------------------


def test_assignment() -> None:
    for case in cases("assignment", "shuffle"):
        assert hashing.shuffle(case["label"], unhex(case["seed"]), case["count"]) == case["order"]
    for case in cases("assignment", "assign"):
        seed = unhex(case["seed"]) if isinstance(case["seed"], str) else case["seed"]
        material = seed_bytes(seed)
        assert (None if material is None else material.hex()) == case["seed_bytes"]
        found = assign(case["classes"], case["counts"], material)
        assert [[subgroup.user_class, list(subgroup.members)] for subgroup in found] == case["subgroups"]


@must_fail("assignment")
def test_seeds_that_must_be_refused(bad: Case) -> None:
    raises(bad, lambda: seed_bytes(unhex(bad["seed"]) if isinstance(bad["seed"], str) else bad["seed"]))


def test_sharing() -> None:
    for case in cases("sharing"):
        plan = plan_of(case["recipe"])
        graph = plan.sharing
        assert [list(graph.holders(user)) for user in range(case["users"])] == case["holders"]
        assert (graph.neighbours, plan.share_threshold) == (case["neighbours"], case["share_threshold"])
        assert (plan.agree_quorum, list(graph.order)) == (case["agree_quorum"], case["order"])
        if case["order"]:
            assert hashing.shuffle("sharing-order", unhex(case["seed_bytes"]), case["users"]) == case["order"]


@must_fail("sharing")
def test_graphs_that_must_be_refused(bad: Case) -> None:
    raises(bad, lambda: sparse_graph(bad["order"], bad["neighbours"], 1))


@pytest.mark.parametrize("case", cases("plan"), ids=lambda case: case["name"])
def test_plans(case: Case) -> None:
    plan = plan_of(case["recipe"])
    assert plan.encode().hex() == case["encoding"]
    assert Plan.decode(unhex(case["encoding"])).digest.hex() == plan.digest.hex() == case["digest"]
    assert list(plan.users) == case["users"]
    assert [[subgroup.user_class, list(subgroup.members)] for subgroup in plan.subgroups] == case["subgroups"]
    for segment, expected in zip(plan.segments, case["segments"], strict=True):
        assert (segment.start, segment.stop) == (expected["start"], expected["stop"])
        blocks = [[list(block.subgroups), block.users, block.level, block.bits] for block in segment.blocks]
        assert blocks == expected["blocks"]
    assert list(plan.lanes) == case["lanes"]
    last = plan.cells(0)[-1]
    assert (list(last.lanes) if plan.metrics else []) == case["metric_lanes"]
    assert (plan.share_threshold, plan.agree_quorum) == (case["share_threshold"], case["agree_quorum"])
    assert [list(block) for block in plan.guarded_blocks()] == case["guarded_blocks"]
    assert list(plan.vector_sizes()) == case["vector_sizes"]
    for mine, row in enumerate(case["shared_cells"] or []):
        assert [list(masks.shared_cells(plan, mine, theirs)) for theirs in range(len(row))] == row


SPLITS = [case for case in cases("cohorts") if "function" not in case]


@pytest.mark.parametrize("case", SPLITS, ids=lambda case: case["name"])
def test_cohorts(case: Case) -> None:
    arguments = case["recipe"]
    seed = arguments.get("assignment_seed")
    whole = CohortPlan.build(**arguments | {"assignment_seed": unhex(seed) if isinstance(seed, str) else seed})
    assert whole.encode().hex() == case["encoding"]
    assert CohortPlan.decode(unhex(case["encoding"])).digest.hex() == whole.digest.hex() == case["digest"]
    for plan, expected in zip(whole.plans, case["cohorts"], strict=True):
        assert (list(plan.users), list(plan.classes)) == (expected["users"], expected["classes"])
        own = plan.assignment_seed
        assert (own.hex() if isinstance(own, bytes) else own) == expected["assignment_seed"]
        assert plan.digest.hex() == expected["digest"]


@pytest.mark.parametrize("case", [case for case in cases("cohorts") if case not in SPLITS], ids=lambda c: c["name"])
def test_what_a_seed_makes_of_a_charters_cohorts(case: Case) -> None:
    assert case["function"] == "draw"
    charter = CohortPlan.decode(unhex(case["charter"]))
    whole = CohortPlan.build(**charter.arguments() | {"assignment_seed": unhex(case["seed"])})
    assert whole.digest.hex() == case["digest"]
    for plan, expected in zip(whole.plans, case["cohorts"], strict=True):
        assert {name: plan.arguments()[name] for name in expected} == expected


@must_fail("cohorts")
def test_cohorts_that_must_be_refused(bad: Case) -> None:
    raises(bad, lambda: CohortPlan.decode(unhex(bad["bytes"])))


@must_fail("plan")
def test_plans_that_must_be_refused(bad: Case) -> None:
    raises(bad, lambda: Plan.decode(unhex(bad["bytes"])))


def floats_of(value: Any) -> Any:
    """What JSON cannot write: infinite, and no number."""
    if isinstance(value, list):
        return [floats_of(one) for one in value]
    return float(value) if isinstance(value, str) and value in ("inf", "nan") else value


def changed_arguments(case: Case) -> tuple[Case, Plan]:
    """The arguments of a case, and the plan that its base is."""
    base = load("plan_limits")["bases"][case["base"]]
    seed = base["assignment_seed"]
    base = base | {"assignment_seed": unhex(seed) if isinstance(seed, str) else seed}
    return base | {name: floats_of(value) for name, value in case["change"].items()}, planned(base)


def in_order(arguments: Case) -> list[Any]:
    """Arguments as they are encoded."""
    names = (*ARGUMENTS, "noise_multiplier", "honest", "adaptive_clip")
    return [arguments[name] for name in names if name in arguments]


def planned(arguments: Case) -> Plan:
    if "noise_multiplier" not in arguments:
        return Plan.build(**arguments)
    rest = {name: value for name, value in arguments.items() if name != "value_range"}
    return Plan.build(**rest, clipping_norm=arguments["value_range"][1])


@pytest.mark.parametrize("case", cases("plan_limits"), ids=lambda case: case["name"])
def test_plans_at_their_limits(case: Case) -> None:
    arguments, _ = changed_arguments(case)
    plan = planned(arguments)
    assert Plan.decode(plan.encode()).digest.hex() == plan.digest.hex() == case["digest"]
    assert msgspec.msgpack.decode(plan.encode())[1] == in_order(arguments)


@must_fail("plan_limits")
def test_plans_beyond_their_limits(bad: Case) -> None:
    arguments, base = changed_arguments(bad)
    if "encoding" not in bad:
        raises(bad, lambda: planned(arguments))
    if bad["name"] != "a user of more than 64 bits":  # which MessagePack cannot write
        version, _, structure = msgspec.msgpack.decode(base.encode())
        encoded = msgspec.msgpack.encode([version, in_order(arguments), structure])
        raises(bad, lambda: Plan.decode(encoded))


def made_admissible(plan: Plan, users: list[int]) -> list[int] | None:
    try:
        return sorted(make_admissible(plan, users))
    except errors.TooFewSurvivorsError:
        return None


def test_admissible_sets() -> None:
    for case in cases("admissibility"):
        plan = Plan.decode(unhex(case["plan"]))
        check_admissible(plan, frozenset(case["users"]))
        assert made_admissible(plan, case["users"]) == case["made_admissible"] == case["users"]


@must_fail("admissibility")
def test_sets_that_are_not_legal(bad: Case) -> None:
    plan = Plan.decode(unhex(bad["plan"]))
    assert raises(bad, lambda: check_admissible(plan, frozenset(bad["users"]))).reason == bad["reason"]
    assert made_admissible(plan, bad["users"]) == bad["made_admissible"]


def test_contexts() -> None:
    for case in cases("contexts"):
        plan = Plan.decode(unhex(case["plan"]))
        assert plan.digest.hex() == case["plan_digest"]
        assert plan.frame.hex() == plan.with_value_range((-0.3, 7.0)).frame.hex() == case["frame"]
        c0 = round_id_of(case).context(plan)
        roster = [
            wire.Advertised(entry["user"], unhex(entry["seal_key"]), unhex(entry["mask_key"]), signature)
            for entry, signature in zip(case["roster"], [b"", bytes(64)] * len(case["roster"]), strict=False)
        ]
        c1 = roster_context(c0, roster)
        c2 = sharers_context(c1, *round_id_of(case).content(plan), case["sharers"])
        assert (c0.hex(), c1.hex(), c2.hex()) == (case["c0"], case["c1"], case["c2"])


@must_fail("contexts")
def test_rounds_that_must_be_refused(bad: Case) -> None:
    raises(bad, lambda: round_id_of(bad))


# --- messages -----------------------------------------------------------------------------------------------------


def as_fields(value: Any) -> Any:
    if isinstance(value, (bytes, memoryview)):
        return bytes(value).hex()
    if isinstance(value, (list, tuple)):
        return [as_fields(part) for part in value]
    if isinstance(value, msgspec.Struct):
        return {name: as_fields(getattr(value, name)) for name in value.__struct_fields__}
    return value


@pytest.mark.parametrize("case", cases("messages"), ids=lambda case: case["name"])
def test_messages(case: Case) -> None:
    plan, kind, data = Plan.decode(unhex(load("messages")["plan"])), getattr(wire, case["kind"]), unhex(case["bytes"])
    message = wire.decode(kind, data, plan=plan)
    assert as_fields(message) == case["fields"]
    assert wire.encode(message) == data
    assert wire.size_limit(plan, kind) == case["size_limit"] >= len(data)
    tag, version, context, *_ = msgspec.msgpack.decode(data)
    assert (tag, version) == (kind.__struct_config__.tag, wire.WIRE_VERSION)
    assert context.hex() == case["fields"]["context"]


@must_fail("messages")
def test_messages_that_must_be_refused(bad: Case) -> None:
    plan, kind = Plan.decode(unhex(load("messages")["plan"])), getattr(wire, bad["kind"])
    assert (
        raises(bad, lambda: wire.decode(kind, unhex(bad["bytes"]), plan=plan, sender="somebody")).sender == "somebody"
    )


# --- whole rounds -------------------------------------------------------------------------------------------------


ROUNDS = pytest.mark.parametrize("name", ["plain", "signed", "sparse", "noise"])


@ROUNDS
def test_clients_send_exactly_these_bytes(name: str) -> None:
    replay = Replay(name)
    for user in replay.case["users"]:
        client = replay.client(user["index"])
        for phase in replay.case["phases"]:
            if (phase, user["index"]) in replay.sent:
                message = replay.asked.get((phase, user["index"]), b"")
                assert replay.answer(client, phase, message) == replay.sent[phase, user["index"]]


@ROUNDS
def test_what_a_user_derives_in_a_round(name: str) -> None:
    replay = Replay(name)
    case, plan = replay.case, replay.plan
    assert plan_of(case["recipe"]).digest == plan.digest
    assert replay.round_id.context(plan).hex() == case["c0"]
    for user in case["users"]:
        secrets = secrets_of(user)
        assert (public_bytes(secrets.mask_key).hex(), public_bytes(secrets.seal_key).hex()) == (
            user["mask_public"],
            user["seal_public"],
        )
        assert plan.subgroup_of(user["name"]) == user["subgroup"]
        update = Update.of(plan, np.array(user["update"]), weight=user["weight"], metrics=user["metrics"])
        rounding = Rounding(unhex(user["rounding_key"]))
        assert written(fill_cells(plan, user["subgroup"], update, rounding)) == user["cells"]


@ROUNDS
def test_the_server_sends_exactly_these_bytes_and_ends_with_these_sums(name: str) -> None:
    replay = Replay(name)
    case, plan = replay.case, replay.plan
    server = Server(plan, replay.round_id, directory=replay.directory)
    contexts = []
    for place, phase in enumerate(case["phases"]):
        contexts.append(next(data for (at, _), data in replay.sent.items() if at == phase)[5:37].hex())
        for (at, user), data in replay.sent.items():
            if at == phase:
                assert server.receive(plan.users[user], data)
        told = {plan.index(user): data for user, data in server.close().items()}
        after = case["phases"][place + 1 : place + 2]
        assert told == {user: data for (at, user), data in replay.asked.items() if [at] == after}
    assert contexts[:3] == [case["c0"], case["c1"], case["c2"]]
    decoded = server.decoded
    assert [plan.index(user) for user in decoded.survivors] == case["survivors"]
    found = [(segment, block) for segment, blocks in enumerate(decoded.segments) for block in blocks]
    found += [] if decoded.metrics is None else [(len(plan.segments), decoded.metrics)]
    for (segment, block), expected in zip(found, case["blocks"], strict=True):
        assert (segment, list(block.block.subgroups)) == (expected["segment"], expected["subgroups"])
        assert (block.survivors, block.auxiliary) == (expected["survivors"], expected["auxiliary"])
        assert block.elements.tolist() == expected["sums"]
        if segment < len(plan.segments):
            mean = decode(plan, block.block, block.elements, block.survivors, block.weight, segment=segment)
            assert mean.tolist() == expected["mean"]
    combined = combine(plan, decoded, RULES["mean"])
    assert combined.vector.tolist() == case["aggregate"]
    assert combined.metrics == case["metrics"]
    if "within_norm" in case:
        assert combined.within_norm == pytest.approx(case["within_norm"], rel=1e-14)


@ROUNDS
def test_the_sums_are_those_of_the_survivors_cells(name: str) -> None:
    """Without any cryptography: what the file says the blocks sum to is what its users put in."""
    replay = Replay(name)
    case = replay.case
    survivors = [user for user in case["users"] if user["index"] in case["survivors"]]
    for block in case["blocks"]:
        inside = [user["cells"][block["segment"]] for user in survivors if user["subgroup"] in block["subgroups"]]
        assert [sum(column) for column in zip(*(cell["elements"] for cell in inside), strict=True)] == block["sums"]
        totals = [sum(column) % 2**64 for column in zip(*(cell["auxiliary"] for cell in inside), strict=True)]
        assert sorted(totals) == sorted(block["auxiliary"].values())


# --- refusals -----------------------------------------------------------------------------------------------------


@must_fail("refusals_client")
def test_what_a_client_must_refuse(bad: Case) -> None:
    refused_by_client(bad)


def refused_by_client(bad: Case) -> None:
    replay, log = Replay(bad["round"]), MemoryReleaseLog()
    if "first" in bad:  # another process of the same user went before, and only its log is left
        before = replay.client(bad["user"], log)
        replay.take(before, bad["after"])
        for step, message in bad["first"]:
            replay.answer(before, step, unhex(message))
    client = replay.client(bad["user"], log)
    replay.take(client, bad["after"])
    *good, last = [unhex(message) for message in bad["messages"]]
    for message in good:
        replay.answer(client, bad["step"], message)
    raises(bad, lambda: replay.answer(client, bad["step"], last, bad.get("update", "")))
    assert client.phase.value == bad["client_is"]


def test_what_a_client_complains_about() -> None:
    for case in cases("refusals_client"):
        replay = Replay(case["round"])
        client = replay.client(case["user"])
        replay.take(client, case["after"])
        assert replay.answer(client, case["step"], unhex(case["messages"][0])).hex() == case["answer"]


@must_fail("refusals_server")
def test_what_a_server_must_refuse(bad: Case) -> None:
    refused_by_server(bad)


@must_fail("refusals_vectors")
def test_vectors_that_a_server_must_refuse(bad: Case) -> None:
    refused_by_server(bad)


@must_fail("refusals_sparse")
def test_what_must_be_refused_on_a_sparse_graph(bad: Case) -> None:
    (refused_by_server if "changes" in bad else refused_by_client)(bad)


@pytest.mark.parametrize("case", cases("refusals_vectors"), ids=lambda case: case["name"])
def test_the_largest_and_least_sums_that_users_can_make(case: Case) -> None:
    replay = Replay(case["round"])
    plan = replay.plan
    server = Server(plan, replay.round_id, directory=replay.directory)
    changed = {(change["phase"], change["user"]): unhex(change["bytes"]) for change in case["changes"]}
    for phase in replay.case["phases"]:
        for (at, user), data in replay.sent.items():
            if at == phase:
                assert server.receive(plan.users[user], changed.get((at, user), data))
        server.close()
    combine(plan, server.decoded, RULES["mean"])
    expected, decoded = case["block"], server.decoded
    blocks = (*decoded.segments, (decoded.metrics,))[expected["segment"]]
    [block] = [one for one in blocks if one is not None and list(one.block.subgroups) == expected["subgroups"]]
    assert (block.survivors, block.auxiliary) == (expected["survivors"], expected["auxiliary"])
    assert block.elements.tolist() == expected["sums"]


def refused_by_server(bad: Case) -> None:
    replay = Replay(bad["round"])
    plan, phases = replay.plan, replay.case["phases"]
    server = Server(plan, replay.round_id, directory=replay.directory)
    changed = {(change["phase"], change["user"]) for change in bad["changes"]}
    for phase in phases:
        for (at, user), data in replay.sent.items():
            if at == phase and (at, user) not in changed:
                server.receive(plan.users[user], data)
        sends = [
            (plan.users[change["user"]], unhex(change["bytes"]))
            for change in bad["changes"]
            if change["phase"] == phase and change["bytes"] is not None
        ]
        refused = sends.pop() if (bad["at"], bad["phase"]) == ("receive", phase) else None
        for name, data in sends:
            server.receive(name, data)
        if refused is not None:
            user, message = refused
            raises(bad, lambda: server.receive(user, message))  # noqa: B023
            assert [refusal.kind for refusal in server.refusals] == [bad["error"]]
            return
        if (bad["at"], bad["phase"]) == ("close", phase):
            raises(bad, server.close)
            return
        server.close()
    raises(bad, lambda: combine(plan, server.decoded, RULES["mean"]))


# --- machines, step after step ------------------------------------------------------------------------------------


def scripts(name: str) -> Any:
    """Every case of a file, those that end in an error too."""
    found = [*load(name)["cases"], *load(name)["must_fail"]]
    return pytest.mark.parametrize("case", found, ids=[f"{one['party']} {one['name']}" for one in found])


def follow(name: str, case: Case) -> None:
    """Take every step, and compare what each gives."""
    script = Script(name, case)
    for step in case["steps"]:
        gives = step.get("gives", "")
        if gives.endswith("Error"):
            raises({"error": gives}, lambda: script.take(step))  # noqa: B023
        elif gives:
            assert script.take(step) == script.expected(step)
        else:
            script.take(step)
    assert case.get("error", "") in ("", case["steps"][-1]["gives"])
    if "client_is" in case:
        assert script.client.phase.value == case["client_is"]


@scripts("machines")
def test_machines(case: Case) -> None:
    follow("machines", case)


@scripts("settling")
def test_settling(case: Case) -> None:
    follow("settling", case)


def test_settling_changes_c2_and_nothing_before() -> None:
    plans = {name: Plan.decode(unhex(data)) for name, data in load("settling")["plans"].items()}
    recorded = Replay("signed").plan
    assert [name for name, plan in plans.items() if plan.frame != recorded.frame] == ["another frame"]
    assert len({recorded.digest, *(plan.digest for plan in plans.values())}) == len(plans) + 1


# --- enrolment ----------------------------------------------------------------------------------------------------


def test_enrolment() -> None:
    enrolled = Enrolled()
    case, charter = enrolled.case, enrolled.charter
    assert charter.plan.encode().hex() == case["charter_plan"]
    assert charter.context.hex() == case["charter_context"]
    server = Enrolment(charter, directory=enrolled.directory)
    for kind, told in (("commitment_message", "commitments_message"), ("reveal_message", "reveals_message")):
        for user in case["users"]:
            server.receive(enrolled.names[user["index"]], unhex(user[kind]))
        assert {data.hex() for data in server.close().values()} == {case[told]}
    for user in case["users"]:
        plan = enrolled.user(user["index"], "finish").finish(unhex(case["reveals_message"]))
        assert (plan.encode().hex(), plan.digest.hex()) == (case["plan"], case["plan_digest"])
    nonces = [unhex(user["nonce"]) for user in case["users"]]
    assert hashing.digest("enrol/seed", unhex(case["commitments_context"]), *nonces).hex() == case["seed"]
    assert plan_of({**case["recipe"], "assignment_seed": case["seed"]}).digest == server.plan.digest


@must_fail("enrolment")
def test_what_an_enrolment_must_refuse(bad: Case) -> None:
    enrolled = Enrolled()
    if bad["party"] == "user":
        person = enrolled.user(bad["user"], bad["step"])
        *good, last = [unhex(message) for message in bad["messages"]]
        for message in good:
            getattr(person, bad["step"])(message)
        raises(bad, lambda: getattr(person, bad["step"])(last))
        return
    server = Enrolment(enrolled.charter, directory=enrolled.directory)
    for step, kind in (("commit", "commitment_message"), ("reveal", "reveal_message")):
        for user in enrolled.case["users"]:
            if (step, user["index"]) != (bad["step"], bad["user"]):
                server.receive(enrolled.names[user["index"]], unhex(user[kind]))
        if step == bad["step"]:
            break
        server.close()
    data = bad["bytes"]
    raises(bad, server.close if data is None else lambda: server.receive(enrolled.names[bad["user"]], unhex(data)))


def chartered_cohorts(case: Case) -> tuple[Charter, dict[Any, bytes]]:
    charter = Charter(epoch=unhex(case["epoch"]), plan=CohortPlan.build(**case["recipe"]))
    return charter, {charter.plan.users[one["index"]]: unhex(one["identity_public"]) for one in case["users"]}


def user_of_cohorts(case: Case, index: int, step: str) -> Enrolling:
    """A user before the step named."""
    charter, directory = chartered_cohorts(case)
    entry = case["users"][index]
    identity = Identity.from_private_bytes(unhex(entry["identity_private"]))
    options: dict[str, Any] = {"identity": identity, "directory": directory, "policy": Policy.any_plan()}
    person = Enrolling(charter, charter.plan.users[index], **options)
    assert person.commit(nonce=unhex(entry["nonce"])).hex() == entry["commitment_message"]
    if step == "finish":
        assert person.reveal(unhex(case["commitments_message"])).hex() == entry["reveal_message"]
    return person


def test_enrolment_of_cohorts() -> None:
    case = cases("enrolment_cohorts")[0]
    charter, directory = chartered_cohorts(case)
    assert charter.plan.encode().hex() == case["charter_cohorts"]
    assert charter.context.hex() == case["charter_context"]
    server = Enrolment(charter, directory=directory)
    for kind, told in (
        ("commitment_message", [case["commitments_message"]]),
        ("reveal_message", case["reveals_messages"]),
    ):
        for user in case["users"]:
            server.receive(charter.plan.users[user["index"]], unhex(user[kind]))
        assert {data.hex() for data in server.close().values()} == set(told)
    assert server.plan.encode().hex() == case["cohorts"]
    whole = CohortPlan.decode(unhex(case["cohorts"]))
    for index, user in enumerate(whole.users):
        cohort = whole.cohort_of(user)
        plan = user_of_cohorts(case, index, "finish").finish(unhex(case["reveals_messages"][cohort]))
        assert plan.digest.hex() == case["plan_digests"][cohort]
    nonces = [unhex(user["nonce"]) for user in case["users"]]
    assert hashing.digest("enrol/seed", unhex(case["commitments_context"]), *nonces).hex() == case["seed"]


@must_fail("enrolment_cohorts")
def test_what_an_enrolment_of_cohorts_must_refuse(bad: Case) -> None:
    person = user_of_cohorts(cases("enrolment_cohorts")[0], bad["user"], bad["step"])
    raises(bad, lambda: getattr(person, bad["step"])(unhex(bad["bytes"])))
