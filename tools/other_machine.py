"""Run a command as if on another processor: `python tools/other_machine.py -m pytest ...`.

Results of float arithmetic differ in their last digits between processors, because libraries choose their kernels by
what the processor can do. Three variables take that choice back, where this processor and build know them: OpenBLAS
plays an old core, NumPy and torch do without vector extensions. What is not known here is left alone.
"""

from __future__ import annotations

import os
import platform
import sys

__all__ = ["variables"]

EXTENSIONS = ("X86_V3", "X86_V4", "AVX512_ICL", "AVX512_SPR", "AVX2", "FMA3", "AVX512F", "AVX512_SKX")
"""As NumPy 2.4 names what it may do without, and as the versions before it did."""


def variables() -> dict[str, str]:
    """The variables that mean something on this processor, to these builds of the libraries."""
    import numpy as np

    found = {"ATEN_CPU_CAPABILITY": "default"}
    if platform.machine().lower() in ("x86_64", "amd64"):
        found["OPENBLAS_CORETYPE"] = "Prescott"
    core = getattr(np, "_core", None) or np.core  # named so since NumPy 2
    umath = core._multiarray_umath
    here = {name for name, present in umath.__cpu_features__.items() if present}
    able = [name for name in EXTENSIONS if name in umath.__cpu_dispatch__ and name in here]
    if able:
        found["NPY_DISABLE_CPU_FEATURES"] = " ".join(able)
    return found


def main() -> None:
    """Say what is taken away, and become the command."""
    chosen = variables()
    print("as another machine:", *(f"{name}={value!r}" for name, value in chosen.items()), flush=True)
    os.execve(sys.executable, [sys.executable, *sys.argv[1:]], {**os.environ, **chosen})


if __name__ == "__main__":
    main()
