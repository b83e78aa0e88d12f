"""A whole secure-aggregation round in one file, written from docs/wire-format.md and the test vectors alone.

Plain integers and lists, for reading and not for speed; it shares no code with the package, and it is no client to
use: it keeps no release log. Run it with

    python examples/naive_round.py [folder of vectors]

It replays the rounds of round_plain.json and round_signed.json with the secrets recorded there: every message of every
user and of the server must come out byte for byte, every block sum and mean exactly. A share of the other vector files
is checked first. The first difference ends the program with exit code 1.
"""

import json
import math
import re
import struct
import sys
from collections.abc import Callable, Sequence
from hashlib import sha256
from itertools import combinations
from pathlib import Path
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


def same(what: str, computed: Any, expected: Any) -> None:
    """End at the first difference; floats must have the same shortest decimals."""
    mine, theirs = repr(computed), repr(expected)
    if mine != theirs:
        at = next((i for i, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b), 0)
        raise SystemExit(f"{what} differs: computed ...{mine[at:][:100]}, but the vectors say ...{theirs[at:][:100]}")


def require(holds: bool, what: str) -> None:
    """Refuse unless the condition holds."""
    if not holds:
        raise ValueError(what)


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
    return (data[:number] if code in BYTES else data[:number].decode()), data[number:]


def encode(name: str, context: bytes, *fields: Any) -> bytes:
    """Make a message."""
    return pack([list(SHAPES).index(name) + 1, WIRE_VERSION, context, *fields])


def decode(name: str, data: bytes, context: bytes | None = None) -> list[Any]:
    """Take the fields out of a message of this kind, and of this context if one is given."""
    message = unpack(data)
    require(fits(message, ("index", "index", 32, *SHAPES[name])), f"no {name}")
    require(message[:2] == [list(SHAPES).index(name) + 1, WIRE_VERSION], "another kind or version")
    require(context in (None, message[2]), "another context")
    return message[3:]


def fits(value: Any, shape: Any) -> bool:
    """Tell whether a decoded value has this shape."""
    if shape == "index":
        return type(value) is int and value < 2**32
    if isinstance(shape, list):
        return isinstance(value, list) and all(fits(one, shape[0]) for one in value)
    if isinstance(shape, tuple):
        return isinstance(value, list) and len(value) == len(shape) and all(map(fits, value, shape))
    return isinstance(value, bytes) and (shape in ("bytes", len(value)) or (shape == "sig?" and len(value) <= 64))


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
    return X25519PrivateKey.from_private_bytes(private).exchange(X25519PublicKey.from_public_bytes(public))


def pair_key(private: bytes, public: bytes, c2: bytes, user: int, other: int) -> bytes:
    """Derive the key of the mask that two users share."""
    return derive("pair-mask", agreement(private, public), c2, u64(*sorted([user, other])))


def sign(private: bytes, purpose: str, *parts: bytes) -> bytes:
    """Sign for a purpose; without an identity the signature is empty."""
    return Ed25519PrivateKey.from_private_bytes(private).sign(digest("sign/" + purpose, *parts)) if private else b""


def verify(public: bytes | None, signature: bytes, purpose: str, *parts: bytes) -> None:
    """Refuse a signature that is not valid, or not empty where there are no identities."""
    if public is None:
        return require(signature == b"", "a signature without identities")
    try:
        return Ed25519PublicKey.from_public_bytes(public).verify(signature, digest("sign/" + purpose, *parts))
    except InvalidSignature as error:
        raise ValueError(f"no valid signature for {purpose}") from error


def commit(kind: str, c1: bytes, dealer: int, holder: int, value: bytes) -> bytes:
    """Commit to a share, or to a whole secret."""
    return digest("commit/" + kind, c1, u64(dealer, holder), value)[:16]


def commit_pair(c1: bytes, dealer: int, holder: int, pair: list[bytes]) -> bytes:
    """Commit to the two shares of a holder."""
    return b"".join(commit(kind, c1, dealer, holder, share) for kind, share in zip(KINDS, pair, strict=True))


def seal(agreed: bytes, c1: bytes, dealer: int, holder: int, pair: list[bytes]) -> bytes:
    """Seal two shares for their holder."""
    cipher = ChaCha20Poly1305(derive("seal", agreed, c1, u64(dealer, holder)))
    return cipher.encrypt(bytes(12), pair[0] + pair[1], c1 + u64(dealer, holder))


def unseal(agreed: bytes, c1: bytes, dealer: int, holder: int, box: bytes) -> list[bytes]:
    """Open what was sealed for a holder; what is no two field elements inside does not open."""
    cipher = ChaCha20Poly1305(derive("seal", agreed, c1, u64(dealer, holder)))
    try:
        opened = cipher.decrypt(bytes(12), box, c1 + u64(dealer, holder))
    except InvalidTag as error:
        raise ValueError("a sealed pair does not open") from error
    pair = [opened[:32], opened[32:]]
    require(all(element(share) >= 0 for share in pair), "no shares")
    return pair


def rows(data: bytes, size: int) -> list[bytes]:
    """Cut bytes into rows of one size."""
    require(len(data) % size == 0, "a row cut short")
    return [data[at : at + size] for at in range(0, len(data), size)]


def element(data: bytes) -> int:
    """Read a field element."""
    require(len(data) == 32 and int.from_bytes(data, "little") < PRIME, "not 32 bytes below the prime")
    return int.from_bytes(data, "little")


def share_at(polynomial: list[bytes], place: int) -> bytes:
    """Compute the value of a polynomial at a place; the secret is its constant."""
    value = sum(element(one) * place**power for power, one in enumerate(polynomial))
    return (value % PRIME).to_bytes(32, "little")


def rebuild(shares: dict[int, bytes]) -> bytes:
    """Rebuild a secret from shares at places, by Lagrange's formula at 0."""
    total = 0
    for place, share in shares.items():
        others = [other for other in shares if other != place]
        total += element(share) * math.prod(other * pow(other - place, -1, PRIME) for other in others)
    return (total % PRIME).to_bytes(32, "little")


def round_context(frame: bytes, session: bytes, number: int, model: bytes) -> bytes:
    """Compute c0; the model is bound later, with the value range."""
    require(1 <= len(session) <= 64 and number < 2**64 and len(model) == 32, "no such round")
    return digest("context/round", u64(WIRE_VERSION, number), frame, session)


def roster_context(c0: bytes, roster: list[list[Any]]) -> bytes:
    """Compute c1 from entries of index, seal key, mask key and more."""
    return digest("context/roster", c0, b"".join(u64(entry[0]) + entry[1] + entry[2] for entry in roster))


def sharers_context(
    c1: bytes, plan_digest: bytes, model: bytes, sharers: list[int], *, metrics_only: bool = False
) -> bytes:
    """Compute c2."""
    model = digest("context/metrics", model) if metrics_only else model
    return digest("context/sharers", c1, plan_digest, model, u64(*sharers))


def keystream(key: bytes, size: int) -> bytes:
    """Read AES-256-CTR from a zero counter."""
    return Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor().update(bytes(size))


def rotate(values: list[float], segment: int, back: bool = False) -> list[float]:
    """Rotate a segment: signs, factor and transform of pieces of falling powers of two; or undo it."""
    stream = keystream(digest("rotation", u64(segment, len(values))), (len(values) + 7) // 8)
    flips = [-1 if stream[i // 8] >> i % 8 & 1 else 1 for i in range(len(values))]
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
    require(all(map(math.isfinite, values)) and len(dice) == len(values), "no finite update")
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


def thresholds(values: list[float], factor: float | None, block_range: float, theta: float) -> list[int]:
    """Say, with noise, below which number a word of each value counts."""
    limit = math.floor(theta * 2**32)
    scale = None if factor is None else factor * 2**32 / (2 * block_range)
    return [2**31 + (0 if scale is None else int(max(-limit, min(limit, value * scale)))) for value in values]


def count_trials(below: list[int], trials: int, key: bytes, first: int) -> list[int]:
    """Count the words of each value, so many as there are trials, that are below its threshold."""
    stream = keystream(key, 4 * (first + trials * len(below)))
    words = [int.from_bytes(stream[4 * at : 4 * at + 4], "little") for at in range(len(stream) // 4)][first:]
    return [sum(word < one for word in words[i * trials : (i + 1) * trials]) for i, one in enumerate(below)]


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
    require(0 < bits <= 64 and len(data) == (count * bits + 7) // 8, "not packed so")
    elements, below = [0] * count, 0
    for width in planes_of(bits):
        size = (count * width + 7) // 8
        number, data = int.from_bytes(data[:size], "little"), data[size:]
        require(number < 1 << count * width, "bits left over")
        elements = [one | (number >> i * width) % 2**width << below for i, one in enumerate(elements)]
        below += width
    return elements


class Cell(NamedTuple):
    """One segment as a user sends it, in the ring of its block; or the metrics, behind the segments."""

    bits: int
    size: int
    lanes: int
    level: int = 0
    block: tuple[int, ...] = ()
    start: int = 0
    span: tuple[float, float] = (0.0, 0.0)


Content = list[tuple[list[int], list[int]]]  # for each cell its elements and its auxiliary lanes


def add_mask(content: Content, cells: list[Cell], covered: list[int], key: bytes, sign: int) -> None:
    """Add the stream of a key to the cells it covers, or subtract it; each cell begins at a multiple of 16 bytes."""
    stream, at = keystream(key, sum(8 * (cells[c].size + cells[c].lanes) + 15 for c in covered)), 0
    for c in covered:
        width = next(width for width in (1, 2, 4, 8) if cells[c].bits <= 8 * width)
        for values, step, bits in ((content[c][0], width, cells[c].bits), (content[c][1], 8, 64)):
            for i in range(len(values)):
                values[i] = (values[i] + sign * int.from_bytes(stream[at : at + step], "little")) % 2**bits
                at += step
        at += -at % 16


def pack_vector(content: Content, cells: list[Cell]) -> bytes:
    """Pack cell by cell the elements and then the auxiliary lanes."""
    return b"".join(pack_bits(content[c][0], cell.bits) + u64(*content[c][1]) for c, cell in enumerate(cells))


def unpack_vector(data: bytes, cells: list[Cell]) -> Content:
    """Undo pack_vector."""
    content = []
    for bits, size, lanes, *_ in cells:
        cut, end = (size * bits + 7) // 8, (size * bits + 7) // 8 + 8 * lanes
        content.append((unpack_bits(data[:cut], bits, size), unpack_bits(data[cut:end], 64, lanes)))
        data = data[end:]
    require(not data, "a vector too long")
    return content


def spread(low: float, high: float, width: int) -> tuple[float, float]:
    """Widen or narrow the value range to that of a block: three standard deviations are 192."""
    return (low, high) if width == 192 else (low * width / 192, high * width / 192)


class Plan:
    """What a round needs of a plan, out of its canonical encoding."""

    def __init__(self, encoding: bytes) -> None:
        version, arguments, structure = unpack(encoding)
        require(version == 2, "another plan version")
        self.digest = digest("plan", encoding)
        frame = [*arguments[:4], [-1.0, 1.0], *arguments[5:20], [], *arguments[21:]]
        self.frame = digest("plan/frame", pack([version, frame, structure]))
        (low, high), self.min_survivors, self.min_block, self.bound, self.least = arguments[4], *arguments[6:10]
        self.metrics, self.rotates, (_, sizes, scales) = arguments[16], arguments[17], arguments[18:21]
        self.scales = [scale for size, scale in zip(sizes, scales, strict=True) for _ in range(size)] if scales else []
        users, subgroups, segments, self.lanes, (self.neighbours, self.threshold, self.ring), self.quorum = structure
        self.users, self.segments = range(len(users)), len(segments)
        self.members = [members for _, members in subgroups]
        self.subgroup = {user: g for g, members in enumerate(self.members) for user in members}
        starts = [0, *(stop for stop, _ in segments)]
        self.rows = [  # for each segment, and then for the metrics, the cells of its blocks
            [
                Cell(bits, stop - start, len(self.lanes), level, tuple(block), start, spread(low, high, width))
                for block, level, bits, width in blocks
            ]
            for start, (stop, blocks) in zip(starts[:-1], segments, strict=True)
        ]
        if self.metrics:
            self.rows.append([Cell(1, 0, len(self.lanes) - 1 + len(self.metrics), block=tuple(range(len(subgroups))))])

    def cells(self, subgroup: int) -> list[Cell]:
        """List what a user of a subgroup sends."""
        return [next(cell for cell in row if subgroup in cell.block) for row in self.rows]

    def shared(self, one: int, other: int) -> list[int]:
        """List the cells that users of two subgroups share."""
        return [c for c, cell in enumerate(self.cells(one)) if other in cell.block]

    def holders(self, user: int) -> list[int]:
        """List who else holds a user's shares; these are also the users whose shares it holds."""
        if not self.ring:
            return [other for other in self.users if other != user]
        place, half = self.ring.index(user), self.neighbours // 2
        return sorted(self.ring[(place + step) % len(self.ring)] for step in range(-half, half + 1) if step)

    def blocks(self) -> list[list[int]]:
        """List the sets of subgroups whose sums the server learns."""
        return [list(block) for block in sorted({cell.block for row in self.rows[: self.segments] for cell in row})]

    def too_small(self, users: list[int]) -> set[int]:
        """Collect the subgroups that have too few survivors, and those of blocks that have too few."""
        least = {cell.block: self.min_block for row in self.rows[: self.segments] for cell in row}
        if any(len(row) > 1 for row in self.rows[: self.segments]):
            least |= {(g,): max(self.min_survivors, least.get((g,), 0)) for g in range(len(self.members))}
        counts = {block: sum(self.subgroup[user] in block for user in users) for block in least}
        return {g for block, count in counts.items() if 0 < count < least[block] for g in block}

    def robustness(self, users: list[int]) -> float:
        """Try every proper set of the surviving subgroups: in how many segments is it a union of blocks at most?"""
        alive, most = {self.subgroup[user] for user in users}, 0
        rows = [[alive.intersection(cell.block) for cell in row] for row in self.rows[: self.segments]]
        for chosen in (set(some) for size in range(1, len(alive)) for some in combinations(alive, size)):
            most = max(most, sum(all(block & chosen in (set(), block) for block in row) for row in rows))
        return 1 - most / self.segments

    def broken_rule(self, users: list[int], dealers: list[int]) -> str:
        """Name the rule that a set of users breaks, if any; the shares of `dealers` must be within its reach."""
        if len(users) < max(self.quorum, 0 if self.ring else self.threshold):
            return "thresholds"
        if self.too_small(users):
            return "min_survivors"
        if self.robustness(users) < self.least:
            return "robustness"
        reach = [sum(holder in users for holder in [dealer, *self.holders(dealer)]) for dealer in dealers]
        return "thresholds" if min(reach) < self.threshold else ""

    def admissible_part(self, users: list[int]) -> list[int]:
        """Leave out whole subgroups until none has too few; nobody if nothing admissible is left."""
        while low := self.too_small(users):
            users = [user for user in users if self.subgroup[user] not in low]
        return users if not self.broken_rule(users, users) else []


class User:
    """One user's steps, with its secrets as the vectors give them."""

    def __init__(self, plan: Plan, c0: bytes, model: bytes, given: dict[str, Any], directory: dict[int, bytes]) -> None:
        self.plan, self.c0, self.model, self.given, self.directory = plan, c0, model, given, directory
        self.me, self.subgroup = given["index"], plan.subgroup[given["index"]]
        self.identity = given.get("identity_private", b"")
        self.mask_private = derive("mask-private-key", given["mask_secret"])
        self.keys = [public_key(given["seal_private"]), public_key(self.mask_private)]

    def check(self, users: list[int], within: Any) -> None:
        """Check a list of users that the server sent."""
        require(users == sorted(set(users)) and set(users) <= set(within) and self.me in users, "no such list")
        require(not self.plan.broken_rule(users, [self.me]), "not admissible")

    def advertise(self, _: bytes) -> bytes:
        """Send both public keys."""
        signature = sign(self.identity, "advertise", self.c0, u64(self.me), *self.keys)
        return encode("Advertisement", self.c0, [self.me, *self.keys, signature])

    def share(self, message: bytes) -> bytes:
        """Take the roster, send every holder its shares."""
        (roster,) = decode("Roster", message, self.c0)
        self.roster = {entry[0]: entry for entry in roster}
        self.check([entry[0] for entry in roster], self.plan.users)
        require(self.roster[self.me][1:3] == self.keys, "other keys than mine")
        require(len({key for entry in roster for key in entry[1:3]}) == 2 * len(roster), "a key twice")
        for user, *keys, signature in roster:
            verify(self.directory.get(user), signature, "advertise", self.c0, u64(user), *keys)
        self.c1 = roster_context(self.c0, roster)
        secret = commit("secret", self.c1, self.me, self.me, self.given["self_secret"])
        self.held = {self.me: self.dealt(self.me)}
        sealed, commitments = b"", commit_pair(self.c1, self.me, self.me, self.dealt(self.me))
        for holder in (holder for holder in self.plan.holders(self.me) if holder in self.roster):
            agreed, pair = agreement(self.given["seal_private"], self.roster[holder][1]), self.dealt(holder)
            sealed += seal(agreed, self.c1, self.me, holder, pair)
            commitments += commit_pair(self.c1, self.me, holder, pair)
        return encode("Shares", self.c1, self.me, secret, commitments, sealed)

    def dealt(self, holder: int) -> list[bytes]:
        """Compute a holder's two shares."""
        return [share_at(self.given[kind + "_polynomial"], holder + 1) for kind in KINDS]

    def mask(self, message: bytes) -> bytes:
        """Take the sharers and what they sealed, send the masked vector."""
        self.sharers, commitments, sealed = decode("Inbox", message, self.c1)
        self.check(self.sharers, self.roster)
        self.c2 = sharers_context(self.c1, self.plan.digest, self.model, self.sharers)
        complaints = self.open_all(rows(commitments, 32), rows(sealed, 80))
        cells, content = self.plan.cells(self.subgroup), self.content()
        key = derive("self-mask", self.given["self_secret"], self.c2, u64(self.me))
        add_mask(content, cells, self.plan.shared(self.subgroup, self.subgroup), key, 1)
        for other in (other for other in self.sharers if other != self.me):
            key = pair_key(self.mask_private, self.roster[other][2], self.c2, self.me, other)
            shared = self.plan.shared(self.subgroup, self.plan.subgroup[other])
            add_mask(content, cells, shared, key, 1 if self.me < other else -1)
        signature = sign(self.identity, "masked", self.c2, u64(self.me))
        return encode("MaskedVector", self.c2, self.me, signature, complaints, pack_vector(content, cells))

    def open_all(self, commitments: list[bytes], sealed: list[bytes]) -> list[int]:
        """Keep every pair of shares that opens and matches its commitments; list the other dealers."""
        dealers, complaints = [dealer for dealer in self.plan.holders(self.me) if dealer in self.sharers], []
        for dealer, committed, box in zip(dealers, commitments, sealed, strict=True):
            agreed = agreement(self.given["seal_private"], self.roster[dealer][1])
            try:
                pair = unseal(agreed, self.c1, dealer, self.me, box)
                require(commit_pair(self.c1, dealer, self.me, pair) == committed, "does not match")
                self.held[dealer] = pair
            except ValueError:
                complaints.append(dealer)
        return complaints

    def content(self) -> Content:
        """Quantize the update cell by cell, and fill the auxiliary lanes."""
        given, plan, content = self.given, self.plan, []
        weight, size = given["weight"], len(given["update"])
        dice = struct.unpack(f"<{size}I", keystream(given["rounding_key"], 4 * size))
        scale, update = weight / plan.bound, given["update"]
        update = [value / one for value, one in zip(update, plan.scales, strict=True)] if plan.scales else update
        update = [value * scale for value in update] if weight != plan.bound else update
        for segment, cell in enumerate(plan.cells(self.subgroup)[: plan.segments]):
            part = slice(cell.start, cell.start + cell.size)
            values = rotate(update[part], segment) if plan.rotates else update[part]
            elements, clipped = quantize(values, dice[part], cell.level, cell.span)
            lanes = {"count": 1, "weight": weight, "clipped": clipped}
            content.append((elements, [lanes[name] for name in plan.lanes]))
        if plan.metrics:
            scale = 2.0**24 * (weight / plan.bound)
            counts = [1, weight][: len(plan.lanes) - 1]
            content.append(([], [*counts, *(round(given["metrics"][name] * scale) % 2**64 for name in plan.metrics)]))
        same(f"cells of user {self.me}", content, [(cell["elements"], cell["auxiliary"]) for cell in given["cells"]])
        return content

    def agree(self, message: bytes) -> bytes:
        """Take the survivors, sign them."""
        self.survivors, signatures = decode("SurvivorSet", message, self.c2)
        self.check(self.survivors, self.sharers)
        dealers = [dealer for dealer in self.plan.holders(self.me) if dealer in self.survivors]
        for user, signature in zip(dealers, signatures, strict=True):
            verify(self.directory[user], signature, "masked", self.c2, u64(user))
        return encode("Agreement", self.c2, self.me, sign(self.identity, "survivors", self.c2, u64(*self.survivors)))

    def unmask(self, message: bytes) -> bytes:
        """Take the survivors again, with a quorum of signatures, and release one share of every dealer."""
        survivors, signed = decode("UnmaskRequest", message, self.c2)
        self.check(survivors, self.sharers)
        if self.directory:
            signers = [user for user, _ in signed]
            require(survivors == self.survivors and signers == sorted(set(signers)), "not the set that was signed")
            require(set(signers) <= set(survivors) and len(signers) == self.plan.quorum, "no quorum")
            for user, signature in signed:
                verify(self.directory[user], signature, "survivors", self.c2, u64(*survivors))
        shares = [self.held[dealer][dealer in survivors] for dealer in sorted(self.held)]
        return encode("Released", self.c2, self.me, b"".join(shares))


class Server:
    """The server: what it sends to open a phase, made of what it got in the phase before."""

    def __init__(self, plan: Plan, c0: bytes, model: bytes, directory: dict[int, bytes]) -> None:
        self.plan, self.c0, self.model, self.directory = plan, c0, model, directory
        self.got: dict[int, bytes] = {}  # the messages of the last phase, by user

    def take(self, name: str, context: bytes) -> dict[int, list[Any]]:
        """Decode the messages of the last phase, each from the user it names."""
        taken = {user: decode(name, data, context) for user, data in sorted(self.got.items())}
        require(all(user == fields[0] for user, fields in taken.items() if name != "Advertisement"), "another sender")
        return taken

    def admissible(self, taken: dict[int, list[Any]]) -> list[int]:
        """Leave out whole subgroups until the users who answered are admissible, or end the round."""
        kept = self.plan.admissible_part(list(taken))
        require(len(kept) > 0, "no admissible set is left")
        return kept

    def share(self) -> list[tuple[list[int], bytes]]:
        """Send the roster."""
        entries = {user: entry for user, (entry,) in self.take("Advertisement", self.c0).items()}
        for user, (index, *keys, signature) in entries.items():
            verify(self.directory.get(user), signature, "advertise", self.c0, u64(index), *keys)
        self.roster = {user: entries[user] for user in self.admissible(entries)}
        self.c1 = roster_context(self.c0, list(self.roster.values()))
        return [(list(self.roster), encode("Roster", self.c0, list(self.roster.values())))]

    def mask(self) -> list[tuple[list[int], bytes]]:
        """Send every sharer what was sealed for it, and keep the commitments."""
        taken = self.take("Shares", self.c1)
        self.sharers = self.admissible(taken)
        self.c2 = sharers_context(self.c1, self.plan.digest, self.model, self.sharers)
        self.secret_digests, self.digests = {}, {}
        boxes: dict[int, list[bytes]] = {user: [b"", b""] for user in self.roster}
        for dealer in self.sharers:
            _, self.secret_digests[dealer], commitments, sealed = taken[dealer]
            holders = [holder for holder in self.plan.holders(dealer) if holder in self.roster]
            self.digests[dealer] = dict(zip([dealer, *holders], rows(commitments, 32), strict=True))
            for holder, box in zip(holders, rows(sealed, 80), strict=True):
                boxes[holder][0] += self.digests[dealer][holder]
                boxes[holder][1] += box
        return [([user], encode("Inbox", self.c1, self.sharers, *boxes[user])) for user in self.sharers]

    def agree(self) -> list[tuple[list[int], bytes]]:
        """Fix the survivors; send them, each with its dealers' signatures for this context."""
        taken = self.take("MaskedVector", self.c2)
        for user, (_, signature, _, _) in taken.items():
            verify(self.directory.get(user), signature, "masked", self.c2, u64(user))
        self.complaints = {user: complaints for user, (_, _, complaints, _) in taken.items()}
        self.survivors = self.admissible(taken)
        self.cells = {user: self.plan.cells(self.plan.subgroup[user]) for user in self.survivors}
        self.contents = {user: unpack_vector(taken[user][3], self.cells[user]) for user in self.survivors}
        dealers = {user: [d for d in self.plan.holders(user) if d in self.survivors] for user in self.survivors}
        return [
            ([user], encode("SurvivorSet", self.c2, self.survivors, [taken[dealer][1] for dealer in dealers[user]]))
            for user in self.survivors
        ]

    def unmask(self) -> list[tuple[list[int], bytes]]:
        """Send the survivors, with a quorum of signatures on them; without identities there was no phase agree."""
        signed = list(self.take("Agreement", self.c2).values()) if self.directory else []
        if not self.directory:
            self.agree()
        for user, signature in signed:
            verify(self.directory[user], signature, "survivors", self.c2, u64(*self.survivors))
        return [(self.survivors, encode("UnmaskRequest", self.c2, self.survivors, signed[: self.plan.quorum]))]

    def secrets(self) -> dict[int, bytes]:
        """Rebuild sigma_self of every survivor and sigma_mask of every other sharer."""
        found: dict[int, dict[int, bytes]] = {dealer: {} for dealer in self.sharers}
        for user, (_, shares) in self.take("Released", self.c2).items():
            dealers = [dealer for dealer in self.sharers if dealer in [user, *self.plan.holders(user)]]
            held = [dealer for dealer in dealers if dealer not in self.complaints[user]]
            for dealer, share in zip(held, rows(shares, 32), strict=True):
                kind = KINDS[dealer in self.survivors]
                digests = rows(self.digests[dealer][user], 16)
                matches = commit(kind, self.c1, dealer, user, share) == digests[KINDS.index(kind)]
                if matches and len(found[dealer]) < self.plan.threshold:
                    found[dealer][user + 1] = share
        require(all(len(shares) == self.plan.threshold for shares in found.values()), "too few shares")
        return {dealer: rebuild(shares) for dealer, shares in found.items()}

    def remove_masks(self) -> None:
        """Take its own mask, and those it shares with users who dropped out, from every survivor's vector."""
        secrets = self.secrets()
        gone = {user: derive("mask-private-key", secrets[user]) for user in self.sharers if user not in self.survivors}
        require(all(public_key(gone[user]) == self.roster[user][2] for user in gone), "not the secret of its mask key")
        for user in self.survivors:
            own = commit("secret", self.c1, user, user, secrets[user])
            require(own == self.secret_digests[user], "not the secret it committed to")
            key, subgroup = derive("self-mask", secrets[user], self.c2, u64(user)), self.plan.subgroup[user]
            add_mask(self.contents[user], self.cells[user], self.plan.shared(subgroup, subgroup), key, -1)
            for other, private in gone.items():
                key = pair_key(private, self.roster[user][2], self.c2, user, other)
                shared = self.plan.shared(subgroup, self.plan.subgroup[other])
                add_mask(self.contents[user], self.cells[user], shared, key, -1 if user < other else 1)

    def combine(self) -> list[dict[str, Any]]:
        """Join every block over its survivors; the masks between survivors cancel."""
        self.remove_masks()
        blocks = []
        for c, cell in ((c, cell) for c, row in enumerate(self.plan.rows) for cell in row):
            parts = [self.contents[user][c] for user in self.survivors if self.plan.subgroup[user] in cell.block]
            if parts:
                sums = [sum(column) % 2**cell.bits for column in zip(*(part[0] for part in parts), strict=True)]
                lanes = [sum(column) % 2**64 for column in zip(*(part[1] for part in parts), strict=True)]
                names = self.plan.lanes if c < self.plan.segments else [*self.plan.lanes[:-1], *self.plan.metrics]
                block = {"segment": c, "subgroups": list(cell.block), "survivors": len(parts), "sums": sums}
                block["auxiliary"] = dict(sorted(zip(names, lanes, strict=True)))
                blocks.append(block | {"mean": self.mean(cell, block)})
        return blocks

    def mean(self, cell: Cell, block: dict[str, Any]) -> list[float]:
        """Check the constant lane and the others of a block, and decode its mean."""
        count, lanes, segment = block["survivors"], block["auxiliary"], block["segment"]
        weight = lanes.get("weight", count)
        require(lanes["count"] == count <= weight <= self.plan.bound * count, "no such count or weight")
        require(all(one <= count * (cell.level - 1) for one in block["sums"]), "an element too large")
        require(lanes.get("clipped", 0) <= count * cell.size, "more clipped than there are")
        mean = mean_of(block["sums"], count, cell.level, cell.span)
        if self.plan.bound > 1:
            mean = [value * (count * self.plan.bound / weight) for value in mean]
        mean = rotate(mean, segment, back=True) if self.plan.rotates else mean
        scales = self.plan.scales[cell.start : cell.start + cell.size] or [1.0] * cell.size
        return [value * scale for value, scale in zip(mean, scales, strict=True)]


def replay(case: dict[str, Any]) -> int:
    """Run a whole round, compare everything, and count the messages."""
    plan = Plan(case["plan"])
    c0 = round_context(plan.frame, case["session"], case["number"], case["model"])
    directory = {given["index"]: given["identity_public"] for given in case["users"] if case["identities"]}
    users = [User(plan, c0, case["model"], given, directory) for given in case["users"]]
    server = Server(plan, c0, case["model"], directory)
    gone: set[int] = set()
    for phase in case["phases"]:
        gone |= {user for user, when in case["dropped"] if when == phase}
        sent = getattr(server, phase)() if phase != "advertise" else []
        told = [(m["users"], m["bytes"]) for m in case["server_sends"] if m["phase"] == phase]
        same(f"what the server sends in {phase}", sent, told)
        asked = [(user, data) for listeners, data in sent or [(plan.users, b"")] for user in listeners]
        server.got = {user: getattr(users[user], phase)(data) for user, data in asked if user not in gone}
        heard = [(m["user"], m["bytes"]) for m in case["users_send"] if m["phase"] == phase]
        for answer, expected in zip(server.got.items(), heard, strict=True):
            same(f"what a user sends in {phase}", answer, expected)
        size = sum(len(data) for _, data in told + heard)
        print(f"{case['name']:7}{phase:10}{len(told):2} from the server, {len(heard)} from users, {size:5} bytes equal")
    same("contexts", [c0, server.c1, server.c2], [case["c0"], case["c1"], case["c2"]])
    compare_result(case, plan, server)
    return len(case["server_sends"]) + len(case["users_send"])


def compare_result(case: dict[str, Any], plan: Plan, server: Server) -> None:
    """Compare the blocks, the mean over the blocks of each segment, and the metrics."""
    blocks, aggregate = server.combine(), []
    same("survivors", server.survivors, case["survivors"])
    for block, expected in zip(blocks, case["blocks"], strict=True):
        for name, value in expected.items():
            same(f"{name} of {expected['subgroups']} in segment {expected['segment']}", block[name], value)
    for segment in range(plan.segments):
        row = [block for block in blocks if block["segment"] == segment]
        weights = [block["auxiliary"].get("weight", block["survivors"]) for block in row]
        columns = zip(*(block["mean"] for block in row), strict=True)
        aggregate += [sum(w * m for w, m in zip(weights, column, strict=True)) / sum(weights) for column in columns]
    same("aggregate", aggregate, case["aggregate"])
    lanes = blocks[-1]["auxiliary"]
    signed = {name: (lanes[name] + 2**63) % 2**64 - 2**63 for name in plan.metrics}
    weight = lanes.get("weight", lanes["count"])
    same("metrics", {name: v / 2**24 * plan.bound / weight for name, v in signed.items()}, case["metrics"])
    print(f"{case['name']:7}combine   {len(blocks)} blocks, {len(aggregate)} elements, {len(signed)} metrics equal")


def load(value: Any, key: str = "") -> Any:
    """Read hexadecimal text in a vector file as bytes, except where it is text."""
    if isinstance(value, dict):
        return {name: load(one, name) for name, one in value.items()}
    if isinstance(value, list):
        return [load(one, key) for one in value]
    text = not isinstance(value, str) or key in ("name", "label", "kind", "function", "phase", "users", "reason")
    return value if text or not re.fullmatch("([0-9a-f]{2})*", value) else bytes.fromhex(value)


def in_order(value: Any) -> Any:
    """Put the named fields of a message in the order of the wire."""
    order = """user seal_key mask_key commitment signature secret_commitment sharers survivors nonces signatures
        complaints vector commitments sealed shares nonce advertised"""
    if isinstance(value, dict):
        return [in_order(value[name]) for name in order.split() if name in value]
    return [in_order(one) for one in value] if isinstance(value, list) else value


def masked(c: dict[str, Any], cells: list[Cell]) -> bytes:
    """Put all masks of a case on its cells."""
    content = [(cell["elements"], cell["auxiliary"]) for cell in c["plain"]]
    for mask in c["masks"]:
        add_mask(content, cells, mask["cells"], mask["key"], 1 if mask["add"] else -1)
    return pack_vector(content, cells)


Check = Callable[[dict[str, Any]], Any]
CASES: dict[str, Check] = {  # for a file and function: what is computed for a case, and what the case says
    "labels digest": lambda c: (digest(c["label"], *c["parts"]), c["result"]),
    "labels derive": lambda c: (derive(c["label"], c["secret"], *c["parts"]), c["result"]),
    "labels index_bytes": lambda c: (u64(*c["numbers"]), c["result"]),
    "labels commit": lambda c: (commit(c["kind"], c["context"], c["dealer"], c["holder"], c["value"]), c["result"]),
    "keys mask_private_key": lambda c: (derive("mask-private-key", c["mask_secret"]), c["private"]),
    "keys self_mask_key": lambda c: (derive("self-mask", c["self_secret"], c["context"], u64(c["user"])), c["key"]),
    "keys pair_mask_key": lambda c: (pair_key(*(c[k] for k in PAIR)), c["key"]),
    "keystream keystream": lambda c: (keystream(c["key"], c["start"] + c["size"])[c["start"] :], c["bytes"]),
    "packing": lambda c: (
        [pack_bits(c["elements"], c["bits"]), unpack_bits(c["bytes"], c["bits"], len(c["elements"]))],
        [c["bytes"], c["elements"]],
    ),
    "quantize": lambda c: (
        [quantize(*(c[k] for k in QUANTIZER)), mean_of(c["quantized"], 1, c["level"], c["range"])],
        [(c["quantized"], c["clipped"]), c["decoded"]],
    ),
    "noise count_trials": lambda c: (
        [thresholds(*(c[k] for k in NOISE)), count_trials(c["thresholds"], *(c[k] for k in WORDS))],
        [c["thresholds"], c["counts"]],
    ),
    "rotation": lambda c: (
        [rotate(c["values"], c["segment"]), rotate(c["rotated"], c["segment"], back=True)],
        [c["rotated"], c["restored"]],
    ),
    "masks": lambda c: (masked(c, [Cell(*cell) for cell in c["cells"]]), c["packed"]),
    "shamir": lambda c: (
        [
            [share_at(c["polynomial"], place) for place in c["places"]],
            rebuild({place: share_at(c["polynomial"], place) for place in c["rebuilt_from"]}),
        ],
        [c["shares"], c["secret"]],
    ),
    "seal": lambda c: (
        [seal(*(c[k] for k in SEAL), [c[k] for k in SHARES]), unseal(*(c[k] for k in SEAL), c["sealed"])],
        [c["sealed"], [c[k] for k in SHARES]],
    ),
    "signatures": lambda c: (sign(c["private"], c["label"], *c["parts"]), c["signature"]),
    "contexts": lambda c: (
        [
            round_context(Plan(c["plan"]).frame, c["session"], c["number"], c["model"]),
            roster_context(c["c0"], in_order(c["roster"])),
            sharers_context(c["c1"], Plan(c["plan"]).digest, c["model"], c["sharers"], metrics_only=c["metrics_only"]),
        ],
        [c["c0"], c["c1"], c["c2"]],
    ),
    "messages": lambda c: (
        [encode(c["kind"], c["fields"]["context"], *in_order(c["fields"])), decode(c["kind"], c["bytes"])],
        [c["bytes"], in_order(c["fields"])],
    ),
    "plan": lambda c: (
        [Plan(c["encoding"]).digest, Plan(c["encoding"]).blocks()],
        [c["digest"], c["guarded_blocks"]],
    ),
    "admissibility": lambda c: (
        [Plan(c["plan"]).broken_rule(c["users"], c["users"]), Plan(c["plan"]).admissible_part(c["users"])],
        [c.get("reason", ""), c["made_admissible"] or []],
    ),
}
REFUSALS: dict[str, Check] = {  # for a file and step: what must refuse a must-fail case
    "keys agree": lambda c: agreement(bytes(32), c["bytes"]),
    "packing": lambda c: unpack_bits(c["bytes"], c["bits"], c["count"]),
    "quantize": lambda c: quantize(list(map(float, c["values"])), c["words"], c["level"], c["range"]),
    "masks": lambda c: unpack_vector(c["bytes"], [Cell(*cell) for cell in c["cells"]]),
    "shamir element": lambda c: element(c["bytes"]),
    "seal": lambda c: unseal(*(c[k] for k in SEAL), c["sealed"]),
    "signatures": lambda c: verify(c["public"], c["signature"], c["label"], *c["parts"]),
    "contexts": lambda c: round_context(bytes(32), c["session"], c["number"], c["model"]),
    "messages": lambda c: decode(c["kind"], c["bytes"]),
}
PAIR, QUANTIZER = ("private", "public", "context", "user", "other"), ("values", "words", "level", "range")
NOISE, WORDS = ("values", "factor", "block_range", "theta"), ("trials", "key", "first_word")
SEAL, SHARES = ("shared", "context", "dealer", "holder"), ("mask_share", "self_share")


def check_file(path: Path) -> None:
    """Compute the cases of a vector file, and refuse its must-fail cases, as far as the tables above know them."""
    name, vectors, counts = path.stem, load(json.loads(path.read_text())), [0, 0]
    for case in vectors["cases"] + vectors["must_fail"] * (name == "admissibility"):
        compute = CASES.get(f"{name} {case.get('function', '')}".strip())
        if compute:
            same(f"{name}: {case}", *compute(case))
            counts[0] += 1
    for case in vectors["must_fail"]:
        refuse = REFUSALS.get(f"{name} {case.get('step', '')}".strip())
        if refuse:
            try:
                refuse(case)
            except ValueError:
                counts[1] += 1
            else:
                raise SystemExit(f"{name}: not refused: {case}")
    print(f"{name:11}{counts[0]:3} cases computed, {counts[1]:3} refused")


def main() -> None:
    """Check the vectors in the folder named on the command line."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parents[1] / "tests" / "vectors")
    for name in dict.fromkeys(key.split()[0] for key in CASES):
        check_file(folder / f"{name}.json")
    rounds = [load(json.loads((folder / f"round_{name}.json").read_text()))["cases"] for name in ("plain", "signed")]
    print(f"{sum(replay(case) for cases in rounds for case in cases)} messages reproduced")


if __name__ == "__main__":
    try:
        main()
    except ValueError as error:
        sys.exit(f"refused: {error}")
