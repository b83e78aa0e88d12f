"""The machine and the versions that a run's numbers belong to."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from pathlib import Path

from cryptography.hazmat.backends.openssl import backend

PACKAGES = ("numpy", "cryptography", "msgspec", "torch", "flwr", "numba")


def describe() -> dict[str, str]:
    """Processor, cores, and what is installed; no names of hosts or paths."""
    found = {
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "openssl": backend.openssl_version_text().split(" ", 2)[1],
    }
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def _processor() -> str:
    listing = Path("/proc/cpuinfo")
    if not listing.exists():
        return platform.processor() or "unknown"
    lines = listing.read_text(encoding="utf-8").splitlines()
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    flags = next((line.split() for line in lines if line.startswith("flags")), [])
    known = [flag for flag in ("aes", "vaes", "avx2", "avx512f", "sha_ni") if flag in flags]
    return f"{named[0] if named else 'unknown'} ({', '.join(known)})"
