"""UCI heart disease: rows checked by hand, the same columns everywhere, files that were changed are refused."""

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import fedlocal as fl
import paths
from fedlocal.data import catalogue, registry
from fedlocal.data.moments import Moments
from fedlocal.data.sets import heart
from fedlocal.data.sets.heart import COLUMNS, HOSPITALS, HospitalName, read_hospital

over = pytest.mark.parametrize
SHARED = paths.SHARED / "data"
needs_shared = pytest.mark.skipif(not (SHARED / "heart").is_dir(), reason=f"no real data in {SHARED}")
ROWS = {"cleveland": 303, "hungarian": 294, "switzerland": 123, "va": 200}
HEALTHY = {"cleveland": 164, "hungarian": 188, "switzerland": 8, "va": 51}  # of heart-disease.names, 10
FULL = "63.0,1.0,1.0,145.0,233.0,1.0,2.0,150.0,0.0,2.3,3.0,0.0,6.0,0"
GAPS = "35,0,4,?,0,?,?,?,?,?,?,?,?,3"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FEDLOCAL_DATA", str(tmp_path / "cache"))
    return tmp_path / "cache"


def write(path: Path, *lines: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("".join(line + "\n" for line in lines).encode())
    return path


def accept(name: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this file the right one for a hospital."""
    entry, sha256 = registry.HEART[f"heart-{name}"], hashlib.sha256(path.read_bytes()).hexdigest()
    monkeypatch.setitem(registry.HEART, f"heart-{name}", replace(entry, sha256=sha256))


def row(features: np.ndarray, i: int) -> dict[str, float]:
    """What of a row is not zero."""
    return {name: value for name, value in zip(COLUMNS, features[i].tolist(), strict=True) if value != 0}


def test_rows_are_encoded_as_documented(tmp_path: Path):
    features, targets, names = read_hospital(write(tmp_path / "mine", FULL, GAPS))
    assert names == COLUMNS
    assert features.shape == (2, len(COLUMNS)) == (2, 31)
    assert targets.tolist() == [-1.0, 1.0]
    numbers = {"age": 63, "sex": 1, "trestbps": 145, "chol": 233, "fbs": 1, "thalach": 150, "oldpeak": 2.3}
    assert row(features, 0) == numbers | dict.fromkeys(["cp=1", "restecg=2", "slope=3", "ca=0", "thal=6"], 1)
    gaps = {name: value for name, value in row(features, 1).items() if not np.isnan(value)}
    assert gaps == {"age": 35} | dict.fromkeys(["cp=4", "chol=?", "fbs=?", "thalach=?", "slope=?", "ca=?", "thal=?"], 1)
    missing = np.array(COLUMNS)[np.isnan(features[1])]
    assert set(missing) == {"trestbps", "chol", "thalach", "oldpeak", "fbs", "exang"}


@over("name", ["trestbps", "chol", "oldpeak", "ca"])
def test_a_zero_is_missing_where_it_cannot_be(name: str, tmp_path: Path):
    cells = FULL.split(",")
    cells[heart.ATTRIBUTES.index(name)] = "0"
    features = read_hospital(write(tmp_path / "mine", ",".join(cells))).features
    value = features[0, COLUMNS.index("ca=0" if name == "ca" else name)]
    np.testing.assert_equal(value, {"oldpeak": 0.0, "ca": 1.0}.get(name, np.nan))


@over(
    ("line", "sentence"),
    [
        ("63,1,1", "must have 14 values with commas between them, got 3$"),
        (FULL.replace("145.0", "high"), "trestbps must be a number, got 'high'$"),
        (FULL.replace("145.0", "nan"), "trestbps must be a number, got 'nan'$"),
        (FULL.replace("6.0,0", "5,0"), "thal must be one of 3, 6, 7, got '5'$"),
        (FULL.replace("63.0,1.0", "63.0,2"), "sex must be one of 0, 1, got '2'$"),
        (FULL[:-1] + "?", r"num must be one of 0, 1, 2, 3, 4, got '\?'$"),
        ("", "must have 14 values with commas between them, got 1$"),
    ],
)
def test_a_wrong_line_is_told(line: str, sentence: str, tmp_path: Path):
    path = write(tmp_path / "mine", FULL, line, GAPS)
    with pytest.raises(ValueError, match=f"^read_hospital: line 2 of {path}:? {sentence}"):
        read_hospital(path)


def test_an_empty_file_is_told(tmp_path: Path):
    path = write(tmp_path / "mine")
    with pytest.raises(ValueError, match=f"^read_hospital: {path} has no rows$"):
        read_hospital(path)


def test_an_unknown_hospital_lists_the_known():
    with pytest.raises(ValueError, match=r"^hospital: name must be one of 'cleveland', .*'va', got 'zurich'$"):
        fl.data.hospital("zurich")  # pyright: ignore[reportArgumentType]


@over("place", ["mine", "mine/heart", "cache", "cache/heart"])
def test_a_hospital_reads_only_its_own_file(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = write(tmp_path / place / "processed.va.data", FULL, GAPS)
    accept("va", path, monkeypatch)
    monkeypatch.setattr(catalogue, "fetch", None)
    assert fl.data.hospital("va", tmp_path / "mine").targets.tolist() == [-1.0, 1.0]
    assert [file.name for file in tmp_path.rglob("*.data")] == ["processed.va.data"]


def test_a_changed_file_is_refused(tmp_path: Path):
    path = write(tmp_path / "processed.va.data", FULL)
    with pytest.raises(ValueError, match=f"^hospital: {path} was changed or damaged: .*fl.data.heart.read_hospital$"):
        fl.data.hospital("va", tmp_path)
    with pytest.raises(ValueError, match=f"^verify: {path} was changed or damaged"):
        fl.data.verify("heart-va", tmp_path)


def test_it_is_fetched_once_and_kept(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch):
    source = write(tmp_path / "uci" / "processed.va.data", GAPS)
    accept("va", source, monkeypatch)
    entry = replace(registry.HEART["heart-va"], address=source.as_uri())
    monkeypatch.setitem(registry.HEART, "heart-va", entry)
    first = fl.data.hospital("va")
    source.unlink()
    np.testing.assert_array_equal(fl.data.hospital("va").features, first.features)
    assert fl.data.verify("heart-va") == cache / "processed.va.data"
    assert catalogue.whereabouts("heart-va") == str(cache / "processed.va.data")


def test_without_the_internet_it_says_what_to_put_where(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch):
    address = (tmp_path / "processed.va.data").as_uri()
    monkeypatch.setitem(registry.HEART, "heart-va", replace(registry.HEART["heart-va"], address=address))
    sentence = f"without the internet, put the file processed.va.data from {address} into {cache}$"
    with pytest.raises(ConnectionError, match=sentence):
        fl.data.hospital("va")


def test_heart_disease_is_one_federation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Made files: Switzerland has no cholesterol, and Long Beach too few values of it to count."""
    values = {
        "cleveland": range(200, 206),
        "hungarian": range(250, 257),
        "switzerland": [0] * 8,
        "va": [350, 360, 0, 0, 0],
    }
    for name, chol in values.items():
        lines = [f"{50 + i},1,4,130,{c},0,0,150,0,0.5,2,?,3,{i % 2}" for i, c in enumerate(chol)]
        accept(name, write(tmp_path / f"processed.{name}.data", *lines), monkeypatch)
    data = fl.data.heart_disease(tmp_path)
    assert data.client_sizes.tolist() == [6, 7, 8, 5]
    told = np.array([*values["cleveland"], *values["hungarian"]], float)
    mean, deviation = told.mean(), told.std()
    expected = [*(told - mean) / deviation, *[0] * 8, (350 - mean) / deviation, (360 - mean) / deviation, 0, 0, 0]
    features = np.asarray(data.arrays[0])
    np.testing.assert_allclose(features[:, COLUMNS.index("chol")], expected, rtol=1e-12)
    assert features[:, COLUMNS.index("age")].std() == pytest.approx(1, rel=1e-12)
    assert (features[:, COLUMNS.index("ca=?")] == 0).all()  # constant: everybody's
    assert fl.problems.Logistic(data, intercept=True).data.num_clients == 4


@needs_shared
def test_checksums_and_sizes_are_those_of_the_real_files():
    lines = [line.split() for line in (SHARED / "SHA256SUMS").read_text().splitlines()]
    known = {Path(file).name: digest for digest, file in lines if "processed" in file}
    assert {entry.file: entry.sha256 for entry in registry.HEART.values()} == known
    for name, entry in registry.HEART.items():
        path = fl.data.verify(name, SHARED)
        assert path.stat().st_size == entry.size
        assert len(path.read_text().splitlines()) == entry.rows == ROWS[name.removeprefix("heart-")]


@needs_shared
@over("name", HOSPITALS)
def test_real_hospitals_are_as_documented(name: HospitalName):
    features, targets, names = fl.data.hospital(name, SHARED)
    assert names == COLUMNS
    assert features.shape == (ROWS[name], 31)
    assert set(targets) == {-1.0, 1.0}
    assert (targets < 0).sum() == HEALTHY[name]
    for attribute in ("cp", "slope", "ca", "thal"):  # each patient has one code, or the column for none
        one = [i for i, column in enumerate(names) if column.startswith(attribute + "=")]
        assert (features[:, one].sum(axis=1) == 1).all()


@needs_shared
def test_real_rows_are_as_in_the_files():
    """The third row of Switzerland, 35,1,4,?,0,?,0,130,1,?,?,?,7,3, and the last of Cleveland, which lacks ca alone."""
    swiss = fl.data.hospital("switzerland", SHARED)
    known = {name: value for name, value in row(swiss.features, 2).items() if not np.isnan(value)}
    flags = ["cp=4", "restecg=0", "thal=7", "chol=?", "fbs=?", "slope=?", "ca=?"]
    assert known == {"age": 35, "sex": 1, "thalach": 130, "exang": 1} | dict.fromkeys(flags, 1)
    assert np.isnan(swiss.features[:, COLUMNS.index("chol")]).all()
    ohio = fl.data.hospital("cleveland", SHARED)
    numbers = {"age": 38, "sex": 1, "trestbps": 138, "chol": 175, "thalach": 173}
    assert row(ohio.features, -1) == numbers | dict.fromkeys(["cp=3", "restecg=0", "slope=1", "ca=?", "thal=3"], 1)
    assert ohio.targets[-1] == -1


@needs_shared
def test_sparse_logistic_regression_tells_patients_from_healthy():
    """About four in five, as published for logistic regression (77 %, heart-disease.names, 3); the larger class has 55 %."""
    X, y = (np.asarray(a) for a in fl.data.heart_disease(SHARED).arrays)
    right, x = [], {}
    for seed in range(5):
        held_out = np.random.default_rng(seed).permutation(len(y)) < 200
        problem = fl.problems.Logistic(fl.FederatedData.from_clients([(X[~held_out], y[~held_out])]), intercept=True)
        x = fl.solvers.centralized(problem, fl.regularizers.L1(0.01), progress=False).x
        right.append(np.mean((X[held_out] @ x["weights"] + x["intercept"]) * y[held_out] > 0))
    assert 0.77 < np.mean(right) < 0.88
    assert 5 <= np.count_nonzero(x["weights"]) < 31
    sites = [fl.data.hospital(name, SHARED) for name in HOSPITALS]
    scaling = Moments.merged([Moments.of(site.features) for site in sites]).scaling()
    weights, _ = scaling.unscale(x["weights"], x["intercept"])
    assert weights[COLUMNS.index("thalach")] < 0 < weights[COLUMNS.index("oldpeak")]  # a sick heart beats less fast
