"""What can be told of a connection before Flower's node tries it: files, host, and whether both sides speak TLS or not."""

import socket
import ssl
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

SECONDS = 5.0


def check_files(root_certificates: Path | None, key: Path | None) -> None:
    """Refuse files that are not what their options ask for."""
    for option, path in (("--root-certificates", root_certificates), ("--key", key)):
        if path is not None and not path.is_file():
            raise ValueError(f"site: {option}: there is no file {path}")
    if root_certificates is not None:
        _context(root_certificates)
    if key is not None:
        try:
            known = serialization.load_ssh_private_key(key.read_bytes(), None)
        except (ValueError, TypeError, OSError) as error:
            raise ValueError(f"site: --key: {key} is not a private key of `fedlocal keys` ({error})") from None
        if not isinstance(known, ec.EllipticCurvePrivateKey):
            raise ValueError(f"site: --key: {key} is a key of another kind; `fedlocal keys` makes the right one")


def check_address(address: str, root_certificates: Path | None) -> str | None:
    """Refuse an address that cannot work; None if it answers as it should, else what is to be waited for."""
    host, _, port = address.rpartition(":")
    try:
        socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    except (OSError, UnicodeError, OverflowError) as error:
        raise ValueError(f"site: --superlink: the host {host} is not known here ({error}); check its name") from None
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=SECONDS) as plain:
            return _speaks_plainly(plain) if root_certificates is None else _speaks_tls(plain, host, root_certificates)
    except OSError as error:
        if isinstance(error, ssl.SSLError):
            raise ValueError(_of_tls(error, root_certificates)) from None
        return f"{address} does not answer yet ({error.strerror or error})"


def _speaks_plainly(plain: socket.socket) -> None:
    """A server with TLS answers a line of plain text with an alert, or hangs up."""
    plain.sendall(b"GET / HTTP/1.0\r\n\r\n")
    answer = plain.recv(16)
    if not answer.startswith(b"HTTP/"):
        raise ValueError("site: the coordinator speaks TLS; give --root-certificates and --key instead of --insecure")


def _speaks_tls(plain: socket.socket, host: str, root_certificates: Path) -> None:
    with _context(root_certificates).wrap_socket(plain, server_hostname=host.strip("[]")):
        return


def _context(root_certificates: Path) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=str(root_certificates))
    except (ssl.SSLError, OSError, ValueError):
        raise ValueError(
            f"site: --root-certificates: {root_certificates} is not a certificate; the coordinator's ca.pem is wanted"
        ) from None


def _of_tls(error: ssl.SSLError, root_certificates: Path | None) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"site: the coordinator's certificate is not one of {root_certificates}, or is for another host: "
            f"{error.verify_message}"
        )
    return "site: the coordinator does not speak TLS; both sides need certificates, or --insecure on both"
