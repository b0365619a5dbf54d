"""Haxby's fMRI scans of people who look at faces, houses and other things: the runs of the experiment are the clients."""

import gzip
import os
import tarfile
import zlib
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from fedlocal.data.catalogue import Folder, first_file, obtain
from fedlocal.data.federated_data import FederatedData
from fedlocal.data.splits import TRAIN_OR_VALIDATION, TrainOrValidation
from fedlocal.util import checks

Against = Literal["bottle", "cat", "chair", "house", "scissors", "scrambledpix", "shoe"]
Source = Literal["array", "images"]
Mask = Literal["brain", "vt"]
CATEGORIES = ("bottle", "cat", "chair", "face", "house", "scissors", "scrambledpix", "shoe")
SUBJECTS = (1, 2, 3, 4, 5, 6)
HELD_OUT = 3  # runs of a single subject, for validation
SHELF = "haxby2001"  # nilearn's folder, too
ARRAYS = ("X", "label", "run", "mask_idx", "mask_dim")


class Scans(NamedTuple):
    """The scans of one subject, in the order in which they were taken."""

    features: np.ndarray  # (n, v) as measured
    labels: np.ndarray  # (n,) what was looked at
    runs: np.ndarray  # (n,) number of the run
    positions: np.ndarray  # (v, 3) where in the image each voxel is
    shape: tuple[int, ...]  # of the image, in voxels


def haxby(
    folder: Folder = None,
    *,
    split: TrainOrValidation = "train",
    against: Against = "house",
    source: Source = "array",
    subjects: Sequence[int] = SUBJECTS,
    mask: Mask = "brain",
) -> FederatedData:
    """Face (+1) or house (-1) from fMRI scans: a client is a run of the experiment, with 18 scans, 9 of each.

    Every voxel of every run has mean 0 and variance 1 over all scans of that run that are in the file: with images over those
    at rest, too. There is no detrending and no smoothing, and nothing is taken from other runs, so that a client can do it.
    Runs in which one of the two was not seen are left out (nilearn says that run 8 of subject 5 has no labels).

    Args:
        folder: where to look before the cache (`$FEDLOCAL_DATA`, else `~/.cache/fedlocal`); None: only there. Files may
            be in a subfolder haxby2001; archives of images that are not there are fetched into the cache.
        split: "train" or "validation": the last of several subjects, or the last three runs of a single one.
        against: what faces are told from, such as "cat". The text says "a horse and a face", but no horses were shown;
            its source, in a remark, says house.
        source: "array" is the file haxby2001_subj1_vt.npz: 12 runs of one subject, 577 voxels of the ventral temporal
            cortex, without the scans at rest. "images" are the scans as `nilearn.datasets.fetch_haxby` lays them out
            (subj1/bold.nii.gz, subj1/labels.txt, subj1/mask4_vt.nii.gz, mask.nii.gz), or the archives that it unpacks;
            it needs `pip install "fedlocal[fmri]"`.
        subjects: with images, different numbers from 1 to 6.
        mask: with images, "brain", the same 39,912 voxels for all, or "vt", a single subject's own.

    Source: Haxby et al., Science 293, 2001, CC BY-SA 3.0.

    >>> data = haxby()  # doctest: +SKIP
    >>> data.client_sizes.tolist()  # doctest: +SKIP
    [18, 18, 18, 18, 18, 18, 18, 18, 18]
    """
    checks.choice("haxby", "split", split, TRAIN_OR_VALIDATION)
    scans = haxby_scans(folder, source=source, subjects=subjects, mask=mask)
    return faces_against(scans, against)[split == "validation"]


def haxby_scans(
    folder: Folder = None, *, source: Source = "array", subjects: Sequence[int] = SUBJECTS, mask: Mask = "brain"
) -> list[Scans]:
    """The scans of each subject with the places of their voxels.

    Args:
        folder, source, subjects, mask: as for `haxby`.
    """
    checks.choice("haxby", "source", source, get_args(Source))
    if source == "array":
        return [read_haxby_array(obtain("haxby-vt", folder, owner="haxby"))]
    checks.choice("haxby", "mask", mask, get_args(Mask))
    if not subjects or set(subjects) - set(SUBJECTS) or len(set(subjects)) < len(subjects):
        raise ValueError(f"haxby: subjects must be different numbers from 1 to 6, got {list(subjects)}")
    if mask == "vt" and len(subjects) > 1:
        wanted = "has other voxels for every subject, so subjects must be a single one"
        raise ValueError(f"haxby: mask 'vt' {wanted}, got {list(subjects)}")
    return [_subject(folder, subject, mask) for subject in subjects]


def faces_against(scans: Sequence[Scans], against: Against = "house") -> tuple[FederatedData, FederatedData]:
    """Runs for training and for validation, standardised; the rule is that of `haxby`."""
    checks.choice("haxby", "against", against, get_args(Against))
    runs = [_runs(each, against) for each in scans]
    if len(runs) == 1:
        runs = [runs[0][:-HELD_OUT], runs[0][-HELD_OUT:]]
    train, validation = [run for subject in runs[:-1] for run in subject], runs[-1]
    if not train or not validation:
        who, count = "several subjects" if len(scans) > 1 else "one subject", len(train) + len(validation)
        what = f"{who} with scans of face and {against} in {count} runs"
        raise ValueError(f"haxby: {what} cannot be split into training and validation")
    return FederatedData.from_clients(train), FederatedData.from_clients(validation)


def read_haxby_array(path: str | os.PathLike[str]) -> Scans:
    """The scans of a file like haxby2001_subj1_vt.npz.

    Args:
        path: the file; its mask_idx count voxels from zero, the first axis of the image fastest: so they lie together.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "mine.npz")
    ...     here = {"label": ["face", "house"], "run": [0, 0], "mask_idx": [1, 5], "mask_dim": [2, 2, 2]}
    ...     np.savez(path, X=[[7, 8], [9, 6]], **here)
    ...     scans = read_haxby_array(path)
    >>> scans.labels.tolist(), scans.positions.tolist()
    (['face', 'house'], [[1, 0, 0], [1, 0, 1]])
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            features, labels, runs, index, shape = (file[name] for name in ARRAYS)
    except KeyError as error:
        raise ValueError(f"haxby: {path} must have the arrays {', '.join(ARRAYS)}: {error.args[0]}") from None
    except ValueError as error:
        raise ValueError(f"haxby: {path} cannot be read: {error}") from None
    shape = tuple(map(int, shape))
    positions = np.stack(np.unravel_index(index, shape, order="F"), axis=1)
    return _consistent(str(path), Scans(features, labels, runs, positions, shape))


def read_haxby_images(bold: bytes, labels: str, mask: bytes, name: str = "images") -> Scans:
    """The scans of one subject, from the contents of its files.

    Args:
        bold: of bold.nii.gz, an image of four dimensions.
        labels: of labels.txt, with the columns "labels chunks".
        mask: of a mask with the first three of these dimensions: voxels above 0 are kept.
        name: the subject's, for error messages.
    """
    image, inside = _nifti(bold, f"the scans of {name}"), _nifti(mask, f"the mask of {name}") > 0
    if image.ndim != 4 or image.shape[:3] != inside.shape:
        raise ValueError(f"haxby: {name}: scans {image.shape} must be four-dimensional and fit the mask {inside.shape}")
    header, *lines = (line.split() for line in labels.splitlines() if line.strip())
    if header != ["labels", "chunks"] or any(len(line) != 2 for line in lines):
        raise ValueError(f"haxby: labels of {name} must have the columns 'labels chunks', got {' '.join(header)!r}")
    seen, runs = np.array([label for label, _ in lines]), np.array([int(run) for _, run in lines])
    return _consistent(name, Scans(image[inside].T, seen, runs, np.argwhere(inside), inside.shape))


def _consistent(name: str, scans: Scans) -> Scans:
    n, v = scans.features.shape
    if not n == len(scans.labels) == len(scans.runs) or v != len(scans.positions):
        got = f"{len(scans.labels)} labels, {len(scans.runs)} runs and {len(scans.positions)} places"
        raise ValueError(f"haxby: {name} has {n} scans of {v} voxels, but {got}")
    return scans


def _runs(scans: Scans, against: Against) -> list[tuple[np.ndarray, np.ndarray]]:
    """(features, targets) of every run in which both were seen."""
    runs = []
    for run in np.unique(scans.runs):
        here = scans.runs == run
        features, labels = scans.features[here].astype(np.float64), scans.labels[here]
        spread = features.std(axis=0)
        features = (features - features.mean(axis=0)) / np.where(spread > 0, spread, 1)
        wanted = np.isin(labels, ("face", against))
        if len(np.unique(labels[wanted])) == 2:
            runs.append((features[wanted], np.where(labels[wanted] == "face", 1.0, -1.0)))
    return runs


def _subject(folder: Folder, subject: int, mask: Mask) -> Scans:
    """A subject's scans, from its folder or its archive."""
    bold, labels = (_content(folder, subject, name) for name in ("bold.nii.gz", "labels.txt"))
    if mask == "vt":
        inside = _content(folder, subject, "mask4_vt.nii.gz")
    else:
        inside = obtain("haxby-mask", folder, owner="haxby").read_bytes()
    return read_haxby_images(bold, labels.decode("ascii"), inside, f"subject {subject}")


def _content(folder: Folder, subject: int, name: str) -> bytes:
    if path := first_file(folder, SHELF, f"subj{subject}/{name}"):
        return path.read_bytes()
    archive = obtain(f"haxby-{subject}", folder, owner="haxby")
    with tarfile.open(archive) as files:
        try:
            member: Any = files.extractfile(f"subj{subject}/{name}")
        except KeyError:
            raise ValueError(f"haxby: {archive} has no file subj{subject}/{name}") from None
        return member.read()


def _nifti(content: bytes, what: str) -> np.ndarray:
    """The numbers of a NIfTI file, packed or not."""
    try:
        import nibabel
        from nibabel.filebasedimages import ImageFileError
        from nibabel.spatialimages import HeaderDataError
        from nibabel.wrapstruct import WrapStructError
    except ImportError:
        raise ImportError('haxby: images are read by nibabel, which is missing: pip install "fedlocal[fmri]"') from None
    try:
        plain = gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
        return np.asanyarray(nibabel.Nifti1Image.from_bytes(plain).dataobj)
    except (ImageFileError, HeaderDataError, WrapStructError, OSError, EOFError, zlib.error) as error:
        raise ValueError(f"haxby: {what} is not an image in NIfTI format: {error}") from None
