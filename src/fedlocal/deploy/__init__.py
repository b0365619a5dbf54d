"""deploy: from a wish on the command line to sites that train together: the app's folder, keys, a rehearsal, a site's process."""

from fedlocal.deploy.nodes import site_nodes
from fedlocal.deploy.own_config import own_config
from fedlocal.deploy.talk import talk_plainly

__all__ = ["own_config", "site_nodes", "talk_plainly"]
