"""Everything that users ever gave out, also what was lost on its way and what earlier lives of a user sent.

Each message is held against what came before at the moment it is sent: one sharing and one masked vector for each
disk and round, one survivor set for each context, one kind of share for each holder and dealer, and never enough shares
of both of a dealer's secrets. Which kind a released share is, the ledger knows from the polynomial it lies on.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from fault_simulation.network import Envelope
from heterosag.crypto import hashing, shamir
from heterosag.crypto.field import ELEMENT_SIZE, element_to_bytes
from heterosag.protocol import Client
from heterosag.protocol import messages as wire
from heterosag.protocol.client import Polynomials
from heterosag.protocol.context import survivors_bytes

if TYPE_CHECKING:
    from fault_simulation.users import Contribution, Node
    from fault_simulation.world import World

__all__ = ["BrokenInvariantError", "Ledger"]


class BrokenInvariantError(AssertionError):
    """Something happened that must not happen, whatever the network, the users and the server do."""


class Ledger:
    """What is out, and what it was made from."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._plan = world.script.plan
        self._known: set[tuple[int, str, bytes]] = set()
        self._once: dict[tuple[object, ...], bytes] = {}
        self._shares: dict[bytes, tuple[int, int, str]] = {}  # share -> dealer, number of its dealing, kind
        self._dealings = 0
        self._out: dict[tuple[int, int], dict[str, set[int]]] = defaultdict(lambda: {"mask": set(), "self": set()})
        self._held: dict[tuple[int, bytes], list[int]] = {}
        self._requests: dict[bytes, bytes] = {}
        self.vectors: dict[tuple[int, bytes], tuple[bytes, Contribution]] = {}

    # --- what users make --------------------------------------------------------------------------------------------

    def deal(self, dealer: int, polynomials: Polynomials) -> None:
        """A dealer is about to share its secrets: every share there can be."""
        self._dealings += 1
        holders = (dealer, *self._plan.sharing.holders(dealer))
        pairs = shamir.split_two(polynomials.mask, polynomials.self, [holder + 1 for holder in holders])
        for mask_share, self_share in pairs:
            self._shares[element_to_bytes(mask_share)] = dealer, self._dealings, "mask"
            self._shares[element_to_bytes(self_share)] = dealer, self._dealings, "self"

    def remember_vector(self, user: int, reply: bytes, made: Contribution) -> None:
        """A user's client has made a masked vector, from this."""
        context = wire.decode(wire.MaskedVector, reply, plan=self._plan).context
        self.vectors.setdefault((user, context), (reply, made))

    # --- what users send --------------------------------------------------------------------------------------------

    def sent(self, node: Node, client: Client, envelope: Envelope, reply: bytes) -> None:
        """A user sends its client's reply: check it against everything that is out already."""
        phase = envelope.phase
        self._world.trace.counts["messages"] += 1
        if (node.index, phase, reply) in self._known:
            return
        self._known.add((node.index, phase, reply))
        if phase == "share":
            self._claimed(node, client._base.context, "share", hashing.digest("sealed-shares", reply))
            self._sent_once(node, client, "share", reply)
        elif phase == "mask":
            self._sent_once(node, client, "mask", reply)
            self._hold(node, envelope, reply)
        elif phase == "agree":
            request = wire.decode(wire.SurvivorSet, envelope.data, plan=self._plan)
            self._chosen_once(node, "sign", request.context, survivors_bytes(request.survivors))
        elif phase == "unmask":
            self._released(node, envelope, reply)

    def _hold(self, node: Node, envelope: Envelope, reply: bytes) -> None:
        """Whose shares a user holds from here on: those of every dealer that it does not complain about."""
        sharers = wire.decode(wire.Inbox, envelope.data, plan=self._plan).sharers
        vector = wire.decode(wire.MaskedVector, reply, plan=self._plan)
        dealers = {node.index, *self._plan.sharing.holders(node.index)}.intersection(sharers)
        self._held[node.index, vector.context] = sorted(dealers.difference(vector.complaints))

    def _sent_once(self, node: Node, client: Client, kind: str, reply: bytes) -> None:
        context = client._base.context
        claimed = node.disk.claims.get((context, kind))
        if claimed is None:
            raise BrokenInvariantError(f"user {node.user!r} sends what it did not claim in its log: {kind}")
        self._only(reply, f"two different messages to {kind} under one claim", node.index, claimed, kind)
        keys = client.advertise()  # the advertisement it sent before, which names this client's keys
        self._only(
            reply, f"two different messages to {kind} from one disk", node.index, node.disk.number, context, kind
        )
        self._only(reply, f"two different messages to {kind} under the same keys", node.index, keys, kind)

    def _chosen_once(self, node: Node, kind: str, context: bytes, survivors: bytes) -> None:
        self._claimed(node, context, kind, survivors)
        self._only(survivors, f"two survivor sets to {kind} under one context", node.index, context, kind)

    def _claimed(self, node: Node, context: bytes, kind: str, value: bytes) -> None:
        if node.disk.claims.get((context, kind)) != value:
            raise BrokenInvariantError(f"user {node.user!r} sends what it did not claim in its log: {kind}")

    def _only(self, value: bytes, problem: str, user: int, *key: object) -> None:
        if self._once.setdefault((user, *key), value) != value:
            raise BrokenInvariantError(f"user {self._plan.users[user]!r}: {problem}")

    def _released(self, node: Node, envelope: Envelope, reply: bytes) -> None:
        request = wire.decode(wire.UnmaskRequest, envelope.data, plan=self._plan)
        message = wire.decode(wire.Released, reply, plan=self._plan)
        self._chosen_once(node, "unmask", request.context, survivors_bytes(request.survivors))
        self._world.trace.counts["releases"] += 1
        survivors = frozenset(request.survivors)
        held = self._held[node.index, request.context]
        shares = wire.cut_rows(message.shares, ELEMENT_SIZE)
        for dealer, share in zip(held, shares, strict=False):
            owner, dealing, kind = self._shares.get(share, (dealer, 0, ""))
            if not kind:
                continue  # a share that its dealer, a malicious user, made up
            if owner != dealer or kind != ("self" if dealer in survivors else "mask"):
                name = self._plan.users[dealer]
                raise BrokenInvariantError(f"user {node.user!r} released the wrong share of user {name!r}")
            self._world.trace.counts["released shares"] += 1
            out = self._out[dealer, dealing]
            out[kind].add(node.index)
            self._check_secrets(dealer, out, envelope.round)
        if len(shares) != len(held):
            raise BrokenInvariantError(f"user {node.user!r} released {len(shares)} shares, and holds {len(held)}")

    def _check_secrets(self, dealer: int, out: dict[str, set[int]], number: int) -> None:
        """No holder gave shares of both secrets of a dealer, and the holders together not enough of both.

        Without identities the server is trusted. On a complete graph t is a majority, so even a malicious server, as
        the network does here, gets one secret only; on a sparse one it may get both.
        """
        name = self._plan.users[dealer]
        if twice := out["mask"] & out["self"]:
            raise BrokenInvariantError(f"user {min(twice)} released shares of both secrets of user {name!r}")
        trusted = not self._world.script.signed and not self._plan.sharing.complete
        if trusted and self._world.records[number].lied_to:
            return
        if min(len(out["mask"]), len(out["self"])) >= self._plan.share_threshold:
            raise BrokenInvariantError(f"both secrets of user {name!r} are out")

    # --- what the server sends --------------------------------------------------------------------------------------

    def asked(self, phase: str, messages: list[bytes]) -> None:
        """The server asks for shares: for one survivor set under each context."""
        for data in messages if phase == "unmask" else ():
            request = wire.decode(wire.UnmaskRequest, data, plan=self._plan)
            survivors = survivors_bytes(request.survivors)
            if self._requests.setdefault(request.context, survivors) != survivors:
                raise BrokenInvariantError("the server asks a second time, for other survivors, under one context")
