"""The release log of a client that lives and dies with its process."""

import pytest

from heterosag.errors import FaultyServerError
from heterosag.protocol.release_log import MemoryReleaseLog


def test_the_first_claim_under_a_context_and_kind_stands() -> None:
    log = MemoryReleaseLog()
    log.claim(b"context", "mask", b"one")
    log.claim(b"context", "mask", b"one")
    log.claim(b"context", "unmask", b"two")
    log.claim(b"other", "mask", b"two")
    with pytest.raises(FaultyServerError, match="asked a second time, for something else, to mask"):
        log.claim(b"context", "mask", b"two")
    log.claim(b"context", "mask", b"one")
