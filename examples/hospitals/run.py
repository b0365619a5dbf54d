"""Four hospitals fit one sparse model of heart disease, and no record leaves a hospital.

    python examples/hospitals/run.py                      # fetches the data into the cache, once
    python examples/hospitals/run.py --data FOLDER        # or reads processed.*.data from a folder
    python examples/hospitals/run.py --in-process         # the same without processes, in half a minute

Starts a SuperLink, one process per hospital, and a run; then compares the model with that of all patients pooled.
"""

import argparse
import json
import sys
from pathlib import Path

from comparison import compare
from processes import Processes

from fedlocal.data.catalogue import obtain
from fedlocal.data.sets.heart import HOSPITALS
from fedlocal.deploy.folder import run_config
from fedlocal.deploy.rehearsal import rehearse

APP = Path(__file__).parent / "app"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="the folder of processed.cleveland.data and so on; by default they are fetched")
    parser.add_argument("--rounds", type=int, default=run_config(APP)["rounds"], help="at most so many")
    parser.add_argument("--out", type=Path, default=Path("hospitals-results"), help="where everything is written")
    parser.add_argument("--in-process", action="store_true", help="play all hospitals in this process")
    arguments = parser.parse_args()
    try:
        files = {name: obtain(f"heart-{name}", arguments.data, owner="hospitals") for name in HOSPITALS}
    except (ValueError, OSError) as error:
        sys.exit(f"the data are not here and could not be fetched: {error}")
    results = arguments.out.resolve() / "results"
    for name in ("checkpoint.npz", "report.json"):  # of an earlier run
        (results / name).unlink(missing_ok=True)
    if arguments.in_process:
        rehearse(APP, list(files.values()), arguments.rounds, results)
    else:
        deploy(files, results, arguments.rounds)
    if not finished(results, arguments.rounds):
        sys.exit(f"the run failed; the logs are in {arguments.out}")
    compare(files, results, l1=run_config(APP)["l1"])


def finished(results: Path, rounds: int) -> bool:
    """Return True if the run converged or did all rounds; one that stops early writes what it has."""
    report = results / "report.json"
    if not report.exists():
        return False
    convergence = json.loads(report.read_text())["convergence"]
    return convergence["converged"] or convergence["rounds"] == rounds


def deploy(files: dict[str, Path], results: Path, rounds: int) -> None:
    """Each hospital in its own process."""
    with Processes(results.parent) as machine:
        address = machine.superlink()
        for name, file in files.items():
            machine.start(
                *(name, "fedlocal", "site", str(APP), "--site", name, "--data", str(file.resolve())),
                *("--superlink", address, "--insecure", "--record", str(results.parent / name / "record.jsonl")),
            )
        machine.run(APP, address, f'rounds={rounds} results="{results}"')


if __name__ == "__main__":
    main()
