"""The protocol as machines without I/O: bring your own transport.

A `Client` and a `Server` turn messages into messages; `RoundId` says which round it is; `outcome` says what a round of
honest users must end with. examples/own_transport.py is a whole round over a queue.
"""

from heterosag.crypto.identity import Identity
from heterosag.protocol.client import Client, Directory
from heterosag.protocol.context import RoundId
from heterosag.protocol.policy import Policy
from heterosag.protocol.release_log import MemoryReleaseLog, ReleaseLog, RoundReleaseLog
from heterosag.protocol.server import Decoded, DecodedBlock, Refusal, Server
from heterosag.protocol.survivors import Outcome, outcome
from heterosag.protocol.transitions import ClientPhase, Phase, ServerPhase

__all__ = [
    "Client",
    "ClientPhase",
    "Decoded",
    "DecodedBlock",
    "Directory",
    "Identity",
    "MemoryReleaseLog",
    "Outcome",
    "Phase",
    "Policy",
    "Refusal",
    "ReleaseLog",
    "RoundId",
    "RoundReleaseLog",
    "Server",
    "ServerPhase",
    "outcome",
]
