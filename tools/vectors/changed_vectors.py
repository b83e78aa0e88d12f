"""Vectors of masked vectors that no honest user sends: of another length, or with sums that nobody can have made."""

from __future__ import annotations

from typing import Any

import numpy as np
from material import document
from msgspec.structs import replace
from server_refusals import fails, received, sent
from whole_rounds import play

from heterosag.protocol import DecodedBlock
from heterosag.protocol.cells import CellLanes, pack_cells, unpack_cells

Document = dict[str, Any]


class Cell:
    """A cell of one user's masked vector in a whole round, and the block that the server sums it in."""

    def __init__(self, name: str, user: int, place: int) -> None:
        played = play(name)
        plan, decoded = played.setting.plan, played.decoded
        subgroup = plan.assignment[user]
        self.name, self.user, self.place, self.plan = name, user, place, plan
        self.cells = plan.cells(subgroup)
        blocks = decoded.segments[place] if place < len(plan.segments) else (decoded.metrics,)
        found = [block for block in blocks if block is not None and subgroup in block.block.subgroups]
        self.block: DecodedBlock = found[0]

    def most(self) -> int:
        """The largest sum that the survivors can make."""
        return self.block.survivors * (self.block.block.level - 1)

    def with_element(self, total: int, element: int = 0) -> Any:
        """The user's message with one element changed so that the block's sum is this."""
        return self._changed(int(total - int(self.block.elements[element])), element, "elements")

    def with_lane(self, lane: str, total: int) -> Any:
        """The user's message with one auxiliary lane changed so that the block's sum is this."""
        lanes = self.cells[self.place].lanes
        return self._changed(total - self.block.auxiliary[lane], lanes.index(lane), "auxiliary")

    def _changed(self, shift: int, at: int, what: str) -> Any:
        message = sent(self.name, "mask", self.user)
        lanes = [
            CellLanes(cell.elements.copy(), cell.auxiliary.copy())
            for cell in unpack_cells(memoryview(bytes(message.vector)), self.cells)
        ]
        numbers = getattr(lanes[self.place], what)
        modulus = 2**self.block.block.bits if what == "elements" else 2**64
        numbers[at] = np.array((int(numbers[at]) + shift) % modulus, dtype=numbers.dtype)
        return replace(message, vector=pack_cells(lanes, self.cells))

    def refused(self, name: str, message: Any) -> Document:
        """The sum that this message makes is refused."""
        return fails(name, self.name, "combine", "unmask", "FaultyBlockError", [("mask", self.user, message)])

    def summed(self, name: str, message: Any, **changed: Any) -> Document:
        """The sum that this message makes is as good as any: the block then has these numbers."""
        case = fails(name, self.name, "combine", "unmask", "", [("mask", self.user, message)])
        block = {
            "segment": self.place,
            "subgroups": list(self.block.block.subgroups),
            "survivors": self.block.survivors,
            "sums": self.block.elements.tolist(),
            "auxiliary": dict(self.block.auxiliary),
        }
        block |= {"sums": changed["sums"]} if "sums" in changed else {}
        block["auxiliary"] |= changed.get("auxiliary", {})
        return {name: case[name] for name in ("name", "round", "changes")} | {"block": block}


def changed() -> Document:
    """refusals_vectors.json."""
    elements, lanes = _elements(), _lanes()
    about = (
        "One of the whole rounds with a user's masked vector changed. It is refused for its length, or its block is "
        "for a sum that so many honest users cannot have made. The cases are the largest and least sums that they can."
    )
    cases = [case for case in elements + lanes if "error" not in case]
    return document(about, cases, [*_lengths(), *(case for case in elements + lanes if "error" in case)])


def _elements() -> list[Document]:
    found = []
    for what, cell in {
        "an element of three levels": Cell("plain", 2, 0),
        "an element of sixteen levels": Cell("plain", 3, 2),
        "an element of filled levels": Cell("signed", 0, 0),
        "an element of a block that lost a user": Cell("sparse", 2, 1),
        "a count of trials": Cell("noise", 2, 0),
        "a count of trials in a block that lost a subgroup": Cell("noise", 2, 1),
        "the clip bit": Cell("noise", 2, 3),
    }.items():
        most, ring = cell.most(), 2**cell.block.block.bits
        assert most + 1 < ring, f"{what}: its ring has no number beyond the bound"
        sums = [most, *cell.block.elements.tolist()[1:]]
        found += [
            cell.summed(f"{what} at its bound", cell.with_element(most), sums=sums),
            cell.refused(f"{what} beyond its bound", cell.with_element(most + 1)),
            cell.refused(f"{what} at the end of its ring", cell.with_element(ring - 1)),
        ]
    last = Cell("plain", 2, 1)
    place = last.block.elements.size - 1
    return [*found, last.refused("the last element beyond its bound", last.with_element(last.most() + 1, place))]


def _lanes() -> list[Document]:
    signed, plain, metrics = Cell("signed", 0, 1), Cell("plain", 2, 0), Cell("signed", 0, 3)
    users, size = signed.block.survivors, signed.block.elements.size
    heaviest, clipped = users * signed.plan.max_weight, users * size
    weight, loss = metrics.block.weight, 2**24 * 2**24 // metrics.plan.max_weight
    beyond, within = (2**24 + 2) * 2**24 * weight // 3, loss * weight
    several = plain.block.survivors * plain.block.elements.size

    def lane(cell: Cell, name: str, lane: str, total: int) -> Document:
        return cell.summed(name, cell.with_lane(lane, total), auxiliary={lane: total % 2**64})

    def beyond_lane(cell: Cell, name: str, lane: str, total: int) -> Document:
        return cell.refused(name, cell.with_lane(lane, total))

    return [
        lane(signed, "the least weight", "weight", users),
        lane(signed, "the greatest weight", "weight", heaviest),
        lane(signed, "every element clipped", "clipped", clipped),
        lane(plain, "every element clipped, without weights", "clipped", several),
        lane(metrics, "a metric at its limit", "loss", within),
        lane(metrics, "a negative metric at its limit", "loss", -within),
        beyond_lane(signed, "a weight too small", "weight", users - 1),
        beyond_lane(signed, "a weight too large", "weight", heaviest + 1),
        beyond_lane(signed, "more clipped elements than there are", "clipped", clipped + 1),
        beyond_lane(plain, "more clipped elements than there are, without weights", "clipped", several + 1),
        beyond_lane(signed, "a count too small", "count", users - 1),
        beyond_lane(metrics, "a count too large, of metrics", "count", metrics.block.survivors + 1),
        beyond_lane(metrics, "a weight too large, of metrics", "weight", metrics.block.survivors * 3 + 1),
        beyond_lane(metrics, "a metric beyond its limit", "loss", beyond),
        beyond_lane(metrics, "a negative metric beyond its limit", "loss", -beyond),
        beyond_lane(Cell("noise", 2, 3), "a count too large, beside the clip bit", "count", 7),
    ]


def _lengths() -> list[Document]:
    def of_length(name: str, round_name: str, user: int, change: bytes | int) -> Document:
        message = sent(round_name, "mask", user)
        vector = bytes(message.vector)
        vector = vector[:change] if isinstance(change, int) else vector + change
        return received(name, round_name, "mask", user, replace(message, vector=memoryview(vector)), "WireError")

    sizes = play("plain").setting.plan.vector_sizes()
    short, long = (sizes[play("plain").setting.plan.assignment[user]] for user in (2, 3))
    longest = play("plain").setting.plan
    return [
        of_length("a byte too many", "plain", 2, b"\0"),
        of_length("as long as the vector of another subgroup", "plain", 2, bytes(long - short)),
        of_length("as short as the vector of another subgroup", "plain", 3, short),
        of_length("no vector", "plain", 2, 0),
        of_length("a message longer than any of its plan", "plain", 3, bytes(145 + 5 * len(longest.users))),
        of_length("a lane of eight bytes too many", "signed", 0, bytes(8)),
        of_length("without the cell of metrics", "signed", 0, -24),
        of_length("without the clip bit", "noise", 2, -9),
        of_length("a byte too many, with noise", "noise", 2, b"\0"),
    ]
