"""Examples from files of every format: the same rows, and errors that say which column is wrong."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from fedlocal.data import feature_columns, read_examples

TABLE = pd.DataFrame({"age": [50, 60, 70], "dose": [0.5, 1.5, 0.0], "ill": [1, 0, 1], "ward": ["b", "a", "b"]})


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.csv.bz2", "t.parquet"])
def test_tables_of_all_kinds_hold_the_same_examples(tmp_path: Path, name: str):
    path = tmp_path / name
    TABLE.to_parquet(path) if name.endswith("parquet") else TABLE.to_csv(path, index=False)
    examples = read_examples(path, target="ill", sites="ward")
    np.testing.assert_array_equal(examples.features, [[50, 0.5], [60, 1.5], [70, 0]])
    np.testing.assert_array_equal(examples.targets, [1, 0, 1])
    assert examples.sites is not None
    assert examples.sites.tolist() == ["b", "a", "b"]


def test_the_usual_names_of_a_target_are_found(tmp_path: Path):
    TABLE.drop(columns="ward").rename(columns={"ill": "label"}).to_csv(tmp_path / "t.csv", index=False)
    examples = read_examples(tmp_path / "t.csv")
    np.testing.assert_array_equal(examples.targets, [1, 0, 1])
    assert examples.sites is None


@pytest.mark.parametrize("sites", [None, np.array([1, 0, 1])])
def test_arrays(tmp_path: Path, sites: np.ndarray | None):
    arrays: dict[str, Any] = {"X": np.eye(3), "y": np.ones(3)} | ({} if sites is None else {"sites": sites})
    np.savez(tmp_path / "t.npz", **arrays)
    examples = read_examples(tmp_path / "t.npz")
    np.testing.assert_array_equal(examples.features, np.eye(3))
    np.testing.assert_array_equal(examples.sites, sites)


def test_libsvm(tmp_path: Path):
    (tmp_path / "t.svm").write_text("+1 1:0.5 3:2\n-1 2:1\n")
    examples = read_examples(tmp_path / "t.svm")
    assert scipy.sparse.issparse(examples.features)
    np.testing.assert_array_equal(examples.targets, [1, -1])


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({}, {}, "say which column of .* is the target; it has age, dose, ill, ward"),
        ({}, {"target": "sick"}, "has no column 'sick' for target; it has age, dose, ill, ward"),
        ({}, {"target": "ill", "sites": "town"}, "has no column 'town' for sites"),
        ({}, {"target": "ill"}, "column 'ward' of .* holds no numbers; encode or drop it first"),
        ({"dose": [0.5, None, 0.0]}, {"target": "ill", "sites": "ward"}, "column 'dose' of .* has cells that are no numbers"),
        ({"ward": ["a", None, "b"]}, {"target": "ill", "sites": "ward"}, "column 'ward' of .* has empty cells"),
        ({"ill": ["yes", "no", "no"]}, {"target": "ill", "sites": "ward"}, "column 'ill' of .* holds 'yes', which is no number"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_table_is_said(tmp_path: Path, change: dict, options: dict, message: str):
    TABLE.assign(**change).to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(ValueError, match=message):
        read_examples(tmp_path / "t.csv", **options)


def test_empty_cells_of_features_may_be_kept_and_columns_have_names(tmp_path: Path):
    TABLE.assign(dose=[0.5, None, 0.0]).drop(columns="ward").to_csv(tmp_path / "t.csv", index=False)
    examples = read_examples(tmp_path / "t.csv", target="ill", missing=True)
    assert np.isnan(examples.features).sum() == 1
    assert feature_columns(tmp_path / "t.csv", target="ill") == ["age", "dose"]
    np.savez(tmp_path / "t.npz", X=np.eye(2), y=np.ones(2))
    assert feature_columns(tmp_path / "t.npz") is None
    TABLE.assign(ill=[1, None, 0]).drop(columns="ward").to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(ValueError, match=r"column 'ill' of .* has cells that are no numbers"):
        read_examples(tmp_path / "t.csv", target="ill", missing=True)


def test_what_is_wrong_with_other_files_is_said(tmp_path: Path):
    with pytest.raises(ValueError, match="there is no file"):
        read_examples(tmp_path / "none.csv")
    np.savez(tmp_path / "t.npz", X=np.eye(2))
    with pytest.raises(ValueError, match="has no array 'y'; it has X"):
        read_examples(tmp_path / "t.npz")
    np.savez(tmp_path / "o.npz", X=np.array([{}], dtype=object), y=np.ones(1))
    with pytest.raises(ValueError, match="allow_pickle"):
        read_examples(tmp_path / "o.npz")
    (tmp_path / "t.svm").write_text("+1 1:0.5\n")
    with pytest.raises(ValueError, match="is no table and has no column 'ward' for sites"):
        read_examples(tmp_path / "t.svm", sites="ward")
    with pytest.raises(ValueError, match="is no table and has no column 'ill' for target"):
        read_examples(tmp_path / "t.npz", target="ill")
    (tmp_path / "bad.npz").write_text("no zip")
    with pytest.raises(ValueError, match="is no npz file"):
        read_examples(tmp_path / "bad.npz")
