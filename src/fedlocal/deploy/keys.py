"""Keys: a certificate for the coordinator, and a key pair by which a site is known. Only their owner can read private ones."""

import os
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

PrivateKey = ec.EllipticCurvePrivateKey
Extensions = list[tuple[x509.ExtensionType, bool]]  # each with True if a program must understand it
DAYS = 825
AUTHORITY = "fedlocal authority"
OWN_HOSTS = ("localhost", "127.0.0.1")  # by which parts of Flower on the coordinator's machine reach each other


def write_certificates(folder: Path, hosts: Sequence[str]) -> list[Path]:
    """A certificate authority (ca.pem, ca.key) and a certificate of the coordinator (server.pem, server.key); return the files.

    Sites check with ca.pem that they talk to the coordinator. `hosts` are the names or addresses by which the
    sites reach it.
    """
    if not hosts:
        example = "--host coordinator.example.org"
        raise ValueError(f"keys: a certificate needs the coordinator's name or address, e.g. {example}")
    names = x509.SubjectAlternativeName([_general_name(host) for host in dict.fromkeys([*hosts, *OWN_HOSTS])])
    files = [folder / name for name in ("ca.pem", "ca.key", "server.pem", "server.key")]
    _prepare(folder, files)
    authority, server = ec.generate_private_key(ec.SECP384R1()), ec.generate_private_key(ec.SECP384R1())
    root = _certificate(AUTHORITY, authority, authority, _rights(authority=True))
    own = _certificate(hosts[0], server, authority, [*_rights(authority=False), (names, False)])
    for path, certificate in ((files[0], root), (files[2], own)):
        path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    for path, key in ((files[1], authority), (files[3], server)):
        _write_secret(path, _private_bytes(key, serialization.PrivateFormat.PKCS8))
    return files


def write_key(folder: Path, site: str) -> list[Path]:
    """The key pair of a site, as Flower wants it: EC P-384 in OpenSSH's format; SITE.key stays there, SITE.pub is sent."""
    private, public = folder / f"{site}.key", folder / f"{site}.pub"
    _prepare(folder, [private, public])
    key = ec.generate_private_key(ec.SECP384R1())
    _write_secret(private, _private_bytes(key, serialization.PrivateFormat.OpenSSH))
    form = (serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    public.write_bytes(key.public_key().public_bytes(*form))
    return [private, public]


def _prepare(folder: Path, files: list[Path]) -> None:
    for path in files:
        if path.exists():
            raise ValueError(f"keys: {path} exists; nothing is overwritten, give another folder")
    folder.mkdir(parents=True, exist_ok=True)


def _write_secret(path: Path, content: bytes) -> None:
    """Create the file with mode 0600, so that no other account can read it even for a moment."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)


def _private_bytes(key: PrivateKey, form: serialization.PrivateFormat) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        if not re.fullmatch(r"[A-Za-z0-9_*.-]+", host):
            raise ValueError(f"keys: --host must be a name or an address, without a port, got {host!r}") from None
        return x509.DNSName(host)


def _rights(authority: bool) -> Extensions:
    """Return what a key may be used for."""
    never = "content_commitment key_encipherment data_encipherment key_agreement encipher_only decipher_only"
    usage = dict.fromkeys(never.split(), False)
    key_usage = x509.KeyUsage(digital_signature=not authority, key_cert_sign=authority, crl_sign=authority, **usage)
    limits = x509.BasicConstraints(ca=authority, path_length=0 if authority else None)
    purpose = [] if authority else [(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False)]
    return [(limits, True), (key_usage, True), *purpose]


def _certificate(name: str, key: PrivateKey, authority: PrivateKey, extensions: Extensions) -> x509.Certificate:
    subject, issuer = (x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, who[:64])]) for who in (name, AUTHORITY))
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(hours=1)).not_valid_after(now + timedelta(days=DAYS))
    identity = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key())
    for extension, critical in [*extensions, (identity, False), (signer, False)]:
        builder = builder.add_extension(extension, critical)
    return builder.sign(authority, hashes.SHA384())
