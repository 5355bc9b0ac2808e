"""Kernels compute what they say, on NumPy always and on PyTorch where it is installed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from multiprocessing import Pipe
from threading import Thread
from types import SimpleNamespace

import numpy as np
import pytest

from roofline.calibrate.measure.backend import Backend, CaseError
from roofline.calibrate.measure.cases import Case, in_format, plan_cases
from roofline.calibrate.measure.device import LocalDevice, open_backend, serve
from roofline.calibrate.measure.kernel_calls import prepare, reference_attention
from roofline.calibrate.measure.torch_backend import TorchBackend
from roofline.specs.network import ModelSpec
from tests.support import MODEL
from workshop.decoder import StepShape, build_decoder

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")
LIBRARIES = ["numpy", pytest.param("torch", marks=needs_torch)]


def small_model() -> ModelSpec:
    from roofline.base.schema import load_yaml

    class Text:
        name = "tiny.yaml"

        def read_bytes(self) -> bytes:
            return MODEL.encode()

    return ModelSpec.check(load_yaml(Text()), "tiny.yaml")


def backend(library: str) -> Backend:
    return open_backend("cpu", library, 1)


def small(cases: list[Case]) -> list[Case]:
    """Return one case of each kernel, none of them large."""
    chosen: dict[tuple[str, str, str], Case] = {}
    for case in cases:
        if case.flops < 1e8 and case.kind != "stream":
            chosen.setdefault((case.kind, case.op, case.kernel), case)
        if case.kind == "attention" and case.size("q") == 3 and case.size("context") <= 1024:
            chosen[case.kind, "causal", case.kernel] = case
    return list(chosen.values())


def with_normed_heads() -> ModelSpec:
    """Return the small model with a norm on every query and key head, as Qwen3 has it."""
    model = small_model()
    run = model.layers[0]
    normed = run.attention.model_copy(update={"qk_norm": True})
    return model.model_copy(update={"layers": (run.model_copy(update={"attention": normed}),)})


@pytest.mark.parametrize("library", LIBRARIES)
def test_every_kernel_agrees_with_fp64(library: str) -> None:
    use = backend(library)
    cases = small(plan_cases(small_model(), use.menu()))
    cases += [
        case for case in small(plan_cases(with_normed_heads(), use.menu())) if case.op == "qk_norm"
    ]
    assert cases[-1].op == "qk_norm"
    kinds = {case.kind for case in cases}
    assert {"gemm", "attention", "elementwise", "launch"} <= kinds
    assert {c.op for c in cases} >= {
        "embedding", "mlp_norm", "rope_kv_write", "activation", "sampling",
    }  # fmt: skip
    for case in cases:
        assert prepare(case, use).error() < 1e-4, case.key


def test_a_wrong_kernel_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    use = backend("numpy")
    case = next(c for c in small(plan_cases(small_model(), use.menu())) if c.kind == "gemm")
    right = use.linear
    monkeypatch.setattr(use, "linear", lambda x, w, dtype: 1.01 * right(x, w, dtype))
    with pytest.raises(CaseError) as caught:
        LocalDevice(use).sample(case, repeats=3, seconds=0.1)
    assert caught.value.status == "wrong"


def test_reference_attention_is_causal_over_the_last_rows() -> None:
    """Two rows, three tokens, equal scores: the first row averages two values, the second three."""
    values = np.array([[3.0], [6.0], [9.0]])
    found = reference_attention(np.zeros((2, 1)), np.ones((3, 1)), values, 2)
    np.testing.assert_allclose(found[:, 0], [4.5, 6.0])


@pytest.mark.parametrize("library", LIBRARIES)
def test_ways_to_read_the_cache_give_one_answer(library: str) -> None:
    use = backend(library)
    shape = (2, 2, 48, 16)
    queries = use.operand((2, 2, 12, 16), "fp32", 0)
    keys, values = use.operand(shape, "fp32", 1), use.operand(shape, "fp32", 2)
    found = [
        use.to_float64(use.attention(queries, keys, values, q=3, kernel=kernel))
        for kernel in use.menu().attention
    ]
    for other in found[1:]:
        np.testing.assert_allclose(other, found[0], atol=1e-5)


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_device_times_what_it_checked(library: str) -> None:
    """At least three calls, each with its clock; nothing off fp64; the reference kernel too."""
    use = backend(library)
    device = LocalDevice(use)
    assert device.facts()["kind"] == "cpu"
    assert device.facts()["threads"] == 1
    for kind in ("gemm", "launch"):
        case = next(c for c in small(plan_cases(small_model(), device.menu())) if c.kind == kind)
        samples = device.sample(case, repeats=5, seconds=1e-9)
        assert len(samples.seconds) == 3
        assert min(samples.seconds) > 0
        assert samples.error < 1e-4
    assert device.probe() > 0
    assert device.state() == "" or device.state().startswith("load ")


@pytest.mark.parametrize(("op", "moved"), [("copy", 2 * 4), ("read", 4)])
def test_a_stream_touches_what_it_says(op: str, moved: int) -> None:
    """A copy moves half of the numbers there and back, twice; a read takes each of them once."""
    use = backend("numpy")
    case = next(
        c for c in plan_cases(small_model(), use.menu()) if c.kind == "stream" and c.kernel == op
    )
    assert case.bytes == moved * case.size("count")
    result = use.extra(op, 4096 * 8, 0)()
    if op == "read":
        assert result.shape == (8,)


def test_unsupported_kernels_have_a_status(monkeypatch: pytest.MonkeyPatch) -> None:
    use = backend("numpy")
    cases = small(plan_cases(small_model(), use.menu()))
    case = next(c for c in cases if c.kind == "gemm")
    other = next(c for c in cases if c.kind == "elementwise")
    for odd in (replace(case, kind="sort"), replace(other, op="tanh")):
        with pytest.raises(CaseError, match="no kernel") as caught:
            LocalDevice(use).sample(odd, repeats=3, seconds=0.1)
        assert caught.value.status == "unsupported"

    def full(*_: object) -> None:
        raise MemoryError("Unable to allocate 9 TiB\nfor an array")

    monkeypatch.setattr(use, "operand", full)
    with pytest.raises(CaseError) as caught:
        LocalDevice(use).sample(case, repeats=3, seconds=0.1)
    assert (caught.value.status, caught.value.reason) == ("oom", "Unable to allocate 9 TiB")


def test_products_are_those_that_vllm_serves_on_a_processor() -> None:
    """Weights are packed once with 32 primitives, as `dispatch_cpu_unquantized_gemm` does."""
    calls: list[tuple[object, ...]] = []

    def pack(*given: object) -> str:
        calls.append(given)
        return "packed"

    served = SimpleNamespace(create_onednn_mm=pack, onednn_mm=lambda *given: calls.append(given))
    use = SimpleNamespace(_served_products=served, _torch=None)
    weight = TorchBackend.packed(use, SimpleNamespace(t=lambda: "turned"), "fp32")  # type: ignore[arg-type]
    TorchBackend.linear(use, "x", weight, "fp32")  # type: ignore[arg-type]
    assert calls == [("turned", 32), ("packed", "x", None)]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ImportError("no kernels for this card", name="flash_attn.cuda"), "unsupported"),
        (NotImplementedError("no kernel for fp8"), "unsupported"),
        (ValueError("head_dim 40"), "unsupported"),
        (RuntimeError("CUDA error: an illegal memory access"), "crashed"),
        (MemoryError("9 TiB"), "oom"),
        # bugs of our own: not a kind of failure
        (
            ImportError("cannot import name 'x'", name="roofline.calibrate.measure.torch_kernels"),
            None,
        ),
        (KeyError("heads"), None),
    ],
)
def test_pytorch_refusals_are_told_from_bugs(error: Exception, status: str | None) -> None:
    """The words of the error stay in the row, its kind in front."""
    library = SimpleNamespace(OutOfMemoryError=MemoryError)
    torch = SimpleNamespace(_torch=library, _release=lambda: None)

    def fail(*_: object) -> None:
        raise error

    use = backend("numpy")
    case = next(c for c in small(plan_cases(small_model(), use.menu())) if c.kind == "gemm")
    use.operand = fail  # type: ignore[method-assign, assignment]
    use.failure = lambda e: TorchBackend.failure(torch, e)  # type: ignore[method-assign, arg-type, assignment]
    with pytest.raises(type(error) if status is None else CaseError) as caught:
        LocalDevice(use).sample(case, repeats=3, seconds=0.1)
    if isinstance(caught.value, CaseError):
        assert caught.value.status == status
        kind = "" if status == "oom" else f"{type(error).__name__}: "
        assert caught.value.reason == f"{kind}{error}"


def test_a_worker_answers_until_the_other_end_closes() -> None:
    """What runs in the measuring process, here in a thread."""
    ours, theirs = Pipe()
    worker = Thread(target=serve, args=(theirs, "cpu", "numpy", 1), daemon=True)
    worker.start()
    assert ours.recv() == ("ok", None)
    ours.send(("menu", (), {}))
    assert ours.recv() == ("ok", backend("numpy").menu())
    ours.send(("dance", (), {}))
    status, error = ours.recv()
    assert (status, error.status) == ("error", "crashed")
    assert "dance" in error.reason
    case = replace(small(plan_cases(small_model(), backend("numpy").menu()))[0], kind="sort")
    ours.send(("sample", (case,), {"repeats": 3, "seconds": 0.1}))
    status, error = ours.recv()
    assert (status, error.status) == ("error", "unsupported")
    ours.close()
    worker.join(timeout=10)
    assert not worker.is_alive()


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize("network", [small_model, with_normed_heads])
def test_the_decoder_runs_whole_steps(
    library: str, rows: int, network: Callable[[], ModelSpec]
) -> None:
    use = backend(library)
    decoder = build_decoder(in_format(network(), "fp32"), use, dtype="fp32", kernel="packed")
    shape = StepShape(batch=2, rows=rows, context=32)
    ids = use.ids(2 * rows, 1000)
    chosen = decoder.step(shape, decoder.caches(shape), ids, decoder.angles(shape))
    tokens = use.to_float64(chosen)
    assert tokens.shape == (2 * rows,)
    assert ((tokens >= 0) & (tokens < 1000)).all()


def test_operands_are_random_and_rotate() -> None:
    use = backend("numpy")
    first, second = (use.operand((64, 64), "fp32", i) for i in (0, 1))
    assert np.std(first) > 0.1
    assert not np.shares_memory(first, second)
    assert use.cold_copies(64 * 64, "fp32") * 64 * 64 * 4 > 32 * 2**20


def test_the_work_of_a_case_is_that_of_the_laws() -> None:
    """By hand, for the small model: 8 query heads over 2 KV heads of 64, fp32, q = 2, L = 512."""
    cases = plan_cases(small_model(), backend("numpy").menu())
    wanted = {"batch": 1, "q": 2, "kv_heads": 2, "group": 4, "head_dim": 64, "context": 512}
    case = next(c for c in cases if c.kind == "attention" and dict(c.shape) == wanted)
    assert case.flops == 4 * 2 * 8 * 64 * 512
    assert case.bytes == 4 * (2 * 2 * 64 * 512 + 2 * 2 * 8 * 64)
    product = next(c for c in cases if c.op == "o_proj" and c.size("m") == 3)
    assert product.flops == 2 * 3 * 512 * 512
    assert product.bytes == 4 * (512 * 512 + 2 * 3 * 512)
