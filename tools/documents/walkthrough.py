"""A secure round, step by step: a script in cells. tools/documents/make_walkthrough.py makes a page of it."""

# %% [markdown]
# # A secure round, step by step
#
# 24 users with three kinds of links aggregate one update each. We plan the round, look at what every user sends and at
# what the server sees, lose some users, meet a malicious user, and check that the sum is exact. Secrets come from the
# operating system, as always; data and rounding come from seeds, so that everything printed here is the same each time.
#
# Run it whole (`python tools/documents/walkthrough.py`) or cell by cell in an editor that knows `# %%`.

# %%
from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np

from heterosag import Plan, Simulation, aggregate
from heterosag.errors import FaultyBlockError, TooFewSurvivorsError
from heterosag.plan import costs
from heterosag.protocol import Client, RoundId, Server
from heterosag.protocol import messages as wire
from heterosag.protocol.encoding import fill_cells
from heterosag.protocol.rounding import Rounding
from heterosag.protocol.update import Update
from heterosag.report.figures import COLOURS, draw_design, matplotlib_figure
from heterosag.vector import ring

# %% [markdown]
# ## The plan
#
# Eight phones on a slow link, eight on a better one, eight desktops. Each class has a number of quantizer levels that
# its link allows. Subgroups of four: six of them.

# %%
RATES = (0.25, 1.0, 4.0)  # Mb/s of each class, slowest first
plan = Plan.build(
    classes=[8, 8, 8], levels=[8, 32, 128], dimension=2000, subgroup_size=4, value_range=(-0.5, 0.5), assignment_seed=1
)
for number, subgroup in enumerate(plan.subgroups):
    level = plan.levels[subgroup.user_class]
    print(f"subgroup {number}: class {subgroup.user_class}, {level:3} levels, users {list(subgroup.members)}")

# %% [markdown]
# The vector is cut into segments, and in each segment the subgroups are paired differently. One colour codes
# together.

# %% The design of six subgroups
draw_design(plan.design, classes=[subgroup.user_class for subgroup in plan.subgroups])

# %% [markdown]
# ## What it guarantees
#
# All of it is computed from the plan, before a single key exists.

# %%
leak = plan.leak_probability()
print(f"inference robustness            {plan.inference_robustness():.3f}")
print(f"malicious users tolerated       {plan.byzantine_tolerance()} (by the median)")
print(f"users needed to rebuild a mask  {plan.share_threshold} of {len(plan.users)}")
print(
    f"a block exposes one user        {leak.block:.1e} without least survivors, {leak.with_min_survivors:.0f} with them"
)
print(f"a round fails                   {plan.failure_probability():.1e} at {plan.dropout:.0%} dropout")
print(f"bound on the squared error      {plan.error_bound():.2f}")

# %% [markdown]
# Robustness says how much of the sum of any set of subgroups stays hidden. Count it by hand: in how many segments is
# a set of subgroups a union of blocks, so that the server can compute its sum?


# %%
def shown(subgroups: tuple[int, ...]) -> int:
    """Segments in which the server can compute the sum of exactly these subgroups."""
    blocks = [[{*block.subgroups} for block in segment.blocks] for segment in plan.segments]
    return sum(
        {*subgroups} == set().union(*(block for block in segment if block <= {*subgroups})) for segment in blocks
    )


sets = [chosen for size in range(1, 6) for chosen in combinations(range(6), size)]
print(f"{len(sets)} sets of subgroups; the most segments shown of any: {max(map(shown, sets))} of {len(plan.segments)}")
print(f"single subgroups are shown in {max(shown((subgroup,)) for subgroup in range(6))} segments")

# %% [markdown]
# ## What every user sends
#
# Every user has trained; its update is a common direction and some noise of its own.

# %%
rng = np.random.default_rng(0)
updates = 0.1 * np.sin(np.arange(2000) / 40) + rng.normal(0, 0.02, (24, 2000))

# %% [markdown]
# Users and server are machines that turn messages into messages. Users 3 and 17 drop out: 3 before it masks, 17 after
# its vector has arrived.

# %%
round_id = RoundId(session=b"walk-through", number=1)
clients = {user: Client(plan, user, round_id, trust_server=True) for user in plan.users}
server = Server(plan, round_id)
sent: dict[str, dict[int | str, bytes]] = {}
messages: dict[int | str, bytes] = dict.fromkeys(plan.users, b"")
for phase in ("advertise", "share", "mask", "unmask"):
    sent[phase] = {}
    for user, message in messages.items():
        if (user == 3 and phase in ("mask", "unmask")) or (user == 17 and phase == "unmask"):
            continue
        reply = clients[user].answer(phase, message, updates[int(user)], rounding=Rounding.from_seed(0, int(user)))
        sent[phase][user] = reply
        server.receive(user, reply)
    messages = server.close()
for phase, replies in sent.items():
    sizes = [f"{len(replies[user]):5}" for user in (0, 8, 16)]
    print(f"{phase:9} {len(replies)} users; bytes of users 0, 8, 16: {' '.join(sizes)}")

# %% [markdown]
# Only the masked vector grows with the model, and with the class's levels. In the first segment user 0 codes with its
# block's ring; its levels are small numbers, and what is sent is uniform on the ring.

# %%
cell = plan.cells(plan.subgroup_of(0))[0]
mine = fill_cells(plan, plan.subgroup_of(0), Update.of(plan, updates[0]), Rounding.from_seed(0, 0))[0].elements
packed = wire.decode(wire.MaskedVector, sent["mask"][0], plan=plan).vector[: ring.packed_size(cell.size, cell.bits)]
crossed = ring.unpack(packed, cell.bits, cell.size)
print(f"{cell.size} elements of {cell.bits} bits, {cell.block.level} levels, block of subgroups {cell.block.subgroups}")
print(f"levels as trained:   {mine.min()} to {mine.max()}")
print(f"values that crossed: the whole ring of {2**cell.bits}: {crossed.max() - crossed.min() > 2**cell.bits * 0.9}")
print(f"correlated with the levels: {abs(np.corrcoef(mine, crossed)[0, 1]) > 0.3}")

# %% [markdown]
# ## What the server sees
#
# For each segment the sum of each block's survivors, and how many they are. User 3's vector never came; user 17's
# did, and the others rebuilt its mask without it.

# %%
decoded = server.decoded
print(f"{len(decoded.survivors)} survivors, not among them: {sorted({*plan.users} - {*decoded.survivors})}")
for number, segment in enumerate(decoded.segments):
    blocks = ", ".join(f"{block.block.subgroups} {block.survivors} users" for block in segment)
    print(f"segment {number}: {blocks}")

# %% [markdown]
# Are the sums exact? Add up the survivors' levels in plaintext, which only this walk-through can do:


# %%
def plain_sum(segment: int, subgroups: tuple[int, ...]) -> Any:
    """The sum of the survivors' levels in one segment."""
    total = np.zeros(plan.segments[segment].size, dtype=np.int64)
    for user in decoded.survivors:
        own = plan.subgroup_of(user)
        if own in subgroups:
            update = Update.of(plan, updates[int(user)])
            total += fill_cells(plan, own, update, Rounding.from_seed(0, int(user)))[segment].elements
    return total


exact = [
    np.array_equal(plain_sum(number, block.block.subgroups), block.elements)
    for number, segment in enumerate(decoded.segments)
    for block in segment
]
print(f"{sum(exact)} of {len(exact)} block sums are exact")

# %% [markdown]
# ## More dropouts
#
# `aggregate` runs such a round in one call. A subgroup with fewer than three survivors is never unmasked: the server
# leaves it out whole, and ends the round if the rest is not admissible. Of twelve users who drop out eight are
# subgroups 0 and 1; the other four are halves of 2 and 3, whose other halves are left out, and eight users remain.

# %%
result = aggregate(plan, updates, simulate=Simulation(dropped={3: "mask", 17: "unmask"}, rounding_seed=0))
print(f"two lost: {len(result.survivors)} survivors, robustness {result.combined.inference_robustness}")
four: dict[int | str, str] = dict.fromkeys(plan.subgroups[0].members, "mask")
result = aggregate(plan, updates, simulate=Simulation(dropped=four, rounding_seed=0))
print(f"subgroup 0 lost: {len(result.survivors)} survivors, robustness {result.combined.inference_robustness}")
try:
    aggregate(plan, updates, simulate=Simulation(dropped=dict.fromkeys(range(12), "mask"), rounding_seed=0))
except TooFewSurvivorsError as error:
    print(f"twelve lost: {error}")

# %% [markdown]
# ## A malicious user
#
# User 9 sends the largest value that the range allows, in every element. Nobody can see that; but of the three
# blocks of every segment it is in one, and the median takes the middle one. It is still a little too high: where
# one of three is always the largest, the middle one is the larger of the other two.

# %%
poisoned = updates.copy()
poisoned[9] = 0.5
honest = np.delete(updates, 9, axis=0).mean(axis=0)
found = {
    rule: aggregate(plan, poisoned, rule=rule, simulate=Simulation(rounding_seed=0)).vector
    for rule in ("mean", "median")
}
for rule, vector in found.items():
    print(f"{rule:6}: {(vector - honest).mean():+.4f} too high on average over all elements")


# %% Mean and median under a malicious user, averaged over 25 neighbouring elements
def draw_rules() -> Any:
    """The aggregate by each rule, smoothed, less the honest users' mean."""
    figure = matplotlib_figure(7.5, 3.0)
    axes = figure.subplots()
    window = np.ones(25) / 25
    for (rule, vector), colour in zip(found.items(), COLOURS[1:], strict=False):
        axes.plot(np.convolve(vector - honest, window, mode="valid"), color=colour, label=rule)
    axes.axhline(0, color="black", lw=1, ls="--")
    axes.set_xlabel("element of the update")
    axes.set_ylabel("less the honest mean")
    axes.legend(frameon=False, ncols=2, loc="upper center", bbox_to_anchor=(0.5, 1.2))
    return figure


draw_rules()

# %% [markdown]
# A malicious user who changes its own software may skip the clip and send any ring element. Honest users cannot have
# produced such a sum: the mean fails, the median leaves the block out and names it.

# %%
poisoned[9] = 30 * updates[9]
try:
    aggregate(plan, poisoned, rule="mean", simulate=Simulation(malicious=[9], rounding_seed=0))
except FaultyBlockError as error:
    print(f"the mean: {error.problem}")
result = aggregate(plan, poisoned, rule="median", simulate=Simulation(malicious=[9], rounding_seed=0))
common = set.intersection(*({*block.subgroups} for block in result.faulty_blocks))
print(f"the median left out {len(result.faulty_blocks)} blocks; all hold subgroup {sorted(common)}")
print(f"user 9 is in subgroup {plan.subgroup_of(9)}")

# %% [markdown]
# ## How far off is the result?
#
# Masks cost no accuracy; rounding does. The same seed without cryptography gives the same bits.

# %%
secure = aggregate(plan, updates, simulate=Simulation(rounding_seed=0))
plain = aggregate(plan, updates, simulate=Simulation(rounding_seed=0, secure=False))
distance = float(((secure.vector - updates.mean(axis=0)) ** 2).sum())
print(f"equal to the round in plaintext: {np.array_equal(secure.vector, plain.vector)}")
print(f"squared distance to the true mean {distance:.2f}, bound {plan.error_bound():.2f}")

# %% [markdown]
# ## What it costs
#
# Bits of the masked vector, class by class, beside 32 bits an element in plaintext and beside one block of everybody at
# the same levels.

# %%
bits = costs.of(plan)
for number, rate in enumerate(RATES):
    packed_bits = bits.per_class()[number] + bits.auxiliary_bits
    print(
        f"class {number}: {packed_bits / 8000:.2f} kB, {packed_bits / rate / 1e6:.3f} s at {rate} Mb/s, "
        f"{bits.per_class()[number] / (32 * plan.dimension):.0%} of float32, "
        f"{bits.against_secagg()[number]:.0%} of one block of everybody"
    )


# %% What a user of each class sends in each phase
def draw_bytes() -> Any:
    """Bytes by phase, a bar a class."""
    figure = matplotlib_figure(7.5, 2.6)
    axes = figure.subplots()
    left = np.zeros(3)
    for (phase, by_user), colour in zip(secure.traffic.sent.items(), COLOURS, strict=False):
        kilobytes = np.array([by_user[user] / 1000 for user in (0, 8, 16)])
        axes.barh(range(3), kilobytes, left=left, color=colour, label=phase)
        left += kilobytes
    axes.set_yticks(range(3), [f"class {number}" for number in range(3)])
    axes.invert_yaxis()
    axes.set_xlabel("kB sent in a round")
    axes.legend(frameon=False, ncols=4, loc="upper center", bbox_to_anchor=(0.5, 1.25))
    return figure


draw_bytes()

# %% [markdown]
# With a model of this size the shares are the larger part; they grow with the number of users, the masked vector with
# the model.
#
# Next: [the tutorial](tutorial.md) does the same on Flower, [plans](plans.md) explains the numbers,
# [the protocol](protocol.md) the messages.
