"""Multi-token prediction: the target's own extra layer as a drafter."""

from __future__ import annotations

import pytest

from roofline.base.errors import InputError
from roofline.base.resources import bundled_names
from roofline.importers.references import heads_for, open_drafter
from roofline.kernels.footprint import (
    kv_bytes_per_token,
    parameters_decode_read,
    parameters_total,
    weight_bytes,
)
from roofline.kernels.ops import Op
from roofline.specs.formats import DType
from roofline.specs.network import ModelSpec, load_model, load_network, mtp_head
from roofline.specs.placement import Grid, Placement
from roofline.timing.drafters import Drafter, draft_passes
from tests.physics import named, precision_of, refusal, run, scalar


def passes(drafts: tuple[int, ...] = (3,), *, batch: int = 1) -> tuple[list[Op], list[Op]]:
    head = mtp_head(load_model("deepseek-v3"))
    drafter = Drafter(kind="mtp", name=head.id, network=head, precision=precision_of(head))
    return draft_passes(drafter, Grid.of([batch], [4096], drafts))


def test_parameters_of_deepseek_v3s_layer() -> None:
    # By hand, from its config.json: MLA 187,107,328 (compressions 7,168 x 1,536 and 7,168 x 576,
    # expansions 1,536 x 128 x 192 and 512 x 128 x 256, output 128 x 128 x 7,168, norms 2,048);
    # experts 256 x 3 x 7,168 x 2,048; shared 3 x 7,168 x 2,048; router 7,168 x 256; two layer
    # norms: 11,507,286,016. The projection 2 x 7,168 x 7,168 and three more norms on top.
    layer = 187_107_328 + 11_274_289_152 + 44_040_192 + 1_835_008 + 14_336
    assert layer == 11_507_286_016
    expected = layer + 2 * 7168 * 7168 + 3 * 7168
    head = mtp_head(load_model("deepseek-v3"))
    assert parameters_total(head) == expected == 11_610_067_968  # 11.61 B
    assert expected / 1e9 == pytest.approx(11.61, abs=0.005)


def test_the_published_total_leaves_the_layer_out() -> None:
    # DeepSeek-V3 README: 671 B main model; 14 B more with the MTP module and its copies of
    # embedding and head (2 x 129,280 x 7,168): 11.61 + 1.85 = 13.46 B.
    model = load_model("deepseek-v3")
    assert parameters_total(model) == 671_026_404_352
    module = parameters_total(mtp_head(model)) + 2 * 129_280 * 7168
    assert module / 1e9 == pytest.approx(13.46, abs=0.01)


def test_parameters_one_pass_reads() -> None:
    # 8 of 256 experts: 11,610,067,968 - 248 x 44,040,192 = 0.69 B, and the target's head, 0.93 B.
    head = mtp_head(load_model("deepseek-v3"))
    assert parameters_decode_read(head) == 11_610_067_968 - 248 * 44_040_192 + 129_280 * 7168


def test_weights_do_not_hold_the_head_twice() -> None:
    head = mtp_head(load_model("deepseek-v3"))
    held = weight_bytes(head, precision_of(head), Placement())
    assert set(held) == {"attention", "experts", "shared_experts", "router", "norm"}
    fp8_block = 1 + 4 / 128**2
    assert held[next(c for c in held if c == "experts")] == 256 * 44_040_192 * fp8_block


def test_cache_is_that_of_one_latent_layer() -> None:
    head = mtp_head(load_model("deepseek-v3"))
    assert kv_bytes_per_token(head, DType.BF16) == 576 * 2


def test_every_pass_projects_embedding_and_hidden_state() -> None:
    # Depth 1 is used again for every further draft, so the 2 x 7,168 -> 7,168 product runs in each
    # pass: on all 1 + D rows in the first, on one row per sequence in the others.
    first, further = passes((3,), batch=2)
    for kernels, rows in ((first, 8), (further, 2)):
        projection = named(kernels, "fc")
        assert scalar(projection.rows) == rows
        assert scalar(projection.flops) == 2 * rows * 7168 * (2 * 7168)
        assert sum(op.name == "fc" for op in kernels) == 1


def test_an_eagle3_head_projects_once_per_verified_token() -> None:
    _, network = open_drafter("eagle3", load_model("llama-3.1-8b"))
    assert network is not None
    drafter = Drafter(
        kind="eagle3", name=network.id, network=network, precision=precision_of(network)
    )
    first, further = draft_passes(drafter, Grid.of([2], [4096], [3]))
    assert scalar(named(first, "fc").rows) == 8
    assert "fc" not in {op.name for op in further}


def test_the_layer_follows_its_target() -> None:
    # One MoE layer with MLA: 8 experts for one row, their union for the rows of the first pass.
    first, further = passes((3,))
    assert 8 / scalar(named(further, "experts").rows) == pytest.approx(8)
    assert 32 / scalar(named(first, "experts").rows) == pytest.approx(256 * (1 - (31 / 32) ** 4))
    assert scalar(named(first, "latent_attention").rows) == 4 * 128
    assert {op.count for op in further} == {1}


def test_logits_are_made_for_one_row_of_each_pass() -> None:
    first, further = passes((3,), batch=2)
    for kernels in (first, further):
        assert scalar(named(kernels, "lm_head").flops) == 2 * 2 * 7168 * 129_280


def test_loading_by_kind() -> None:
    kind, network = open_drafter("mtp", load_model("deepseek-v3"))
    assert kind == "mtp"
    assert network == mtp_head(load_model("deepseek-v3"))
    assert "mtp" not in heads_for("deepseek-v3")  # no file of its own: it is the target's


WITHOUT_MTP = [
    name
    for name in bundled_names("model_specs")
    if isinstance(network := load_network(name), ModelSpec) and network.mtp is None
]


@pytest.mark.parametrize("model", WITHOUT_MTP)
def test_refused_without_an_mtp_layer(model: str) -> None:
    with pytest.raises(InputError, match=f"{model} was not published with"):
        open_drafter("mtp", load_model(model))


def test_refused_in_one_line() -> None:
    line = refusal("roofline recommend llama-3.1-8b --drafter mtp --acceptance 0.7")
    assert "llama-3.1-8b" in line
    assert "multi-token-prediction" in line
    assert "use eagle3, ngram or a draft model" in line


def test_answers_for_deepseek_v3_on_eight_h200() -> None:
    code, out, _ = run(
        "roofline recommend deepseek-v3 --gpu h200-sxm --tp 8 --drafter mtp "
        "--acceptance conditional:0.8,0.6"
    )
    assert code == 0
    assert "drafter deepseek-v3-mtp" in " ".join(out.split())
