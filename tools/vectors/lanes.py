"""Vectors of a vector's way into its rings: rounding, quantizing, rotation, packing, keystream and masks."""

from __future__ import annotations

from typing import Any

import numpy as np
from material import document, fraction, hashed, whole

from heterosag.crypto.hashing import digest, index_bytes
from heterosag.crypto.keystream import keystream
from heterosag.plan import Cell, PlannedBlock
from heterosag.plan.noise import noise_range
from heterosag.privacy.mechanism import count_trials, decode_mean, thresholds, word_starts
from heterosag.protocol import masks
from heterosag.protocol.cells import CellLanes, pack_cells
from heterosag.protocol.rounding import Rounding
from heterosag.vector import ring
from heterosag.vector.quantize import dequantize, quantize
from heterosag.vector.rotation import rotate, unrotate

Document = dict[str, Any]


# --- keystream and masks ------------------------------------------------------------------------------------------


def keystreams() -> Document:
    """keystream.json."""
    cases: list[Document] = []
    for start, size in ((0, 40), (16, 24), (4096, 16)):
        key = hashed("keystream")
        cases.append(
            {
                "function": "keystream",
                "key": key.hex(),
                "start": start,
                "size": size,
                "bytes": keystream(key, size, start=start).hex(),
            }
        )
    key = hashed("rounding")
    for start, count in ((0, 6), (3, 5), (1000, 4)):
        words = Rounding(key).words(start, count).tolist()
        cases.append({"function": "words", "key": key.hex(), "start": start, "count": count, "words": words})
    for seed, user, number in ((0, 0, 0), (7, 3, 12)):
        words = Rounding.from_seed(seed, user, number).words(0, 4).tolist()
        cases.append(
            {"function": "simulated_rounding", "seed": seed, "user": user, "round": number, "words": words, "count": 4}
        )
    must_fail: list[Document] = [
        {"name": "between blocks", "key": key.hex(), "start": 8, "size": 8, "error": "UsageError"},
        {"name": "before the start", "key": key.hex(), "start": -16, "size": 8, "error": "UsageError"},
        {"name": "a key of 16 bytes", "key": key[:16].hex(), "start": 0, "size": 8, "error": "UsageError"},
    ]
    about = (
        "AES-256 in counter mode from a zero 128-bit big-endian counter, as the source of masks and of rounding words. "
        "A rounding word is four little-endian bytes; element i of the vector has word i."
    )
    return document(about, cases, must_fail)


_LAYOUTS: dict[str, list[tuple[int, int, int]]] = {
    # name: (bits, elements, auxiliary lanes) of each cell
    "lanes of one byte": [(1, 5, 2), (8, 3, 2), (7, 16, 3)],
    "lanes of two bytes": [(9, 7, 2), (16, 4, 2)],
    "lanes of four bytes": [(17, 3, 2), (32, 5, 3)],
    "lanes of eight bytes": [(33, 3, 2), (63, 2, 2)],
    "all widths, and a cell without elements": [(5, 9, 2), (12, 3, 2), (20, 2, 2), (40, 1, 2), (1, 0, 2)],
}


def masked() -> Document:
    """masks.json."""
    cases = [_mask_case(name, layout) for name, layout in _LAYOUTS.items()]
    cases.append(_mask_case("only the shared cells", [(6, 5, 2), (12, 3, 2), (6, 4, 2)], pair_cells=(0, 2)))
    vectors: dict[str, tuple[list[list[int]], bytes]] = {
        "nonzero trailing bits": ([[5, 3, 1]], b"\xff\xff" + bytes(8)),
        "nonzero trailing bits of the second cell": ([[8, 2, 1], [3, 2, 1]], bytes(2 + 8) + b"\x40" + bytes(8)),
    }
    must_fail = [
        {"name": name, "cells": cells, "bytes": data.hex(), "error": "WireError"}
        for name, (cells, data) in vectors.items()
    ]
    about = (
        "Masks on lanes: each key's stream runs over the cells it covers, each from a 16-byte boundary, elements in "
        "lanes of 1, 2, 4 or 8 bytes and then auxiliary lanes of 8. The masked cells are reduced and packed; "
        "a cell is written [bits, elements, auxiliary lanes]."
    )
    return document(about, cases, must_fail)


def _cell(place: int, bits: int, size: int, auxiliary: int) -> Cell:
    block = PlannedBlock(subgroups=(0,), users=1, level=2, bits=bits)
    return Cell(segment=place, start=0, stop=size, block=block, lanes=tuple(map(str, range(auxiliary))))


def _mask_case(name: str, layout: list[tuple[int, int, int]], pair_cells: tuple[int, ...] | None = None) -> Document:
    cells = [_cell(place, *shape) for place, shape in enumerate(layout)]
    lanes = [
        CellLanes(
            np.array([whole(1 << bits, name, place, i) for i in range(size)], dtype=ring.lane_dtype(bits)),
            np.array([whole(100, name, place, "aux", i) for i in range(auxiliary)], dtype=np.uint64),
        )
        for place, (bits, size, auxiliary) in enumerate(layout)
    ]
    everything = tuple(range(len(cells)))
    drawn = [
        masks.Mask(hashed(name, "own"), True, everything),
        masks.Mask(hashed(name, "higher peer"), True, everything if pair_cells is None else pair_cells),
        masks.Mask(hashed(name, "lower peer"), False, everything if pair_cells is None else pair_cells),
    ]
    before = _written(lanes)
    masks.apply(lanes, drawn)
    for content, cell in zip(lanes, cells, strict=True):
        ring.reduce(content.elements, cell.bits)
    return {
        "name": name,
        "cells": [list(shape) for shape in layout],
        "plain": before,
        "masks": [
            {
                "key": mask.key.hex(),
                "add": mask.add,
                "cells": list(mask.cells),
                "offsets": _offsets(layout, mask.cells),
            }
            for mask in drawn
        ],
        "masked": _written(lanes),
        "packed": pack_cells(lanes, cells).hex(),
    }


def _offsets(layout: list[tuple[int, int, int]], places: tuple[int, ...]) -> list[int]:
    """Where in the stream each covered cell starts, by the rule and not by the code."""
    found, at = [], 0
    for place in places:
        bits, size, auxiliary = layout[place]
        found.append(at)
        lane = next(width for width in (1, 2, 4, 8) if bits <= 8 * width)
        at += -(-(size * lane + 8 * auxiliary) // 16) * 16
    return found


def _written(lanes: list[CellLanes]) -> list[Document]:
    return [{"elements": cell.elements.tolist(), "auxiliary": cell.auxiliary.tolist()} for cell in lanes]


# --- quantizer and rotation ---------------------------------------------------------------------------------------


def quantized() -> Document:
    """quantize.json."""
    ends = [-1.0, 1.0, -0.5, 0.0, 0.5, 0.9999, -1.5, 1.0001, 250.0]
    shapes: list[tuple[str, list[float], int, tuple[float, float]]] = [
        ("two levels", ends, 2, (-1.0, 1.0)),
        ("five levels", ends, 5, (-1.0, 1.0)),
        ("uneven range", [-0.3, 0.1, 0.2, 0.7, -0.30001, 0.70001], 7, (-0.3, 0.7)),
        ("sixteen levels", [fraction(-2, 2, "weighted", i) for i in range(12)], 16, (-1.5, 1.25)),
        ("many levels", [fraction(-1, 1, "fine", i) for i in range(8)], 1 << 32, (-1.0, 1.0)),
        ("a scale that is nudged up", [0.0, 0.6, 0.1, 0.3], 50, (0.0, 0.6)),
        ("a tiny range", [0.0, 1e-300, 5e-301], 4, (0.0, 1e-300)),
        ("nothing", [], 4, (-1.0, 1.0)),
    ]
    cases = [_quantize_case(*shape, name_words="words") for shape in shapes]
    cases += [_quantize_case(f"{shape[0]}, least words", *shape[1:], name_words="zero") for shape in shapes[:3]]
    cases += [_quantize_case(f"{shape[0]}, greatest words", *shape[1:], name_words="ones") for shape in shapes[:6]]
    must_fail = [
        {"name": bad, "values": [0.25, bad], "level": 4, "range": [-1.0, 1.0], "words": [0, 0], "error": "UsageError"}
        for bad in ("nan", "inf", "-inf")
    ]
    must_fail.append(
        {
            "name": "fewer words than values",
            "values": [0.25, 0.5],
            "level": 4,
            "range": [-1.0, 1.0],
            "words": [0],
            "error": "UsageError",
        }
    )
    about = (
        "The stochastic quantizer in float64: values and 32-bit words to levels, how many values were clipped, "
        "and the mean that the result decodes to. Not a number and infinity must be refused."
    )
    return document(about, cases, must_fail)


def _quantize_case(
    name: str, values: list[float], level: int, ends: tuple[float, float], *, name_words: str
) -> Document:
    fixed = {"zero": 0, "ones": 2**32 - 1}
    words = [fixed.get(name_words, whole(2**32, name, "word", i)) for i in range(len(values))]
    bits = max(1, (level - 1).bit_length())
    out = np.empty(len(values), dtype=ring.lane_dtype(bits))
    clipped = quantize(np.array(values), level, ends, np.array(words, dtype=np.uint32), out=out)
    return {
        "name": name,
        "values": values,
        "words": words,
        "level": level,
        "range": list(ends),
        "bits": bits,
        "quantized": out.tolist(),
        "clipped": clipped,
        "decoded": dequantize(out, 1, level, ends).tolist(),
    }


def counted() -> Document:
    """noise.json."""
    values = [0.0, 0.25, -0.25, 2.0**-31, -(2.0**-31), 3 * 2.0**-30, 0.4999, -0.4999, 0.5, 7.0, -1e300, 1e-300]
    shapes: list[tuple[str, list[float], float | None, int, float, float]] = [
        ("two levels", values, 1.0, 1, 2.0, 0.125),
        ("sixteen levels", values, 1.0, 15, 2.0, 0.125),
        ("a scaled update", values, 0.3, 3, 0.75, 0.1),
        ("a limit that is no power of two", values, 1.0, 4, 0.5, 0.01),
        ("an update of zero norm", values, 0.0, 3, 2.0, 0.125),
        ("an update that is not finite", values, None, 3, 2.0, 0.125),
        ("nothing", [], 1.0, 3, 2.0, 0.125),
        ("a clip bit, within and beyond the norm", [1.0, -1.0], 1.0, 16, 4.0, 0.125),
        ("a clip bit of an update that is not finite", [-1.0], None, 16, 4.0, 0.125),
    ]
    cases = [_count_case(place, *shape) for place, shape in enumerate(shapes)]
    sizes, trials = [10, 20, 0, 5], [15, 1, 7, 3]
    cases.append({"function": "word_starts", "sizes": sizes, "trials": trials, "starts": word_starts(sizes, trials)})
    for z, norm, honest, number, size in (
        (3.0, 1.0, 9, 1, 10_000),
        (0.5, 0.25, 32, 15, 4096),
        (16.0, 2.0, 4, 4, 9),
        (1.2, 1.0, 9, 16, 100),  # theta is above 1/8 by rounding, and taken as 1/8
    ):
        found = noise_range(z, norm, honest, number, size)
        cases.append(
            {
                "function": "noise_range",
                "noise_multiplier": z,
                "clipping_norm": norm,
                "honest": honest,
                "trials": number,
                "size": size,
                "block_range": found.block_range,
                "coordinate_limit": found.coordinate_limit,
                "theta": found.theta,
            }
        )
    must_fail: list[Document] = [
        {
            "name": "too few levels",
            "noise_multiplier": 1.0,
            "honest": 9,
            "trials": 143,
            "size": 16,
            "error": "PlanError",
        },
        {"name": "no noise", "noise_multiplier": 0.0, "honest": 9, "trials": 1, "size": 16, "error": "UsageError"},
    ]
    about = (
        "The privacy mechanism: values to thresholds, counts of a key's words below them, and the mean that a sum of "
        "counts decodes to. The factor scales an update to its clipping norm; null is that of an update that is not "
        "finite. Floats in noise_range are to be met to fifteen digits, all else exactly."
    )
    return document(about, cases, must_fail)


def _count_case(
    place: int, name: str, values: list[float], factor: float | None, trials: int, block_range: float, theta: float
) -> Document:
    array, out = np.array(values), np.empty(len(values), dtype=np.uint8)
    first_word, key = 5 * place, hashed("noise", name)
    given = {"block_range": block_range, "theta": theta}
    count_trials(array, factor, trials=trials, key=key, first_word=first_word, out=out, **given)
    return {
        "function": "count_trials",
        "name": name,
        "values": values,
        "factor": factor,
        "trials": trials,
        "block_range": block_range,
        "theta": theta,
        "key": key.hex(),
        "first_word": first_word,
        "thresholds": thresholds(array, factor, **given).tolist(),
        "counts": out.tolist(),
        "decoded": decode_mean(out, 1, trials, block_range).tolist(),
    }


def rotated() -> Document:
    """rotation.json."""
    cases = []
    for segment, size in ((0, 1), (0, 8), (3, 13), (2, 20)):
        values = [fraction(-1, 1, "rotated", segment, size, i) for i in range(size)]
        turned = rotate(np.array(values), segment)
        bits = int.from_bytes(keystream(digest("rotation", index_bytes(segment, size)), (size + 7) // 8), "little")
        cases.append(
            {
                "segment": segment,
                "values": values,
                "signs": [-1 if bits >> i & 1 else 1 for i in range(size)],
                "rotated": turned.tolist(),
                "restored": unrotate(turned, segment).tolist(),
            }
        )
    about = (
        "The randomised Hadamard rotation of one segment in float64, bit for bit, and its inverse. "
        "Pieces are falling powers of two; signs are the bits of a keystream, lowest first, a set bit is a minus."
    )
    return document(about, cases)


# --- packing ------------------------------------------------------------------------------------------------------


def packed() -> Document:
    """packing.json."""
    cases = []
    for bits in range(1, 65):
        size = 1 + (bits * 5) % 11
        elements = [whole(1 << bits, "packed", bits, i) for i in range(size)]
        elements[-1] = (1 << bits) - 1
        data = ring.pack(np.array(elements, dtype=ring.lane_dtype(bits)), bits)
        cases.append({"bits": bits, "elements": elements, "bytes": data.hex()})
    cases.append({"bits": 12, "elements": [], "bytes": ""})
    must_fail: list[Document] = [
        {"name": "nonzero trailing bits", "bits": 3, "count": 2, "bytes": "40", "error": "WireError"},
        {"name": "the last trailing bit", "bits": 9, "count": 7, "bytes": "00" * 7 + "80", "error": "WireError"},
        {"name": "a byte too few", "bits": 12, "count": 3, "bytes": "00" * 4, "error": "WireError"},
        {"name": "a byte too many", "bits": 12, "count": 3, "bytes": "00" * 6, "error": "WireError"},
        {"name": "bytes for no element", "bits": 12, "count": 0, "bytes": "00", "error": "WireError"},
        {"name": "no width", "bits": 0, "count": 1, "bytes": "00", "error": "UsageError"},
        {"name": "too wide", "bits": 65, "count": 1, "bytes": "00" * 9, "error": "UsageError"},
    ]
    about = (
        "Elements of b bits packed in planes, for every width: their whole bytes, in pieces of 8, 4, 2 and 1, and then "
        "the bits that are left, back to back. "
        "Unused trailing bits are zero, and anything else must be refused."
    )
    return document(about, cases, must_fail)
