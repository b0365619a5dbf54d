"""drop_cells: take cells out of a sweep between two calls, so that the rest goes on without them."""

from collections.abc import Iterable
from pathlib import Path

from fedlocal.simulation.checkpoint import Checkpoint


def drop_cells(path: Path, cells: Iterable[int]) -> None:
    """Take cells out of the checkpoint of a sweep: the next call, with more rounds, runs the others only.

    A dropped cell keeps its rows, and ends in the round of the checkpoint as if it had diverged there. Cells that have ended
    before stay as they are. Without a file nothing happens.

    Args:
        path: the file that `sweep(..., checkpoint=path)` wrote.
        cells: their numbers.
    """
    if (read := Checkpoint(path, {}).read()) is None:
        return
    header, arrays = read
    extra, done = header["extra"], header["rounds"]
    ended = {str(cell): done for cell in cells} | extra["dead"]
    Checkpoint(path, header["identity"]).save(done, arrays, extra | {"dead": ended})
