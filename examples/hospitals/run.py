"""Four hospitals fit one sparse model of heart disease, and no record leaves a hospital.

    python examples/hospitals/run.py                      # fetches the data into the cache, once
    python examples/hospitals/run.py --data FOLDER        # or reads processed.*.data from a folder
    python examples/hospitals/run.py --in-process         # the same without processes, in a minute

Starts a SuperLink, one process per hospital, and a run; then compares the model with that of all patients pooled.
"""

import argparse
import sys
from pathlib import Path

from comparison import compare
from flwr.app import Context, RecordDict
from processes import Processes

from fedlocal.data.catalogue import obtain
from fedlocal.data.heart import HOSPITALS
from fedlocal.deploy.folder import component, run_config
from fedlocal.engines.flower import InProcess

APP = Path(__file__).parent / "app"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="the folder of processed.cleveland.data and so on; by default they are fetched")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--out", type=Path, default=Path("hospitals-results"), help="where everything is written")
    parser.add_argument("--in-process", action="store_true", help="play all hospitals in this process")
    arguments = parser.parse_args()
    try:
        files = {name: obtain(f"heart-{name}", arguments.data, owner="hospitals") for name in HOSPITALS}
    except (ValueError, OSError) as error:
        sys.exit(f"the data are not here and could not be fetched: {error}")
    results = arguments.out.resolve() / "results"
    (results / "checkpoint.npz").unlink(missing_ok=True)  # of an earlier run
    (rehearse if arguments.in_process else deploy)(files, results, arguments.rounds)
    if not (results / "model.npz").exists():
        sys.exit(f"the run failed; the logs are in {arguments.out}")
    compare(files, results, l1=run_config(APP)["l1"])


def deploy(files: dict[str, Path], results: Path, rounds: int) -> None:
    """Each hospital in its own process."""
    with Processes(results.parent) as machine:
        address = machine.superlink()
        for name, file in files.items():
            machine.start(
                *(name, "fedlocal", "site", str(APP), "--site", name, "--data", str(file.resolve())),
                *("--superlink", address, "--insecure"),
            )
        machine.run(APP, address, f'rounds={rounds} results="{results}"')


def rehearse(files: dict[str, Path], results: Path, rounds: int) -> None:
    """All hospitals in this process."""
    config = run_config(APP, rounds=rounds, results=str(results))
    sites = {name: {"data": str(file)} for name, file in files.items()}
    grid = InProcess(component(APP, "clientapp"), sites, config)
    component(APP, "serverapp")(grid, Context(0, 0, {}, RecordDict(), config))


if __name__ == "__main__":
    main()
