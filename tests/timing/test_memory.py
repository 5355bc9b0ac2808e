"""What an accelerator must hold: weights, drafter, cache blocks, logits, activations, reserve."""

from __future__ import annotations

import numpy as np
import pytest

from roofline.importers.references import open_drafter
from roofline.kernels.footprint import kv_bytes_reserved
from roofline.specs.engine import MemoryRules
from roofline.specs.formats import DType
from roofline.specs.gpu import load_hardware
from roofline.specs.network import load_model
from roofline.specs.placement import Grid, Placement
from roofline.timing.drafters import Drafter
from roofline.timing.memory import Memory, activation_bytes, logits_bytes, memory_for
from roofline.timing.step import Target
from tests.physics import precision_of, refusal, run


def rules(*, block: int = 16, caps: bool = True, chunk: int = 8192) -> MemoryRules:
    return MemoryRules.model_validate(
        {
            "fraction": 0.9,
            "reserve": "1.5 GB",
            "kv_block": block,
            "caps_windows": caps,
            "prefill_chunk": chunk,
            "source": "this test",
        }
    )


def account(
    model: str,
    *,
    gpu: str = "h100-sxm",
    drafter: str = "none",
    placement: Placement | None = None,
    how: MemoryRules | None = None,
) -> Memory:
    spec, place = load_model(model), placement or Placement()
    kind, network = open_drafter(drafter, spec)
    return memory_for(
        Target(model=spec, precision=precision_of(spec), placement=place),
        Drafter(
            kind=kind,
            name=kind,
            network=network,
            precision=None if network is None else precision_of(network),
            placement=place,
        ),
        load_hardware(gpu),
        how or rules(),
        host=None,
    )


@pytest.mark.parametrize(
    ("tokens", "block", "slots"),
    [(1, 16, 16), (16, 16, 16), (17, 16, 32), (1004, 16, 1008), (1004, 1, 1004), (1004, 256, 1024)],
)
def test_whole_blocks(tokens: int, block: int, slots: int) -> None:
    # Llama-3.1-8B: 2 x 32 layers x 8 x 128 x 2 B = 131,072 B per slot.
    model = load_model("llama-3.1-8b")
    held = kv_bytes_reserved(model, DType.BF16, tokens=tokens, block=block, caps_windows=True)
    assert float(held) == slots * 131_072


def test_windows_capped_or_not() -> None:
    # gpt-oss-120b, 2,048 B per token and layer, 18 layers with a window of 128: 4,097 slots are
    # 257 blocks of 16; a capped layer keeps 128 + 16 = 9 blocks.
    model = load_model("gpt-oss-120b")
    capped, whole = (
        float(kv_bytes_reserved(model, DType.BF16, tokens=4097, block=16, caps_windows=caps))
        for caps in (True, False)
    )
    assert capped == 18 * 2048 * 144 + 18 * 2048 * 4112
    assert whole == 36 * 2048 * 4112
    short = [
        float(kv_bytes_reserved(model, DType.BF16, tokens=100, block=16, caps_windows=caps))
        for caps in (True, False)
    ]
    assert short == [36 * 2048 * 112] * 2  # below the window nothing is saved


def test_logits_by_hand() -> None:
    # B q V in bf16 and again in fp32: 64 x 17 x 151,936 x (2 + 4). The fp32 half alone is the
    # 622 MB of vLLM issue 45323 for its 64 x 16 draft rows.
    assert logits_bytes(batch=64, rows=17, vocabulary=151_936, base=2) == 991_838_208
    fp32 = logits_bytes(batch=64, rows=16, vocabulary=151_936, base=0)
    assert fp32 == pytest.approx(622e6, rel=1e-3)


@pytest.mark.parametrize(
    ("model", "tp", "expected"),
    [
        # Two hidden states and three MLP rows at the widest place, bf16.
        ("llama-3.1-8b", 1, (2 * 4096 + 3 * 14_336) * 2),
        ("llama-3.1-8b", 4, (2 * 4096 + 3 * 14_336 / 4) * 2),
        # Qwen3-30B-A3B: 8 chosen experts of 768.
        ("qwen3-30b-a3b", 1, (2 * 2048 + 3 * 8 * 768) * 2),
        # DeepSeek-V3: 8 x 2,048 routed + 2,048 shared equals the dense layers' 18,432.
        ("deepseek-v3", 1, (2 * 7168 + 3 * 18_432) * 2),
    ],
)
def test_activations_by_hand(model: str, tp: int, expected: float) -> None:
    spec = load_model(model)
    for tokens in (1, 100):
        found = activation_bytes(spec, tokens=tokens, tp=tp, base=2)
        assert float(np.asarray(found)) == tokens * expected


def test_activations_are_sized_for_the_larger_of_step_and_prefill_chunk() -> None:
    per_token = (2 * 4096 + 3 * 14_336) * 2
    memory = account("llama-3.1-8b", how=rules(chunk=512))
    logits = 128_256 * 6
    assert float(memory.working(1, 3)) == 512 * per_token + 4 * logits
    assert float(memory.working(256, 3)) == 1024 * per_token + 1024 * logits


def test_memory_that_the_engine_may_use() -> None:
    # 0.9 of what a process sees where that is known, less 1.5 GB.
    h200, h100 = account("llama-3.1-8b", gpu="h200-sxm"), account("llama-3.1-8b")
    assert h200.total == pytest.approx(139.8 * 2**30)
    assert h100.total == pytest.approx(79.11 * 2**30)
    assert h200.available == h200.total * 0.9 - 1.5e9


def test_everything_together_by_hand() -> None:
    # Llama-3.1-8B (8,030,261,248 weights) with its EAGLE-3 head (424,689,664; 4,096 B of cache per
    # token), batch 4, context 1,000, D = 3: slots for 1,004 tokens are 1,008.
    memory = account("llama-3.1-8b", drafter="eagle3")
    weights, head = 2 * 8_030_261_248, 2 * 424_689_664
    cache = 4 * 1008 * (131_072 + 4096)
    working = 4 * 4 * 128_256 * 6 + 8192 * (2 * 4096 + 3 * 14_336) * 2
    assert float(memory.needed(4, 1000, 3)) == weights + head + cache + working


def test_a_drafter_costs_nothing_at_draft_length_0() -> None:
    alone, pair = account("llama-3.1-8b"), account("llama-3.1-8b", drafter="eagle3")
    assert pair.draft_weights == 2 * 424_689_664
    assert float(pair.needed(4, 1000, 0)) == float(alone.needed(4, 1000, 0))
    assert float(pair.needed(4, 1000, 1)) > float(alone.needed(4, 1000, 1))


def test_a_draft_model_holds_its_own_weights_and_cache() -> None:
    # Llama-3.2-1B beside Llama-3.1-8B: 1,235,814,400 weights (tied), 32,768 B per token.
    memory = account("llama-3.1-8b", drafter="llama-3.2-1b")
    assert memory.draft_weights == 2 * 1_235_814_400
    assert float(np.asarray(memory.kv_per_sequence(1000, 3))) == 1008 * (131_072 + 32_768)
    assert float(np.asarray(memory.kv_per_sequence(1000, 0))) == 1008 * 131_072


def test_an_mtp_layer_is_resident_and_keeps_one_latent_layer() -> None:
    # DeepSeek-V3 on 8 ranks: 62 instead of 61 layers of 1,152 B per token on every rank.
    memory = account("deepseek-v3", gpu="b200-hgx", drafter="mtp", placement=Placement(tp=8, ep=8))
    assert float(np.asarray(memory.kv_per_sequence(1008, 7))) == 1024 * 1152 * 61 + 1024 * 1152
    experts = 256 * 44_040_192 * (1 + 4 / 128**2) / 8
    assert experts < memory.draft_weights < 1.2 * experts


@pytest.mark.parametrize("drafter", ["none", "eagle3", "llama-3.2-1b"])
@pytest.mark.parametrize("context", [100, 4096, 100_000])
@pytest.mark.parametrize("draft_length", [0, 1, 5])
def test_largest_batch_equals_a_scan(drafter: str, context: int, draft_length: int) -> None:
    memory = account("llama-3.1-8b", drafter=drafter)
    batches = np.arange(1.0, 20_000.0)
    fits = np.asarray(memory.needed(batches, context, draft_length)) <= memory.available
    assert not fits[-1]
    scanned = int(batches[fits].max(initial=0))
    assert memory.largest_batch(context=context, draft_length=draft_length) == scanned


def test_the_largest_batch_is_zero_where_nothing_fits() -> None:
    memory = account("deepseek-v3", gpu="h200-sxm")
    assert memory.largest_batch(context=100, draft_length=0) == 0


def test_drafting_never_leaves_room_for_more() -> None:
    memory = account("qwen3-8b", drafter="eagle3")
    largest = [memory.largest_batch(context=2048, draft_length=d) for d in range(9)]
    assert largest == sorted(largest, reverse=True)


def test_the_grid_agrees_with_the_points() -> None:
    memory = account("llama-3.1-8b", drafter="eagle3")
    grid = Grid.of([1, 64, 512], [1024, 16_384], [0, 3])
    fits = memory.fits(grid)
    assert fits.shape == (3, 2, 2)
    for i, batch in enumerate((1, 64, 512)):
        for j, context in enumerate((1024, 16_384)):
            for k, draft_length in enumerate((0, 3)):
                need = float(memory.needed(batch, context, draft_length))
                assert bool(fits[i, j, k]) is (need <= memory.available)


@pytest.mark.parametrize(("tp", "ep"), [(2, 1), (2, 2), (8, 1), (8, 8)])
def test_ranks_share_weights_and_cache(tp: int, ep: int) -> None:
    # Qwen3-30B-A3B: everything but routers and norms divides; 4 KV heads divide as far as they go.
    one = account("qwen3-30b-a3b", gpu="h200-sxm")
    rank = account("qwen3-30b-a3b", gpu="h200-sxm", placement=Placement(tp=tp, ep=ep))
    copied = 2 * (48 * (2048 * 128 + 2 * 2048 + 2 * 128) + 2048)  # routers and norms
    extra_kv_heads = 2 * 48 * 2048 * 2 * 128 * (1 - 4 / tp) if tp > 4 else 0.0
    expected = (one.weights - copied) / tp + copied + extra_kv_heads
    assert rank.weights == pytest.approx(expected, rel=1e-12)
    whole, share = (float(np.asarray(m.kv_per_sequence(1000, 0))) for m in (one, rank))
    assert share == whole / min(tp, 4)


def test_ep_and_tp_hold_the_same_bytes() -> None:
    sliced = account("qwen3-235b-a22b", gpu="h200-sxm", placement=Placement(tp=8))
    placed = account("qwen3-235b-a22b", gpu="h200-sxm", placement=Placement(tp=8, ep=8))
    assert placed.weights == sliced.weights


def test_too_large_a_model_is_refused_with_a_remedy() -> None:
    code, out, err = run(
        "roofline recommend deepseek-v3 --gpu h200-sxm --drafter ngram --acceptance 0.6"
    )
    assert (code, out) == (3, "")
    assert "nearest remedies: --tp 8 (batch " in err


def test_a_batch_too_large_names_the_one_that_fits() -> None:
    command = "roofline recommend llama-3.1-8b --batch {} --context 8k"
    code, _, err = run(command.format(4096))
    assert code == 3
    largest = int(err.split("the largest batch that fits is ")[1].split()[0].rstrip(".,;"))
    assert run(command.format(largest))[0] == 0
    assert run(command.format(largest + 1))[0] == 3


def test_a_batch_of_zero_is_refused() -> None:
    assert "--batch 0" in refusal("roofline recommend llama-3.1-8b --batch 0")
