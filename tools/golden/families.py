"""The model families of the golden data: configurations at two sizes, and how their weights are drawn.

Configurations are transformers' own classes and field names. Sizes avoid multiples of 4, 8, 16 and 32 wherever the
architecture leaves the choice, because remainders are where kernels go wrong. `small` is what the project commits; `odd`
moves every number and every head ratio, for a second opinion on demand.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from dataclasses import dataclass, field

import numpy as np
import torch
import transformers

MAX_POSITIONS = 320
RESERVED = 6  # last vocabulary ids: bos, eos and (full Qwen3.5) image and video marks; never in a prompt or a continuation

FULL, LINEAR = "full_attention", "linear_attention"


@dataclass(frozen=True)
class Family:
    config: str  # transformers class
    covers: str
    sizes: dict  # size name -> fields of the (text) config
    fixed: dict = field(default_factory=dict)
    legacy_rope: bool = False  # write rope_theta / rope_scaling / torch_dtype at top level, as files from before transformers 5 do
    one_plus_norm: bool = False  # RMSNorm multiplies by 1 + weight (all but linear_attn.norm)
    wrapped: bool = False  # text_config, model.language_model.*, vision tower, mtp.* head
    single_experts: bool = False  # one tensor per expert and projection, as published files of most families have it

    @property
    def tied(self) -> bool:
        return self.fixed["tie_word_embeddings"]


def shape(vocab, hidden, layers, heads, kv_heads, head_dim, inner, theta, **rope):
    return dict(
        vocab_size=vocab,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=head_dim,
        intermediate_size=inner,
        rope_parameters={"rope_type": "default", "rope_theta": theta} | rope,
    )


def llama3(factor, original):
    return dict(rope_type="llama3", factor=factor, low_freq_factor=1.0, high_freq_factor=4.0,
                original_max_position_embeddings=original)


def hybrid(base, kinds, k_heads, v_heads, k_dim, v_dim, kernel):
    """Adds Gated DeltaNet to a shape. `kinds` spells the layers: 'g' = Gated DeltaNet, 'a' = full attention."""
    return base | dict(
        layer_types=[LINEAR if kind == "g" else FULL for kind in kinds],
        linear_num_key_heads=k_heads,
        linear_num_value_heads=v_heads,
        linear_key_head_dim=k_dim,
        linear_value_head_dim=v_dim,
        linear_conv_kernel_dim=kernel,
    )


def moe(base, experts, per_token, inner, shared=None):
    """Puts routed experts (and one shared expert of width `shared`) into a shape."""
    fields = dict(num_experts=experts, num_experts_per_tok=per_token, moe_intermediate_size=inner)
    return base | fields | ({} if shared is None else dict(shared_expert_intermediate_size=shared))


def partial(share, sections):
    return dict(partial_rotary_factor=share, mrope_interleaved=True, mrope_section=sections)


# Fields that published Qwen3.5 files carry beside those transformers reads.
QWEN3_5_FIXED = dict(attn_output_gate=True, mamba_ssm_dtype="float32", mtp_use_dedicated_embeddings=False)

FAMILIES: dict[str, Family] = {
    "llama": Family(
        "LlamaConfig",
        "grouped-query attention, llama3 rope scaling, untied head",
        {
            "small": shape(199, 66, 3, 6, 2, 14, 106, 5e5, **llama3(8.0, 64)),
            "odd": shape(233, 56, 4, 8, 4, 10, 61, 1e5, **llama3(4.0, 32)),
            # For quantised sets: rows of whole 32-element groups, columns and rows that are no multiple of 128.
            "groups": shape(199, 160, 2, 5, 1, 32, 192, 5e5, **llama3(8.0, 64)),
        },
        dict(tie_word_embeddings=False, rms_norm_eps=1e-5),
    ),
    "llama_linear": Family(
        "LlamaConfig",
        "one KV head per query head, linear rope scaling, odd hidden size, config written the old way",
        {
            "small": shape(181, 51, 2, 3, 3, 18, 77, 1e4, rope_type="linear", factor=4.0),
            "odd": shape(157, 76, 3, 4, 4, 6, 49, 1e5, rope_type="linear", factor=2.5),
        },
        dict(tie_word_embeddings=False, rms_norm_eps=1e-6),
        legacy_rope=True,
    ),
    "llama_tied": Family(
        "LlamaConfig",
        "a single KV head, tied head, heads * head_dim != hidden, config written the old way",
        {
            "small": shape(193, 55, 3, 5, 1, 12, 90, 1e5),
            "odd": shape(211, 45, 4, 9, 3, 16, 55, 1e4),
        },
        dict(tie_word_embeddings=True, rms_norm_eps=1e-5),
        legacy_rope=True,
    ),
    "qwen2": Family(
        "Qwen2Config",
        "bias on q, k and v, untied head",
        {
            "small": shape(187, 60, 3, 6, 3, 10, 94, 1e6),
            "odd": shape(223, 84, 2, 6, 1, 14, 59, 1e5),
        },
        dict(tie_word_embeddings=False),
    ),
    "qwen3": Family(
        "Qwen3Config",
        "RMSNorm on every q and k head, tied head",
        {
            "small": shape(203, 52, 3, 6, 2, 22, 83, 1e6),
            "odd": shape(167, 63, 3, 4, 2, 26, 47, 5e5),
        },
        dict(tie_word_embeddings=True),
    ),
    "qwen3_5_text": Family(
        "Qwen3_5TextConfig",
        "flat text-only file, three Gated DeltaNet layers to one of gated attention, tied head, A_log and GDN norm in BF16",
        {
            "small": hybrid(shape(209, 54, 4, 6, 2, 24, 75, 1e7, **partial(0.25, [1, 1, 1])), "ggga", 2, 6, 12, 14, 4),
            "odd": hybrid(shape(239, 41, 4, 3, 1, 16, 67, 1e6, **partial(0.5, [2, 1, 1])), "gaga", 3, 3, 18, 10, 5),
        },
        dict(tie_word_embeddings=True, full_attention_interval=4, mtp_num_hidden_layers=0, **QWEN3_5_FIXED),
        one_plus_norm=True,
    ),
    "qwen3_5": Family(
        "Qwen3_5Config",
        "full file: text_config, model.language_model.*, vision tower, mtp.* head, F32 A_log and GDN norm; a layer list that no "
        "interval gives; untied head",
        {
            "small": hybrid(shape(215, 62, 4, 4, 2, 32, 91, 1e7, **partial(0.25, [2, 1, 1])), "gagg", 3, 3, 14, 10, 3),
            "odd": hybrid(shape(191, 47, 5, 6, 3, 20, 58, 1e6, **partial(0.4, [2, 1, 1])), "ggaga", 2, 4, 10, 22, 4),
            "groups": hybrid(shape(215, 96, 3, 4, 2, 32, 160, 1e7, **partial(0.25, [2, 1, 1])), "gag", 2, 4, 12, 16, 4),
        },
        dict(tie_word_embeddings=False, mtp_num_hidden_layers=1, **QWEN3_5_FIXED),
        one_plus_norm=True,
        wrapped=True,
    ),
    "qwen3_moe": Family(
        "Qwen3MoeConfig",
        "routed experts one by one, probabilities not renormalised, one dense layer, untied head",
        {
            "small": moe(shape(195, 50, 3, 4, 2, 18, 57, 1e6), 11, 3, 27) | dict(mlp_only_layers=[1]),
            "odd": moe(shape(177, 43, 4, 6, 2, 12, 61, 1e5), 6, 2, 35) | dict(mlp_only_layers=[], decoder_sparse_step=2),
        },
        dict(tie_word_embeddings=False, norm_topk_prob=False),
        single_experts=True,
    ),
    "qwen3_next": Family(
        "Qwen3NextConfig",
        "Gated DeltaNet with fused projections (in_proj_qkvz, in_proj_ba), routed and shared experts one by one in every second layer",
        {
            "small": moe(hybrid(shape(207, 58, 4, 4, 2, 24, 73, 1e7, partial_rotary_factor=0.25), "ggag", 2, 6, 14, 10, 4), 9, 3, 21, 26)
            | dict(mlp_only_layers=[], decoder_sparse_step=2),
            "odd": moe(hybrid(shape(183, 45, 3, 6, 3, 16, 39, 1e6, partial_rotary_factor=0.5), "gag", 3, 3, 10, 18, 3), 7, 2, 19, 33)
            | dict(mlp_only_layers=[0]),
        },
        dict(tie_word_embeddings=False, norm_topk_prob=True),
        one_plus_norm=True,
        single_experts=True,
    ),
    "qwen3_5_moe_text": Family(
        "Qwen3_5MoeTextConfig",
        "flat text-only file, routed experts one by one and a shared one in every layer, more experts than short prompts reach",
        {
            "small": moe(hybrid(shape(213, 46, 3, 6, 2, 16, 0, 1e7, **partial(0.25, [1, 1, 0])), "gag", 1, 3, 12, 14, 4), 13, 2, 18, 22),
            "odd": moe(hybrid(shape(171, 39, 4, 3, 1, 24, 0, 1e6, **partial(0.5, [2, 2, 2])), "ggga", 2, 4, 10, 12, 4), 5, 3, 29, 17),
        },
        dict(tie_word_embeddings=False, full_attention_interval=4, mtp_num_hidden_layers=0, **QWEN3_5_FIXED),
        one_plus_norm=True,
        single_experts=True,
    ),
    "qwen3_5_moe": Family(
        "Qwen3_5MoeConfig",
        "full file with all experts of a layer in two tensors, shared expert, mtp.* head with experts, F32 A_log and GDN norm",
        {
            "small": moe(hybrid(shape(217, 54, 3, 4, 2, 24, 0, 1e7, **partial(0.25, [2, 1, 0])), "gga", 2, 4, 10, 18, 4), 7, 3, 23, 30),
            "odd": moe(hybrid(shape(185, 41, 4, 4, 1, 20, 0, 1e6, **partial(0.4, [2, 1, 1])), "gaga", 3, 6, 12, 8, 3), 10, 2, 15, 37),
        },
        dict(tie_word_embeddings=False, mtp_num_hidden_layers=1, **QWEN3_5_FIXED),
        one_plus_norm=True,
        wrapped=True,
    ),
}


def make_config(name: str, size: str):
    family = FAMILIES[name]
    fields = family.sizes[size] | family.fixed
    vocab = fields["vocab_size"]
    if not fields["intermediate_size"]:
        del fields["intermediate_size"]  # no dense MLP
    fields |= dict(max_position_embeddings=MAX_POSITIONS, bos_token_id=vocab - 2, eos_token_id=vocab - 1, pad_token_id=None)
    kind = getattr(transformers, family.config)
    if not family.wrapped:
        return kind(**fields)
    vision = dict(depth=1, hidden_size=8, num_heads=2, intermediate_size=12, patch_size=4, num_position_embeddings=16,
                  out_hidden_size=fields["hidden_size"])
    return kind(text_config=fields, vision_config=vision, tie_word_embeddings=family.tied, image_token_id=vocab - 3,
                video_token_id=vocab - 4, vision_start_token_id=vocab - 5, vision_end_token_id=vocab - 6)


def config_json(name: str, config) -> dict:
    """What goes into config.json: transformers' own dictionary, in the old spelling where the family asks for that."""
    out = json.loads(config.to_json_string(use_diff=True))
    if FAMILIES[name].legacy_rope:
        rope = dict(out.pop("rope_parameters"))
        out["rope_theta"] = rope.pop("rope_theta")
        kind = rope.pop("rope_type")
        out["rope_scaling"] = None if kind == "default" else {"type": kind} | rope
        out["torch_dtype"] = out.pop("dtype")
    return out


def mtp_shapes(config) -> dict[str, tuple[int, ...]]:
    """Tensors of the multi-token-prediction head. transformers neither makes nor reads them; published files have them."""
    t = config.text_config
    h, d = t.hidden_size, t.head_dim
    q, kv = t.num_attention_heads * d, t.num_key_value_heads * d
    block = {
        "input_layernorm": (h,), "post_attention_layernorm": (h,), "self_attn.q_norm": (d,), "self_attn.k_norm": (d,),
        "self_attn.q_proj": (2 * q, h), "self_attn.k_proj": (kv, h), "self_attn.v_proj": (kv, h), "self_attn.o_proj": (h, q),
    }
    fused = {}
    if getattr(t, "num_experts", 0):
        e, i, s = t.num_experts, t.moe_intermediate_size, t.shared_expert_intermediate_size
        block |= {"mlp.gate": (e, h), "mlp.shared_expert_gate": (1, h), "mlp.shared_expert.gate_proj": (s, h),
                  "mlp.shared_expert.up_proj": (s, h), "mlp.shared_expert.down_proj": (h, s)}
        fused = {"mtp.layers.0.mlp.experts.gate_up_proj": (e, 2 * i, h), "mtp.layers.0.mlp.experts.down_proj": (e, h, i)}
    else:
        i = t.intermediate_size
        block |= {"mlp.gate_proj": (i, h), "mlp.up_proj": (i, h), "mlp.down_proj": (h, i)}
    head = {"fc": (h, 2 * h), "norm": (h,), "pre_fc_norm_embedding": (h,), "pre_fc_norm_hidden": (h,)}
    return {f"mtp.{k}.weight": v for k, v in head.items()} | {f"mtp.layers.0.{k}.weight": v for k, v in block.items()} | fused


def split_experts(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """experts.gate_up_proj and experts.down_proj -> experts.N.{gate,up,down}_proj.weight"""
    out = {}
    for name, tensor in tensors.items():
        stem, _, last = name.rpartition(".")
        if not stem.endswith(".experts"):
            out[name] = tensor
            continue
        for i, one in enumerate(tensor):
            parts = zip(("gate_proj", "up_proj"), one.chunk(2)) if last == "gate_up_proj" else [("down_proj", one)]
            out |= {f"{stem}.{i}.{part}.weight": rows.contiguous() for part, rows in parts}
    return out


def join_experts(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The reverse: what transformers' modules hold."""
    out, single = {}, {}
    for name, tensor in tensors.items():
        match = re.fullmatch(r"(.*\.experts)\.(\d+)\.(gate|up|down)_proj\.weight", name)
        if match:
            single.setdefault(match[1], {})[int(match[2]), match[3]] = tensor
        else:
            out[name] = tensor
    for stem, parts in single.items():
        count = len(parts) // 3
        out[f"{stem}.gate_up_proj"] = torch.stack([torch.cat([parts[i, "gate"], parts[i, "up"]]) for i in range(count)])
        out[f"{stem}.down_proj"] = torch.stack([parts[i, "down"] for i in range(count)])
    return out


# ---- weights ---------------------------------------------------------------------------------------------------------
# Aims: the residual stream grows by small steps, attention neither flat nor one-hot, Gated DeltaNet heads from almost
# forgetful to almost perfect memory, logits spread over several units so that greedy choices are clear.

GAINS = [  # standard deviation times sqrt(fan_in); the first match counts
    (r"lm_head", 3.2),
    (r"self_attn\.[qk]_proj", 1.5),
    (r"(self_attn\.o_proj|linear_attn\.out_proj)", 1.7),
    (r"mlp\.", 1.5),
    (r"in_proj_b\.", 1.6),
    (r"", 1.0),
]


def generator(seed: int, *labels: str) -> np.random.Generator:
    """An independent stream per label, so that no tensor depends on which others were drawn before it."""
    digest = hashlib.blake2b("\0".join([str(seed), *labels]).encode(), digest_size=16).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest, "big")))


def values(name: str, dims: tuple[int, ...], family: Family, rng: np.random.Generator) -> np.ndarray:
    def normal(mean, deviation):
        return mean + deviation * rng.standard_normal(dims)

    if ".visual." in name:
        return normal(0, 0.1)  # never run here
    if name.endswith(".A_log"):
        return np.log(rng.uniform(0.015, 9.0, dims))
    if name.endswith(".dt_bias"):
        return rng.uniform(-4.5, 1.0, dims)
    if name.endswith("conv1d.weight"):
        return normal(0, 0.6)
    if name.endswith(".bias"):
        return normal(0, 0.6)
    if name.endswith("embed_tokens.weight"):
        # With a tied head, a token's own embedding at the bottom of the residual stream votes for repeating the token:
        # keep it small beside what the layers add.
        return normal(0, 0.22 if family.tied else 1.0)
    if re.search(r"[qk]_norm\.weight$", name):
        return normal(0.5, 0.2) if family.one_plus_norm else rng.uniform(1.0, 1.9, dims)
    if "norm" in name:
        return normal(0, 0.3) if family.one_plus_norm and "linear_attn" not in name else rng.uniform(0.5, 1.6, dims)
    gain = next(g for pattern, g in GAINS if re.search(pattern, name))
    table = normal(0, gain / math.sqrt(dims[-1]))
    if name.startswith("lm_head"):
        table[-RESERVED:] /= 20  # keeps eos out of the continuations
    return table


def stored_dtype(name: str, family: Family) -> torch.dtype:
    """BF16, but published full Qwen3.5 files hold these two in F32."""
    return torch.float32 if family.wrapped and name.endswith(("A_log", "linear_attn.norm.weight")) else torch.bfloat16


def draw(name: str, dims, family_name: str, seed: int) -> torch.Tensor:
    family = FAMILIES[family_name]
    drawn = values(name, tuple(dims), family, generator(seed, family_name, name))
    return torch.from_numpy(drawn.astype(np.float32)).to(stored_dtype(name, family))
