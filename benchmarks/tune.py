"""How long ``roofline tune`` takes to decide after a timing: 16 draft lengths at 8 batches.

    python -m benchmarks.tune

Each figure is the median of warm decisions; the goal is 50 ms.
"""

from __future__ import annotations

import time

import numpy as np

from roofline.advice.belief import JointBelief, Next, Promise, Timing, joint_prior
from roofline.render.writers import markdown_table

LENGTHS, BATCHES, TIMES = 16, 8, 9


def prior() -> JointBelief:
    """Return a belief of verify passes that grow with the batch."""
    lengths, batches = np.arange(LENGTHS, dtype=float), np.arange(BATCHES, dtype=float)[:, None]
    verify = 5 + 0.1 * batches * (1 + lengths)
    position = np.arange(LENGTHS - 1)
    return joint_prior(
        draft_lengths=range(LENGTHS),
        verify=verify,
        draft=np.broadcast_to(0.5 * lengths, verify.shape),
        overhead=np.ones_like(verify),
        logits=np.asarray(0.7 - 0.05 * position, dtype=np.float64),
        logit_covariance=0.64 * np.ones((15, 15)) + 0.25 * np.eye(15),
    )


def decide(belief: JointBelief) -> tuple[tuple[Promise, ...], bool, Next]:
    """Return all that an answer needs after two timings."""
    after = belief.after([Timing(2, 3, 812.0, {3: 2.4}), Timing(5, 4, 1612.0, {4: 2.5})])
    return after.promises, after.enough, after.next_timing()


def main() -> None:
    """Print the median."""
    belief, seconds = prior(), []
    for _ in range(TIMES):
        begun = time.perf_counter()
        decide(belief)
        seconds.append(time.perf_counter() - begun)
    cells = [[str(LENGTHS), str(BATCHES), f"{1e3 * float(np.median(seconds[1:])):.0f}"]]
    print(markdown_table(["draft lengths", "batches", "decision ms"], cells))  # noqa: T201


if __name__ == "__main__":
    main()
