"""The bytes and numbers of a round, from docs/wire-format.md and the test vectors alone.

Messages and their encoding, hashes and keys, shares and seals, the quantizer, noise, packing and masks: functions that
remember nothing, in the order of the page. naive_round.py makes a round of them. Plain integers and lists, for reading
and not for speed; nothing here is constant in time, and nothing is wiped from memory.
"""

import math
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from typing import Any, NamedTuple

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

WIRE_VERSION = 2
PRIME = 2**255 - 19
KINDS = ("mask", "self")  # the two secrets of a user, in the order of the messages

# MessagePack: the first byte of each type, and how many bytes of length or number follow it
INTS = {0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8}
TEXTS = {0xD9: 1, 0xDA: 2, 0xDB: 4}
BYTES = {0xC4: 1, 0xC5: 2, 0xC6: 4}
ARRAYS = {0xDC: 2, 0xDD: 4}
CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}

# Messages in the order of their kinds. A number is that many bytes, "sig?" at most 64, a list is an array of any length
ADVERTISED = ("index", 32, 32, "sig?")
SHAPES: dict[str, tuple[Any, ...]] = {
    "Advertisement": (ADVERTISED,),
    "Roster": ([ADVERTISED],),
    "Shares": ("index", 16, "bytes", "bytes"),
    "Inbox": (["index"], "bytes", "bytes"),
    "MaskedVector": ("index", "sig?", ["index"], "bytes"),
    "SurvivorSet": (["index"], [64]),
    "Agreement": ("index", 64),
    "UnmaskRequest": (["index"], [("index", 64)]),
    "Released": ("index", "bytes"),
    "NonceCommitment": ("index", 32, 64),
    "NonceCommitments": ([(32, 64)],),
    "NonceReveal": ("index", 32),
    "NonceReveals": ([32],),
    "CohortCommitments": ([32],),
    "CohortReveals": ([32], [64]),
}


class RefusedError(ValueError):
    """Something was refused; the classes below say whose fault it is, as the page names them."""


class WireError(RefusedError):
    """These bytes are no such message, key, signature, share or vector."""


class FaultyServerError(RefusedError):
    """A client must not answer this server."""


class FaultyUserError(RefusedError):
    """The server refuses what a user sent."""


class FaultyBlockError(RefusedError):
    """The blocks cannot come from honest users."""


class TooFewSurvivorsError(RefusedError):
    """No admissible set of users is left, or too few answered."""


class WithheldError(RefusedError):
    """A user did not answer in an enrolment."""


class PlanError(RefusedError):
    """These bytes or values are no plan."""


class UsageError(RefusedError):
    """The caller's own value is refused."""


def require(holds: bool, what: str, error: type[RefusedError] = WireError) -> None:
    """Refuse unless the condition holds."""
    if not holds:
        raise error(what)


@contextmanager
def blame(error: type[RefusedError]) -> Iterator[None]:
    """Turn a WireError inside into the error that says whose fault it is here."""
    try:
        yield
    except WireError as refusal:
        raise error(str(refusal)) from refusal


def pack(value: Any) -> bytes:
    """Encode one value as MessagePack, behind its shortest header."""
    if value is None or isinstance(value, bool):
        return bytes([next(code for code, constant in CONSTANTS.items() if constant is value)])
    if isinstance(value, float):
        return b"\xcb" + struct.pack(">d", value)
    if isinstance(value, int):
        return header(value, 0, 128, INTS)
    if isinstance(value, str):
        return header(len(value.encode()), 0xA0, 32, TEXTS) + value.encode()
    if isinstance(value, bytes):
        return header(len(value), 0, 0, BYTES) + value
    return header(len(value), 0x90, 16, ARRAYS) + b"".join(map(pack, value))


def header(number: int, fixed: int, below: int, codes: dict[int, int]) -> bytes:
    """Write a number into the first byte if it fits there, else behind the shortest code that holds it."""
    if number < below:
        return bytes([fixed + number])
    code, width = next((code, width) for code, width in codes.items() if number < 256**width)
    return bytes([code]) + number.to_bytes(width, "big")


def unpack(data: bytes) -> Any:
    """Decode one value, and refuse what does not encode to the same bytes again."""
    value, rest = read(data)
    require(not rest and pack(value) == data, "not the canonical encoding")
    return value


def read(data: bytes) -> tuple[Any, bytes]:
    """Decode the first value, and give the bytes behind it."""
    require(len(data) > 0, "cut short")
    code, data = data[0], data[1:]
    if code < 0x80 or code in CONSTANTS:
        return CONSTANTS.get(code, code), data
    if 0x90 <= code < 0xC0:
        number = code & (0x0F if code < 0xA0 else 0x1F)
    else:
        width = ({0xCB: 8} | INTS | TEXTS | BYTES | ARRAYS).get(code, 0)
        require(0 < width <= len(data), "cut short, or a type that does not occur")
        number, data = int.from_bytes(data[:width], "big"), data[width:]
    if code in INTS:
        return number, data
    if code == 0xCB:
        return struct.unpack(">d", number.to_bytes(8, "big"))[0], data
    if code in ARRAYS or code < 0xA0:
        values = []
        for _ in range(number):
            value, data = read(data)
            values.append(value)
        return values, data
    require(number <= len(data), "cut short")
    return (data[:number] if code in BYTES else data[:number].decode(errors="replace")), data[number:]


def encode(name: str, context: bytes, *fields: Any) -> bytes:
    """Make a message."""
    return pack([list(SHAPES).index(name) + 1, WIRE_VERSION, context, *fields])


def decode(name: str, data: bytes, limits: dict[str, int] | None = None) -> list[Any]:
    """Take the context and the fields out of a message of this kind, no longer than the limits allow."""
    require(limits is None or len(data) <= limits[name], "longer than the plan allows")
    message = unpack(data)
    require(fits(message, ("index", "index", 32, *SHAPES[name])), f"no {name}")
    require(message[:2] == [list(SHAPES).index(name) + 1, WIRE_VERSION], "another kind or version")
    return message[2:]


def kind_of(data: bytes) -> str:
    """Name the kind of a message, which is the first value of its array, without decoding the rest."""
    number = data[1] if len(data) > 1 else 0
    return list(SHAPES)[number - 1] if 0 < number <= len(SHAPES) else ""


def fits(value: Any, shape: Any) -> bool:
    """Tell whether a decoded value has this shape."""
    if shape == "index":
        return type(value) is int and value < 2**32
    if isinstance(shape, list):
        return isinstance(value, list) and all(fits(one, shape[0]) for one in value)
    if isinstance(shape, tuple):
        return isinstance(value, list) and len(value) == len(shape) and all(map(fits, value, shape))
    return isinstance(value, bytes) and (shape in ("bytes", len(value)) or (shape == "sig?" and len(value) <= 64))


def message_limits(users: int, neighbours: int, quorum: int, vector: int, cohort: int) -> dict[str, int]:
    """Say how many bytes a message of each kind has at most; `cohort` is the users of the largest cohort."""
    return {
        "Advertisement": 204,
        "Roster": 69 + 140 * users,
        "Shares": 129 + 112 * neighbours,
        "Inbox": 79 + 5 * users + 112 * neighbours,
        "MaskedVector": 145 + 5 * users + vector,
        "SurvivorSet": 74 + 5 * users + 66 * neighbours,
        "Agreement": 136,
        "UnmaskRequest": 74 + 5 * users + 72 * quorum,
        "Released": 106 + 32 * neighbours,
        "NonceCommitment": 169,
        "NonceCommitments": 69 + 101 * users,
        "NonceReveal": 103,
        "NonceReveals": 69 + 34 * users,
        "CohortCommitments": 69 + 34 * users,
        "CohortReveals": 74 + 34 * users + 66 * cohort,
    }


def u64(*numbers: int) -> bytes:
    """Write numbers as eight bytes each, the lowest first."""
    return b"".join(number.to_bytes(8, "little") for number in numbers)


def listed(label: str, *parts: bytes) -> bytes:
    """Put a label and parts in a row, each behind its length."""
    return b"".join(u64(len(part)) + part for part in (b"heterosag/1/" + label.encode(), *parts))


def digest(label: str, *parts: bytes) -> bytes:
    """Compute H(label, parts...)."""
    return sha256(listed(label, *parts)).digest()


def derive(label: str, secret: bytes, *parts: bytes) -> bytes:
    """Compute KDF(label, secret, parts...)."""
    return HKDF(SHA256(), 32, None, listed(label, *parts)).derive(secret)


def public_key(private: bytes) -> bytes:
    """Compute the public key of an X25519 private key."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def agreement(private: bytes, public: bytes) -> bytes:
    """Agree by X25519; a key that is not canonical, or agrees on zeros, is refused."""
    element(public)
    try:
        return X25519PrivateKey.from_private_bytes(private).exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError as error:
        raise WireError("a key that agrees on zeros") from error


def pair_key(private: bytes, public: bytes, c2: bytes, user: int, other: int) -> bytes:
    """Derive the key of the mask that two users share."""
    return derive("pair-mask", agreement(private, public), c2, u64(*sorted([user, other])))


def identity_key(private: bytes) -> bytes:
    """Compute the public key of an Ed25519 identity."""
    return Ed25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def is_small_order(public: bytes) -> bool:
    """Tell whether anybody could sign for an Ed25519 key: of eight times the point nothing is left.

    The y of such a point is 1, -1 (order 2), 0 (order 4), or doubles to y = 0, which is where x^2 = -y^2.
    """
    y, d = (int.from_bytes(public, "little") % 2**255) % PRIME, -121665 * pow(121666, -1, PRIME)
    return y in (0, 1, PRIME - 1) or (d * y**4 + 2 * y**2 - 1) % PRIME == 0


def sign(private: bytes, purpose: str, *parts: bytes) -> bytes:
    """Sign for a purpose; without an identity the signature is empty."""
    return Ed25519PrivateKey.from_private_bytes(private).sign(digest("sign/" + purpose, *parts)) if private else b""


def verify(public: bytes | None, signature: bytes, purpose: str, *parts: bytes) -> None:
    """Refuse a signature that is not valid, or not empty where there are no identities."""
    if public is None:
        return require(signature == b"", "a signature without identities")
    try:
        return Ed25519PublicKey.from_public_bytes(public).verify(signature, digest("sign/" + purpose, *parts))
    except (InvalidSignature, ValueError) as error:
        raise WireError(f"no valid signature for {purpose}") from error


def commit(kind: str, c1: bytes, dealer: int, holder: int, value: bytes) -> bytes:
    """Commit to a share, or to a whole secret."""
    return digest("commit/" + kind, c1, u64(dealer, holder), value)[:16]


def commit_pair(c1: bytes, dealer: int, holder: int, pair: list[bytes]) -> bytes:
    """Commit to the two shares of a holder."""
    return b"".join(commit(kind, c1, dealer, holder, share) for kind, share in zip(KINDS, pair, strict=True))


def seal_parts(agreed: bytes, c1: bytes, dealer: int, holder: int) -> tuple[bytes, bytes, bytes]:
    """Derive the key of a sealed pair, and give its nonce and its associated data."""
    return derive("seal", agreed, c1, u64(dealer, holder)), bytes(12), c1 + u64(dealer, holder)


def seal(agreed: bytes, c1: bytes, dealer: int, holder: int, pair: list[bytes]) -> bytes:
    """Seal two shares for their holder."""
    key, nonce, associated = seal_parts(agreed, c1, dealer, holder)
    return ChaCha20Poly1305(key).encrypt(nonce, pair[0] + pair[1], associated)


def unseal(agreed: bytes, c1: bytes, dealer: int, holder: int, box: bytes) -> list[bytes]:
    """Open what was sealed for a holder; what is no two field elements inside does not open."""
    key, nonce, associated = seal_parts(agreed, c1, dealer, holder)
    try:
        opened = ChaCha20Poly1305(key).decrypt(nonce, box, associated)
    except InvalidTag as error:
        raise WireError("a sealed pair does not open") from error
    pair = [opened[:32], opened[32:]]
    require(all(element(share) >= 0 for share in pair), "no shares")
    return pair


def rows(data: bytes, size: int, count: int) -> list[bytes]:
    """Cut bytes into rows of one size; another number of rows is refused."""
    require(len(data) == size * count, "not one row for each")
    return [data[at : at + size] for at in range(0, len(data), size)]


def element(data: bytes) -> int:
    """Read a field element."""
    require(len(data) == 32 and int.from_bytes(data, "little") < PRIME, "not 32 bytes below the prime")
    return int.from_bytes(data, "little")


def share_at(polynomial: list[bytes], place: int) -> bytes:
    """Compute the value of a polynomial at a place; the secret is its constant."""
    require(0 < place < 2**20, "no such place", UsageError)
    value = sum(element(one) * place**power for power, one in enumerate(polynomial))
    return (value % PRIME).to_bytes(32, "little")


def lagrange(places: list[int]) -> list[int]:
    """Compute by how much the share at each place is multiplied, so that the sum of all is the value at 0."""
    require(all(0 < place < 2**20 for place in places), "no such place", UsageError)
    require(len(set(places)) == len(places), "a place twice", UsageError)
    factors = []
    for place in places:
        others = [other for other in places if other != place]
        factors.append(math.prod(other * pow(other - place, -1, PRIME) for other in others) % PRIME)
    return factors


def rebuild(shares: dict[int, bytes]) -> bytes:
    """Rebuild a secret from shares at places."""
    terms = zip(lagrange(list(shares)), shares.values(), strict=True)
    return (sum(factor * element(share) for factor, share in terms) % PRIME).to_bytes(32, "little")


def round_context(frame: bytes, session: bytes, number: int) -> bytes:
    """Compute c0."""
    require(1 <= len(session) <= 64 and 0 <= number < 2**64, "no such round", UsageError)
    return digest("context/round", u64(WIRE_VERSION, number), frame, session)


def roster_context(c0: bytes, roster: list[list[Any]]) -> bytes:
    """Compute c1 from entries of index, seal key, mask key and more."""
    return digest("context/roster", c0, b"".join(u64(entry[0]) + entry[1] + entry[2] for entry in roster))


def sharers_context(
    c1: bytes, plan_digest: bytes, model: bytes, sharers: list[int], *, metrics_only: bool = False
) -> bytes:
    """Compute c2."""
    require(len(model) == 32, "no digest of a model", UsageError)
    content = b"metrics" + model if metrics_only else model
    return digest("context/sharers", c1, plan_digest, content, u64(*sharers))


def keystream(key: bytes, size: int, start: int = 0) -> bytes:
    """Read AES-256-CTR from a zero counter, or from a later block of 16 bytes."""
    require(len(key) == 32 and start >= 0 and start % 16 == 0, "no such key or start", UsageError)
    cipher = Cipher(algorithms.AES256(key), modes.CTR((start // 16).to_bytes(16, "big")))
    return cipher.encryptor().update(bytes(size))


def words(key: bytes, count: int, first: int = 0) -> list[int]:
    """Read rounding words, from the given one on."""
    return list(struct.unpack(f"<{first + count}I", keystream(key, 4 * (first + count))))[first:]


def rotation_signs(segment: int, size: int) -> list[int]:
    """Read the signs of a segment."""
    stream = keystream(digest("rotation", u64(segment, size)), (size + 7) // 8)
    return [-1 if stream[i // 8] >> i % 8 & 1 else 1 for i in range(size)]


def rotate(values: list[float], segment: int, back: bool = False) -> list[float]:
    """Rotate a segment: signs, factor and transform of pieces of falling powers of two; or undo it."""
    flips = rotation_signs(segment, len(values))
    values = values if back else [flip * value for flip, value in zip(flips, values, strict=True)]
    done: list[float] = []
    while len(done) < len(values):
        size = min(2**16, 1 << (len(values) - len(done)).bit_length() - 1)
        piece, half = [value * (1 / math.sqrt(size)) for value in values[len(done) : len(done) + size]], 1
        while half < size:
            for i in (i for i in range(size) if not i & half):
                piece[i], piece[i + half] = piece[i] + piece[i + half], piece[i] - piece[i + half]
            half *= 2
        done += piece
    return [flip * value for flip, value in zip(flips, done, strict=True)] if back else done


def quantize(values: list[float], dice: Sequence[int], level: int, span: tuple[float, float]) -> tuple[list[int], int]:
    """Turn values into levels, and count the clipped ones."""
    require(all(map(math.isfinite, values)) and len(dice) == len(values), "no finite update", UsageError)
    low, high = span
    scale = (level - 1) / (high - low)
    if (high - low) * scale < level - 1:
        scale = math.nextafter(scale, math.inf)
    exact = [(value - low) * scale + word * 2.0**-32 for value, word in zip(values, dice, strict=True)]
    limited = [min(max(value, 0.0), math.nextafter(level, 0.0)) for value in exact]
    return [math.floor(value) for value in limited], sum(not low <= value <= high for value in values)


def mean_of(sums: list[int], users: int, level: int, span: tuple[float, float]) -> list[float]:
    """Turn a sum of levels back into a mean."""
    return [one / users * ((span[1] - span[0]) / (level - 1)) + span[0] for one in sums]


def noise_range(size: int, trials: int, norm: float, multiplier: float, honest: int) -> tuple[float, float, float]:
    """Compute, for a segment with noise, the range R of its blocks, the limit r of a value, and theta, 1/8 at most."""
    require(multiplier > 0, "no noise", UsageError)
    limit = min(1.0, 4 / math.sqrt(size))  # as a part of the norm
    ratio = limit / multiplier
    require(trials >= 16 * honest * (ratio * ratio) * (1 - 2.0**-40), "too few levels for so little noise", PlanError)
    theta = limit / (2 * multiplier * math.sqrt(trials / honest))
    return multiplier * norm * math.sqrt(trials / honest), norm * limit, min(1 / 8, theta)


def norm_factor(values: list[float], norm: float) -> tuple[float | None, bool]:
    """Say by what an update is multiplied to be within its norm, nothing if it is not finite, and whether it was."""
    length, limit = math.sqrt(sum(value * value for value in values)), norm * (1 - 2.0**-20)
    factor = None if not math.isfinite(length) else min(1.0, limit / length) if length else 0.0
    return factor, length <= limit


def thresholds(values: list[float], factor: float | None, block_range: float, theta: float) -> list[int]:
    """Say, with noise, below which number a word of each value counts."""
    limit = math.floor(theta * 2**32)
    scale = None if factor is None else factor * 2**32 / (2 * block_range)
    return [2**31 + (0 if scale is None else int(max(-limit, min(limit, value * scale)))) for value in values]


def word_starts(sizes: list[int], trials: list[int]) -> list[int]:
    """Say from which word on each segment takes its trials."""
    return [sum(size * count for size, count in zip(sizes[:s], trials[:s], strict=True)) for s in range(len(sizes))]


def count_trials(below: list[int], trials: int, key: bytes, first: int) -> list[int]:
    """Count the words of each value, so many as there are trials, that are below its threshold."""
    dice = words(key, trials * len(below), first)
    return [sum(word < one for word in dice[i * trials : (i + 1) * trials]) for i, one in enumerate(below)]


def noisy_mean_of(sums: list[int], users: int, trials: int, block_range: float) -> list[float]:
    """Turn a sum of counts back into a mean."""
    return [block_range * (2 * one / (trials * users) - 1) for one in sums]


def planes_of(bits: int) -> list[int]:
    """List the bits that an element has in each plane: pieces of whole bytes, then what is left."""
    return [8 * width for width in (8, 4, 2, 1) if bits // 8 & width] + [bits % 8] * (bits % 8 > 0)


def pack_bits(elements: list[int], bits: int) -> bytes:
    """Pack elements plane by plane, in each back to back, the lowest bit first."""
    packed, below = b"", 0
    for width in planes_of(bits):
        number = sum((one >> below) % 2**width << i * width for i, one in enumerate(elements))
        packed += number.to_bytes((len(elements) * width + 7) // 8, "little")
        below += width
    return packed


def unpack_bits(data: bytes, bits: int, count: int) -> list[int]:
    """Undo the packing; another length, or bits left over, are refused."""
    require(0 < bits <= 64, "no such width", UsageError)
    require(len(data) == (count * bits + 7) // 8, "not packed so")
    elements, below = [0] * count, 0
    for width in planes_of(bits):
        size = (count * width + 7) // 8
        number, data = int.from_bytes(data[:size], "little"), data[size:]
        require(number < 1 << count * width, "bits left over")
        elements = [one | (number >> i * width) % 2**width << below for i, one in enumerate(elements)]
        below += width
    return elements


class Cell(NamedTuple):
    """One segment as a user sends it, in the ring of its block; or what follows the segments."""

    bits: int
    size: int
    lanes: int
    level: int = 0
    block: tuple[int, ...] = ()
    start: int = 0
    span: tuple[float, float] = (0.0, 0.0)
    segment: int = 0
    names: tuple[str, ...] = ()


Content = list[tuple[list[int], list[int]]]  # for each cell its elements and its auxiliary lanes


def cell_offsets(cells: list[Cell], covered: list[int]) -> list[int]:
    """Say where in a stream each covered cell begins, and behind them where the stream ends."""
    offsets = [0]
    for cell in (cells[c] for c in covered):
        size = lane_width(cell.bits) * cell.size + 8 * cell.lanes
        offsets.append(offsets[-1] + size + -size % 16)
    return offsets


def lane_width(bits: int) -> int:
    """Say how many bytes hold an element while masks are added."""
    return next(width for width in (1, 2, 4, 8) if bits <= 8 * width)


def add_mask(content: Content, cells: list[Cell], covered: list[int], key: bytes, sign: int) -> None:
    """Add the stream of a key to the cells it covers, or subtract it; each cell begins at a multiple of 16 bytes."""
    offsets = cell_offsets(cells, covered)
    stream = keystream(key, offsets[-1])
    for c, at in zip(covered, offsets, strict=False):
        cell = cells[c]
        for values, step, bits in ((content[c][0], lane_width(cell.bits), cell.bits), (content[c][1], 8, 64)):
            for i in range(len(values)):
                values[i] = (values[i] + sign * int.from_bytes(stream[at : at + step], "little")) % 2**bits
                at += step


def pack_vector(content: Content, cells: list[Cell]) -> bytes:
    """Pack cell by cell the elements and then the auxiliary lanes."""
    return b"".join(pack_bits(content[c][0], cell.bits) + u64(*content[c][1]) for c, cell in enumerate(cells))


def vector_size(cells: list[Cell]) -> int:
    """Count the bytes of a packed vector."""
    return sum((cell.size * cell.bits + 7) // 8 + 8 * cell.lanes for cell in cells)


def unpack_vector(data: bytes, cells: list[Cell]) -> Content:
    """Undo pack_vector."""
    content = []
    for bits, size, lanes, *_ in cells:
        cut, end = (size * bits + 7) // 8, (size * bits + 7) // 8 + 8 * lanes
        content.append((unpack_bits(data[:cut], bits, size), unpack_bits(data[cut:end], 64, lanes)))
        data = data[end:]
    require(not data, "a vector too long")
    return content
