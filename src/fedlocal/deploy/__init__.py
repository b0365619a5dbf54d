"""deploy: from a wish on the command line to sites that train together: the app's folder, keys, a rehearsal, a site's process."""

from fedlocal.deploy.talk import talk_plainly

__all__ = ["talk_plainly"]
