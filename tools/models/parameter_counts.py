#!/usr/bin/env python3
"""Parameters of a configuration as transformers counts them: the oracle of `sterling inspect` on a bare config.json.

Builds the model on torch's meta device, which allocates nothing, and counts its state dict, tied tensors once. What transformers does not build (MTP heads) is not
in these counts.

    tools/models/parameter_counts.py FOLDER…       prints the counts of every FOLDER/config.json
    tools/models/parameter_counts.py --fixtures    writes tests/data/parameter_counts.json: small configurations and their counts

Needs torch and transformers (5.24 made the fixtures).
"""
import json
import pathlib
import sys

import torch
import transformers

ROOT = pathlib.Path(__file__).resolve().parents[2]

DEEPSEEK = {
    "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "hidden_size": 48, "intermediate_size": 80,
    "moe_intermediate_size": 24, "num_hidden_layers": 3, "first_k_dense_replace": 1, "n_routed_experts": 4, "n_shared_experts": 2,
    "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1, "num_attention_heads": 4, "num_key_value_heads": 4, "q_lora_rank": 20,
    "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 12, "vocab_size": 70, "moe_layer_freq": 1,
    "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}
MINIMAX = {
    "architectures": ["MiniMaxM2ForCausalLM"], "model_type": "minimax_m2", "hidden_size": 48, "intermediate_size": 24,
    "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 16, "num_local_experts": 4,
    "num_experts_per_tok": 2, "use_qk_norm": True, "use_routing_bias": True, "vocab_size": 70, "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
NEMOTRON = {
    "architectures": ["NemotronHForCausalLM"], "model_type": "nemotron_h", "hidden_size": 48, "intermediate_size": 40,
    "moe_intermediate_size": 24, "moe_shared_expert_intermediate_size": 32, "n_routed_experts": 4, "n_shared_experts": 1,
    "num_experts_per_tok": 2, "num_hidden_layers": 5, "hybrid_override_pattern": "ME*-M", "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "mamba_num_heads": 6, "mamba_head_dim": 8, "n_groups": 2, "ssm_state_size": 16,
    "conv_kernel": 4, "use_conv_bias": True, "use_bias": False, "expand": 1, "vocab_size": 70, "tie_word_embeddings": False,
    "n_group": 1, "topk_group": 1, "torch_dtype": "bfloat16",
}
GPT_OSS = {
    "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "hidden_size": 64, "intermediate_size": 32,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 24, "num_local_experts": 4,
    "num_experts_per_tok": 2, "attention_bias": True, "vocab_size": 70, "tie_word_embeddings": False,
    "layer_types": ["sliding_attention", "full_attention"],
}
GEMMA = {
    "architectures": ["Gemma4ForConditionalGeneration"], "model_type": "gemma4", "dtype": "bfloat16", "tie_word_embeddings": True,
    "audio_config": None,
    "text_config": {
        "model_type": "gemma4_text", "hidden_size": 48, "intermediate_size": 40, "moe_intermediate_size": 24, "num_experts": 4,
        "top_k_experts": 2, "enable_moe_block": True, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
        "num_global_key_value_heads": 1, "head_dim": 16, "global_head_dim": 32, "attention_k_eq_v": True,
        "hidden_size_per_layer_input": 0, "num_kv_shared_layers": 0, "use_double_wide_mlp": False, "vocab_size": 70,
        "vocab_size_per_layer_input": 70, "tie_word_embeddings": True,
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
    },
    "vision_config": {
        "model_type": "gemma4_vision", "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 3,
        "num_key_value_heads": 3, "head_dim": 8, "patch_size": 4, "position_embedding_size": 50, "pooling_kernel_size": 3,
        "standardize": True, "use_clipped_linears": False,
    },
}


def count(config):
    fields = {key: value for key, value in config.items() if key not in ("model_type", "auto_map", "quantization_config")}
    parsed = transformers.AutoConfig.for_model(config["model_type"], **fields)
    kind = transformers.AutoModelForImageTextToText if "vision_config" in config else transformers.AutoModelForCausalLM
    with torch.device("meta"):
        model = kind.from_config(parsed, dtype=torch.bfloat16)
    tensors = model.state_dict()
    for tied in model.all_tied_weights_keys:
        tensors.pop(tied, None)
    total = sum(tensor.numel() for tensor in tensors.values())
    vision = sum(tensor.numel() for name, tensor in tensors.items() if "visual" in name or "vision" in name)
    return {"text": total - vision, "vision": vision}


def main():
    if sys.argv[1:] == ["--fixtures"]:
        fixtures = [{"config": config, **count(config)} for config in (DEEPSEEK, MINIMAX, NEMOTRON, GPT_OSS, GEMMA)]
        (ROOT / "tests/data/parameter_counts.json").write_text(json.dumps(fixtures, indent=1) + "\n")
        return
    for folder in map(pathlib.Path, sys.argv[1:]):
        print(folder.name, count(json.loads((folder / "config.json").read_text())))


if __name__ == "__main__":
    main()
