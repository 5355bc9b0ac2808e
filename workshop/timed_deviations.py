"""``python -m workshop.timed_deviations``: how far steps are off, for `timing/timed.py`.

Prints the deviations that are fitted on every published sweep, as `GROWTH` holds them, and those of
processors, as `PROCESSORS` does.
"""

from __future__ import annotations

from roofline.validation.tune import deviations_without, timed_sweeps
from workshop.proof import processor


def main() -> None:
    """Print the deviations."""
    print(deviations_without("", timed_sweeps()))  # noqa: T201
    print(processor.deviations_without(None))  # noqa: T201


if __name__ == "__main__":
    main()
