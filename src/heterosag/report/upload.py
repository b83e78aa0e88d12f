"""What a user sends in a round, part by part, beside what it would send as float32 and under Flower's SecAgg+."""

from __future__ import annotations

from heterosag.storage.run_log import RunRecord

__all__ = ["FLOAT32", "PARTS", "SECAGG_PLUS", "reference_bytes", "split_upload"]

FLOAT32 = 4
"""Bytes of a parameter without quantization and without secure aggregation."""

SECAGG_PLUS = 8
"""Bytes of a parameter in the masked vector of Flower's SecAgg+, which has 64-bit integers (docs/benchmarks.md)."""

PARTS = {"masked update": ("mask",), "secret shares": ("share", "unmask"), "keys and the rest": ()}
"""The parts of an upload, each with the phases whose messages it is; the last has all other phases."""


def split_upload(run: RunRecord) -> list[dict[str, float]]:
    """Bytes of each part that a user of each class sends in a round, mean over the rounds that went well.

    Args:
        run: A record.

    Returns:
        A dict for each class with a size for each of `PARTS`.
    """
    good = [line["sent_bytes"] for line in run.rounds if line["error"] is None]
    named = {phase: part for part, phases in PARTS.items() for phase in phases}
    *_, rest = PARTS
    found = []
    for index in range(len(run.config["classes"])):
        sums, counted = dict.fromkeys(PARTS, 0.0), 0
        for sent in good:
            sizes = {phase: by[index] for phase, by in sent.items() if by[index] is not None}
            counted += bool(sizes)
            for phase, size in sizes.items():
                sums[named.get(phase, rest)] += size
        found.append({part: size / max(counted, 1) for part, size in sums.items()})
    return found


def reference_bytes(run: RunRecord) -> dict[str, int]:
    """Bytes of the same update without quantization.

    Args:
        run: A record.

    Returns:
        Bytes as float32 in plaintext, and in the masked vector of Flower's SecAgg+.
    """
    dimension = int(run.plan["dimension"])
    return {"float32, in plaintext": FLOAT32 * dimension, "Flower's SecAgg+": SECAGG_PLUS * dimension}
