"""Fuzzes every decoder: `python tools/fuzz`, or `python -m fuzz` with tests/ on the path.

With atheris installed each target runs under libFuzzer, guided by the coverage of heterosag, in a process of its own
(libFuzzer ends its process). Without it the inputs are random mutations of the corpus, and the output says so. An input
that breaks a promise is written to tools/fuzz/crashes, and the exit code is 1; `python tools/fuzz FILE --target NAME`
runs it again.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import json
import random
import re
import resource
import shlex
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
CORPUS = HERE / "corpus"
CRASHES = HERE / "crashes"

for folder in (HERE.parents[1], HERE.parent, HERE.parents[1] / "tests"):  # run as a folder: what it imports
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

MEMORY_LIMIT = 1024  # MB of a fuzzing process
TIME_LIMIT = 10  # seconds of one input
LONGEST = 8192  # bytes of an input: four times the longest valid message
DEFAULT_RUNS = 20_000

HUGE = (b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff", b"\xff" * 8)


@dataclass(kw_only=True)
class Outcome:
    """What became of one target: `crash` is the first input that broke a promise, as a path."""

    target: str
    inputs: int
    seconds: float
    peak_mb: int
    crash: str | None = None


# --- mutations without a fuzzer -------------------------------------------------------------------------------------


def mutate(chance: random.Random, pool: Sequence[bytes]) -> bytes:
    """An input of the pool after one to four random changes."""
    data = chance.choice(pool)
    for _ in range(chance.randint(1, 4)):
        data = _mutate_once(chance, data, pool)
    return data[: 4 * LONGEST]


def _mutate_once(chance: random.Random, data: bytes, pool: Sequence[bytes]) -> bytes:
    start, stop = sorted((chance.randint(0, len(data)), chance.randint(0, len(data))))
    kind = chance.randrange(9)
    if kind == 0 and data:
        at = chance.randrange(len(data))
        return data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]
    if kind == 1 and data:
        at = chance.randrange(min(len(data), chance.choice((3, 40, len(data)))))
        return data[:at] + chance.randbytes(1) + data[at + 1 :]
    if kind == 2:
        return data[:start]
    if kind == 3:
        return data + chance.randbytes(chance.choice((1, 2, 40)))
    if kind == 4:
        return data[:start] + data[stop:]
    if kind == 5:
        return data[:stop] + data[start:]
    if kind == 6:
        other = chance.choice(pool)
        return data[:start] + other[chance.randint(0, len(other)) :]
    if kind == 7:
        return data[:start] + chance.choice(HUGE) + data[start + chance.choice((0, 1, 5)) :]
    return (
        data[:start] + chance.choice((b"\x91", b"[", b"\x81\xa1a")) * chance.choice((1, 2, 600, 10_000)) + data[stop:]
    )


def read_corpus(target: str) -> dict[str, bytes]:
    """The inputs of a target to begin with, by name: what `seeds` makes, and what is committed because it cannot."""
    committed = {path.name: path.read_bytes() for path in sorted((CORPUS / target).glob("*"))}
    return seeds()[target] | committed


def run_mutations(target: str, *, seed: int, runs: int | None, seconds: float | None) -> Outcome:
    """Corpus first, then mutations of it, until so many inputs or seconds."""
    from fuzz.targets import TARGETS

    pool = list(read_corpus(target).values())
    chance = random.Random(f"{seed}/{target}")
    began, tried, crash = time.monotonic(), 0, None
    while (runs is None or tried < runs) and (seconds is None or time.monotonic() - began < seconds):
        data = pool[tried] if tried < len(pool) else mutate(chance, pool)
        tried += 1
        try:
            TARGETS[target](data)
        except Exception:
            traceback.print_exc()
            crash = str(_keep(target, data))
            break
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return Outcome(target=target, inputs=tried, seconds=time.monotonic() - began, peak_mb=peak, crash=crash)


def _keep(target: str, data: bytes) -> Path:
    CRASHES.mkdir(exist_ok=True)
    path = CRASHES / f"{target}-{hashlib.sha256(data).hexdigest()[:16]}"
    path.write_bytes(data)
    return path


# --- atheris --------------------------------------------------------------------------------------------------------


def atheris_version() -> str | None:
    """The installed version, if any."""
    try:
        return importlib.metadata.version("atheris")
    except importlib.metadata.PackageNotFoundError:
        return None


def run_atheris(target: str, *, seed: int, runs: int | None, seconds: float | None) -> Outcome:
    """One target under libFuzzer, in a process of its own; what it finds is not added to the committed corpus."""
    CRASHES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as found, tempfile.TemporaryDirectory() as start:
        for name, data in read_corpus(target).items():
            (Path(start) / name).write_bytes(data)
        options = [
            f"-seed={seed}",
            f"-rss_limit_mb={MEMORY_LIMIT}",
            f"-timeout={TIME_LIMIT}",
            f"-max_len={LONGEST}",
            f"-artifact_prefix={CRASHES / target}-",
            "-print_final_stats=1",
            *([] if runs is None else [f"-runs={runs}"]),
            *([] if seconds is None else [f"-max_total_time={max(1, round(seconds))}"]),
        ]
        began = time.monotonic()
        command = [sys.executable, str(HERE), "--inside", target, *options, found, start]
        run = subprocess.run(command, stderr=subprocess.PIPE, text=True, errors="replace", check=False)
    if not any(CRASHES.iterdir()):
        CRASHES.rmdir()
    written = re.findall(r"Test unit written to (\S+)", run.stderr)
    crash = written[0] if written else None
    if run.returncode:
        print(run.stderr[-6000:], file=sys.stderr)
        crash = crash or f"exit code {run.returncode}"
    return Outcome(
        target=target,
        inputs=_last_number(run.stderr, r"stat::number_of_executed_units:\s*(\d+)", r"^#(\d+)\s"),
        seconds=time.monotonic() - began,
        peak_mb=_last_number(run.stderr, r"stat::peak_rss_mb:\s*(\d+)", r"rss: (\d+)Mb"),
        crash=crash,
    )


def _last_number(text: str, *patterns: str) -> int:
    """The last match of the first pattern that has one: a crash may come before the final statistics."""
    for pattern in patterns:
        found = re.findall(pattern, text, re.MULTILINE)
        if found:
            return int(found[-1])
    return 0


def run_inside(target: str, options: list[str]) -> None:
    """The process that libFuzzer ends."""
    import atheris

    with atheris.instrument_imports(include=["heterosag"], enable_loader_override=False):
        from fuzz.targets import TARGETS

    atheris.Setup([sys.argv[0], *options], TARGETS[target])
    atheris.Fuzz()


# --- the corpus -----------------------------------------------------------------------------------------------------


@cache
def seeds() -> dict[str, dict[str, bytes]]:
    """The inputs that can be made: valid ones, and the tricky ones made from them."""
    from fuzz import targets
    from fuzz.enrolments import tape as taped_enrolment

    signed, plain = targets.play(signed=True), targets.play(signed=False)
    found: dict[str, dict[str, bytes]] = {name: {} for name in targets.TARGETS}
    for tape, label in ((signed, "signed"), (plain, "plain")):
        for at, phase in enumerate(tape.phases):
            sent = {targets.SENT[phase]: tape.answered[phase][0]}
            if at:
                asked = tape.asked[phase][0]
                sent[_received_kinds()[phase]] = asked
                found["client_raw"][f"{label}-{phase}"] = bytes([tape.signed, at - 1]) + asked
            found["server_raw"][f"{label}-{phase}"] = bytes([tape.signed, at, 0]) + tape.answered[phase][0]
            for kind, message in sent.items():
                name = next(name for name, known in targets.KINDS.items() if known is kind)
                found[f"wire_{name}"] |= {label: message, **_tricky(message, label)}
        for place, phase in enumerate((*tape.phases, "done")):
            if not tape.signed:
                found["saved_client"][phase] = tape.saved[phase]
                found["saved_client_changed"][phase] = bytes([place])
    found["saved_client"] |= _forged_states(plain.saved["share"][32:])
    found["plan_bytes"] = {f"plan-{at}": plan for at, plan in enumerate(targets.other_plans())}
    found["plan_bytes"] |= _tricky(targets.other_plans()[0], "plan") | _plan_bombs()
    found["plan_toml"] = _toml_texts()
    vector = targets.msgspec.msgpack.decode(plain.answered["mask"][0])[-1]
    found["masked_vector"] = {
        "honest": vector,
        "short": vector[:-1],
        "long": vector + b"\0",
        "ones": b"\xff" * len(vector),
    }
    found["ring_vector"] = {
        "exact": bytes([5, 1, 0, 0, 0]) + bytes(range(10)),
        "announced": bytes([63, 0xFC, 0xFF, 0xFF, 0xFF]) + bytes(63),
        "trailing": bytes([3, 1, 0, 0, 0]) + b"\xff" * 4,
        "no-bits": bytes(9),
        "lanes-of-64": bytes([64, 1, 0, 0, 0]) + bytes(range(64)),
    }
    enrolment = taped_enrolment()
    for kind, message in enrolment.by_kind().items():
        name = next(name for name, known in targets.KINDS.items() if known is kind)
        found[f"wire_{name}"] |= {"signed": message, **_tricky(message, "signed")}
    found["enrolment_server"] = {"commit": b"\0" + enrolment.committed[3], "reveal": b"\xff" + enrolment.revealed[3]}
    found["enrolment_user"] = {"reveal": b"\0" + enrolment.commitments, "finish": b"\xff" + enrolment.reveals}
    for name in found:
        if name.endswith(("_changed", "_closing")) or name.startswith(("pipeline_", "flower_")):
            found[name] |= _scripts()
    found["flower_server"] = dict(list(found["flower_server"].items())[::12])  # an input is a whole round
    found["directory_file"] = _directories(signed.directory or {})
    found["key_file"] = _key_files()
    return found


def _received_kinds() -> dict[str, Any]:
    from heterosag.protocol import messages as wire

    return {"share": wire.Roster, "mask": wire.Inbox, "agree": wire.SurvivorSet, "unmask": wire.UnmaskRequest}


def _tricky(message: bytes, label: str) -> dict[str, bytes]:
    """A valid message cut, continued, with a length that is not there, nested, and with a number in a longer form."""
    changed = {
        "half": message[: len(message) // 2],
        "continued": message + b"\0",
        "huge-list": message[:1] + message[1:37] + HUGE[0],
        "huge-bytes": message[:3] + HUGE[2],
        "nested": message[:37] + b"\x91" * 1200,
        "long-version": message[:2] + b"\xcc\x01" + message[3:],
        "other-tag": message[:1] + bytes([message[1] % 13 + 1]) + message[2:],
    }
    return {f"{label}-{name}": data for name, data in changed.items()}


def _forged_states(body: bytes) -> dict[str, bytes]:
    """A saved client rewritten by somebody who knows the digest: deep, with a field too many, in another phase."""
    from fuzz.targets import digest, msgspec

    fields = msgspec.msgpack.decode(body)
    forged = {
        "forged-nested": b"\x81\xa1x" + b"\x91" * 1500,
        "forged-field": msgspec.msgpack.encode(fields | {"more": 1}),
        "forged-phase": msgspec.msgpack.encode(fields | {"phase": "agreed"}),
        "forged-order": msgspec.msgpack.encode(dict(reversed(fields.items()))),
    }
    return {name: digest("saved-client", changed) + changed for name, changed in forged.items()}


def _plan_bombs() -> dict[str, bytes]:
    """Short arguments of plans that are huge, beside the structure of a small one."""
    from fuzz import targets

    version, arguments, structure = targets.msgspec.msgpack.decode(targets.other_plans()[0])
    bombs = {
        "bomb-users": {0: [2**20 - 2], 1: [2], 3: "secagg"},
        "bomb-subgroups": {0: [4000], 1: [2], 2: 2**40, 5: 2},
        "bomb-neighbours": {0: [2**18], 1: [2], 3: "secagg", 13: "sparse", 12: 0.3},
    }
    return {
        name: targets.msgspec.msgpack.encode(
            [version, [changes.get(at, value) for at, value in enumerate(arguments)], structure]
        )
        for name, changes in bombs.items()
    }


def _toml_texts() -> dict[str, bytes]:
    from fuzz import targets

    from heterosag.plan import Plan

    base = "classes = [6, 6]\nlevels = [2, 5]\nsubgroup_size = 3\nfloor = 2\n"
    texts = {f"plan-{at}": Plan.decode(plan).to_toml() for at, plan in enumerate(targets.other_plans()[:5])}
    texts |= {
        "short": base + "dimension = 40\n",
        "nested-lists": base + "users = " + "[" * 1500,
        "nested-tables": base + "users = " + "{a=" * 1500,
        "dotted": base + "a." * 500 + "a = 1\n",
        "long-number": "dimension = " + "9" * 5000 + "\n",
        "long-hexadecimal": base + "dimension = 40\ncolluders = 0x" + "f" * 5000 + "\n",
        "large-dimension": base + "dimension = " + "9" * 30 + "\n",
        "large-subgroups": base.replace("size = 3", f"size = {2**70}") + "dimension = 40\n",
        "large-range": base + "dimension = 40\nvalue_range = [-1" + "0" * 400 + ", 1]\n",
        "large-weights": base + "dimension = 40\nmax_weight = 1" + "0" * 400 + "\n",
        "odd-values": base + 'dimension = 40\ndropout = nan\nmin_robustness = inf\nsharing = 1979-05-27\ndesign = ""\n',
    }
    return {name: text.encode() for name, text in texts.items()}


def _scripts() -> dict[str, bytes]:
    """Edits of every kind; the first bytes choose phase and user, each target in its own way."""
    found = {}
    for kind in range(8):
        for phase in (kind % 5, (kind + 2) % 5, (kind + 4) % 5):
            found[f"edit-{kind}-{phase}"] = bytes([phase % 2, phase, 1, 2, 1, 6, kind, 7, 1, 0, 3])
    for kind in range(7):
        found[f"bytes-{kind}"] = bytes([1, kind % 5, 1, 2, 0, 6, kind, 40, 1, 1])
    return found


def _directories(directory: dict[Any, bytes]) -> dict[str, bytes]:
    valid = json.dumps({str(user): key.hex() for user, key in directory.items()}).encode()
    return {
        "valid": valid,
        "half": valid[: len(valid) // 2],
        "short-key": b'{"a": "ab"}',
        "no-object": b"[1, 2]",
        "nested-lists": b"[" * 3000,
        "nested-objects": b'{"a":' * 1200,
        "long-number": b'{"a": ' + b"9" * 5000 + b"}",
        "odd-letters": b'{"\\ud800": "\xd9\xa1"}',
        "not-utf8": b"\xff\xfe{}",
    }


def _key_files() -> dict[str, bytes]:
    """Keys of no use, derived from labels. The OpenSSH form has random bytes in it, so it is kept and not made anew."""
    from cryptography.hazmat.primitives import serialization as forms
    from cryptography.hazmat.primitives.asymmetric import ec, x25519
    from fuzz import targets

    def pem(key: Any, form: forms.PrivateFormat) -> bytes:
        return bytes(key.private_bytes(forms.Encoding.PEM, form, forms.NoEncryption()))

    number = int.from_bytes(targets.digest("fuzz/curve"), "big")
    found = {"ed25519": targets._identity(0).to_key_file()}
    for curve in (ec.SECP256R1(), ec.SECP384R1(), ec.SECP521R1()):
        key = ec.derive_private_key(number >> 2, curve)
        found[curve.name] = pem(key, forms.PrivateFormat.PKCS8)
        found[f"{curve.name}-traditional"] = pem(key, forms.PrivateFormat.TraditionalOpenSSL)
    found["x25519"] = pem(x25519.X25519PrivateKey.from_private_bytes(bytes(32)), forms.PrivateFormat.PKCS8)
    found["half"] = found["ed25519"][:60]
    # One letter makes it the name of Ed448, whose keys are longer: OpenSSL fails inside.
    found["ed448-short"] = found["ed25519"].replace(b"K2Vw", b"K2Vx")
    found["openssh-nearly"] = b"-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n"
    return found


# --- the command ----------------------------------------------------------------------------------------------------


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--inside"]:
        run_inside(arguments[1], arguments[2:])
        return 0
    parser = argparse.ArgumentParser(prog="fuzz", description="Fuzz every decoder.")
    parser.add_argument("input", nargs="?", type=Path, help="run one target on this file only")
    parser.add_argument("--runs", type=int, help=f"inputs for each target ({DEFAULT_RUNS} unless --seconds is given)")
    parser.add_argument("--seconds", type=float, help="for all targets together, shared evenly")
    parser.add_argument("--target", action="append", help="only this one (may be repeated)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--summary", type=Path, help="write what was tried and found to this JSON file")
    parser.add_argument("--without-atheris", action="store_true", help="random mutations though atheris is installed")
    chosen = parser.parse_args(arguments)
    from fuzz.targets import TARGETS

    names = chosen.target or list(TARGETS)
    if unknown := [name for name in names if name not in TARGETS]:
        parser.error(f"no target is called {unknown[0]}: there are {', '.join(TARGETS)}")
    if chosen.input:
        for name in names:
            TARGETS[name](chosen.input.read_bytes())
        return 0
    outcomes = _run_all(names, chosen)
    crashed = [outcome for outcome in outcomes if outcome.crash]
    if chosen.summary:
        chosen.summary.write_text(json.dumps(_summary(outcomes, chosen, arguments), indent=2) + "\n")
    print(f"{sum(outcome.inputs for outcome in outcomes)} inputs, {len(crashed)} targets broke a promise")
    return 1 if crashed else 0


def _run_all(names: list[str], chosen: argparse.Namespace) -> list[Outcome]:
    guided = atheris_version() is not None and not chosen.without_atheris
    if not guided:
        print("without atheris: random mutations of the corpus, not guided by coverage")
    runs = DEFAULT_RUNS if chosen.runs is None and chosen.seconds is None else chosen.runs
    end = None if chosen.seconds is None else time.monotonic() + chosen.seconds
    outcomes = []
    for place, name in enumerate(names):
        # What a target leaves of its share goes to those after it.
        seconds = None if end is None else max(1.0, (end - time.monotonic()) / (len(names) - place))
        run = run_atheris if guided else run_mutations
        outcome = run(name, seed=chosen.seed, runs=runs, seconds=seconds)
        outcomes.append(outcome)
        found = f"  {outcome.crash}" if outcome.crash else ""
        print(
            f"{name:22} {outcome.inputs:>9} inputs {outcome.seconds:7.1f} s {outcome.peak_mb:>5} MB{found}", flush=True
        )
    return outcomes


def _summary(outcomes: list[Outcome], chosen: argparse.Namespace, arguments: list[str]) -> dict[str, Any]:
    from reproduction.records import find_commit

    return {
        "command": shlex.join(["python", "tools/fuzz", *arguments]),
        "commit": find_commit(),
        "seed": chosen.seed,
        "atheris": None if chosen.without_atheris else atheris_version(),
        "duration_seconds": round(sum(outcome.seconds for outcome in outcomes), 1),
        "inputs": sum(outcome.inputs for outcome in outcomes),
        "crashes": sum(outcome.crash is not None for outcome in outcomes),
        "peak_memory_mb": max(outcome.peak_mb for outcome in outcomes),
        "targets": {
            outcome.target: {name: value for name, value in asdict(outcome).items() if name != "target"}
            for outcome in outcomes
        },
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
