"""The small hybrid: configuration, initial weights, and a delta rule that is faster to differentiate on a CPU than transformers' own."""

import math

import torch
import torch.nn.functional as F
from transformers.models.qwen3_5 import Qwen3_5ForCausalLM, Qwen3_5TextConfig, modeling_qwen3_5

import task

CHUNK = 64
FIELDS = {
    "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "layer_types", "num_attention_heads", "num_key_value_heads",
    "head_dim", "linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim",
    "linear_conv_kernel_dim", "attn_output_gate", "mamba_ssm_dtype", "max_position_embeddings", "rope_parameters", "rms_norm_eps",
    "hidden_act", "tie_word_embeddings", "bos_token_id", "eos_token_id", "pad_token_id",
}


def config():
    return Qwen3_5TextConfig(
        architectures=["Qwen3_5ForCausalLM"],
        vocab_size=task.VOCABULARY,
        hidden_size=128,
        intermediate_size=512,
        num_hidden_layers=2,
        layer_types=["linear_attention", "full_attention"],
        full_attention_interval=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=64,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        linear_key_head_dim=32,
        linear_value_head_dim=32,
        linear_conv_kernel_dim=4,
        attn_output_gate=True,
        mamba_ssm_dtype="float32",
        max_position_embeddings=16384,
        rope_parameters={
            "rope_type": "default",
            "rope_theta": 10000000.0,
            "partial_rotary_factor": 0.25,
            "mrope_interleaved": True,
            "mrope_section": [3, 3, 2],
        },
        tie_word_embeddings=False,
        bos_token_id=task.BOS,
        eos_token_id=task.EOS,
        pad_token_id=task.PAD,
        dtype="bfloat16",
    )


@torch.no_grad()
def initialise(model):
    """Unit-variance outputs instead of transformers' 0.02, which is meant for wide models; memories of a few up to about forty tokens in the
    recurrent heads; q and k norms above one, so that attention can choose from the start."""
    for name, parameter in model.named_parameters():
        if name.endswith(("q_norm.weight", "k_norm.weight")):
            parameter.fill_(0.5)
        elif name.endswith("A_log"):
            parameter.copy_(torch.tensor([0.02, 0.2, 1.0, 4.0]).log())
        elif name.endswith("conv1d.weight"):
            parameter.uniform_(-0.5, 0.5)
        elif name.endswith("embed_tokens.weight"):
            parameter.normal_(0, 0.5)
        elif parameter.dim() == 2:
            parameter.normal_(0, 1 / math.sqrt(parameter.shape[1]))
    lay_out_circuit(model)


def orthogonal(rows, columns):
    return torch.nn.init.orthogonal_(torch.empty(rows, columns))


def lay_out_circuit(model):
    """A start close to what recall needs, since training from a random start had not found it within the hours tried on a CPU: the
    recurrent layer reads the token before (a convolution that looks one back, equal q and k) and writes it, turned by a random rotation,
    beside the token itself; the attention's q reads the token and its k what the rotation wrote, so that a key finds the place after its earlier occurrence; v, o and the head copy."""
    recurrent, attention = (layer for layer in model.model.layers)
    hidden = model.config.hidden_size
    rotation = orthogonal(hidden, hidden)
    mixer = recurrent.linear_attn
    width = mixer.key_dim
    basis = orthogonal(mixer.value_dim, hidden)
    mixer.in_proj_qkv.weight[:width] = mixer.in_proj_qkv.weight[width : 2 * width]
    mixer.in_proj_qkv.weight[2 * width :] = basis
    mixer.conv1d.weight[:width] = mixer.conv1d.weight[width : 2 * width]
    mixer.conv1d.weight[2 * width :] *= 0.1
    mixer.conv1d.weight[2 * width :, :, -2] += 1.0
    mixer.out_proj.weight.copy_(rotation @ basis.T)
    for layer in (recurrent, attention):
        layer.mlp.down_proj.weight *= 0.2

    heads = attention.self_attn
    look = orthogonal(heads.head_dim, hidden)
    copied = orthogonal(heads.head_dim, hidden)
    heads.k_proj.weight.copy_(look @ rotation.T)
    for head in range(model.config.num_attention_heads):
        row = 2 * head * heads.head_dim
        heads.q_proj.weight[row : row + heads.head_dim] = look
    heads.v_proj.weight.copy_(copied)
    heads.o_proj.weight.copy_(copied.T.repeat(1, model.config.num_attention_heads))
    model.lm_head.weight.copy_(model.model.embed_tokens.weight * 0.3)


def delta_rule(query, key, value, g, beta, initial_state=None, output_final_state=False, **_):
    """The chunked gated delta rule. The unit triangular system is inverted by (I − A)(I + A²)(I + A⁴)…, which ends because A is strictly
    lower triangular, and chunks are stacked instead of written in place, which makes the backward pass linear in their number."""
    dtype, (batch, length, key_heads, key_dim), value_heads = query.dtype, key.shape, value.shape[2]
    query, key = (x.repeat_interleave(value_heads // key_heads, dim=2) for x in (query, key))
    query, key, value, beta, g = (x.transpose(1, 2).float() for x in (query, key, value, beta, g))
    query = query * torch.rsqrt(query.square().sum(-1, keepdim=True) + 1e-6) * key_dim**-0.5
    key = key * torch.rsqrt(key.square().sum(-1, keepdim=True) + 1e-6)
    pad = -length % CHUNK
    query, key, value = (F.pad(x, (0, 0, 0, pad)).unflatten(2, (-1, CHUNK)) for x in (query, key, value))
    beta, g = (F.pad(x, (0, pad)).unflatten(2, (-1, CHUNK)) for x in (beta, g))

    total = g.cumsum(-1)
    later = torch.ones(CHUNK, CHUNK, dtype=torch.bool).triu(1)
    decay = (total.unsqueeze(-1) - total.unsqueeze(-2)).masked_fill(later, -torch.inf).exp()
    system = ((key * beta.unsqueeze(-1)) @ key.mT * decay).tril(-1)
    eye = torch.eye(CHUNK)
    inverse, power = eye - system, system @ system
    for _step in range(int(math.log2(CHUNK)) - 1):
        inverse = inverse @ (eye + power)
        power = power @ power
    fresh = inverse @ (value * beta.unsqueeze(-1))
    from_state = inverse @ (key * (beta * total.exp()).unsqueeze(-1))
    within = query @ key.mT * decay
    query = query * total.exp().unsqueeze(-1)
    key = key * (total[..., -1:] - total).exp().unsqueeze(-1)
    fade = total[..., -1].exp()[..., None, None]

    state = torch.zeros(batch, value_heads, key_dim, value.shape[-1]) if initial_state is None else initial_state
    outputs = []
    parts = zip(*(x.unbind(2) for x in (fresh, from_state, within, query, key, fade)), strict=True)
    for fresh_i, from_state_i, within_i, query_i, key_i, fade_i in parts:
        delta = fresh_i - from_state_i @ state
        outputs.append(query_i @ state + within_i @ delta)
        state = state * fade_i + key_i.mT @ delta
    output = torch.stack(outputs, 2).flatten(2, 3)[:, :, :length].transpose(1, 2).to(dtype)
    return output, state if output_final_state else None


def build(seed):
    torch.manual_seed(seed)
    model = Qwen3_5ForCausalLM._from_config(config(), dtype=torch.float32, attn_implementation="sdpa")
    initialise(model)
    return model


def config_fields():
    """Fields of config.json that are written although they may equal a default of transformers."""
    return [name for name in config().to_dict() if name in FIELDS]


def use_fast_delta_rule():
    modeling_qwen3_5.torch_chunk_gated_delta_rule = delta_rule
