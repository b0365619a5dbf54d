"""A site's own process for the tests: the app in `deployed`, also for messages that travel together."""

import sys

if __name__ == "__main__":
    from deployed.client import app
    from deployed.together import Unpacking

    from fedlocal.flower.site.site_process import run_site

    sys.exit(run_site(Unpacking(app), sys.argv[1:]))
