"""Questions about cards without a link, and the host around them."""

from __future__ import annotations

from pathlib import Path

from roofline.base import resources
from roofline.specs.gpu import HOST_SHELF

JSON = ("--format", "json")
LLAMA = ("--engine", "llamacpp")
DENSE = ("recommend", "llama-3.1-8b", "--gpu", "rtx-3090", *LLAMA, "--acceptance", "0.7")
SPARSE = ("recommend", "qwen3-30b-a3b", "--gpu", "rtx-4090", *LLAMA, "--weights", "q8_0")
NGRAM = ("--drafter", "ngram", "--acceptance", "0.6")
APPLE = (*SPARSE[:2], "--gpu", "apple-m4-max", *LLAMA, *NGRAM)
PAIR = ("--gpus", "2", "--drafter", "none")


def host_file(folder: Path, **changed: str) -> str:
    """Write the DDR5 desktop with other figures."""
    text = (resources.shelf(HOST_SHELF) / "desktop-ddr5.yaml").read_text("utf-8")
    for old, new in (pair.split("->") for pair in changed.values()):
        assert old in text
        text = text.replace(old, new)
    file = folder / "host.yaml"
    file.write_text(text, "utf-8")
    return str(file)
