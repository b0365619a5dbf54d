"""The parts of data sets that their functions give."""

from typing import Literal, get_args

TrainOrTest = Literal["train", "test"]
TRAIN_OR_TEST: tuple[str, ...] = get_args(TrainOrTest)
TrainOrValidation = Literal["train", "validation"]
TRAIN_OR_VALIDATION: tuple[str, ...] = get_args(TrainOrValidation)
