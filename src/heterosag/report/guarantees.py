"""What a run guarantees and what it exposes, in words.

A run by the plain engine hides nothing: that is said first, and then what its plan would guarantee with cryptography.
"""

from __future__ import annotations

from typing import Any

from heterosag.storage.run_log import RunRecord

__all__ = ["describe_guarantees"]

_NOTHING_HIDDEN = (
    "Nothing was hidden: the plain engine adds up the users' updates in plaintext, without cryptography, so that "
    "whoever runs it can see each of them. The following is what the plan would guarantee with cryptography."
)


def describe_guarantees(run: RunRecord) -> list[tuple[str, str]]:
    """What the server learns, what malicious users can do, and when a round fails.

    Args:
        run: A record with at least one round.

    Returns:
        What each sentence is about, and the sentence.
    """
    plan, leak, secure = run.plan, run.plan["leak_probability"], run.config["secure"]
    never, unmasked = ("never sees", "is") if secure else ("would never see", "would be")
    rebuild, learn, agree = (
        ("can rebuild", "learn", "must agree") if secure else ("could rebuild", "would learn", "would have to agree")
    )
    found = [
        *([] if secure else [("This run", _NOTHING_HIDDEN)]),
        (
            "One user's update",
            f"The server {never} it. No sum over fewer than {plan['min_survivors']} survivors of a subgroup {unmasked} "
            "unmasked; without that rule dropouts would expose some segment of some user's update in "
            f"{_one_in(leak['block'])} at {plan['dropout']:.0%} dropout.",
        ),
        ("A round", _describe_round(run)),
        ("All rounds together", _describe_ledger(run)),
        ("Malicious users", _describe_tolerance(run)),
        (
            "Dropouts",
            f"At {plan['dropout']:.0%} dropout {_one_in(plan['failure_probability'])} fails because too few users are "
            f"left. Any {plan['share_threshold']} holders of shares {rebuild} the secrets of a user who dropped out, "
            f"so that masks can be removed; fewer {learn} nothing, even together with the server. "
            f"{plan['agree_quorum']} users {agree} on who survived.",
        ),
    ]
    return found + [("Privacy", f"{line['privacy']['statement']}.") for line in run.rounds[-1:] if "privacy" in line]


def _describe_round(run: RunRecord) -> str:
    """What one round's sums expose."""
    plan = run.plan
    robustness, exact = plan["inference_robustness"], plan["inference_robustness_exact"]
    sees, learns = ("sees", "learns") if run.config["secure"] else ("would see", "would learn")
    if plan.get("segments") and len(plan["segments"]) == 1 and len(plan["segments"][0]) == 1:
        return f"The server {sees} one sum of all {plan['users']} users who are left, and of no smaller group."
    seen = ""
    if "subgroups" in plan:
        members = [len(subgroup["users"]) for subgroup in plan["subgroups"]]
        sizes = [sum(members[g] for g in block) for segment in plan["segments"] for block in segment]
        seen = (
            f"The update is cut into {len(plan['segments'])} segments, and in each the server {sees} sums of "
            f"{_from_to(min(sizes), max(sizes))} users. "
        )
    share = f"{1 - robustness:.1%}"
    words = (
        f"{seen}Whichever subgroups it is curious about, it {learns} their own sum in at most {share} of the segments"
    )
    least = min((r for line in run.rounds if (r := line["inference_robustness"]) is not None), default=None)
    if least is not None and round(least, 4) < round(robustness, 4):
        words += f" by plan, and {1 - least:.1%} in the worst round of this run, after dropouts"
    return f"{words} (inference robustness {robustness:.4f}{'' if exact else ', a lower bound'})."


def _describe_ledger(run: RunRecord) -> str:
    """What the sums of all rounds expose together, if updates never changed."""
    ledger: dict[str, Any] | None = next(
        (line["ledger"] for line in reversed(run.rounds) if line.get("ledger") is not None), None
    )
    if ledger is None:
        return "Nobody kept account of what sums of different rounds, subtracted, expose."
    users, pairs = ledger["exposed_users"], ledger["exposed_pairs"]
    worst = "Subtracting sums of different rounds would, if updates never changed from round to round, "
    if not users and not pairs:
        return f"{worst}isolate no user and no pair of users."
    return (
        f"{worst}isolate {users} {'user' if users == 1 else 'users'} and {pairs} {'pair' if pairs == 1 else 'pairs'}. "
        "Updates do change, so that this is an upper bound; --hide-sets-below 3 (on Flower hide_sets_below=3) "
        "refuses such rounds."
    )


def _describe_tolerance(run: RunRecord) -> str:
    tolerates, rule = run.plan["byzantine_tolerance"], run.config["rule"]
    could = {0: "none", 1: "one, wherever it is"}.get(tolerates, f"{tolerates}, wherever they are")
    if rule == "median":
        return f"The median of the blocks tolerates {could}."
    if rule == "mean":
        return f"The mean tolerates none; with this plan the median would tolerate {could}."
    return f"The rule of this run is {rule}; with this plan the median tolerates {could}."


def _one_in(probability: float) -> str:
    """A probability as so many of so many rounds."""
    if probability <= 0:
        return "no round"
    if probability > 0.01:
        return f"{probability:.1%} of the rounds"
    return f"one round in {1 / probability:,.0f}" if probability > 1e-9 else "one round in more than 10^9"


def _from_to(least: int, most: int) -> str:
    return str(least) if least == most else f"{least} to {most}"
