"""A client's privacy budget in a folder, across restarts, plans and runs.

The charges are numbered and written under a lock, seen through to the disk before `charge` returns, into two files one
after the other, of which the one with more charges counts: a program that is killed in between, or a file that is lost
or set back to an earlier state, takes no charge back. A file that is not as it was written is refused.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from heterosag.crypto.hashing import digest
from heterosag.errors import LocalFileError, UsageError
from heterosag.plan import CohortPlan, Plan
from heterosag.protocol.budget import Charges, add_charge
from heterosag.protocol.policy import Policy
from heterosag.storage.durable_file import make_folder, replace_file
from heterosag.storage.locks import locked

__all__ = ["FileBudget"]

_VERSION = 1
_MOST_BYTES = 1 << 24


class FileBudget:
    """Keeps charges in a folder, which it makes. Never delete it: what was spent stays spent.

    Args:
        folder: One user's own folder, which nobody else can write to; that of its release log will do.

    Raises:
        LocalFileError: The folder cannot be made, others can write to it, or the charges in it cannot be read.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from heterosag import Plan, Policy
        >>> from heterosag.storage.budget import FileBudget
        >>> plan = Plan.build([40], [2], 10_000, design="secagg", subgroup_size=40, min_block_survivors=32,
        ...     clipping_norm=1.0, noise_multiplier=4.0)
        >>> policy = Policy(max_epsilon=8.0, delta=1e-5)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     FileBudget(Path(folder)).charge(plan, policy)
        ...     FileBudget(Path(folder)).rounds
        1
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / "budget.json"
        self._copies = (self._path, folder / "budget-copy.json")
        try:
            make_folder(folder)
        except OSError as error:
            raise LocalFileError(f"cannot keep the privacy budget {self._path}: {error}") from None

    @property
    def rounds(self) -> int:
        """Rounds charged so far."""
        return sum(entry["count"] for entry in self._read()[1])

    @property
    def charges(self) -> Charges:
        """The rounds charged so far, as `Accountant.state_dict` has them."""
        return self._read()[1]

    def check(self, plan: Plan | CohortPlan, policy: Policy) -> None:
        """Refuse a round that would exceed the policy.

        Args:
            plan: The plan of the round, or its cohorts.
            policy: What this client allows.

        Raises:
            BudgetError: It would.
        """
        self._add(self._read()[1], plan, policy)

    def charge(self, plan: Plan | CohortPlan, policy: Policy) -> None:
        """Write the charge of a round through to the disk.

        Args:
            plan: The plan of the round, or its cohorts.
            policy: What this client allows.

        Raises:
            BudgetError: It would exceed the policy.
            LocalFileError: The disk does not take it.
        """
        with locked(self._path.with_suffix(".lock")):
            number, charges = self._read()
            charges = self._add(charges, plan, policy)
            for path in self._copies:
                _write(path, number + 1, charges)

    def _add(self, charges: Charges, plan: Plan | CohortPlan, policy: Policy) -> Charges:
        try:
            return add_charge(charges, plan, policy)
        except UsageError as error:
            raise LocalFileError(f"cannot use the privacy budget {self._path}: {error}") from None

    def _read(self) -> tuple[int, Charges]:
        """How often was charged, and the charges."""
        return max((_read(path) for path in self._copies), key=lambda found: found[0])


def _write(path: Path, number: int, charges: Charges) -> None:
    content = {"version": _VERSION, "number": number, "charges": charges}
    try:
        replace_file(path, json.dumps(content | {"checksum": _checksum(content)}).encode())
    except OSError as error:
        raise LocalFileError(f"cannot write the privacy budget {path}: {error}") from None


def _read(path: Path) -> tuple[int, Charges]:
    try:
        with path.open(encoding="utf-8") as file:
            content = json.loads(file.read(_MOST_BYTES))
        problem: object = "it is not as it was written"
        if content.pop("checksum") == _checksum(content):
            if content["version"] == _VERSION:
                return int(content["number"]), list(content["charges"])
            problem = f"this software reads version {_VERSION}, not {content['version']!r}"
    except FileNotFoundError:
        return 0, []
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        problem = error
    raise LocalFileError(f"cannot read the privacy budget {path}: {problem}")


def _checksum(content: dict[str, Any]) -> str:
    return digest("privacy-budget", json.dumps(content, sort_keys=True).encode()).hex()
