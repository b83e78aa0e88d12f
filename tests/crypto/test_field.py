"""Elements of the field: one encoding each, and nothing else."""

from __future__ import annotations

import pytest
from hostile import CONTEXT, NOT_ELEMENTS, cases, make_seal, refuses

from heterosag.crypto.field import PRIME, element_from_bytes, element_to_bytes
from heterosag.crypto.keys import (
    self_mask_key,
)
from heterosag.crypto.shamir import random_polynomial
from heterosag.errors import UsageError, WireError


def test_field_elements_have_one_encoding() -> None:
    for element in (0, 1, PRIME - 1):
        assert element_from_bytes(element_to_bytes(element)) == element
    for bad in (PRIME, 2**255 - 1, 2**256 - 1):
        with pytest.raises(WireError, match="field element"):
            element_from_bytes(bad.to_bytes(32, "little"))
    for data in (bytes(31), bytes(33)):
        with pytest.raises(WireError, match="field element"):
            element_from_bytes(data)
    with pytest.raises(UsageError, match="field"):
        element_to_bytes(PRIME)


@cases(NOT_ELEMENTS)
def test_what_is_no_field_element_is_refused(case: bytes) -> None:
    refuses(WireError, element_from_bytes, case)


NO_ELEMENTS = {"-1": -1, "p": PRIME, "p + 1": PRIME + 1, "2^255": 1 << 255, "2^256": 1 << 256, "-p": -PRIME}


@cases(NO_ELEMENTS)
def test_a_number_that_is_no_element_is_not_encoded(case: int) -> None:
    refuses(UsageError, element_to_bytes, case)
    refuses(UsageError, make_seal().close, case, 7)
    refuses(UsageError, make_seal().close, 7, case)
    refuses(UsageError, self_mask_key, case, CONTEXT, 1)
    refuses(UsageError, random_polynomial, case, 2)
