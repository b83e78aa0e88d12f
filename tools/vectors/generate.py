"""Writes the test vectors, or with --check compares them with the committed ones.

Run it as `python tools/vectors/generate.py`. Which error a must-fail case expects is stated by hand in the modules
beside this one; tests/protocol/test_vectors.py holds the package against the files, without this generator.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import changed_vectors
import client_refusals
import cohorts
import enrolments
import lanes
import machines
import messages
import plan_limits
import plans
import primitives
import server_refusals
import settling
import sparse_refusals
import whole_rounds
from material import render

FOLDER = Path(__file__).resolve().parents[2] / "tests" / "vectors"

FILES: dict[str, Callable[[], dict[str, Any]]] = {
    "labels": primitives.labelled,
    "keys": primitives.keys,
    "signatures": primitives.signatures,
    "seal": primitives.sealed,
    "shamir": primitives.shared,
    "assignment": plans.assignment,
    "sharing": plans.sharing,
    "plan": plans.encoded,
    "plan_limits": plan_limits.limited,
    "cohorts": cohorts.encoded,
    "admissibility": plans.admissibility,
    "contexts": plans.contexts,
    "enrolment": enrolments.enrolled,
    "enrolment_cohorts": cohorts.enrolled,
    "keystream": lanes.keystreams,
    "masks": lanes.masked,
    "quantize": lanes.quantized,
    "rotation": lanes.rotated,
    "noise": lanes.counted,
    "packing": lanes.packed,
    "messages": messages.encoded,
    "round_plain": whole_rounds.plain,
    "round_signed": whole_rounds.signed,
    "round_sparse": whole_rounds.sparse,
    "round_noise": whole_rounds.noisy,
    "refusals_client": client_refusals.by_client,
    "refusals_server": server_refusals.by_server,
    "refusals_sparse": sparse_refusals.refused,
    "refusals_vectors": changed_vectors.changed,
    "machines": machines.described,
    "settling": settling.settled,
}


def main(arguments: list[str]) -> int:
    """Write every file, or say which one differs."""
    texts = {FOLDER / f"{name}.json": render(make()) + "\n" for name, make in FILES.items()}
    if "--check" not in arguments:
        for path, text in texts.items():
            path.write_text(text, encoding="utf-8", newline="\n")
        return 0
    wrong = [path for path, text in texts.items() if not path.exists() or path.read_bytes() != text.encode()]
    wrong += sorted(set(FOLDER.glob("*.json")) - texts.keys())
    for path in wrong:
        print(f"{path.name} differs from what the generator makes", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
