"""A node that speaks Flower's Fleet API by hand, so that it can say what no SuperNode would say."""

import ssl
from base64 import b64encode
from pathlib import Path

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.proto.fleet_pb2 import ActivateNodeRequest, ActivateNodeResponse, PullMessagesRequest, PullMessagesResponse
from flwr.proto.node_pb2 import Node
from flwr.supercore.date import now
from flwr.supercore.primitives.asymmetric import public_key_to_bytes, sign_message
from google.protobuf.message import Message


class HandMadeNode:
    """Signs its requests with a site's private key."""

    def __init__(self, address: str, root: Path, key: Path):
        private = load_ssh_private_key(key.read_bytes(), None)
        assert isinstance(private, ec.EllipticCurvePrivateKey)
        self.private, self.public = private, public_key_to_bytes(private.public_key())
        self.http = httpx.Client(
            base_url=f"https://{address}",
            verify=ssl.create_default_context(cafile=str(root)),
            trust_env=False,
            timeout=60,
        )
        self.node_id = 0

    def __enter__(self) -> "HandMadeNode":
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()

    def headers(self) -> dict[str, str]:
        """Those of a SuperNode: the key, the time and its signature."""
        time = now().isoformat()
        return {
            "content-type": "application/protobuf",
            "flwr-public-key": b64encode(self.public).decode(),
            "flwr-timestamp": time,
            "flwr-signature": b64encode(sign_message(self.private, time.encode())).decode(),
        }

    def post(self, path: str, request: Message) -> httpx.Response:
        """The answer to a request."""
        return self.http.post(f"/v1/fleet/{path}", content=request.SerializeToString(), headers=self.headers())

    def activate(self) -> bool:
        """Become a node that is connected; False if the coordinator does not let it in."""
        answer = self.post("activate-node", ActivateNodeRequest(public_key=self.public, heartbeat_interval=30))
        if answer.status_code != 200:
            return False
        self.node_id = ActivateNodeResponse.FromString(answer.content).node_id
        return True

    def pull(self) -> PullMessagesResponse:
        """Messages to this node that it has not had yet."""
        answer = self.post("pull-messages", PullMessagesRequest(node=Node(node_id=self.node_id)))
        assert answer.status_code == 200, answer.text
        return PullMessagesResponse.FromString(answer.content)
