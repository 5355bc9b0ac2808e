"""Fail where too few branches of the package are covered, statements not counted.

``make check`` gives it the totals: ``coverage json -o - | python tests/check_branches.py 95``.
"""

from __future__ import annotations

import json
import sys


def main() -> None:
    """Compare the share of covered branches with the least that is wanted. [%]"""
    least = float(sys.argv[1])
    totals = json.load(sys.stdin)["totals"]
    covered, branches = totals["covered_branches"], totals["num_branches"]
    share = 100 * covered / branches
    line = f"branches: {covered:,} of {branches:,} covered, {share:.1f} % (at least {least:g} %)"
    sys.stdout.write(f"{line}\n")
    if share < least:
        sys.exit("check_branches: too few branches are covered")


if __name__ == "__main__":
    main()
