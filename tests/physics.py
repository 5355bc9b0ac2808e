"""What the tests of the physics share: kernels of a pass, priced steps, and one command line."""

from __future__ import annotations

import contextlib
import io
import shlex
import sys
from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import numpy as np

from roofline.advice.configuration import Configuration
from roofline.advice.deployment import PricedGrid, deploy
from roofline.base.numbers import Array
from roofline.cli import main
from roofline.kernels.forward import decode, prefill
from roofline.kernels.ops import Op
from roofline.specs.formats import DType, Precision, resolve_precision
from roofline.specs.network import NetworkSpec, load_model
from roofline.specs.placement import Placement

#: Every rate a format can ask for, so that no format is widened.
ALL_RATES = ["fp32", "bf16", "fp16", "fp8", "fp4", "int8", "int4"]


def precision_of(network: NetworkSpec, *, kv: DType | None = None) -> Precision:
    """Return the formats the network is published in, on an accelerator that has every rate."""
    return resolve_precision(
        stored=network.stored(),
        base=network.dtype,
        kv_stored=network.kv_dtype,
        available=ALL_RATES,
        gpu="any",
        kv=kv,
    )[0]


def decode_ops(
    model: str,
    *,
    batch: Array = 1.0,
    rows: Array = 1.0,
    context: Array = 4096.0,
    placement: Placement | None = None,
) -> list[Op]:
    """Return the kernels of one decode or verify pass of a bundled model."""
    spec = load_model(model)
    return decode(
        spec,
        precision_of(spec),
        placement or Placement(),
        batch=batch,
        context=context,
        rows=rows,
    )


def prefill_ops(
    model: str, *, prompt: Array, batch: Array = 1.0, placement: Placement | None = None
) -> list[Op]:
    """Return the kernels that read a prompt."""
    spec = load_model(model)
    return prefill(spec, precision_of(spec), placement or Placement(), batch=batch, prompt=prompt)


def scalar(value: Array) -> float:
    """Return the one number in ``value``, whatever its number of axes."""
    return float(np.asarray(value, dtype=float).item())


def named(kernels: list[Op], name: str) -> Op:
    """Return the first kernel called ``name``."""
    return next(op for op in kernels if op.name == name)


def priced(
    model: str,
    *,
    batches: Sequence[int] = (1,),
    contexts: Sequence[int] = (4096,),
    draft_lengths: Sequence[int] = (0,),
    **options: Any,
) -> PricedGrid:
    """Price the steps of a deployment; ``options`` are fields of `Configuration`."""
    deployment, _ = deploy(Configuration(model=model, **options))
    return deployment.price(deployment.grid(batches, contexts, draft_lengths))


def plain_step(model: str, *, batch: int, context: int, **options: Any) -> float:
    """Return the time of one plain decoding step [s]."""
    found = priced(model, batches=[batch], contexts=[context], drafter="none", **options)
    return scalar(found.times.total)


def run(command: str) -> tuple[int, str, str]:
    """Return (exit code, stdout, stderr) of one command line, run in this process."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with (
        patch.object(sys, "argv", shlex.split(command)),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as done:
            code = done.code if isinstance(done.code, int) else 0
    return code, out.getvalue(), err.getvalue()


def refusal(command: str) -> str:
    """Run a command that must be refused: exit code 2, nothing on stdout, one line on stderr."""
    code, out, err = run(command)
    assert code == 2, (code, out, err)
    assert out == ""
    assert err.startswith("roofline: ")
    assert err.count("\n") == 1
    return err
