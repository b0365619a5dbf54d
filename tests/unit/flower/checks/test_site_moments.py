"""SiteMoments: what looks like another unit is named, the table says what there is, and a checkpoint keeps it."""

import numpy as np
import pytest

from fedlocal.data.moments import Moments
from fedlocal.flower.checks.site_moments import SiteMoments

COLUMNS = ["age", "chol"]
RNG = np.random.default_rng(0)


def patients(rows: int) -> np.ndarray:
    """Years, and cholesterol in mg/dl."""
    return np.c_[RNG.normal(54, 9, rows), RNG.normal(245, 50, rows)]


def moments_of(**sites: np.ndarray) -> SiteMoments:
    found = SiteMoments()
    found.of = {site: Moments.of(X) for site, X in sites.items()}
    found.add_up(len(sites))
    return found


def test_cholesterol_in_another_unit_is_named():
    other = patients(80) / [1, 38.67]  # mmol/l
    found = moments_of(a=patients(100), b=other, c=patients(120), d=patients(90)).odd(COLUMNS)
    assert [(site, what.split(":")[0]) for site, what in found] == [("b", "look at chol")]
    mean, deviation = other[:, 1].mean(), other[:, 1].std()
    assert f"mean {mean:.4g} and deviation {deviation:.4g} here, " in found[0][1]


def test_a_unit_that_is_far_off_does_not_make_the_others_odd():
    wrong = patients(200) * [1, 1000]
    for others in (2, 3, 5):
        sites = {f"s{i}": patients(50) for i in range(others)}
        assert [site for site, _ in moments_of(**sites, wrong=wrong).odd(COLUMNS)] == ["wrong"]


def test_of_two_sites_both_are_named():
    assert [site for site, _ in moments_of(a=patients(50), b=patients(50) * [1, 1000]).odd(COLUMNS)] == ["a", "b"]


def test_usual_differences_between_sites_are_not_named():
    older = patients(60) + np.array([8, 30])
    few = np.r_[RNG.normal([54, 245], 1, (8, 2)), np.full((9, 2), np.nan)]  # close together by chance
    constant = patients(30) * [1, 0] + [0, 245]
    assert moments_of(a=patients(100), b=older, c=few, d=constant).odd(None) == []


def test_another_code_is_named_by_the_place_of_the_column():
    coded = patients(60)
    coded[:, 0] = RNG.integers(0, 5, 60)  # groups of age
    assert [what.split(":")[0] for _, what in moments_of(a=patients(100), b=coded, c=patients(90)).odd(None)] == [
        "look at column 1"
    ]


def test_the_table_has_means_and_missing_values():
    north, south = patients(40), patients(60)
    south[:7, 1] = np.nan
    table = moments_of(north=north, south=south).table({"north": 40, "south": 60}, COLUMNS)
    assert table["column"].tolist() == COLUMNS
    np.testing.assert_allclose(table["north mean"], north.mean(axis=0))
    np.testing.assert_allclose(table["south mean"], np.nanmean(south, axis=0))
    assert table["south missing"].tolist() == [0, 7]


def test_a_column_that_a_site_has_not_has_no_mean():
    south = patients(60)
    south[:, 1] = np.nan
    table = moments_of(north=patients(40), south=south).table({"north": 40, "south": 60}, None)
    assert table["column"].tolist() == ["column 1", "column 2"]
    assert np.isnan(table["south mean"][1])
    assert table["south missing"].tolist() == [0, 60]


def test_second_moments_are_at_least_the_mean_squares_of_scaled_columns():
    sites = {"a": patients(40), "b": patients(60) * [3, 1]}
    sites["b"][:20, 0] = np.nan
    found = moments_of(**sites)
    rows = np.concatenate(list(sites.values()))
    mean, scale = np.nanmean(rows, axis=0), np.nanstd(rows, axis=0)
    for site, X in sites.items():
        squares = np.mean(np.nan_to_num((X - mean) / scale) ** 2, axis=0)
        bound = found.second_moments(site, len(X))
        assert (bound >= squares * (1 - 1e-12)).all()
    squares = np.mean(np.nan_to_num((sites["b"] - mean) / scale) ** 2, axis=0)
    assert found.second_moments("b", 60)[0] == pytest.approx(squares[0], rel=1e-12)  # missing values: it is centred


def test_a_total_is_fixed_once_enough_sites_are_there():
    found = SiteMoments()
    found.of = {"a": Moments.of(patients(40))}
    found.add_up(2)
    assert found.total is None
    found.of["b"] = Moments.of(patients(60))
    found.add_up(2)
    fixed = found.total
    found.of["late"] = Moments.of(patients(50))
    found.add_up(2)
    assert found.total is fixed
    assert found.to_config("a")["moments.included"] is True
    assert found.to_config("late")["moments.included"] is False


def test_a_checkpoint_keeps_all_of_it():
    found = moments_of(a=patients(40), b=patients(60))
    found.curvature = {"a": 0.5}
    again = SiteMoments()
    again.resume(found.to_json())
    assert again.curvature == found.curvature
    assert again.to_config("b") == found.to_config("b")
    np.testing.assert_array_equal(again.second_moments("a", 40), found.second_moments("a", 40))
