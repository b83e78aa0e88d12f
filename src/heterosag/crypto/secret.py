"""Classes that hold secrets inherit from `Secret`, which refuses to be pickled."""

from __future__ import annotations

from typing import NoReturn

__all__ = ["Secret"]


class Secret:
    """Refuses to be pickled; its fields are kept out of repr by their own declaration."""

    __slots__ = ()

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} holds secrets and cannot be pickled")
