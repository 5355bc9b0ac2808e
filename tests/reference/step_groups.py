"""What each group of published runs is called in the project's own names, once per group."""

from __future__ import annotations

import re

Row = dict[str, str]
#: Published AL(D) of the same model and drafter, for sweeps without their own.
CURVES = {
    "v4pro": "1=1.84,2=2.51,3=3.01,4=3.36,5=3.61,6=3.77,7=3.73,8=3.47",
    "eagle1": "2=2.1,3=2.29,4=2.39,5=2.43,6=2.45,7=2.47",
    "eagle3": "2=2.36,3=2.79,4=3.08,5=3.32,6=3.46,7=3.54",
    "mtp27": "1=1.78,2=2.32,3=2.67,5=3.05,7=3.24",
    # The same, where survival between the measured lengths falls by a constant factor.
    "mtp27text": "1=1.78,2=2.32,3=2.67,4=2.9,5=3.05,6=3.16,7=3.24",
    "mtp27code": "1=1.889,2=2.58,3=3.175,4=3.588,5=3.955,6=4.222",
    "mtp27code4": "2=2.562,3=3.142,4=3.592",
    "dflash2": "4=2.886,7=3.353",
    "ngram8": "",
    "domino": "MTP:3=3.556,7=5.503,15=6.855",
    "dflash8b": "7=4.09,15=4.49",
}
#: Accepted share of drafts for D = 1..6: the medians of each of three passes
#: (cmoro-deusto/qwen38-mtp 4b6ea9e3, sweep-data/rtx5090-power-cap-400-600w,
#: summary.md of cap600_pass1..3 and cap400_pass1..3).
PROMPTS = {
    "P1 code 600W": ((0.9510, 0.9516, 0.9692), (0.9398, 0.9420, 0.9491), (0.8951, 0.8997, 0.8951),
                     (0.8782, 0.8631, 0.8675), (0.8407, 0.7974, 0.8129), (0.7786, 0.7460, 0.8033)),
    "P2 prose 600W": ((0.6939, 0.6961, 0.7523), (0.5897, 0.5614, 0.5824), (0.4928, 0.4286, 0.4731),
                      (0.3639, 0.3810, 0.4575), (0.3170, 0.3462, 0.3241), (0.2917, 0.2647, 0.2763)),
    "P3 bash 600W": ((0.9000, 0.9254, 0.9077), (0.8507, 0.7732, 0.6916), (0.6995, 0.7500, 0.6974),
                     (0.6516, 0.6690, 0.6166), (0.5449, 0.5770, 0.6348), (0.5602, 0.5882, 0.5243)),
    "P1 code 400W": ((0.9655, 0.9507, 0.9652), (0.9317, 0.9342, 0.9429), (0.9510, 0.8869, 0.9030),
                     (0.8553, 0.8822, 0.8765), (0.8385, 0.8714, 0.7995), (0.7868, 0.8049, 0.7585)),
    "P2 prose 400W": ((0.7100, 0.7188, 0.6979), (0.5929, 0.5474, 0.5214), (0.4583, 0.4578, 0.4923),
                      (0.3667, 0.3649, 0.3788), (0.3346, 0.3200, 0.3217), (0.2759, 0.2544, 0.2901)),
    "P3 bash 400W": ((0.8908, 0.8821, 0.9271), (0.8418, 0.7896, 0.8519), (0.7057, 0.7280, 0.6742),
                     (0.6960, 0.7411, 0.5735), (0.5531, 0.5468, 0.6690), (0.5680, 0.6047, 0.5308)),
}  # fmt: skip
GGUF27 = {"linears": "5bpw", "head": "q6_k", "kv": "q8_0"}
GGUF9 = {
    "Q4_K_M": {"linears": "4.7bpw", "head": "q6_k"},
    "Q8_0": {"linears": "q8_0", "head": "q8_0"},
    "BF16": {},
}
MOE35 = {"linears": "5bpw", "experts": "4.7bpw", "head": "q6_k", "kv": "q8_0"}
MODELS = {
    "Llama-3.1-8B-Instruct": "llama-3.1-8b", "Llama-3-8B-Instruct": "llama-3.1-8b",
    "Qwen3-1.7B": "qwen3-1.7b", "Qwen3-4B": "qwen3-4b", "Qwen3-8B": "qwen3-8b",
    "Qwen3-14B": "qwen3-14b", "Qwen3-32B": "qwen3-32b", "Qwen3-30B-A3B": "qwen3-30b-a3b",
    "Qwen3-30B-A3B-Instruct-2507": "qwen3-30b-a3b",
    "Qwen3-Coder-30B-A3B-Instruct": "qwen3-30b-a3b",
    "Qwen3-Next-80B-A3B-Instruct-FP8": "qwen3-next-80b-a3b-instruct",
    "Qwen3-Coder-480B-A35B-Instruct": "qwen3-coder-480b-a35b-instruct",
    "Qwen3.5-9B": "qwen3.5-9b", "Qwen3.8-27B": "qwen3.6-27b", "Qwen3.6-27B": "qwen3.6-27b",
    "Qwen3.5-27B": "qwen3.5-27b", "Qwen3.5-35B-A3B": "qwen3.5-35b-a3b",
    "Qwen3.6-35B-A3B": "qwen3.6-35b-a3b", "DeepSeek-R1": "deepseek-r1",
    "DeepSeek-V3.2": "deepseek-v3", "DeepSeek-V4-Flash": "deepseek-v4-flash",
    "DeepSeek-V4-Pro-0813": "deepseek-v4-pro", "Gemma-4-31B": "gemma-4-31b-it",
    "MiniMax-M2.5": "minimax-m2.5",
}  # fmt: skip


def by_prompt(row: Row, code: str) -> str:
    """Return the named curve of MTP on Qwen3.8-27B whose prompts are most like the row's.

    Two were published: one counted on two code prompts and one of prose (``code``), one on code,
    prose, reasoning, chat and Chinese alike (four fifths text). Prose alone goes with the second.
    """
    return CURVES[
        "mtp27text" if "prose" in row["dataset"] and "code" not in row["dataset"] else code
    ]


def prompt_curve(dataset: str) -> str:
    """Return AL(D) of one prompt: 1 + D times the mean of the passes' accepted shares."""
    rates = enumerate(PROMPTS[dataset], start=1)
    return ",".join(f"{d}={1 + d * sum(passes) / len(passes):.3f}" for d, passes in rates)


def tree(text: str) -> Row:
    """Read SGLang's ``steps 5 topk 3 draft_tokens 6`` or ``4-4-16``; a chain has topk 1."""
    found = re.search(r"steps (\d+) topk (\d+) draft_tokens (\d+)", text) or re.search(
        r"(\d+)-(\d+)-(\d+)", text
    )
    if not found:
        return {}
    steps, topk, width = found.groups()
    chain = topk == "1"
    return {
        "draft_length": steps,
        "topk": "" if chain else topk,
        "verify_width": "" if chain and int(width) == int(steps) + 1 else width,
    }


def describe(row: Row, group: str) -> Row | None:  # noqa: PLR0912, PLR0915 - a table of groups
    """Return what a row's configuration is called here; None where it cannot be expressed."""
    number = int(row["id"].rsplit("-", 1)[1])
    text = row["drafter"]
    match group:
        case "trtblog01" | "trtblog01relax":
            return {
                "gpu": "b200-hgx", "engine": "trtllm@2025", "linears": "nvfp4", "experts": "nvfp4",
                "attention": "bf16", "kind": "mtp", "draft_weights": "bf16", "context": "2000",
            }  # fmt: skip
        case "vllm-dsv4pro-dspark":
            if not row["draft_tokens_D"].isdigit():
                return None
            return {
                "gpu": "b300-hgx", "engine": "vllm", "kind": "dspark", "block": "7",
                "curve": CURVES["v4pro"], "context": "1500",
            }  # fmt: skip
        case "vllm-aa":
            if number != 1:
                return None
            return {"gpu": "b300-hgx", "engine": "vllm", "kind": "mtp", "tokens_per_step": "1.9",
                    "linears": "nvfp4", "experts": "nvfp4", "context": "1500",
                    "note": "weight format not stated: nvfp4 assumed"}  # fmt: skip
        case "vllm-amd-mm25":
            return {"gpu": "mi355x", "engine": "vllm", "kind": "eagle3", "context": "1536",
                    "curve": ""}  # fmt: skip
        case "vllm20780" | "vllm16035":
            kind = "eagle3" if "3" in text else "eagle1"
            note = "GPU not stated; the same author's PR 16937 states H100"
            return {"gpu": "h100-sxm", "engine": "vllm@2025", "kind": kind, "context": "400",
                    "note": note, "curve": CURVES[kind]}  # fmt: skip
        case "vllm41044":
            return {"gpu": "b200-hgx", "engine": "vllm", "kind": "mtp", "context": "1152"}
        case "vllm48944":
            return {"gpu": "h100-nvl", "engine": "vllm", "kind": "eagle1", "linears": "fp8",
                    "context": str(int(float(row["input_len"])) + 50), "total": "1",
                    "note": "assistant head has no published spec here: derived"}  # fmt: skip
        case "vllm24343":
            return {"gpu": "a100-sxm-40gb", "engine": "vllm@2025", "kind": "eagle3",
                    "context": "500", "note": "EAGLE with a head of 32k tokens (FR-Spec): priced "
                    "as EAGLE-3"}  # fmt: skip
        case "rtx5090-power" | "rtx5090-prompt" | "qwen38-pr85":
            weights = GGUF27 if group != "qwen38-pr85" else {"linears": "q6_k", "head": "q6_k"}
            return {"gpu": "rtx-5090", "engine": "llamacpp", "kind": "mtp", "context": "300",
                    **weights, "kv": "bf16", "curve": prompt_curve(row["dataset"])
                    if group == "rtx5090-prompt" else by_prompt(row, "mtp27code")}  # fmt: skip
        case "2x5060ti-q4km":
            return {"gpu": "rtx-5060-ti", "engine": "llamacpp", "kind": "mtp", "context": "300",
                    **GGUF27, "linears": "4.7bpw", "kv": "bf16",
                    "curve": by_prompt(row, "mtp27code4")}  # fmt: skip
        case "5060ti":
            return {"gpu": "rtx-5060-ti", "engine": "llamacpp", "kind": "mtp", "context": "300",
                    "linears": "4.3bpw", "head": "q6_k",
                    "curve": by_prompt(row, "mtp27code4")}  # fmt: skip
        case "3080":
            return {"gpu": "rtx-3080", "engine": "llamacpp", "kind": "mtp", "context": "300",
                    "linears": "2.5bpw", "head": "4.5bpw"}  # fmt: skip
        case "3090-dspark":
            return {"gpu": "rtx-3090", "engine": "llamacpp", "context": "300", **GGUF27,
                    "kind": "dspark" if "DSpark" in text else "mtp", "kv": "bf16",
                    "draft_weights": "q8_0"}  # fmt: skip
        case "qwen38-pr11":
            return {"gpu": "rtx-pro-6000-blackwell-ws", "engine": "vllm", "kind": "mtp",
                    "linears": "nvfp4", "context": "500", "draft_weights": "bf16"}  # fmt: skip
        case "club613":
            return None
        case "modelopt-dflash" | "modelopt-dflash-cat":
            block = "8" if "block 8" in text else "16"
            rate = row["draft_acceptance_rate"]
            own = f"{1 + float(rate) * (int(block) - 1):.3f}" if rate else row["accept_len"]
            return {"gpu": "h100-sxm", "engine": "vllm", "kind": "dflash", "block": block,
                    "tokens_per_step": own, "context": "500"}  # fmt: skip
        case "specbundle":
            if row["model"] not in MODELS:
                return None
            model = MODELS[row["model"]]
            tp = "1" if "llama" in model else "8" if "480b" in model else "4"
            fp8 = {"linears": "fp8-block", "experts": "fp8-block"} if "FP8" in row["model"] else {}
            return {"gpu": "h200-sxm", "engine": "sglang", "kind": "eagle3", "tp": tp,
                    "context": "600", "total": "1", **fp8, **tree(row["spec_config"]),
                    "note": "GPU as its site labels it, TP that fits"}  # fmt: skip
        case "angelslim":
            return {"gpu": "h20", "engine": "vllm@2025", "kind": "eagle3", "context": "700"}
        case "dcut":
            if "DFlash" not in text and text != "none":
                return None
            if row["model"] not in MODELS:
                return None
            block = text.rsplit("B", 1)[1] if "DFlash" in text else ""
            curve = CURVES["dflash8b"] if row["model"] == "Qwen3-8B" else ""
            return {"gpu": "h20", "engine": "sglang", "kind": "dflash", "block": block,
                    "context": "1000", "total": "1", "curve": curve}  # fmt: skip
        case "sdbench" | "sdbench-tree":
            return _sdbench(row, group)
        case "gpustack" | "gpustack-bs":
            return {"gpu": "h100-sxm", "engine": "sglang@0.5", "kind": "eagle3",
                    "linears": "fp8", "context": "340", **tree(row["spec_config"])}  # fmt: skip
        case "vllmrecipe-glm51" | "sgl-cookbook":
            return None
        case "thc-phaseA" | "thc-hostB" | "thc-phaseM-dense" | "thc-ctx":
            kind = "mtp" if "MTP" in text else "dflash" if "DFlash2" in text else "model"
            context = row["input_len"] or "300"
            curve = {"mtp": CURVES["mtp27"], "dflash": CURVES["dflash2"]}.get(kind, "")
            note = "GPU unresolved: RTX 3090 assumed" if group == "thc-hostB" else ""
            return {"gpu": "rtx-3090", "engine": "llamacpp", "kind": kind, "context": context,
                    "drafter": "qwen3.5-0.8b" if kind == "model" else "",
                    "draft_weights": {"model": "4.7bpw", "dflash": "q8_0", "mtp": ""}[kind],
                    "curve": curve, "note": note, **GGUF27}  # fmt: skip
        case "thc-9b":
            weights = GGUF9[row["precision_weights"].split()[0]]
            return {"gpu": "rtx-3090", "engine": "llamacpp", "kind": "mtp", "context": "300",
                    "kv": "q8_0", **weights}  # fmt: skip
        case "thc-phaseM-moe" | "thc-moe-O2" | "thc-moe-C" | "thc-moe-I":
            return _thc_moe(row, group)
        case "eagle3-t3" | "eagle3-t5":
            kind = "eagle3" if "3" in text else "eagle1"
            old = group == "eagle3-t5"
            return {"gpu": "rtx-3090" if old else "h100-sxm",
                    "engine": "vllm@2025" if old else "sglang@0.4", "kind": kind,
                    "context": "400", "curve": CURVES[kind],
                    "tokens_per_step": "" if old else {"eagle3": "2.79", "eagle1": "2.29"}[kind],
                    }  # fmt: skip
        case "domino" | "domino-conc":
            kind = text.split()[0].lower()
            curve = CURVES["domino"].split(":")[1] if kind == "mtp" else ""
            if group == "domino-conc" and row["dataset"] == "MT-Bench":
                curve = "3=3.227,15=5.156"  # its speeds at c1 x the steps of the GSM8K rows
            return {"gpu": "a100-sxm-80gb", "engine": "sglang", "kind": kind, "context": "1500",
                    "block": "16" if kind != "mtp" else "", "curve": curve,
                    "total": "1" if group == "domino-conc" else "",
                    "note": "engine as its acceptance rows say"}  # fmt: skip
        case "pedro4090":
            return None
    return None


def _sdbench(row: Row, group: str) -> Row | None:
    text = row["drafter"]
    if group == "sdbench-tree":
        shape = {"draft_length": "3"} if "chain" in text else {
            "draft_length": "4", "topk": "4", "verify_width": "22"}  # fmt: skip
        return {"gpu": "h100-sxm", "engine": "sglang", "kind": "eagle3", "context": "500",
                **shape, "note": "a tree of 21 drafts" if "tree" in text else ""}  # fmt: skip
    kind = {"n": "ngram", "d": "model"}.get(text[0], "eagle3" if "3" in text else "eagle1")
    return {"gpu": "h100-sxm", "engine": "vllm@2025", "kind": kind, "context": "600",
            "drafter": "qwen3-0.6b" if kind == "model" else ""}  # fmt: skip


def _thc_moe(row: Row, group: str) -> Row | None:
    text = row["drafter"]
    own = row["accept_len"]
    if "draft model" in text:
        kind = "model"
    elif "n-gram" in text:
        kind = "ngram"
    else:
        kind = "dflash" if "DFlash" in text else "mtp"
    if not own and row["draft_acceptance_rate"] and row["draft_tokens_D"] and kind != "ngram":
        own = f"{1 + float(row['draft_acceptance_rate']) * float(row['draft_tokens_D']):.3f}"
    # run O2 states the tokens drafted per token emitted, g: AL = 1 / (1 - rate x g)
    drafted = {1: 0.81, 2: 0.77, 3: 1.24, 7: 1.86, 8: 0.50}.get(int(row["id"][-3:]))
    if group == "thc-moe-O2" and drafted:
        own = f"{1 / (1 - float(row['draft_acceptance_rate']) * drafted):.3f}"
    if not row["draft_tokens_D"] and kind != "ngram":
        return None
    return {"gpu": "rtx-3090", "engine": "llamacpp", "kind": kind, "context": "400",
            "drafter": "qwen3.5-0.8b" if kind == "model" else "",
            "draft_weights": {"model": "4.7bpw", "dflash": "q8_0"}.get(kind, ""),
            "tokens_per_step": own, **MOE35}  # fmt: skip
