"""The lower bounds that ``make minimums`` tests are those that pyproject.toml states."""

from __future__ import annotations

import re
import tomllib

from tests.support import ROOT

#: Installed with the package there; "tables" needs a newer NumPy.
EXTRAS = ("report", "parquet", "distributed", "test")
LEFT_OUT = {"roofline", "pytest-cov", "pytest-xdist"}


def test_every_lower_bound_is_tested() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    stated = [*project["dependencies"]]
    stated += [item for extra in EXTRAS for item in project["optional-dependencies"][extra]]
    bounds = dict(re.findall(r"^([\w-]+)>=([\d.]+)$", "\n".join(stated), re.MULTILINE))
    lines = (ROOT / "tests" / "minimums.txt").read_text("utf-8")
    tested = dict(re.findall(r"^([\w-]+)==([\d.]+)$", lines, re.MULTILINE))
    assert tested.keys() == bounds.keys() - LEFT_OUT
    for name, version in tested.items():
        # a bound of 1.11 is its first release that can be installed: 1.11.0, or 1.11.1
        assert re.fullmatch(re.escape(bounds[name]) + r"(\.0|\.1)*", version), name
