"""What parties must agree on is exact on every machine: nothing in it rests on a library's transcendental functions.

IEEE 754 fixes sums, products, quotients and square roots to the last bit. It does not fix exp, log, pow or sin, and
libraries reorder long sums and products of matrices as suits the processor. Here all of these are made wrong by a part
in a million; digests, thresholds, wire bytes, masks and quantized integers must come out as they were.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TOOLS = Path(__file__).parents[2] / "tools"

SPOILED = """
import math, runpy, sys
import numpy as np

def spoil(function):
    def spoiled(*given, **named):
        found = function(*given, **named)
        inexact = isinstance(found, float) or getattr(getattr(found, "dtype", None), "kind", "") == "f"
        return found * (1 + 1e-6) if inexact else found
    return spoiled

for module, names in (
    (math, "exp exp2 expm1 log log2 log10 log1p pow lgamma gamma erf erfc sin cos tan atan2 tanh cbrt hypot dist"),
    (np, "exp exp2 expm1 log log2 log10 log1p power float_power sin cos tanh hypot dot vdot inner outer matmul einsum "
         "convolve correlate interp cumsum cumprod sum prod mean median var std average"),
    (np.linalg, "norm solve lstsq det inv qr svd eigh"),
):
    for name in names.split():
        if hasattr(module, name):
            setattr(module, name, spoil(getattr(module, name)))
assert math.exp(0.0) != 1.0 != np.dot([1.0], [1.0])
"""

PLANS = """
from heterosag.plan import Plan
for users in (9, 24, 96, 300, 1000):
    for design in ("perfect", "secagg", "multigroup"):
        for extra in ({}, {"colluders": users // 20, "sharing": "sparse" if users > 24 else "complete"}):
            plan = Plan.build([users // 3, users - users // 3], [2, 12], 5000, value_range=0.1, design=design,
                              subgroup_size=max(3, users // 20), assignment_seed=7, max_weight=3, **extra)
            print(users, design, plan.digest.hex(), plan.share_threshold, plan.agree_quorum, plan.sharing.neighbours)
"""


def run(code: str, *arguments: str) -> str:
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_plans_digests_and_thresholds_need_no_transcendental_function() -> None:
    plain = run(PLANS)
    assert plain.count("\n") == 30
    assert run(SPOILED + PLANS) == plain


def test_vectors_need_no_transcendental_function() -> None:
    """Every published vector, made anew: contexts, wire bytes, masks, shares, quantized integers, whole rounds."""
    generate = TOOLS / "vectors" / "generate.py"
    code = f"sys.path.insert(0, {str(generate.parent)!r})\nsys.argv = ['generate', '--check']\n"
    run(SPOILED + code + f"runpy.run_path({str(generate)!r}, run_name='__main__')")


def test_what_is_spoiled_would_be_noticed() -> None:
    """The same on something that does rest on exp: links drawn from a distribution, which nobody agrees on."""
    code = "from heterosag.planner import read_rates\nprint(read_rates('lognormal:2:1:9'))\n"
    assert run(code) != run(SPOILED + code)
