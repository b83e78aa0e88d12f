"""Sixteen users in two classes, and an update of each."""

from typing import Any

import numpy as np

from heterosag.plan import Plan


def plan_of(**changes: Any) -> Plan:
    requirements: dict[str, Any] = {
        "classes": [8, 8],
        "levels": [16, 64],
        "dimension": 30,
        "value_range": 1.0,
        "ranges": "single",
        "rotate": False,
        "subgroup_size": 4,
        **changes,
    }
    return Plan.build(**requirements)


UPDATES = np.random.default_rng(3).uniform(-1, 1, (16, 30))
