"""The type of every quantity that broadcasts."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["Array"]


Array: TypeAlias = float | NDArray[np.float64]
