"""UCI heart disease: the patients of four hospitals, each in a file of its own."""

import math
import os
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import numpy as np

from fedlocal.data.catalogue import Folder, obtain
from fedlocal.data.federated_data import FederatedData
from fedlocal.data.moments import Moments
from fedlocal.util import checks

HospitalName = Literal["cleveland", "hungarian", "switzerland", "va"]
HOSPITALS: tuple[HospitalName, ...] = get_args(HospitalName)
ATTRIBUTES = (  # of a line
    *("age", "sex", "cp", "trestbps", "chol", "fbs", "restecg"),
    *("thalach", "exang", "oldpeak", "slope", "ca", "thal", "num"),
)
NUMBERS = ("age", "trestbps", "chol", "thalach", "oldpeak")
NEVER_ZERO = ("trestbps", "chol")  # zero was written for missing
YES_OR_NO = ("sex", "fbs", "exang")  # sex: 1 is male
CODES = {"cp": (1, 2, 3, 4), "restecg": (0, 1, 2), "slope": (1, 2, 3), "ca": (0, 1, 2, 3), "thal": (3, 6, 7)}
OFTEN_MISSING = ("chol", "fbs", "thalach", "slope", "ca", "thal")
ALLOWED = dict.fromkeys(YES_OR_NO, (0, 1)) | CODES | {"num": (0, 1, 2, 3, 4)}
COLUMNS = (
    *NUMBERS,
    *YES_OR_NO,
    *(f"{name}={code}" for name, codes in CODES.items() for code in codes),
    *(f"{name}=?" for name in OFTEN_MISSING),
)


class Hospital(NamedTuple):
    """One hospital's patients."""

    features: np.ndarray  # (n, 31); nan where a number or a yes or no is missing
    targets: np.ndarray  # (n,) +1 for heart disease, -1 for none
    names: tuple[str, ...]  # of the columns of the features


def hospital(name: HospitalName, folder: Folder = None) -> Hospital:
    """The patients of one hospital, from that hospital's file alone.

    Numbers (age, trestbps, chol, thalach, oldpeak) and yes or no (sex, fbs, exang) are as in the file, nan where they are
    missing; a cholesterol or blood pressure of zero is missing, too. Codes (cp, restecg, slope, ca, thal) become one column
    of 0 and 1 per code, such as cp=4, all 0 where it is missing. What is often missing has a column for that, such as ca=?;
    thalach=? also stands for trestbps, exang and oldpeak, which are missing in nearly the same patients. The columns are
    fixed, so a site needs nothing from others; `Moments` and `Scaling` then fill nan with the mean over all sites.
    Beware: what a hospital did not measure gives it away (all of Switzerland has chol=?), and so how ill its patients are.

    Args:
        name: "cleveland" (303 patients), "hungarian" (294), "switzerland" (123) or "va" (200).
        folder: where the file processed.NAME.data, whose SHA-256 must be UCI's, is looked for before the cache
            (`$FEDLOCAL_DATA`, else `~/.cache/fedlocal`), also in a subfolder heart; else it is fetched into the cache.

    Source: Janosi, Steinbrunn, Pfisterer and Detrano, UCI Heart Disease, 1989, doi 10.24432/C52P4X, CC BY 4.0.

    >>> features, targets, names = hospital("va")  # doctest: +SKIP
    >>> features.shape  # doctest: +SKIP
    (200, 31)
    """
    checks.choice("hospital", "name", name, HOSPITALS)
    return read_hospital(obtain(f"heart-{name}", folder, owner="hospital"))


def heart_disease(folder: Folder = None) -> FederatedData:
    """All four `hospital`s as clients in that order, columns standardised with the means and variances over all of them.

    Labels are -1/+1. The columns are those of `hospital`, missing values are 0, the mean.

    Args:
        folder: as for `hospital`.

    >>> data = heart_disease()  # doctest: +SKIP
    >>> data.client_sizes.tolist()  # doctest: +SKIP
    [303, 294, 123, 200]
    """
    sites = [hospital(name, folder) for name in HOSPITALS]
    scaling = Moments.merged([Moments.of(site.features) for site in sites]).scaling()
    return FederatedData.from_clients([(scaling.apply(site.features), site.targets) for site in sites])


def read_hospital(path: str | os.PathLike[str]) -> Hospital:
    """The patients of a file in the format of processed.NAME.data, encoded as `hospital` says.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "processed.mine.data"
    ...     _ = path.write_text("35,1,4,?,0,?,0,130,1,?,?,?,7,3\\n")
    ...     features, targets, names = read_hospital(path)
    >>> targets.tolist(), dict(zip(names, features[0].tolist()))["thal=7"]
    ([1.0], 1.0)
    """
    path = Path(path)
    lines = enumerate(path.read_text(encoding="ascii", errors="replace").splitlines(), 1)
    rows = [_values(f"read_hospital: line {number} of {path}", line) for number, line in lines]
    if not rows:
        raise ValueError(f"read_hospital: {path} has no rows")
    known = dict(zip(ATTRIBUTES, np.array(rows).T, strict=True))
    for name in NEVER_ZERO:
        known[name][known[name] == 0] = np.nan
    columns = [known[name] for name in (*NUMBERS, *YES_OR_NO)]
    columns += [known[name] == code for name, codes in CODES.items() for code in codes]
    columns += [np.isnan(known[name]) for name in OFTEN_MISSING]
    return Hospital(np.stack(columns, axis=1, dtype=np.float64), np.where(known["num"] > 0, 1.0, -1.0), COLUMNS)


def _values(place: str, line: str) -> list[float]:
    """The 14 numbers of a line, nan where it says `?`."""
    cells = line.split(",")
    if len(cells) != len(ATTRIBUTES):
        raise ValueError(f"{place} must have {len(ATTRIBUTES)} values with commas between them, got {len(cells)}")
    return [_value(place, name, cell.strip()) for name, cell in zip(ATTRIBUTES, cells, strict=True)]


def _value(place: str, name: str, cell: str) -> float:
    if cell == "?" and name != "num":
        return math.nan
    allowed = ALLOWED.get(name)
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or (allowed is not None and value not in allowed):
        wanted = "a number" if allowed is None else "one of " + ", ".join(map(str, allowed))
        raise ValueError(f"{place}: {name} must be {wanted}, got {cell!r}")
    return value
