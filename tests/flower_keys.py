"""Certificates and node keys for Flower on the loopback, made on the spot."""

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


class Certificates(NamedTuple):
    """PEM files of a certificate authority and of a server at 127.0.0.1 that it vouches for."""

    root: Path
    certificate: Path
    key: Path

    def server_arguments(self) -> list[str]:
        """The arguments of flower-superlink."""
        files = {"--ssl-ca-certfile": self.root, "--ssl-certfile": self.certificate, "--ssl-keyfile": self.key}
        return [word for flag, file in files.items() for word in (flag, str(file))]


class Key(NamedTuple):
    """Files of a node's key pair in OpenSSH format."""

    private: Path
    public: Path


def make_certificates(folder: Path) -> Certificates:
    """A new certificate authority and a server certificate for the loopback, valid for a day."""
    folder.mkdir(parents=True, exist_ok=True)
    authority, server = ec.generate_private_key(ec.SECP384R1()), ec.generate_private_key(ec.SECP384R1())
    loopback = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))])
    root = _certificate("test authority", authority, authority, x509.BasicConstraints(ca=True, path_length=0))
    files = Certificates(folder / "root.pem", folder / "server.pem", folder / "server.key")
    files.root.write_bytes(root.public_bytes(serialization.Encoding.PEM))
    files.certificate.write_bytes(
        _certificate("127.0.0.1", server, authority, loopback).public_bytes(serialization.Encoding.PEM)
    )
    files.key.write_bytes(_private_bytes(server, serialization.PrivateFormat.PKCS8))
    return files


def make_key(folder: Path, name: str) -> Key:
    """A new P-384 key pair, the kind that Flower's node authentication takes."""
    folder.mkdir(parents=True, exist_ok=True)
    key, files = ec.generate_private_key(ec.SECP384R1()), Key(folder / name, folder / f"{name}.pub")
    files.private.write_bytes(_private_bytes(key, serialization.PrivateFormat.OpenSSH))
    openssh = (serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    files.public.write_bytes(key.public_key().public_bytes(*openssh))
    return files


def _private_bytes(key: ec.EllipticCurvePrivateKey, form: serialization.PrivateFormat) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def _certificate(
    name: str, key: ec.EllipticCurvePrivateKey, authority: ec.EllipticCurvePrivateKey, extension: x509.ExtensionType
) -> x509.Certificate:
    """The authority's signature under name and key, for a day."""
    called = [x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, who)]) for who in (name, "test authority")]
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(called[1], called[0], key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(hours=1)).not_valid_after(now + timedelta(days=1))
    return builder.add_extension(extension, critical=True).sign(authority, hashes.SHA384())
