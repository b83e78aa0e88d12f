"""Key files: what is read, what is made, what is refused."""

import json
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from heterosag.errors import LocalFileError, UsageError
from heterosag.storage.identities import load_directory, load_identity, make_identity


def write_key(
    path: Path, key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey, form: str, password: bytes = b""
) -> Path:
    cipher = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    path.write_bytes(key.private_bytes(serialization.Encoding.PEM, getattr(serialization.PrivateFormat, form), cipher))
    path.chmod(0o600)
    return path


def test_a_key_made_is_the_key_loaded_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    made = make_identity(tmp_path / "key")
    assert load_identity(tmp_path / "key").public == made.public
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600
    with pytest.raises(UsageError, match="is there already"):
        make_identity(tmp_path / "key")
    assert load_identity(tmp_path / "key").public == made.public


@pytest.mark.parametrize("curve", [ec.SECP256R1, ec.SECP384R1, ec.SECP521R1])
def test_a_flower_nodes_key_gives_one_identity_whatever_its_form(curve: type[ec.EllipticCurve], tmp_path: Path) -> None:
    key = ec.generate_private_key(curve())
    forms = ("OpenSSH", "PKCS8", "TraditionalOpenSSL")
    found = {load_identity(write_key(tmp_path / form, key, form)).public for form in forms}
    other = load_identity(write_key(tmp_path / "other", ec.generate_private_key(curve()), "OpenSSH")).public
    assert len(found) == 1
    assert other not in found


def test_what_is_no_key_is_refused_by_name(tmp_path: Path) -> None:
    locked = write_key(tmp_path / "locked", ec.generate_private_key(ec.SECP256R1()), "PKCS8", b"secret")
    other = write_key(tmp_path / "rsa", rsa.generate_private_key(65537, 2048), "PKCS8")
    curve = write_key(tmp_path / "curve", ec.generate_private_key(ec.SECP256K1()), "PKCS8")
    open_to_all = write_key(tmp_path / "open", ec.generate_private_key(ec.SECP256R1()), "PKCS8")
    open_to_all.chmod(0o644)
    for name, data in (("text", b"OPENSSH, nearly"), ("huge", b"x" * 100_000)):
        (tmp_path / name).write_bytes(data)
        (tmp_path / name).chmod(0o600)
    for path, words in (
        (locked, "passphrase"),
        (other, "Ed25519 key"),
        (curve, "Ed25519 key"),
        (open_to_all, "chmod 600"),
        (tmp_path / "text", "not a private key"),
        (tmp_path / "huge", "with more than 65,536 bytes: name another file"),
        (tmp_path / "none", "cannot read"),
    ):
        with pytest.raises(UsageError, match=words) as caught:
            load_identity(path)
        assert str(path) in str(caught.value)


def test_directories_are_checked(tmp_path: Path) -> None:
    path = tmp_path / "known.json"
    with pytest.raises(UsageError, match="cannot read"):
        load_directory(path)
    path.write_text(json.dumps({"7": "ab" * 32}))
    assert load_directory(path) == {"7": b"\xab" * 32}
    for mode in (0o664, 0o646):
        path.chmod(mode)
        with pytest.raises(LocalFileError, match="others than its owner, who could put keys of their own into it"):
            load_directory(path)
    path.chmod(0o644)
    for text, words in (
        ("[]", "not a JSON object"),
        ("{", "not a JSON object"),
        ('{"7": 3}', "not a JSON object"),
        ('{"7": "xy"}', "not a JSON object"),
        ('{"7": "abcd"}', "has 32 bytes, not 2"),
        ('{"7": "' + "ab" * 32 + '", "7": "' + "cd" * 32 + '"}', "each once"),
        ('{"7": "' + "00" * 32 + '"}', "small order"),
        ('{"7": "' + "ab " * 32 + '"}', "not a JSON object"),
        ('{"7": "' + "ab" * 32 + '", "8": "' + "AB" * 32 + '"}', "'7' and '8' have one key"),
        ("[" * 100_000, "not a JSON object"),
    ):
        path.write_text(text)
        with pytest.raises(UsageError, match=words):
            load_directory(path)


def test_the_command_prints_the_public_key(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "heterosag", "identity", str(tmp_path / "key")]
    made, again = (
        subprocess.run([*words, flag], capture_output=True, text=True, check=True).stdout
        for flag in ("--make", "--json")
    )
    assert json.loads(again) == {"public": made.strip()}
    assert made.strip() == load_identity(tmp_path / "key").public.hex()


@pytest.mark.parametrize(
    ("curve", "public"),
    [
        (ec.SECP256R1(), "938d650288951b144339f0ff6a9aaef84191e443a9c458d961149951ad58c5a6"),
        (ec.SECP384R1(), "210b391c1a7e388bda2a73b7727c7001733ae068e3e259e970f687e3eacab68b"),
    ],
    ids=["P-256", "P-384"],
)
def test_a_derived_identity_stays_the_same(curve: ec.EllipticCurve, public: str, tmp_path: Path) -> None:
    """Pinned: another release must not make other identities of the same key files."""
    key = write_key(tmp_path / "key", ec.derive_private_key(12345, curve), "PKCS8")
    assert load_identity(key).public.hex() == public
