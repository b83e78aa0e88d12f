"""What comes before a round, from docs/wire-format.md and the test vectors alone: plan, cohorts, enrolment.

A client makes the structure of a plan again from its arguments and compares the whole encoding; of cohorts it makes the
split again; and in an enrolment the users draw the seed of both together. Like naive_round.py this is for reading.
"""

import math
from decimal import Decimal, localcontext
from functools import cache
from typing import Any, NamedTuple

from naive_round import Log, Plan
from naive_wire import (
    WIRE_VERSION,
    FaultyServerError,
    FaultyUserError,
    PlanError,
    UsageError,
    WithheldError,
    blame,
    decode,
    digest,
    encode,
    message_limits,
    noise_range,
    pack,
    require,
    sign,
    u64,
    unpack,
    verify,
)


class Arguments(NamedTuple):
    """The arguments of a plan in the order of its encoding, the last three only with noise."""

    classes: list[int]
    levels: list[int]
    dimension: int
    design: str
    value_range: list[float]
    subgroup_size: int
    min_survivors: int
    min_block_survivors: int
    max_weight: int
    min_robustness: float
    colluders: int
    users: list[Any] | None
    assignment_seed: Any
    dropout: float
    sharing: str
    fill_levels: bool
    metrics: list[str]
    rotate: bool
    ranges: str
    arrays: list[int]
    scales: list[float]
    noise_multiplier: float = 0.0
    honest: int = 0
    adaptive_clip: bool = False


# What type each argument has; a list is an array of values of that type
TYPES: dict[str, Any] = {
    "classes": [int],
    "levels": [int],
    "design": str,
    "value_range": [float],
    "min_robustness": float,
    "dropout": float,
    "sharing": str,
    "fill_levels": bool,
    "metrics": [str],
    "rotate": bool,
    "ranges": str,
    "arrays": [int],
    "scales": [float],
    "noise_multiplier": float,
    "adaptive_clip": bool,
}  # users and the seed are of several types, and everything else is an int


def of_type(value: Any, kind: Any) -> bool:
    """Tell whether a decoded value is of a type; True is no int."""
    if isinstance(kind, list):
        return isinstance(value, list) and all(type(one) is kind[0] for one in value)
    return type(value) is kind


def require_plan(condition: bool, what: str) -> None:
    """Refuse a plan unless the condition holds."""
    require(condition, what, PlanError)


# Who is in which subgroup


def seed_bytes(seed: int | bytes | None) -> bytes:
    """Write an assignment seed as bytes; nothing if there is none."""
    if seed is None:
        return b""
    if type(seed) is int:
        require_plan(0 <= seed < 2**63, "no such seed")
        return b"int" + u64(seed)
    require_plan(isinstance(seed, bytes) and 1 <= len(seed) <= 64, "no such seed")
    return b"bytes" + bytes(seed)


def shuffle(label: str, seed: bytes, count: int) -> list[int]:
    """Shuffle 0 to count - 1 with the words of hashes."""
    order, words, block = list(range(count)), [], 0
    for i in range(count - 1, 0, -1):
        word = 2**64
        while word >= 2**64 - 2**64 % (i + 1):
            if not words:
                hashed, block = digest(label, seed, u64(block)), block + 1
                words = [int.from_bytes(hashed[at : at + 8], "little") for at in (0, 8, 16, 24)]
            word = words.pop(0)
        j = word % (i + 1)
        order[i], order[j] = order[j], order[i]
    return order


def even_parts(total: int, parts: int) -> list[int]:
    """Cut a number into parts as even as possible, the larger first."""
    return [total // parts + (part < total % parts) for part in range(parts)]


def assign(classes: list[int], counts: list[int], seed: int | bytes | None) -> list[list[Any]]:
    """Assign the users of each class to its subgroups."""
    subgroups, first = [], 0
    for number, (users, count) in enumerate(zip(classes, counts, strict=True)):
        order = list(range(users)) if seed is None else shuffle(f"assignment/{number}", seed_bytes(seed), users)
        for size in even_parts(users, count):
            members, order = order[:size], order[size:]
            subgroups.append([number, sorted(first + one for one in members)])
        first += users
    return subgroups


# Designs: for every segment, which subgroups are a block together


def is_prime(number: int) -> bool:
    """Tell whether a number is prime."""
    return number > 1 and all(number % divisor for divisor in range(2, math.isqrt(number) + 1))


def perfect_pairs(even: int) -> list[list[tuple[int, int]]]:
    """List the pairs of each segment of the design `perfect`, on an even number of subgroups; none if there is none."""
    if even == 2:
        return [[(0, 1)]]
    p = even - 1
    if is_prime(p):
        return [[partner(g, (line + 1 - g) % p, p) for g in range(p)] for line in range(p)]
    if even == 16:
        base = [(0, 15), (1, 3), (2, 11), (4, 5), (6, 13), (7, 10), (8, 12), (9, 14)]
        return [[((a + line) % 15, (b + line) % 15 if b < 15 else b) for a, b in base] for line in range(15)]
    p = even // 2
    if not is_prime(p):
        return []
    segments = []
    for i in range(p):
        sides = [((i + j) % p + s * p, (i - j) % p + s * p) for j in range(1, p) for s in (0, 1)]
        segments.append([*sides, (i, i + p)])
    return segments + [[(x, (x + d) % p + p) for x in range(p)] for d in range(1, p)]


def partner(one: int, other: int, left_over: int) -> tuple[int, int]:
    """Pair two subgroups; one that would be with itself is with the last."""
    return (one, left_over if one == other else other)


def design_blocks(design: str, count: int) -> list[list[list[int]]]:
    """List the blocks of each segment of a design; a block is a list of subgroups."""
    if design == "secagg":
        return [[list(range(count))]]
    if design == "multigroup":
        return [[[g] for g in range(count)]]
    if design == "perfect":
        pairs = perfect_pairs(count + count % 2)
    else:
        require_plan(design in ("paper", "paper-composite"), "no such design")
        require_plan((design == "paper") == is_prime(count), "another design for so many subgroups")
        pairs = [[(g, (line + 1 - g) % count) for g in range(count)] for line in range(count)]
    return [sorted({tuple(sorted({g for g in pair if g < count})) for pair in segment}) for segment in pairs]


def subgroup_counts(plan: Arguments) -> list[int]:
    """Say how many subgroups each class has; for `perfect`, as many in all as there is a design for."""
    wanted = [max(1, users // plan.subgroup_size) for users in plan.classes]
    total = sum(wanted)
    if plan.design != "perfect" or perfect_pairs(total + total % 2):
        return wanted
    for distance in range(1, total + sum(plan.classes)):
        for other in (total - distance, total + distance):
            if len(wanted) <= other <= min(plan.dimension, sum(plan.classes)) and perfect_pairs(other + other % 2):
                counts = moved_counts(plan.classes, wanted, other)
                if min(users // count for users, count in zip(plan.classes, counts, strict=True)) >= plan.min_survivors:
                    return counts
    raise PlanError("no design for any number of subgroups near to this")


def moved_counts(classes: list[int], counts: list[int], total: int) -> list[int]:
    """Merge subgroups, or split them, one at a time, until there are so many in all."""
    counts = list(counts)
    while sum(counts) > total:
        merged = [users / (count - 1) if count > 1 else math.inf for users, count in zip(classes, counts, strict=True)]
        counts[merged.index(min(merged))] -= 1
    while sum(counts) < total:
        parted = [users / (count + 1) for users, count in zip(classes, counts, strict=True)]
        counts[parted.index(max(parted))] += 1
    return counts


# The range of a block


@cache
def normal(width: int) -> tuple[Decimal, Decimal]:
    """Compute density and upper tail of the standard normal distribution at width / 64, to a hundred digits and more.

    The integral from 0 to h is the density at h times the sum of h, h^3/3, h^5/(3*5), h^7/(3*5*7) and so on.
    """
    with localcontext(prec=180):
        h = Decimal(width) / 64
        density = (-h * h / 2).exp() / (2 * circle()).sqrt()
        term = total = h
        odd = 3
        while term > Decimal(10) ** -170:
            term = term * h * h / odd
            total, odd = total + term, odd + 2
        return density, Decimal(1) / 2 - density * total


@cache
def circle() -> Decimal:
    """Compute pi by Machin's formula: 16 arctan(1/5) - 4 arctan(1/239)."""
    with localcontext(prec=190):
        total = Decimal(0)
        for factor, inverse in ((16, 5), (-4, 239)):
            power, number = Decimal(factor) / inverse, 1
            while abs(power) > Decimal(10) ** -185:
                total += power / number if number % 4 == 1 else -power / number
                power, number = power / inverse**2, number + 2
        return total


@cache
def block_width(level: int, users: int) -> int:
    """Find the best range of a block with so many levels, in units of 1/192 of the value range."""
    for width in range(1, 1025):
        density, tail = normal(width)
        with localcontext(prec=180):
            h = Decimal(width) / 64
            rounding = 2 * h - 4 * h * tail if level == 2 else 4 * h / (3 * (level - 1) ** 2)
            if rounding / users >= 4 * (density - h * tail):
                return width
    raise PlanError("no width")


# The sharing graph


def hypergeometric(population: int, marked: int, drawn: int, low: int, high: int) -> int:
    """Count the draws, of C(population, drawn), with at least `low` marked ones and at most `high`."""
    possible = range(max(0, low), min(marked, drawn, high) + 1)
    return sum(math.comb(marked, i) * math.comb(population - marked, drawn - i) for i in possible)


def neighbours(users: int, colluders: int, dropout: float) -> tuple[int, int]:
    """Find how many neighbours a user of a sparse graph has, and how many of them rebuild a secret."""
    corrupt = max(0.05, colluders / users)
    malicious, gone, bad = (math.floor(part * users + 1e-9) for part in (corrupt, dropout, corrupt + dropout))
    for k in range(2, users, 2):
        draws = math.comb(users, k)
        if users * (users - k - 1) * math.comb(bad, k) * 2**41 >= 2 * draws:
            continue  # the honest users who stay might not be connected
        most = next(t for t in range(k + 1) if hypergeometric(users, malicious, k, t + 1, k) * 2**41 * users <= draws)
        t = max(most + 1, k // 2 + 1, colluders + 1)
        if t <= k and hypergeometric(users, users - gone, k, 0, t - 1) * 2**20 * users < draws:
            return k, t
    raise PlanError("no sparse graph for so few users")


def sharing_graph(plan: Arguments) -> list[Any]:
    """Compute the structure's sharing graph: neighbours, share threshold and ring order."""
    users = sum(plan.classes)
    if plan.sharing == "complete":
        return [users - 1, agree_quorum(users, plan.colluders), []]
    k, t = neighbours(users, plan.colluders, plan.dropout)
    return [k, t, shuffle("sharing-order", seed_bytes(plan.assignment_seed), users)]


def agree_quorum(users: int, colluders: int) -> int:
    """Say how many users must sign the survivors."""
    return (users + colluders) // 2 + 1


# The whole plan


def structure(plan: Arguments) -> list[Any]:
    """Make the structure of a plan from its arguments."""
    users = sum(plan.classes)
    subgroups = assign(plan.classes, subgroup_counts(plan), plan.assignment_seed)
    segments = design_blocks(plan.design, len(subgroups))
    require_plan(plan.dimension >= len(segments), "fewer elements than segments")
    stop, cut = 0, []
    for size, blocks in zip(even_parts(plan.dimension, len(segments)), segments, strict=True):
        stop += size
        cut.append([stop, [coded_block(plan, subgroups, block) for block in blocks]])
    lanes = ["count"] if plan.noise_multiplier else ["count", *["weight"] * (plan.max_weight > 1), "clipped"]
    names = list(range(users)) if plan.users is None else plan.users
    return [names, subgroups, cut, lanes, sharing_graph(plan), agree_quorum(users, plan.colluders)]


def coded_block(plan: Arguments, subgroups: list[list[Any]], block: list[int]) -> list[Any]:
    """Compute level, bits and width of a block."""
    users = sum(len(subgroups[g][1]) for g in block)
    level = min(plan.levels[subgroups[g][0]] for g in block)
    bits = (users * (level - 1)).bit_length()
    if plan.fill_levels:
        level = min(2**32, (2**bits - 1) // users + 1)
    width = 192 if plan.ranges == "single" else block_width(level, sum(plan.classes))
    return [list(block), level, bits, width]


def encode_plan(plan: Arguments) -> bytes:
    """Make the canonical encoding of a plan; what is no plan is refused."""
    check_arguments(plan)
    encoding = pack([2, list(plan)[: 24 if plan.noise_multiplier else 21], structure(plan)])
    check_structure(plan, Plan(encoding))
    return encoding


def decode_plan(encoding: bytes) -> Plan:
    """Take a plan from its encoding, if its arguments make the same encoding again."""
    require_plan(encode_plan(arguments_of(encoding)) == encoding, "not what its arguments make")
    return Plan(encoding)


def arguments_of(encoding: bytes) -> Arguments:
    """Read the arguments of a plan, of the right types."""
    with blame(PlanError):
        plan = unpack(encoding)
    require_plan(isinstance(plan, list) and len(plan) == 3 and isinstance(plan[1], list), "no plan")
    require_plan(len(plan[1]) in (21, 24), "another number of arguments")
    arguments = Arguments(*plan[1])
    for name, value in arguments._asdict().items():
        if name not in ("users", "assignment_seed"):
            require_plan(of_type(value, TYPES.get(name, int)), f"{name} is of another type")
    for value in (*arguments.value_range, arguments.min_robustness, arguments.dropout):
        require_plan(math.copysign(1.0, value) > 0 or value != 0, "a negative zero")
    return arguments


def check_arguments(plan: Arguments) -> None:
    """Check the limits of the arguments that stand by themselves."""
    require_plan(len(plan.classes) == len(plan.levels) > 0 and min(plan.classes) >= 1, "no such classes")
    users = sum(plan.classes)
    require_plan(users <= 2**20 - 2, "too many users")
    require_plan(all(2 <= level <= 2**32 for level in plan.levels), "no such levels")
    require_plan(plan.levels == sorted(plan.levels), "levels that fall")
    low, high = plan.value_range if len(plan.value_range) == 2 else (0.0, 0.0)
    require_plan(low < high and all(map(math.isfinite, (low, high, high - low))), "no such range")
    require_plan(low <= 0 <= high or (plan.ranges == "single" and plan.max_weight == 1), "a range without zero")
    require_plan(1 <= plan.subgroup_size < 2**63 and 1 <= plan.dimension < 2**63, "no such sizes")
    require_plan(plan.min_survivors >= 2 and plan.min_block_survivors >= 2, "sums of one user")
    require_plan(1 <= plan.max_weight <= 2**32, "no such weights")
    require_plan(0 <= plan.colluders < users, "no such colluders")
    require_plan(0 <= plan.dropout < 1, "no such dropout")
    require_plan(plan.sharing in ("complete", "sparse"), "no such sharing")
    require_plan(plan.ranges in ("levels", "single"), "no such ranges")
    require_plan(len(set(plan.metrics)) == len(plan.metrics) and all(map(is_name, plan.metrics)), "no such metrics")
    require_plan(not {"count", "weight"} & set(plan.metrics), "a metric with the name of a lane")
    require_plan(not plan.metrics or users <= 2**14, "metrics of too many users")
    require_plan(not plan.arrays or (min(plan.arrays) >= 1 and sum(plan.arrays) == plan.dimension), "no such arrays")
    require_plan(len(plan.scales) in (0, len(plan.arrays)), "not a scale for each array")
    require_plan(all(2.0**-64 <= scale <= 2.0**64 for scale in plan.scales), "no such scales")
    seed_bytes(plan.assignment_seed)
    check_users(plan.users, users)
    if plan.noise_multiplier:
        require_plan(0 < plan.noise_multiplier < math.inf and -low == high, "no such noise")
        require_plan(plan.max_weight == 1 and not plan.metrics and not plan.arrays, "noise beside weights or metrics")
        require_plan(plan.rotate and plan.ranges == "single", "noise without rotation, or with several ranges")
        require_plan(1 <= plan.honest <= plan.min_block_survivors - plan.colluders, "no such number of honest users")


def check_users(names: list[Any] | None, count: int) -> None:
    """Check the names of users; names that are the numbers of the users are left out."""
    if names is not None:
        require_plan(isinstance(names, list), "no names")
        require_plan(all(is_name(name) or (type(name) is int and name < 2**64) for name in names), "no such name")
        require_plan(len(set(names)) == len(names) == count, "not a name for each user")
        require_plan(names != list(range(count)), "names that nobody needs")


def is_name(value: Any) -> bool:
    """Tell whether a value is the name of a user or of a metric."""
    return isinstance(value, str) and 1 <= len(value) <= 256 and value.isprintable()


def check_structure(plan: Arguments, made: Plan) -> None:
    """Check the limits of the arguments that depend on the structure."""
    users, segments = len(made.users), made.rows[: made.segments]
    if made.several:
        require_plan(plan.min_survivors <= min(map(len, made.members)), "more survivors than a subgroup has users")
    sizes = [sum(len(made.members[g]) for g in cell.block) for row in segments for cell in row]
    require_plan(plan.min_block_survivors <= min(sizes), "more survivors than a block has users")
    require_plan(0 <= plan.min_robustness <= made.robustness(made.users), "more robustness than the design has")
    require_plan((1 - plan.dropout) * users >= made.quorum, "more dropout than the quorum allows")
    held = made.neighbours if made.ring else users
    require_plan((1 - plan.dropout) * held >= made.threshold, "more dropout than the threshold allows")
    for cell in (cell for row in segments for cell in row):
        width = cell.span[1] - cell.span[0]
        require_plan(0 < width < math.inf and 0 < cell.level / width < math.inf, "a range that cannot be computed with")
        if plan.noise_multiplier:
            require_plan(
                len({cell.level for row in segments for cell in row}) <= 8, "too many different levels for noise"
            )
            require_plan(len(cell.block) > 1 or len(made.members) == 1, "noise with a star")
            require_plan(cell.level <= 2**16, "too many levels for noise")
            block_range, *_ = noise_range(cell.size, cell.level - 1, made.clip_norm, plan.noise_multiplier, plan.honest)
            require_plan(1e-200 <= block_range <= 1e200, "a clipping norm that cannot be computed with")


def build_arguments(given: dict[str, Any]) -> Arguments:
    """Complete the arguments of `Plan.build` by its defaults, as docs/plans.md has them."""
    least, users = given.get("min_survivors", 3), sum(given["classes"])
    sharing = given.get("sharing", default_sharing(users))
    colluders = given.get("colluders", default_colluders(users, least, sharing))
    blocks = given.get("min_block_survivors", least)
    norm, noise = given.get("clipping_norm", 0.0), given.get("noise_multiplier", 0.0)
    plan = Arguments(
        given["classes"],
        given["levels"],
        given["dimension"],
        given.get("design", "perfect"),
        [-norm, norm] if noise else given["value_range"],
        given.get("subgroup_size", 5),
        least,
        blocks,
        given.get("max_weight", 1),
        given.get("min_robustness", 0.0),
        colluders,
        given.get("users"),
        given.get("assignment_seed"),
        given.get("dropout", 0.1),
        sharing,
        given.get("fill_levels", False),
        given.get("metrics", []),
        given.get("rotate", True),
        given.get("ranges", "single" if noise else "levels"),
        given.get("arrays", []),
        given.get("scales", []),
    )
    if noise:
        honest = given.get("honest", blocks - colluders)
        plan = plan._replace(noise_multiplier=noise, honest=honest, adaptive_clip=given.get("adaptive_clip", False))
    return plan if "min_robustness" in given else with_all_robustness(plan)


def default_sharing(users: int) -> str:
    """Name the graph of so many users."""
    return "sparse" if users > 256 else "complete"


def default_colluders(users: int, min_survivors: int, sharing: str) -> int:
    """Say how many of so many users may collude: all but two of the least survivors, on a sparse graph 5% of all."""
    return max(min(min_survivors - 2, users - 1), users // 20 if sharing == "sparse" else 0)


def with_all_robustness(plan: Arguments) -> Arguments:
    """Ask for all the robustness that the design has."""
    made = Plan(encode_plan(plan._replace(min_robustness=0.0)))
    return plan._replace(min_robustness=made.robustness(made.users))


# Cohorts


def deal_cohorts(classes: list[int], cohorts: int, seed: int | bytes | None) -> list[list[int]]:
    """Deal the users of each class to the cohorts in turn, and list who is in each."""
    dealt: list[list[int]] = [[] for _ in range(cohorts)]
    first = 0
    for number, users in enumerate(classes):
        order = list(range(users))
        if seed is not None and cohorts > 1:
            order = shuffle(f"cohorts/{number}", seed_bytes(seed), users)
        for place, user in enumerate(order):
            dealt[(first + place) % cohorts].append(first + user)
        first += users
    return [sorted(users) for users in dealt]


def class_counts(classes: list[int], some: list[int]) -> list[int]:
    """Count how many of some users are of each class."""
    ends = [sum(classes[: number + 1]) for number in range(len(classes))]
    return [sum(end - users <= user < end for user in some) for users, end in zip(classes, ends, strict=True)]


def cohort_arguments(plans: list[Arguments], size: int, seed: Any, names: list[Any] | None) -> list[Arguments]:
    """Give every cohort's plan the users and the seed that follow from those of the whole."""
    classes = [sum(counts) for counts in zip(*(plan.classes for plan in plans), strict=True)]
    users, cohorts = sum(classes), len(plans)
    require_plan(2 <= size < 2**63 and cohorts == -(-users // size), "not so many cohorts")
    require_plan(users <= 2**20 - 2, "too many users")
    check_users(names, users)
    seeds = [seed] * cohorts
    if seed is not None and cohorts > 1:
        seeds = [digest("cohorts/seed", seed_bytes(seed), u64(cohort)) for cohort in range(cohorts)]
    dealt = deal_cohorts(classes, cohorts, seed)
    shown = list(range(users)) if names is None else names
    rosters = [names] if cohorts == 1 else [[shown[user] for user in some] for some in dealt]
    return [
        plan._replace(classes=class_counts(classes, some), users=roster, assignment_seed=its_seed)
        for plan, some, roster, its_seed in zip(plans, dealt, rosters, seeds, strict=True)
    ]


def encode_cohorts(plans: list[Arguments], size: int, seed: Any, names: list[Any] | None) -> bytes:
    """Make the canonical encoding of cohorts, from plans that need not have their users and seeds yet."""
    return pack([1, size, seed, names, [encode_plan(one) for one in cohort_arguments(plans, size, seed, names)]])


class Cohorts:
    """Cohorts out of their encoding, if it is the one that they make again."""

    def __init__(self, encoding: bytes) -> None:
        with blame(PlanError):
            whole = unpack(encoding)
        require_plan(isinstance(whole, list) and len(whole) == 5 and whole[0] == 1, "no cohorts, or of another version")
        _, self.size, self.seed, self.names, plans = whole
        require_plan(type(self.size) is int and isinstance(plans, list) and len(plans) > 0, "no cohorts")
        require_plan(all(isinstance(plan, bytes) for plan in plans), "no encodings of plans")
        self.arguments = [arguments_of(plan) for plan in plans]
        apart = {"classes": [], "users": None, "assignment_seed": None}
        apart |= {"min_robustness": 0.0, "colluders": 0, "sharing": ""}  # each plan's own
        alike = [plan._replace(**apart) for plan in self.arguments]
        require_plan(all(plan == alike[0] for plan in alike), "plans that are not alike")
        require_plan(len({len(plan.classes) for plan in self.arguments}) == 1, "not the same classes")
        require_plan(encode_cohorts(self.arguments, self.size, self.seed, self.names) == encoding, "not what it makes")
        self.plans = [decode_plan(plan) for plan in plans]
        self.digest = digest("cohorts", encoding)
        self.classes = [sum(counts) for counts in zip(*(plan.classes for plan in self.arguments), strict=True)]
        self.members = deal_cohorts(self.classes, len(plans), self.seed)


def draw_cohorts(charter: Cohorts, seed: bytes) -> bytes:
    """Make the encoding of the cohorts that a seed draws: with what the charter's plans agree in, and else defaults."""
    plans = [charter.arguments[0]._replace(classes=plan.classes) for plan in charter.arguments]
    differ = {name for name in Arguments._fields if len({repr(getattr(plan, name)) for plan in charter.arguments}) > 1}
    drawn = []
    for plan in cohort_arguments(plans, charter.size, seed, charter.names):
        users = sum(plan.classes)
        sharing = default_sharing(users) if "sharing" in differ else plan.sharing
        colluders = default_colluders(users, plan.min_survivors, sharing) if "colluders" in differ else plan.colluders
        own = plan._replace(sharing=sharing, colluders=colluders)
        drawn.append(with_all_robustness(own) if "min_robustness" in differ else own)
    return encode_cohorts(drawn, charter.size, seed, charter.names)


def build_cohorts(given: dict[str, Any]) -> bytes:
    """Make the encoding of cohorts from the arguments of `CohortPlan.build`."""
    size, seed, names = given["cohort_size"], given.get("assignment_seed"), given.get("users")
    count = -(-sum(given["classes"]) // size)
    dealt = deal_cohorts(given["classes"], count, seed)
    own = [class_counts(given["classes"], some) for some in dealt]
    plans = [build_arguments(given | {"classes": counts, "users": None, "assignment_seed": None}) for counts in own]
    return encode_cohorts(plans, size, seed, names)


# Enrolment

ENROLLING = ("commit", "reveal", "finish", "")  # the steps of a user, and nothing behind them


class Charter:
    """Who enrols in which epoch: a plan without a seed, or cohorts without one."""

    def __init__(self, encoding: bytes, epoch: bytes, *, cohorts: bool = False) -> None:
        require(1 <= len(epoch) <= 64, "no such epoch", UsageError)
        self.cohorts = Cohorts(encoding) if cohorts else None
        self.plan = None if cohorts else decode_plan(encoding)
        self.arguments = None if cohorts else arguments_of(encoding)
        seed = self.cohorts.seed if cohorts else self.arguments.assignment_seed
        require_plan(seed is None, "a charter with a seed")
        require_plan(not cohorts or len(self.cohorts.plans) > 1, "one cohort, which is a plan")
        whole = self.cohorts or self.plan
        self.context = digest("context/charter", u64(WIRE_VERSION), whole.digest, epoch)
        self.count = sum(self.cohorts.classes) if cohorts else len(self.plan.users)
        largest = max(map(len, self.cohorts.members)) if cohorts else self.count
        self.limits = message_limits(self.count, 0, 0, 0, largest)
        self.shown = "CohortCommitments" if cohorts else "NonceCommitments"
        self.revealed = "CohortReveals" if cohorts else "NonceReveals"

    def commitment(self, user: int, nonce: bytes) -> bytes:
        """Commit to a user's nonce."""
        return digest("enrol/nonce", self.context, u64(user), nonce)

    def commitments_context(self, commitments: list[bytes]) -> bytes:
        """Compute the context of everybody's commitments."""
        return digest("context/commitments", self.context, *commitments)

    def check_signature(self, directory: dict[int, bytes], user: int, commitment: bytes, signature: bytes) -> None:
        """Check that a user signed its commitment."""
        verify(directory[user], signature, "commit", self.context, u64(user), commitment)

    def drawn(self, context: bytes, nonces: list[bytes]) -> bytes:
        """Make the encoding of the plan, or of the cohorts, that the nonces draw."""
        seed = digest("enrol/seed", context, *nonces)
        if self.cohorts:
            return draw_cohorts(self.cohorts, seed)
        return encode_plan(self.arguments._replace(assignment_seed=seed))


class Enrolling:
    """A user's steps in an enrolment: in order, each once, and none once a refusal has ended it."""

    def __init__(self, charter: Charter, given: dict[str, Any], directory: dict[int, bytes]) -> None:
        self.charter, self.directory = charter, directory
        self.me, self.nonce, self.identity = given["index"], given["nonce"], given["identity_private"]
        self.own = charter.commitment(self.me, self.nonce)
        self.log: Log = {}
        self.dead = False
        self.answers: dict[str, tuple[bytes, Any]] = {}  # for each step the message that was taken, and the answer

    def answer(self, step: str, message: bytes, kind: str = "") -> Any:
        """Take one step; an identical message gets the identical answer, and one out of order changes nothing."""
        require(not self.dead, "the enrolment is over for this user", FaultyServerError)
        if kind and step in self.answers and self.answers[step][0] == message:
            return self.answers[step][1]
        require(ENROLLING[len(self.answers)] == step, "out of order, or a second message", FaultyServerError)
        fields = decode(kind, message, self.charter.limits) if kind else []
        try:
            with blame(FaultyServerError):
                answer = getattr(self, "make_" + step)(*fields)
        except FaultyServerError:
            self.dead, self.nonce = True, b""
            raise
        self.answers[step] = (message, answer)
        return answer

    def claim(self, kind: str, value: bytes) -> None:
        """Claim a value for this charter; another one than the first is refused."""
        claimed = self.log.setdefault((self.charter.context, kind), value)
        require(claimed == value, "claimed otherwise before", FaultyServerError)

    def commit(self) -> bytes:
        """Send the signed commitment to one's own nonce."""
        return self.answer("commit", b"")

    def reveal(self, message: bytes) -> bytes:
        """Take everybody's commitments, signed unless there are cohorts, and send the nonce."""
        return self.answer("reveal", message, self.charter.shown)

    def finish(self, message: bytes) -> Plan:
        """Take everybody's nonces, and give the plan that they draw, that of the own cohort if there are cohorts."""
        return self.answer("finish", message, self.charter.revealed)

    def make_commit(self) -> bytes:
        """Sign the commitment."""
        self.claim("commit", self.own)
        signature = sign(self.identity, "commit", self.charter.context, u64(self.me), self.own)
        return encode("NonceCommitment", self.charter.context, self.me, self.own, signature)

    def make_reveal(self, context: bytes, shown: list[Any]) -> bytes:
        """Check the commitments, and claim them before the nonce is sent."""
        require(context == self.charter.context and len(shown) == self.charter.count, "of another charter")
        commitments = shown if self.charter.cohorts else [commitment for commitment, _ in shown]
        require(commitments[self.me] == self.own, "another commitment than mine")
        if not self.charter.cohorts:
            for user, (commitment, signature) in enumerate(shown):
                self.charter.check_signature(self.directory, user, commitment, signature)
        agreed = self.charter.commitments_context(commitments)
        self.claim("reveal", agreed)
        self.commitments, self.context = commitments, agreed
        return encode("NonceReveal", agreed, self.me, self.nonce)

    def make_finish(self, context: bytes, nonces: list[bytes], *signatures: list[bytes]) -> Plan:
        """Check that every nonce opens its commitment, and those of the own cohort are signed; derive the plan."""
        require(context == self.context and len(nonces) == self.charter.count, "of other commitments")
        opened = [self.charter.commitment(user, nonce) for user, nonce in enumerate(nonces)]
        require(opened == self.commitments, "a nonce that does not open its commitment")
        encoding = self.charter.drawn(context, nonces)
        if not self.charter.cohorts:
            return decode_plan(encoding)
        cohorts = Cohorts(encoding)
        mine = next(c for c, members in enumerate(cohorts.members) if self.me in members)
        require(len(signatures[0]) == len(cohorts.members[mine]), "not a signature for each of the cohort")
        for user, signature in zip(cohorts.members[mine], signatures[0], strict=True):
            self.charter.check_signature(self.directory, user, self.commitments[user], signature)
        return cohorts.plans[mine]


class Enrolment:
    """The server of an enrolment: it takes a commitment of everybody, then a nonce of everybody."""

    def __init__(self, charter: Charter, directory: dict[int, bytes]) -> None:
        self.charter, self.directory = charter, directory
        self.signed: dict[int, tuple[bytes, bytes]] = {}
        self.nonces: dict[int, bytes] = {}
        self.context = b""
        self.over = False
        self.first: dict[tuple[str, int], bytes] = {}  # everybody's first message of each step

    def receive(self, user: int, data: bytes) -> bool:
        """Take a commitment, or a nonce once the commitments are closed; one that is identical to the first is ignored.

        Says whether the message was taken, and not ignored.
        """
        require(not self.over, "the enrolment has ended", UsageError)
        name, expected = ("NonceReveal", self.context) if self.context else ("NonceCommitment", self.charter.context)
        context, index, value, *signature = decode(name, data, self.charter.limits)
        with blame(FaultyUserError):
            require(index == user and context == expected, "in another name, or of another context")
            require(self.first.get((name, user), data) == data, "a second, different message")
            if self.context:
                opened = self.charter.commitment(user, value)
                require(opened == self.signed[user][0], "a nonce that does not open its commitment")
                self.nonces[user] = value
            else:
                self.charter.check_signature(self.directory, user, value, *signature)
                self.signed[user] = (value, *signature)
        known = (name, user) in self.first
        self.first[name, user] = data
        return not known

    def close(self) -> list[bytes]:
        """End a step: show all commitments, or all nonces; to each cohort with the signatures of its own users."""
        require(not self.over, "the enrolment has ended", UsageError)
        everybody = range(self.charter.count)
        answered = self.nonces if self.context else self.signed
        self.over = bool(self.context) or set(answered) != set(everybody)
        require(set(answered) == set(everybody), "somebody did not answer", WithheldError)
        if not self.context:
            commitments = [self.signed[user][0] for user in everybody]
            self.context = self.charter.commitments_context(commitments)
            shown = commitments if self.charter.cohorts else [list(self.signed[user]) for user in everybody]
            return [encode(self.charter.shown, self.charter.context, shown)]
        nonces = [self.nonces[user] for user in everybody]
        self.encoding = self.charter.drawn(self.context, nonces)
        if not self.charter.cohorts:
            return [encode("NonceReveals", self.context, nonces)]
        signatures = [[self.signed[user][1] for user in members] for members in Cohorts(self.encoding).members]
        return [encode("CohortReveals", self.context, nonces, some) for some in signatures]
