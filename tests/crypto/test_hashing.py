"""Labelled hashing: digests, derivation, commitments, shuffles."""

import hmac

import pytest
from cryptography.hazmat.primitives.hashes import SHA256, Hash
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from heterosag.crypto.hashing import COMMITMENT_SIZE, commit, derive, digest, shuffle
from heterosag.errors import UsageError


def test_digest_is_sha256_of_length_prefixed_parts() -> None:
    state = Hash(SHA256())
    for part in (b"heterosag/1/x", b"ab", b""):
        state.update(len(part).to_bytes(8, "little") + part)
    assert digest("x", b"ab", b"") == state.finalize()


def test_no_two_lists_hash_alike() -> None:
    lists = [(b"ab", b"c"), (b"a", b"bc"), (b"abc",), (b"abc", b""), ()]
    assert len({digest("x", *parts) for parts in lists} | {digest("y", *parts) for parts in lists}) == 10


def test_shuffle_is_a_reproducible_order() -> None:
    assert shuffle("x", b"seed", 5) == shuffle("x", b"seed", 5)
    assert sorted(shuffle("x", b"seed", 1000)) == list(range(1000))
    assert shuffle("x", b"seed", 1000) != shuffle("y", b"seed", 1000) != shuffle("y", b"other", 1000)
    assert shuffle("x", b"", 0) == []
    with pytest.raises(UsageError, match="cannot shuffle"):
        shuffle("x", b"", 2**64)


def test_every_order_is_equally_likely() -> None:
    counts: dict[tuple[int, ...], int] = {}
    for seed in range(6000):
        order = tuple(shuffle("x", seed.to_bytes(4, "big"), 3))
        counts[order] = counts.get(order, 0) + 1
    assert len(counts) == 6
    assert all(abs(count - 1000) < 5 * 1000**0.5 for count in counts.values())


@pytest.mark.parametrize(("first", "expected"), [(2**64 - 1, [0, 1, 2]), (2**64 - 2, [1, 0, 2])])
def test_a_word_that_would_favour_a_place_is_not_used(
    first: int, expected: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 2^64 words three places take a third each but for the last word, which is skipped."""
    block = b"".join(word.to_bytes(8, "little") for word in (first, 2, 1, 0))
    monkeypatch.setattr("heterosag.crypto.hashing.digest", lambda label, *parts: block)
    assert shuffle("x", b"seed", 3) == expected


def test_hkdf_of_rfc_5869_and_ours() -> None:
    """Test case 1 of the library, then our derivation against HMAC alone."""
    info = bytes.fromhex("f0f1f2f3f4f5f6f7f8f9")
    found = HKDF(algorithm=SHA256(), length=42, salt=bytes(range(13)), info=info).derive(b"\x0b" * 22)
    assert found.hex().startswith("3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf")
    listed = b"".join(len(p).to_bytes(8, "little") + p for p in (b"heterosag/1/label", b"ab", b""))
    extracted = hmac.digest(bytes(32), b"secret", "sha256")
    assert derive("label", b"secret", b"ab", b"") == hmac.digest(extracted, listed + b"\x01", "sha256")


def test_commitments_are_bound_to_their_place() -> None:
    base = ("mask", b"c" * 32, 1, 2, b"v" * 32)
    others = [
        ("self", *base[1:]),
        ("mask", b"d" * 32, 1, 2, b"v" * 32),
        ("mask", b"c" * 32, 2, 2, b"v" * 32),
        ("mask", b"c" * 32, 1, 3, b"v" * 32),
        ("mask", b"c" * 32, 1, 2, b"w" * 32),
    ]
    assert commit(*base) not in {commit(*other) for other in others}
    assert len(commit(*base)) == COMMITMENT_SIZE == 16
