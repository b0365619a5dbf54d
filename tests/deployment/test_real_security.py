"""Who may take part: sites with the right certificate and a known key. One of them is Flower's own SuperNode, as it comes.

In `make thorough`: tests/hostile/test_real_control_api.py has TLS and keys.
"""

import pytest

pytest.importorskip("flwr")

from deployment.stage import check, simulated, stage
from flower_keys import make_certificates, make_key

pytestmark = [pytest.mark.xdist_group("flower"), pytest.mark.thorough]


def test_only_sites_with_a_known_key_that_trust_the_server_take_part(tmp_path):
    right, wrong = make_certificates(tmp_path / "right"), make_certificates(tmp_path / "wrong")
    keys = {name: make_key(tmp_path / "keys", name) for name in "abcd"}
    with stage(tmp_path, tls=right, auth=True) as s:
        for name in "abd":
            s.link.register(keys[name])
        known = [s.site("a", keys["a"]), s.stock_site("d", keys["d"])]
        misled, unknown = s.site("b", keys["b"], wrong.root), s.site("c", keys["c"])
        for node in known:
            node.node_id()
        run = s.run("safe", sites="a,d", local_steps="2,2", rounds=1)
        assert misled.exit_code() != 0
        assert "CERTIFICATE_VERIFY_FAILED" in misled.log()
        assert unknown.exit_code() != 0
        assert "Failed to activate SuperNode" in unknown.log()
        assert run.wait(600) == "finished:completed", s.link.logs()
        check(s, "safe", "fed_dual_avg", simulated("fed_dual_avg", "ad", 1))
        events = s.events("safe")
        assert sorted(events["site"]) == ["a", "d"]
        assert set(events["what"]) == {"connected"}
        assert not any("SuperNode ID" in node.log() for node in (misled, unknown))
