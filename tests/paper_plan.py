"""The plan of the paper's first experiment."""

from typing import Any

PAPER: dict[str, Any] = {
    "classes": [5] * 5, "levels": [2, 6, 8, 10, 12], "dimension": 79510, "value_range": 1.0, "ranges": "single",
    "rotate": False,
}  # fmt: skip
