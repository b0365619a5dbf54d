"""deploy: from a wish on the command line to sites that train together: the app's folder, keys, a rehearsal, a site's process."""

from fedlocal.deploy.app import App, write_app
from fedlocal.deploy.files import files_app
from fedlocal.deploy.talk import talk_plainly
from fedlocal.deploy.wish import Wish

__all__ = ["App", "Wish", "files_app", "talk_plainly", "write_app"]
