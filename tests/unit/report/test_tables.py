"""Tables on narrow terminals."""

import pandas as pd
import pytest
from rich.console import Console

from fedlocal.report.tables import table
from frame_tables import check_unbroken

RECOVERY = ["diverged", "objective", "density", "precision", "recall", "f1"]  # the columns of `fedlocal run lasso-1`


def printed(frame: pd.DataFrame, width: int = 80, fold: tuple[str, ...] = ()) -> str:
    console = Console(width=width)
    with console.capture() as captured:
        console.print(table(frame, "title", fold=fold))
    return captured.get()


@pytest.mark.parametrize("width", [40, 60, 80])
def test_numbers_are_never_broken_over_two_lines(width: int):
    """Seven columns of long names, as in the tables of studies: what has no room stands in a table below."""
    columns = [f"{name} step size" for name in ("client", "server", "best", "last", "first")]
    numbers = [0.00031, 12345.678, -1.234e-10, 99999.0, 1e120]
    frame = pd.DataFrame([["FedDualAvg-OSP", *numbers, 12]], columns=["method", *columns, "diverged_in_round"])
    said = printed(frame, width)
    check_unbroken(frame, said, width)
    assert max(map(len, said.splitlines())) <= width
    assert said.count("FedDualAvg-OSP") == said.count("method") > 1 or width == 80


def test_the_table_of_a_recovery_study_has_room_for_each_number_and_each_word():
    """A cell of text, "0.001, 0.1", is no number, and its header must not take more room than its words."""
    frame = pd.DataFrame([["FedDualAvg-OSP", "0.001, 1", "3", 876.6, 0.4507, 0.2551, 0.46, 0.3282]])
    frame = frame.set_axis(["method", "step_sizes", *RECOVERY], axis=1)
    said = printed(frame)
    check_unbroken(frame, said)
    assert "FedDualAvg-OSP" in said
    assert "0.001, 1" in said
    assert "…" not in said
    assert said.count("method") == 1  # one table, not two
    assert max(map(len, said.splitlines())) <= 80


def test_the_table_of_advice_has_room_for_each_number_and_each_word():
    numbers = {"local_steps": 4, "step_size": 0.06981, "regularization": 0.00463, "predicted_error": 0.01274}
    numbers |= {"measured_error": 0.01301, "best_bound": 0.2387, "its_step_size": 0.02426}
    frame = pd.DataFrame([{"method": "MB-AC-SGD", **numbers, "theorem": "lem:fedavg:2o:ub:1"}])
    said = printed(frame)
    check_unbroken(frame, said)
    assert "lem:fedavg:2o:ub:1" in said


def test_a_long_text_takes_several_lines_where_it_may():
    how = "certified upper bound: slopes of the logistic loss are at most 1; the gradient of the penalty over all of it"
    frame = pd.DataFrame({"constant": ["smoothness"], "value": [0.25], "how": [how]})
    said = printed(frame, fold=("how",))
    assert len(said.splitlines()) == 5  # title, header, rule, two lines
    assert set(how.split()) <= set(said.split())
    again = printed(pd.DataFrame({"site": [how], "what": [how]}))
    assert again.split().count("slopes") == 2


def test_headers_stand_on_one_line_where_there_is_room():
    assert "client step size  rounds" in printed(pd.DataFrame({"client_step_size": [0.1], "rounds": [3]}), 120)
