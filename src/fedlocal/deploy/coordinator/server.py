"""The coordinator: Flower's application with two listeners, one for sites and one for the operator on this machine.

Sites reach the Fleet API and nothing else (`guard.SitesOnly`). Everything, without authentication, is only at the loopback
address: there the operator submits runs, and Flower's own programs work.
"""

import asyncio
import logging
import os
import shutil
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import uvicorn
from cryptography import x509
from fastapi import FastAPI

from fedlocal.deploy.coordinator.guard import SitesOnly
from fedlocal.deploy.coordinator.nodes import HOME, VARIABLE, write_connection
from fedlocal.deploy.coordinator.registration import Registration
from fedlocal.deploy.folder import app_port, site_names_of
from fedlocal.deploy.logging import configure_logging
from fedlocal.flower._flwr import coordinator as flwr

LOOPBACK = "127.0.0.1"
EVERYWHERE = "0.0.0.0"
CONTROL_PORT = 9093
KEY_SECONDS = 3.0  # between two looks for new keys
END_SECONDS = 3  # for requests that are being answered when the coordinator ends
CERTIFICATE_FILES = ("ca.pem", "server.pem", "server.key")
DATABASE, NODES = "superlink.db", "nodes.json"
log = logging.getLogger("fedlocal")


@dataclass(frozen=True)
class Listeners:
    """Where the coordinator listens, and the folder of its certificate and of the sites' public keys. None: without."""

    keys: Path | None
    host: str  # for sites
    port: int
    control_port: int = CONTROL_PORT  # for the operator, at the loopback address

    @classmethod
    def of(
        cls, folder: Path, keys: Path | None, insecure: bool, host: str | None, port: int | None, control_port: int
    ) -> "Listeners":
        """The listeners that the command's options ask for, for the app in a folder."""
        if insecure == (keys is not None):
            raise ValueError("coordinator: give either --keys FOLDER or, for sites on this machine alone, --insecure")
        if insecure and host not in (None, LOOPBACK):
            got = f"got {host!r}; other machines need --keys"
            raise ValueError(f"coordinator: with --insecure --host must be {LOOPBACK}, {got}")
        port = app_port(folder) if port is None else port
        if port == control_port:
            raise ValueError(f"coordinator: --port and --control-port must be different, got {port} for both")
        keys = None if keys is None else keys.resolve()
        listeners = cls(keys, host or (LOOPBACK if insecure else EVERYWHERE), port, control_port)
        listeners.check_files()
        return listeners

    def check_files(self) -> None:
        """Refuse a folder without the coordinator's certificate, or with one that is not for this machine, too."""
        if self.keys is None:
            return
        for name in CERTIFICATE_FILES:
            if not (self.keys / name).is_file():
                raise ValueError(f"coordinator: --keys: there is no file {self.keys / name}; `fedlocal keys` makes it")
        certificate = x509.load_pem_x509_certificate((self.keys / "server.pem").read_bytes())
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        if ip_address(LOOPBACK) not in names.get_values_for_type(x509.IPAddress):
            file, instead = self.keys / "server.pem", "`fedlocal keys` makes such a one"
            raise ValueError(f"coordinator: {file} must also be for {LOOPBACK}; {instead}")
        if os.access(self.keys / "ca.key", os.R_OK):
            log.warning(
                "%s can be read here: whoever has it can pretend to be the coordinator. It is needed only to make "
                "certificates; keep it elsewhere",
                self.keys / "ca.key",
            )


def run(folder: Path, listeners: Listeners) -> int:
    """Serve until Ctrl-C; an exit code. What is kept is kept in the working folder."""
    configure_logging()
    here, sites = Path.cwd(), site_names_of(folder)
    _prepare_environment(here, listeners)
    for_sites = _listen("--port", listeners.host, listeners.port)
    sockets = (for_sites, _listen("--control-port", LOOPBACK, listeners.control_port))
    application = _application(here / DATABASE, listeners)
    registration = None
    if listeners.keys is None:
        (here / NODES).unlink(missing_ok=True)
    else:
        state = application.state.linkstate_factory.state()
        registration = Registration(state, listeners.keys, sites, here / NODES)
        registration.update()
    root = None if listeners.keys is None else listeners.keys / "ca.pem"
    write_connection(here, f"{LOOPBACK}:{listeners.control_port}", root)
    return asyncio.run(_serve(application, listeners, sockets, registration))


def _prepare_environment(here: Path, listeners: Listeners) -> None:
    """What Flower's programs, which this process starts, are told: nothing leaves this machine by another way."""
    for name in (flwr.FLWR_INTERNAL_GRPC_CONTROL_API, flwr.FLWR_INTERNAL_GRPC_FLEET_API):
        os.environ.pop(name, None)
    os.environ |= {
        "FLWR_HOME": str(here / HOME),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        VARIABLE: "" if listeners.keys is None else str(here / NODES),
    }
    if shutil.which("flower-superexec") is None:
        os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"


def _application(database: Path, listeners: Listeners) -> FastAPI:
    """Flower's application. Its own programs find it at the operator's listener."""
    paths = [] if listeners.keys is None else [listeners.keys / name for name in CERTIFICATE_FILES]
    authority, certificate, key = map(str, paths) if paths else (None, None, None)
    config = flwr.SuperLinkLifespanConfig(
        control_address=f"{LOOPBACK}:0",  # of a gRPC server that is never started
        health_server_address=None,
        host=LOOPBACK,
        port=listeners.control_port,
        insecure=listeners.keys is None,
        certificates=tuple(path.read_bytes() for path in paths) or None,  # pyright: ignore[reportArgumentType]
        superexec_auth_secret=None,
        authn_plugin=flwr.load_control_authn_plugin(),
        event_log_plugin=None,
        fleet_event_log_plugin=None,
        enable_event_log=False,
        artifact_provider=None,
        enable_supernode_auth=listeners.keys is not None,
        fleet_api_type=flwr.TRANSPORT_TYPE_GRPC_RERE,
        fleet_api_address=None,
        simulation=False,
        ssl_ca_certfile=authority,
        ssl_certfile=certificate,
        ssl_keyfile=key,
        database=str(database),
        isolation=flwr.ISOLATION_MODE_SUBPROCESS,
        runtime_dependency_install=False,
    )
    return flwr.create_app(config, flwr.SuperLinkLifespan)


class ListeningServer(uvicorn.Server):
    """One of two servers in a process; signals are handled for both of them elsewhere."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def _serve(
    application: FastAPI, listeners: Listeners, sockets: tuple[socket.socket, ...], registration: Registration | None
) -> int:
    """Serve both listeners until a signal comes or one of them ends."""
    sites = _server(SitesOnly(application), listeners, is_public=True)  # pyright: ignore[reportArgumentType]
    operator = _server(application, listeners, is_public=False)

    def stop() -> None:
        sites.should_exit = operator.should_exit = True

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop)
    pairs = zip((sites, operator), sockets, strict=True)
    serving = [asyncio.create_task(server.serve([bound])) for server, bound in pairs]
    for task in serving:
        task.add_done_callback(lambda _: stop())
    helpers = [asyncio.create_task(_log_addresses(sites, operator, listeners))]
    if registration is not None:
        helpers.append(asyncio.create_task(_watch(registration)))
    await asyncio.gather(*serving)
    for helper in helpers:
        helper.cancel()
    log.info("the coordinator ended")
    return 0 if operator.started and sites.started else 1


def _server(application: FastAPI, listeners: Listeners, is_public: bool) -> ListeningServer:
    """A server for one listener. Only the operator's starts and ends Flower's own programs."""
    certificate: dict[str, Any] = {}
    if listeners.keys is not None:
        certificate = {"ssl_certfile": listeners.keys / "server.pem", "ssl_keyfile": listeners.keys / "server.key"}
    return ListeningServer(
        uvicorn.Config(
            application,
            lifespan="off" if is_public else "on",
            ws="none",
            access_log=False,
            log_config=None,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=END_SECONDS,
            **certificate,
        )
    )


async def _log_addresses(sites: ListeningServer, operator: ListeningServer, listeners: Listeners) -> None:
    """Log where the coordinator listens, as soon as it does."""
    while not (sites.started and operator.started):
        await asyncio.sleep(0.05)
    log.info("sites reach the coordinator at %s:%d", listeners.host, listeners.port)
    port = listeners.control_port
    log.info("runs are started on this machine (port %d): fedlocal start FOLDER, in this folder", port)


async def _watch(registration: Registration) -> None:
    while True:
        await asyncio.sleep(KEY_SECONDS)
        await asyncio.to_thread(registration.look_again)


def _listen(option: str, host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise ValueError(f"coordinator: cannot listen at {host}, {option} {port}: {error.strerror or error}") from None
