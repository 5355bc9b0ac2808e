"""Multi-token-prediction layers: how many a config states, and what they are made of."""

from __future__ import annotations

from roofline.importers.families import Family
from roofline.importers.fields import Fields
from roofline.importers.layers import Layer, runs_of
from roofline.specs.network import LayerRun

__all__ = ["mtp_modules", "read_mtp"]


def mtp_modules(fields: Fields, family: Family) -> int:
    """Return how many MTP layers are published; zero and absent are none.

    DeepSeek, GLM, MiMo and Nemotron state ``num_nextn_predict_layers``, Qwen3.5
    ``mtp_num_hidden_layers``, MiniMax modules times layers; Qwen3-Next has one and says nothing.
    """
    counts = [
        fields.optional(name, minimum=0)
        for name in ("num_nextn_predict_layers", "mtp_num_hidden_layers")
    ]
    stated = next((count for count in counts if count is not None), None)
    modules = fields.optional("num_mtp_modules", minimum=0)
    each = fields.optional("mtp_transformer_layers", minimum=0)
    if not fields.flag("use_mtp", default=True):
        return 0
    if modules is not None:
        return modules * (1 if each is None else each)
    if stated is not None:
        return stated
    if family.implied_mtp:
        why = "published with the weights though no key says so"
        return fields.log.default("num_nextn_predict_layers", family.implied_mtp, why)
    return 0


def read_mtp(
    fields: Fields, family: Family, layers: list[Layer], hidden: int
) -> tuple[LayerRun | None, int]:
    """Return one MTP layer and how many there are.

    It is like the model's last attention layer with the model's last MLP: experts where the model
    ends in experts. A pattern (Nemotron: attention, then experts) says the same in two blocks.
    """
    del hidden
    modules = mtp_modules(fields, family)
    fields.texts("mtp_layers_block_type")
    fields.text("mtp_hybrid_override_pattern")
    if not modules:
        return None, 1
    attending = [layer for layer in layers if layer.attention.kind in ("gqa", "mla", "compressed")]
    feeding = [layer for layer in layers if layer.mlp.kind != "none"]
    if not attending or not feeding:
        fields.log.note("the MTP layers cannot be told from the model's own and are left out")
        return None, 1
    last = attending[-1]
    joined = Layer(
        attention=last.attention,
        mlp=feeding[-1].mlp,
        norms=max(last.norms, 2),
        parallel=last.parallel,
        other_parameters=last.other_parameters,
    )
    (run,) = runs_of([joined])
    return run, modules
