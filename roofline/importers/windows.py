"""The layers of a config that have a window, in six encodings; some state one but switch it off."""

from __future__ import annotations

from collections.abc import Sequence

from roofline.importers.families import Family
from roofline.importers.fields import Fields

__all__ = ["check_layer_types", "layer_windows", "window_pattern"]

FULL = ("full_attention", "attention", "global_attention")
WINDOWED = ("sliding_attention", "chunked_attention", "local_attention")
#: Every word of ``layer_types`` that is understood.
LAYER_TYPES = (*FULL, *WINDOWED, "linear_attention", "mamba")


def window_pattern(pattern: str | int, layers: int) -> list[bool]:
    """Return which layers have a window: the last of every n is global, or by letters L and G.

    >>> window_pattern(3, 6), window_pattern("LLG", 4)
    ([True, True, False, True, True, False], [True, True, False, True])
    """
    if isinstance(pattern, int):
        return [(layer + 1) % pattern != 0 for layer in range(layers)]
    return [pattern[layer % len(pattern)] == "L" for layer in range(layers)]


def check_layer_types(fields: Fields, layers: int) -> None:
    """Refuse layer types other than those of attention; note windows without a width."""
    listed = fields.texts("layer_types", length=layers)
    known = (*FULL, *WINDOWED, "deepseek_sparse_attention")
    if listed is not None and set(listed) - set(known):
        raise fields.wrong("layer_types", f"words among {', '.join(known)}")
    widths = ("sliding_window", "sliding_window_size", "attention_chunk_size")
    if set(listed or ()) & set(WINDOWED) and not any(fields.has(name) for name in widths):
        fields.log.note("layer_types names windowed layers, but no window is stated: none is used")


def layer_windows(
    fields: Fields, family: Family, layers: int, context: int
) -> tuple[list[int | None], bool]:
    """Return each layer's window (None is the whole context), and whether windows are chunks."""
    chunk = fields.optional("attention_chunk_size")
    if chunk is not None and fields.data.get("model_type") == "llama4_text":
        return _chunk_windows(fields, chunk, layers), True
    width = fields.optional("sliding_window", "sliding_window_size")
    if width is None:
        return [None] * layers, False
    if not fields.flag("use_sliding_window", default=True):
        fields.log.note(f"sliding_window {width} is stated but switched off")
        return [None] * layers, False
    windowed = _windowed_layers(fields, family, layers)
    if width >= context and any(windowed):
        fields.log.note(f"sliding_window {width} is no shorter than the context of {context}")
        return [None] * layers, False
    if not any(windowed):
        fields.log.note(f"sliding_window {width} is stated but no layer uses it")
    return [width if used else None for used in windowed], False


def _windowed_layers(fields: Fields, family: Family, layers: int) -> Sequence[bool]:
    """Return which layers have the window, by a list, a pattern or the class."""
    listed = fields.texts("layer_types", length=layers)
    if listed is not None:
        for kind in listed:
            if kind not in LAYER_TYPES:
                raise fields.wrong("layer_types", f"words among {', '.join(LAYER_TYPES)}")
        return [kind in WINDOWED for kind in listed[:layers]]
    for name in ("sliding_window_pattern", "_sliding_window_pattern"):
        value = fields.data.get(name)
        if isinstance(value, str):
            fields.log.read.add(fields.path + name)
            if not value or set(value) - {"L", "G"}:
                raise fields.wrong(name, "letters L (local) and G (global)")
            return window_pattern(value, layers)
        interval = fields.optional(name)
        if interval is not None:
            return window_pattern(interval, layers)
    if fields.flag("use_sliding_window"):  # Qwen2: the layers from max_window_layers on
        first = fields.integer_or("max_window_layers", default=layers, why="no layer is windowed")
        return [layer >= first for layer in range(layers)]
    return _windowed_by_class(fields, family, layers)


def _windowed_by_class(fields: Fields, family: Family, layers: int) -> Sequence[bool]:
    match family.windows:
        case "all":
            return [True] * layers
        case "none":
            return [False] * layers
        case "alternate":
            fields.log.default("layer_types", "every other layer", "the class alternates windows")
            return [layer % 2 == 0 for layer in range(layers)]
        case "pattern":
            fields.log.default("sliding_window_pattern", 6, "the class keeps one global layer in 6")
            return window_pattern(6, layers)


def _chunk_windows(fields: Fields, chunk: int, layers: int) -> list[int | None]:
    """Return Llama-4's windows: chunks in the layers with rotary positions, by default 3 of 4."""
    rotary = fields.integers("no_rope_layers")
    if rotary:
        if len(rotary) < layers:
            raise fields.wrong("no_rope_layers", f"{layers} entries")
        return [chunk if used else None for used in rotary[:layers]]
    interval = fields.integer_or(
        "no_rope_layer_interval", default=4, why="the class has one layer in 4 without chunks"
    )
    return [chunk if used else None for used in window_pattern(interval, layers)]
