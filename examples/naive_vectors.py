"""All test vectors, checked with the naive implementation, which follows the two pages and the vectors alone.

    python examples/naive_vectors.py [folder of vectors]

Every case of every file is computed and compared in full, every must-fail case must be refused with the error it names.
A case that nothing here knows, and the first difference, end the program with exit code 1. One thing is left out: the
rounding words of simulations in keystream.json, which the page says are not part of the wire.
"""

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from naive_machines import check_machine, refuse_machine
from naive_plan import (
    Arguments,
    Charter,
    Cohorts,
    Enrolling,
    Enrolment,
    arguments_of,
    assign,
    build_arguments,
    build_cohorts,
    decode_plan,
    draw_cohorts,
    encode_plan,
    seed_bytes,
    sharing_graph,
    shuffle,
    structure,
)
from naive_round import ROUNDS, Log, Plan, Server, User, load, recorded, replay, ring_neighbours, same, sent
from naive_trips import rehearse_all, run_recorded_in_a_row
from naive_wire import (
    WIRE_VERSION,
    Cell,
    RefusedError,
    TooFewSurvivorsError,
    add_mask,
    agreement,
    cell_offsets,
    commit,
    count_trials,
    decode,
    derive,
    digest,
    element,
    encode,
    identity_key,
    keystream,
    lagrange,
    mean_of,
    noise_range,
    noisy_mean_of,
    pack,
    pack_bits,
    pack_vector,
    pair_key,
    public_key,
    quantize,
    rebuild,
    require,
    roster_context,
    rotate,
    rotation_signs,
    round_context,
    seal,
    seal_parts,
    share_at,
    sharers_context,
    sign,
    thresholds,
    u64,
    unpack_bits,
    unpack_vector,
    unseal,
    vector_size,
    verify,
    word_starts,
    words,
)

Case = dict[str, Any]
Pairs = list[tuple[Any, Any]]  # what is computed, and what the vectors say
BUILT_FROM = "recipe"  # codespell:ignore recipe - what the vectors call the arguments of `Plan.build`


# Derivations, keys, shares and seals


def check_mask_private_key(c: Case) -> Pairs:
    """Check a mask key pair."""
    private = derive("mask-private-key", c["mask_secret"])
    return [(private, c["private"]), (public_key(private), c["public"])]


def check_pair_mask_key(c: Case) -> Pairs:
    """Check the agreement of two users, the key of their mask, and who adds it."""
    key = pair_key(c["private"], c["public"], c["context"], c["user"], c["other"])
    shared = agreement(c["private"], c["public"])
    return [(key, c["key"]), (shared, c["shared"]), (c["user"] < c["other"], c["adds"])]


def check_signature(c: Case) -> Pairs:
    """Check a signature, what it is made of, and whose it is."""
    verify(c["public"], c["signature"], c["label"], *c["parts"])
    signature = sign(c["private"], c["label"], *c["parts"])
    signed = digest("sign/" + c["label"], *c["parts"])
    return [(signature, c["signature"]), (signed, c["signed"]), (identity_key(c["private"]), c["public"])]


def check_seal(c: Case) -> Pairs:
    """Check a sealed pair, closed and opened, and with what it is."""
    place, pair = (c["shared"], c["context"], c["dealer"], c["holder"]), [c["mask_share"], c["self_share"]]
    used = (c["key"], c["nonce"], c["associated"])
    return [(seal(*place, pair), c["sealed"]), (unseal(*place, c["sealed"]), pair), (seal_parts(*place), used)]


def check_shamir(c: Case) -> Pairs:
    """Check shares, the factors that rebuild the secret, and the secret."""
    shares = [share_at(c["polynomial"], place) for place in c["places"]]
    factors = [factor.to_bytes(32, "little") for factor in lagrange(c["rebuilt_from"])]
    secret = rebuild({place: share_at(c["polynomial"], place) for place in c["rebuilt_from"]})
    counts = [len(c["polynomial"]), len(c["rebuilt_from"])]
    return [
        (shares, c["shares"]),
        (factors, c["coefficients"]),
        (secret, c["secret"]),
        (c["polynomial"][0], c["secret"]),
        (counts, [c["threshold"]] * 2),
    ]


def check_contexts(c: Case) -> Pairs:
    """Check the three contexts of a round."""
    plan, roster = decode_plan(c["plan"]), in_order(c["roster"])
    c2 = sharers_context(c["c1"], plan.digest, c["model"], c["sharers"], metrics_only=c["metrics_only"])
    return [
        (plan.frame, c["frame"]),
        (plan.digest, c["plan_digest"]),
        (round_context(plan.frame, c["session"], c["number"]), c["c0"]),
        (roster_context(c["c0"], roster), c["c1"]),
        (c2, c["c2"]),
    ]


def make_contexts(c: Case) -> None:
    """Make the contexts of a round that must be refused."""
    round_context(bytes(32), c["session"], c["number"])
    sharers_context(bytes(32), bytes(32), c["model"], [])


# Numbers


def check_packing(c: Case) -> Pairs:
    """Check packed elements in both directions."""
    unpacked = unpack_bits(c["bytes"], c["bits"], len(c["elements"]))
    return [(pack_bits(c["elements"], c["bits"]), c["bytes"]), (unpacked, c["elements"])]


def check_quantize(c: Case) -> Pairs:
    """Check the quantizer in both directions."""
    quantized = quantize(c["values"], c["words"], c["level"], c["range"])
    decoded = mean_of(c["quantized"], 1, c["level"], c["range"])
    bits = (c["level"] - 1).bit_length()
    return [(quantized, (c["quantized"], c["clipped"])), (decoded, c["decoded"]), (bits, c["bits"])]


def check_trials(c: Case) -> Pairs:
    """Check thresholds, counts and the mean they decode to."""
    below = thresholds(c["values"], c["factor"], c["block_range"], c["theta"])
    counts = count_trials(c["thresholds"], c["trials"], c["key"], c["first_word"])
    decoded = noisy_mean_of(c["counts"], 1, c["trials"], c["block_range"])
    return [(below, c["thresholds"]), (counts, c["counts"]), (decoded, c["decoded"])]


def check_noise_range(c: Case) -> Pairs:
    """Check range, limit and theta of a segment, to fifteen digits."""
    computed = noise_range(c["size"], c["trials"], c["clipping_norm"], c["noise_multiplier"], c["honest"])
    expected = (c["block_range"], c["coordinate_limit"], c["theta"])
    return [([f"{value:.14e}" for value in computed], [f"{value:.14e}" for value in expected])]


def check_rotation(c: Case) -> Pairs:
    """Check the rotation of a segment in both directions."""
    return [
        (rotation_signs(c["segment"], len(c["values"])), c["signs"]),
        (rotate(c["values"], c["segment"]), c["rotated"]),
        (rotate(c["rotated"], c["segment"], back=True), c["restored"]),
    ]


def check_masks(c: Case) -> Pairs:
    """Put all masks of a case on its cells, and check where their streams begin in each cell."""
    cells = [Cell(*cell) for cell in c["cells"]]
    content = [(list(cell["elements"]), list(cell["auxiliary"])) for cell in c["plain"]]
    pairs: Pairs = []
    for mask in c["masks"]:
        add_mask(content, cells, mask["cells"], mask["key"], 1 if mask["add"] else -1)
        pairs.append((cell_offsets(cells, mask["cells"])[:-1], mask["offsets"]))
    masked = [(cell["elements"], cell["auxiliary"]) for cell in c["masked"]]
    packed = pack_vector(content, cells)
    return [*pairs, (content, masked), (packed, c["packed"]), (unpack_vector(c["packed"], cells), masked)]


# Plans


def check_plan(c: Case) -> Pairs:
    """Make a plan again from its arguments and from those of `Plan.build`; check what a client computes from it."""
    plan, arguments = decode_plan(c["encoding"]), arguments_of(c["encoding"])
    names, subgroups, segments, lanes, _, _ = structure(arguments)
    starts = [0, *(stop for stop, _ in segments)]
    described = []
    for start, (stop, blocks) in zip(starts, segments, strict=False):
        sizes = [sum(len(plan.members[g]) for g in block) for block, *_ in blocks]
        shown = [[block, size, level, bits] for (block, level, bits, _), size in zip(blocks, sizes, strict=True)]
        described.append({"blocks": shown, "start": start, "stop": stop})
    count = range(len(subgroups))
    shared = [[[c for c, cell in enumerate(plan.cells(g)) if other in cell.block] for other in count] for g in count]
    return [
        (encode_plan(build_arguments(c[BUILT_FROM])), c["encoding"]),
        (plan.digest, c["digest"]),
        ([names, subgroups, described], [c["users"], c["subgroups"], c["segments"]]),
        ([lanes, list(plan.rows[-1][0].names) if plan.metrics else []], [c["lanes"], c["metric_lanes"]]),
        (plan.blocks(), c["guarded_blocks"]),
        ([plan.quorum, plan.threshold], [c["agree_quorum"], c["share_threshold"]]),
        ([vector_size(plan.cells(g)) for g in count], c["vector_sizes"]),
        (shared if c["shared_cells"] else None, c["shared_cells"]),
    ]


def limited_arguments(c: Case) -> tuple[Arguments, Arguments]:
    """Give the arguments that a case changes, and those of its base."""
    base = c["under"][c["base"]]
    changed = {
        name: [float_of(one) for one in v] if isinstance(v, list) else float_of(v) for name, v in c["change"].items()
    }
    return Arguments(**base | changed), Arguments(**base)


def float_of(value: Any) -> Any:
    """Read the floats that JSON has no numbers for."""
    return float(value) if value in ("inf", "nan") else value


def check_limit(c: Case) -> Pairs:
    """Make a plan with arguments at their limits."""
    encoding = encode_plan(limited_arguments(c)[0])
    return [(digest("plan", encoding), c["digest"]), (decode_plan(encoding).digest, c["digest"])]


def exceed_limit(c: Case) -> None:
    """Make a plan with arguments beyond their limits, or take one so encoded."""
    changed, base = limited_arguments(c)
    if c.get("encoding"):
        decode_plan(pack([2, list(changed)[: 24 if base.noise_multiplier else 21], structure(base)]))
    else:
        encode_plan(changed)


def check_assign(c: Case) -> Pairs:
    """Check the subgroups that a seed gives."""
    seed = None if c["seed"] is None else seed_bytes(c["seed"])
    return [(seed, c["seed_bytes"]), (assign(c["classes"], c["counts"], c["seed"]), c["subgroups"])]


def check_sharing(c: Case) -> Pairs:
    """Check who holds whose shares."""
    arguments = build_arguments(c[BUILT_FROM])
    plan = Plan(encode_plan(arguments))
    graph = sharing_graph(arguments)
    return [
        (graph, [c["neighbours"], c["share_threshold"], c["order"]]),
        ([len(plan.users), plan.quorum], [c["users"], c["agree_quorum"]]),
        ([plan.holders(user) for user in plan.users], c["holders"]),
        (seed_bytes(arguments.assignment_seed), c["seed_bytes"]),
    ]


def check_admissible(c: Case) -> Pairs:
    """Check whether a set of users is admissible, and what a server keeps of it."""
    plan = decode_plan(c["plan"])
    kept = plan.without_small(c["users"])
    kept = None if plan.broken_rule(kept, kept) else kept
    return [(plan.broken_rule(c["users"], c["users"]), c.get("reason", "")), (kept, c["made_admissible"])]


def refuse_inadmissible(c: Case) -> None:
    """Check which rule a set of users breaks, and what a server keeps of it."""
    for computed, expected in check_admissible(c):
        same(f"admissibility of {c['users']} under {c['name']}", computed, expected)
    rule = decode_plan(c["plan"]).broken_rule(c["users"], c["users"])
    expect_refusal(c, lambda: require(not rule, rule, TooFewSurvivorsError))


def check_cohorts(c: Case) -> Pairs:
    """Check the split into cohorts, each one's plan, and the whole."""
    cohorts = Cohorts(c["encoding"])
    described = []
    for plan, arguments in zip(cohorts.plans, cohorts.arguments, strict=True):
        cohort = {"assignment_seed": arguments.assignment_seed, "classes": arguments.classes, "digest": plan.digest}
        described.append(cohort | {"users": plan.names})
    return [
        (build_cohorts(c[BUILT_FROM]), c["encoding"]),
        (cohorts.digest, c["digest"]),
        (described, c["cohorts"]),
    ]


def check_draw(c: Case) -> Pairs:
    """Check the cohorts that a seed draws from those of a charter."""
    charter = Cohorts(c["charter"])
    drawn = Cohorts(draw_cohorts(charter, c["seed"]))
    own = [{name: getattr(plan, name) for name in c["cohorts"][0]} for plan in drawn.arguments]
    return [(own, c["cohorts"]), (drawn.digest, c["digest"])]


# Messages


def in_order(value: Any) -> Any:
    """Put the named fields of a message in the order of the wire."""
    order = """user seal_key mask_key commitment signature secret_commitment sharers survivors nonces signatures
        complaints vector commitments sealed shares nonce advertised"""
    if isinstance(value, dict):
        return [in_order(value[name]) for name in order.split() if name in value]
    return [in_order(one) for one in value] if isinstance(value, list) else value


def check_message(c: Case) -> Pairs:
    """Check a message in both directions, and how long one of its kind may be."""
    fields, plan = c["fields"], decode_plan(c["under"])
    context, decoded = fields["context"], decode(c["kind"], c["bytes"], plan.limits)
    return [
        (encode(c["kind"], context, *in_order(fields)), c["bytes"]),
        (decoded, [context, *in_order(fields)]),
        (WIRE_VERSION, fields["version"]),
        (plan.limits[c["kind"]], c["size_limit"]),
    ]


# Enrolments


def charter_of(c: Case) -> tuple[Charter, dict[int, bytes]]:
    """Give the charter of a recorded enrolment, and the directory."""
    cohorts = "charter_cohorts" in c
    charter = Charter(c["charter_cohorts" if cohorts else "charter_plan"], c["epoch"], cohorts=cohorts)
    return charter, {given["index"]: given["identity_public"] for given in c["users"]}


def check_enrolment(c: Case) -> Pairs:
    """Run an enrolment, and check every message and what it ends with."""
    charter, directory = charter_of(c)
    users, server = [Enrolling(charter, given, directory) for given in c["users"]], Enrolment(charter, directory)
    if charter.cohorts:
        pairs = [(build_cohorts(c[BUILT_FROM]), c["charter_cohorts"])]
    else:
        pairs = [(encode_plan(build_arguments(c[BUILT_FROM])), c["charter_plan"])]
    pairs.append((charter.context, c["charter_context"]))
    for user, given in zip(users, c["users"], strict=True):
        pairs += [(user.commit(), given["commitment_message"]), (identity_key(user.identity), given["identity_public"])]
        server.receive(user.me, given["commitment_message"])
    pairs.append((server.close(), [c["commitments_message"]]))
    for user, given in zip(users, c["users"], strict=True):
        pairs.append((user.reveal(c["commitments_message"]), given["reveal_message"]))
        server.receive(user.me, given["reveal_message"])
    seed = digest("enrol/seed", server.context, *(given["nonce"] for given in c["users"]))
    pairs += [(server.context, c["commitments_context"]), (seed, c["seed"])]
    revealed = server.close()
    if not charter.cohorts:
        plans = [user.finish(revealed[0]).digest for user in users]
        return [
            *pairs,
            (revealed, [c["reveals_message"]]),
            (server.encoding, c["plan"]),
            (plans, [c["plan_digest"]] * len(users)),
        ]
    pairs += [(revealed, c["reveals_messages"]), (server.encoding, c["cohorts"])]
    for members, message, plan in zip(Cohorts(c["cohorts"]).members, revealed, c["plan_digests"], strict=True):
        pairs += [(users[user].finish(message).digest, plan) for user in members]
    return pairs


def enrol_wrongly(c: Case) -> None:
    """Give a user, or the server, of the recorded enrolment what must be refused."""
    charter, directory = charter_of(c["under"])
    givens = c["under"]["users"]
    if c.get("party") == "server":
        return enrol_with_server(c, Enrolment(charter, directory), givens)
    user = Enrolling(charter, givens[c["user"]], directory)
    user.commit()
    if c["step"] == "finish":
        user.reveal(c["under"]["commitments_message"])
    *before, last = c.get("messages") or [c["bytes"]]
    for message in before:
        getattr(user, c["step"])(message)
    return expect_refusal(c, lambda: getattr(user, c["step"])(last))


def enrol_with_server(c: Case, server: Enrolment, givens: list[Case]) -> None:
    """Replay the recorded enrolment with one user's message changed, or not sent."""
    for step, name in (("commit", "commitment_message"), ("reveal", "reveal_message")):
        for given in givens:
            if step != c["step"] or given["index"] != c["user"]:
                server.receive(given["index"], given[name])
        if step == c["step"]:
            if c["bytes"] is None:
                return expect_refusal(c, server.close)
            return expect_refusal(c, lambda: server.receive(c["user"], c["bytes"]))
        server.close()
    raise SystemExit(f"{c['name']}: no such step")


# Whole rounds


def check_round(c: Case) -> Pairs:
    """Replay a recorded round by itself and in the middle of three in a row; make its plan again."""
    count = replay(c)
    return [(encode_plan(build_arguments(c[BUILT_FROM])), c["plan"]), (run_recorded_in_a_row(c), count)]


def client_of(c: Case) -> User:
    """Bring a client of a recorded round to where the last message of a case comes."""
    played, user = c["under"][c["round"]], c["user"]
    log: Log = {}
    terms, directory = recorded(played)

    def prepared() -> User:
        client = User(terms, dict(played["users"][user]), directory, log)
        for step in c["after"]:
            told = [message for users, message in sent(played, step)[0] if user in users]
            client.answer(step, told[0] if told else b"")
        return client

    if "first" in c:
        other = prepared()
        for step, message in c["first"]:
            other.answer(step, message)
    client = prepared()
    for message in c["messages"][:-1]:
        client.answer(c["step"], message)
    if "update" in c:
        value = {"nan": math.nan, "zeros": 0.0}[c["update"]]
        client.given["update"] = [value] * len(client.given["update"])
    return client


def check_complaint(c: Case) -> Pairs:
    """Check that a client complains about spoilt shares, and masks all the same."""
    return [(client_of(c).answer(c["step"], c["messages"][-1]), c["answer"])]


def mislead_client(c: Case) -> None:
    """Give a client what it must refuse, and check what it is then."""
    client = client_of(c)
    expect_refusal(c, lambda: client.answer(c["step"], c["messages"][-1]))
    same(f"the state of a client after {c['name']}", client.state, c["client_is"])


def changed_steps(c: Case, server: Server) -> list[tuple[str, str, Callable[[], Any]]]:
    """List the steps of the server in a recorded round, with some messages changed."""
    played, steps = c["under"][c["round"]], []
    for phase in server.phases:
        changes = [change for change in c["changes"] if change["phase"] == phase]
        changed = [change["user"] for change in changes]
        given = [(user, data) for user, data in sent(played, phase)[1] if user not in changed]
        given += [(change["user"], change["bytes"]) for change in changes if change["bytes"] is not None]
        steps += [("receive", phase, lambda user=user, data=data: server.receive(user, data)) for user, data in given]
        steps.append(("close", phase, server.close))
    return [*steps, ("combine", "unmask", server.combine)]


def check_sums(c: Case) -> Pairs:
    """Check that the server takes sums that users can have made."""
    server = Server(*recorded(c["under"][c["round"]]))
    *before, (_, _, combine) = changed_steps(c, server)
    for _, _, step in before:
        step()
    where = ("segment", "subgroups")
    [block] = [one for one in combine() if all(one[name] == c["block"][name] for name in where)]
    return [(block[name], value) for name, value in c["block"].items()]


def mislead_server(c: Case) -> None:
    """Replay a recorded round with some messages changed, and check where the server refuses."""
    steps = changed_steps(c, Server(*recorded(c["under"][c["round"]])))
    refused = max(i for i, step in enumerate(steps) if step[:2] == (c["at"], c["phase"]))
    for _, _, step in steps[:refused]:
        step()
    expect_refusal(c, steps[refused][2])


def expect_refusal(c: Case, step: Callable[[], Any]) -> None:
    """Take a step that must be refused, with the error that the case names."""
    try:
        step()
    except RefusedError as error:
        return same(f"the error of {c['name']}", type(error).__name__, c["error"])
    raise SystemExit(f"not refused: {c['name']}")


# For a file, and the function a case names: what is computed for a case, and what the case says
CASES: dict[str, Callable[[Case], Pairs]] = {
    "labels digest": lambda c: [(digest(c["label"], *c["parts"]), c["result"])],
    "labels derive": lambda c: [(derive(c["label"], c["secret"], *c["parts"]), c["result"])],
    "labels index_bytes": lambda c: [(u64(*c["numbers"]), c["result"])],
    "labels commit": lambda c: [(commit(c["kind"], c["context"], c["dealer"], c["holder"], c["value"]), c["result"])],
    "keys mask_private_key": check_mask_private_key,
    "keys self_mask_key": lambda c: [(derive("self-mask", c["self_secret"], c["context"], u64(c["user"])), c["key"])],
    "keys pair_mask_key": check_pair_mask_key,
    "signatures": check_signature,
    "seal": check_seal,
    "shamir": check_shamir,
    "contexts": check_contexts,
    "keystream keystream": lambda c: [(keystream(c["key"], c["size"], c["start"]), c["bytes"])],
    "keystream words": lambda c: [(words(c["key"], c["count"], c["start"]), c["words"])],
    "packing": check_packing,
    "quantize": check_quantize,
    "noise count_trials": check_trials,
    "noise word_starts": lambda c: [(word_starts(c["sizes"], c["trials"]), c["starts"])],
    "noise noise_range": check_noise_range,
    "rotation": check_rotation,
    "masks": check_masks,
    "assignment shuffle": lambda c: [(shuffle(c["label"], c["seed"], c["count"]), c["order"])],
    "assignment assign": check_assign,
    "sharing": check_sharing,
    "plan": check_plan,
    "plan_limits": check_limit,
    "admissibility": check_admissible,
    "cohorts": check_cohorts,
    "cohorts draw": check_draw,
    "messages": check_message,
    "enrolment": check_enrolment,
    "enrolment_cohorts": check_enrolment,
    "round_plain": check_round,
    "round_signed": check_round,
    "round_sparse": check_round,
    "round_noise": check_round,
    "refusals_client mask": check_complaint,
    "refusals_server": lambda _: [],
    "refusals_sparse": lambda _: [],
    "refusals_vectors": check_sums,
    "machines": check_machine,
    "settling": check_machine,
}
# For a file, and the step a must-fail case names: what must refuse it
REFUSALS: dict[str, Callable[[Case], Any]] = {
    "keys agree": lambda c: agreement(bytes(32), c["bytes"]),
    "signatures": lambda c: verify(c["public"], c["signature"], c["label"], *c["parts"]),
    "seal": lambda c: unseal(c["shared"], c["context"], c["dealer"], c["holder"], c["sealed"]),
    "shamir element": lambda c: element(c["bytes"]),
    "shamir split": lambda c: [share_at([bytes(32)], place) for place in c["places"]],
    "shamir coefficients": lambda c: lagrange(c["places"]),
    "contexts": make_contexts,
    "keystream": lambda c: keystream(c["key"], c["size"], c["start"]),
    "packing": lambda c: unpack_bits(c["bytes"], c["bits"], c["count"]),
    "quantize": lambda c: quantize(list(map(float, c["values"])), c["words"], c["level"], c["range"]),
    "noise": lambda c: noise_range(c["size"], c["trials"], 1.0, c["noise_multiplier"], c["honest"]),
    "masks": lambda c: unpack_vector(c["bytes"], [Cell(*cell) for cell in c["cells"]]),
    "assignment": lambda c: seed_bytes(c["seed"]),
    "sharing": lambda c: ring_neighbours(c["order"], c["neighbours"], 0),
    "plan": lambda c: decode_plan(c["bytes"]),
    "plan_limits": exceed_limit,
    "cohorts": lambda c: Cohorts(c["bytes"]),
    "messages": lambda c: decode(c["kind"], c["bytes"], Plan(c["under"]).limits),
}
# The same for cases in which some steps come before the one that is refused
LONG_REFUSALS: dict[str, Callable[[Case], None]] = {
    "admissibility": refuse_inadmissible,
    "enrolment": enrol_wrongly,
    "enrolment_cohorts": enrol_wrongly,
    "refusals_client": mislead_client,
    "refusals_server": mislead_server,
    "refusals_sparse": lambda c: mislead_server(c) if "changes" in c else mislead_client(c),
    "refusals_vectors": mislead_server,
    "machines": refuse_machine,
    "settling": refuse_machine,
}
LEFT_OUT = "keystream simulated_rounding"


def check_file(folder: Path, name: str) -> tuple[int, int]:
    """Compute the cases of a vector file, refuse its must-fail cases, and count both."""
    vectors = load(json.loads((folder / f"{name}.json").read_text()))
    same(f"format and wire version of {name}", [vectors["format"], vectors["wire_version"]], [1, WIRE_VERSION])
    under = what_is_around(folder, name, vectors)
    count = 0
    for case in vectors["cases"]:
        kind = f"{name} {case.get('function', case.get('step', ''))}".strip()
        if kind != LEFT_OUT:
            count += 1
            for computed, expected in CASES[kind](case | {"under": under}):
                same(f"{kind} {case.get('name', '')}", computed, expected)
    for case in vectors["must_fail"]:
        refuse_case(name, case | {"under": under})
    return count, len(vectors["must_fail"])


def what_is_around(folder: Path, name: str, vectors: Case) -> Any:
    """Give what all cases of a file are about: a plan, bases of plans, the recorded enrolment, the recorded rounds."""
    if name.startswith("refusals") or name in ("machines", "settling"):
        rounds = [load(json.loads((folder / f"round_{which}.json").read_text())) for which in ROUNDS]
        enrolled = load(json.loads((folder / "enrolment.json").read_text()))["cases"][0]
        played = {case["name"]: case for one in rounds for case in one["cases"]}
        return played | {"enrolment": enrolled, "plans": vectors.get("plans", {})}
    return vectors["cases"][0] if name.startswith("enrolment") else vectors.get("plan", vectors.get("bases"))


def refuse_case(name: str, case: Case) -> None:
    """Take the steps of a must-fail case."""
    if name in LONG_REFUSALS:
        LONG_REFUSALS[name](case)
    else:
        kind = f"{name} {case.get('step', '')}".strip()
        expect_refusal(case, lambda: REFUSALS[kind](case))


def main() -> None:
    """Check all vectors in the folder named on the command line."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parents[1] / "tests" / "vectors")
    names = list(dict.fromkeys(key.split()[0] for key in CASES))
    same("vector files", sorted(names), sorted(path.stem for path in folder.glob("*.json")))
    computed = refused = 0
    for name in names:
        cases, must_fail = check_file(folder, name)
        print(f"{name:17} {cases:3} cases computed, {must_fail:3} refused")
        computed, refused = computed + cases, refused + must_fail
    plans = load(json.loads((folder / "plan.json").read_text()))["cases"]
    print(*rehearse_all({case["name"]: case["encoding"] for case in plans}), sep="\n")
    print(f"{len(names)} files: {computed} cases computed, {refused} refused")


if __name__ == "__main__":
    try:
        main()
    except RefusedError as error:
        sys.exit(f"refused: {error}")
