"""Secrets do not show."""

import pickle

import pytest

from heterosag.crypto.identity import Identity
from heterosag.crypto.keys import (
    RoundSecrets,
)
from heterosag.crypto.seal import Seal


def test_secrets_do_not_show() -> None:
    secrets = RoundSecrets.generate()
    identity = Identity.generate()
    seal = Seal.of(bytes(32), bytes(32), 0, 1)
    assert repr(secrets) == "RoundSecrets()"
    assert repr(identity) == "Identity()"
    assert repr(seal) == "Seal()"
    for thing in (secrets, identity):
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(thing)
