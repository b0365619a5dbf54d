"""All attacks of one site on a run, and what is expected of each."""

from hostile.attacks_by_presence import PRESENCE
from hostile.attacks_on_evaluations import EVALUATIONS
from hostile.attacks_on_introductions import INTRODUCTIONS
from hostile.attacks_on_labels import LABELS
from hostile.attacks_on_moments import MOMENTS
from hostile.attacks_on_values import OPEN, VALUES

ALL = [*INTRODUCTIONS, *PRESENCE, *MOMENTS, *VALUES, *LABELS, *EVALUATIONS, *OPEN]
ATTACKS = {attack.name: attack for attack in ALL}
