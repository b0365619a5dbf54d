"""Checks of a connection before Flower's node tries it: files, host, and TLS on both sides or on none."""

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
    """Raise ValueError if the address cannot work. Return None if it answers, else what there is to wait for."""
    host, _, port = address.rpartition(":")
    try:
        socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    except (OSError, UnicodeError, OverflowError) as error:
        raise ValueError(f"site: --superlink: the host {host} is not known here ({error}); check its name") from None
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=SECONDS) as plain:
            if root_certificates is not None:
                _greet(plain, _context(root_certificates), host)
            elif _has_tls(plain, host):
                instead = "give --root-certificates and --key instead of --insecure"
                raise ValueError(f"site: the coordinator speaks TLS; {instead}")
    except OSError as error:
        if isinstance(error, ssl.SSLCertVerificationError):
            wrong = f"is not one of {root_certificates}, or is for another host"
            raise ValueError(f"site: the coordinator's certificate {wrong}: {error.verify_message}") from None
        if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError):
            needed = "both sides need certificates, or --insecure on both"
            raise ValueError(f"site: the coordinator does not speak TLS; {needed}") from None
        return f"{address} does not answer yet ({error.strerror or error})"
    return None


def _has_tls(plain: socket.socket, host: str) -> bool:
    """Return True if the other side answers a greeting of TLS; its certificate is not checked."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        _greet(plain, context, host)
    except ssl.SSLEOFError:
        raise
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")
    return True


def _greet(plain: socket.socket, context: ssl.SSLContext, host: str) -> None:
    with context.wrap_socket(plain, server_hostname=host.strip("[]")):
        return


def _context(root_certificates: Path) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=str(root_certificates))
    except (ssl.SSLError, OSError, ValueError):
        wrong = f"{root_certificates} is not a certificate; the coordinator's ca.pem is wanted"
        raise ValueError(f"site: --root-certificates: {wrong}") from None
