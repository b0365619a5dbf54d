"""Patients of four sites: UCI heart disease where its files are at hand, else scikit-learn's breast-cancer data."""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer

import fedlocal as fl
from fedlocal.data.catalogue import Folder, find
from fedlocal.data.sets.heart import HOSPITALS

NOT_HERE = (
    "The heart-disease files are not at hand (--folder says where they are; `fedlocal data fetch heart-cleveland`, and so for\n"
    f"{', '.join(HOSPITALS[1:])}, gets them). Instead: scikit-learn's breast-cancer data, dealt at random to four sites."
)


class Patients(NamedTuple):
    """A row per patient."""

    told: str  # what they are
    features: pd.DataFrame  # nan where a value is missing
    ill: np.ndarray  # (n,) 0 or 1
    sites: np.ndarray  # (n,) names


def four_sites(folder: Folder) -> Patients:
    """The hospitals' patients from `folder` or the cache, else others; nothing is fetched."""
    return hospitals(folder) if at_hand(folder) else dealt()


def at_hand(folder: Folder) -> bool:
    return all(find(f"heart-{name}", folder) for name in HOSPITALS)


def hospitals(folder: Folder) -> Patients:
    each = [fl.data.hospital(name, folder) for name in HOSPITALS]
    features = pd.DataFrame(np.concatenate([one.features for one in each]), columns=list(each[0].names))
    ill = np.concatenate([(one.targets > 0).astype(int) for one in each])
    return Patients(
        "UCI heart disease, four hospitals", features, ill, np.repeat(HOSPITALS, [len(one.targets) for one in each])
    )


def dealt() -> Patients:
    known: Any = load_breast_cancer()
    features = pd.DataFrame(known["data"], columns=list(known["feature_names"]))
    number = fl.data.partition.by_quantity(len(features), 4, concentration=5.0, seed=0)  # unequal sites
    return Patients(
        NOT_HERE, features, (known["target"] == 0).astype(int), np.array(["north", "east", "south", "west"])[number]
    )
