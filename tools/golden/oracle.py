"""Hugging Face transformers as the oracle, in three precisions.

f32   transformers as installed: float32, eager attention, chunked Gated DeltaNet.
bf16  the same in bfloat16; only for the manifest's statistics.
f64   the same Python code, but really in float64. `dtype=torch.float64` alone is not enough: RMSNorm, the rope tables, softmax
      and the whole delta rule name torch.float32, which in a float64 model narrows. So the run happens under WideDispatch,
      which sits below every torch function, at the operator level: an operator asked for a float32 result is asked for float64
      instead, and any floating result of another type ends the run. Gated DeltaNet runs token by token, the definition.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import torch
import transformers
from safetensors.torch import load_file
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from families import join_experts

torch.set_num_threads(1)  # one order of summation
torch.set_grad_enabled(False)
transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()


class WideDispatch(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        args, kwargs = tree_map_only(torch.dtype, lambda d: torch.float64 if d == torch.float32 else d, (args, kwargs or {}))
        out = func(*args, **kwargs)
        for leaf in tree_leaves(out):
            if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() and leaf.dtype != torch.float64:
                raise TypeError(f"{func} made {leaf.dtype} inside a float64 run")
        return out


@contextlib.contextmanager
def really_float64():
    with contextlib.ExitStack() as stack:
        stack.callback(torch.set_default_dtype, torch.get_default_dtype())
        torch.set_default_dtype(torch.float64)
        for module in list(sys.modules.values()):  # the modelling files in use
            if hasattr(module, "torch_chunk_gated_delta_rule") and hasattr(module, "torch_recurrent_gated_delta_rule"):
                recurrent = module.torch_recurrent_gated_delta_rule
                stack.enter_context(mock.patch.object(module, "torch_chunk_gated_delta_rule", recurrent))
        stack.enter_context(WideDispatch())
        yield


def auto_class(config):
    whole = config.architectures and config.architectures[0].endswith("ForConditionalGeneration")
    return transformers.AutoModelForImageTextToText if whole else transformers.AutoModelForCausalLM


@dataclass
class Run:
    logits: torch.Tensor  # [batch, n, vocab]
    cache: object
    hidden: list  # of [n, hidden]: embeddings, after each layer, after the final norm
    mixer: list  # of [n, hidden]
    mlp: list
    router: list  # of (logits [n, experts], weights [n, k], experts [n, k] most probable first), layers with experts


class Oracle:
    """One checkpoint in one precision."""

    def __init__(self, folder: Path, dtype: torch.dtype):
        self.dtype = dtype
        if dtype == torch.float64:
            self.model = self._load_wide(folder)
        else:
            config = transformers.AutoConfig.from_pretrained(folder)
            self.model, report = auto_class(config).from_pretrained(
                folder, dtype=dtype, attn_implementation="eager", experts_implementation="eager", output_loading_info=True)
            faults = {k: v for k, v in report.items() if v}
            if faults:
                raise ValueError(f"{folder}: transformers reports {faults}")
        self.model.eval()
        self.decoder = getattr(self.model.model, "language_model", self.model.model)

    def _load_wide(self, folder: Path):
        """Not by from_pretrained: it would build buffers outside our reach. Names and shapes must fit exactly all the same."""
        config = transformers.AutoConfig.from_pretrained(folder)
        kind = getattr(transformers, config.architectures[0])  # imports the modelling file before really_float64 looks for it
        with really_float64():
            model = kind._from_config(config, dtype=torch.float64, attn_implementation="eager", experts_implementation="eager")
        stored = {k: v.double() for k, v in load_file(folder / "model.safetensors").items() if not k.startswith("mtp.")}
        stored = join_experts(stored)
        if "lm_head.weight" not in stored:
            embedding = next(k for k in stored if k.endswith("embed_tokens.weight"))
            stored["lm_head.weight"] = stored[embedding]
        model.load_state_dict(stored, strict=True)
        for what, tensor in [*model.named_parameters(), *model.named_buffers()]:
            if tensor.is_floating_point() and tensor.dtype != torch.float64:
                raise TypeError(f"{folder}: {what} is {tensor.dtype}")
        return model

    @contextlib.contextmanager
    def precision(self):
        with really_float64() if self.dtype == torch.float64 else contextlib.nullcontext():
            yield

    def run(self, tokens) -> Run:
        """One forward pass over a whole text, or over several of one length when `tokens` is two-dimensional."""
        ids = torch.as_tensor(np.atleast_2d(tokens).astype(np.int64))
        seen = {"hidden": [], "mixer": [], "mlp": [], "router": []}
        hooks = []

        def tap(module, where):
            def take(_module, _inputs, out):
                seen[where].append((out[0] if isinstance(out, tuple) else out)[0].clone())

            hooks.append(module.register_forward_hook(take))

        tap(self.decoder.embed_tokens, "hidden")
        for layer in self.decoder.layers:
            tap(layer.linear_attn if hasattr(layer, "linear_attn") else layer.self_attn, "mixer")
            tap(layer.mlp, "mlp")
            if hasattr(layer.mlp, "experts"):
                hooks.append(layer.mlp.gate.register_forward_hook(lambda _m, _i, out: seen["router"].append(out)))
            tap(layer, "hidden")
        tap(self.decoder.norm, "hidden")
        try:
            with self.precision():
                out = self.model(input_ids=ids, use_cache=True)
        finally:
            for hook in hooks:
                hook.remove()
        return Run(out.logits, out.cache, **seen)

    def greedy(self, prompts, steps: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """[batch, n] prompts -> ([batch, steps] tokens, [batch, steps] top-1 minus top-2, [batch] smallest router margin of prompt and
        text: last chosen minus first rejected logit), by cached decoding."""
        ids = torch.as_tensor(np.atleast_2d(prompts).astype(np.int64))
        tokens, margins, cache, batch = [], [], None, len(ids)
        closest = torch.full((batch,), torch.inf, dtype=torch.float64)

        def watch(_module, _inputs, out):
            k = out[2].shape[-1]
            if k < out[0].shape[-1]:
                top = out[0].topk(k + 1).values.double()
                gaps = (top[:, k - 1] - top[:, k]).reshape(batch, -1).amin(1)
                torch.minimum(closest, gaps, out=closest)

        routers = [layer.mlp.gate for layer in self.decoder.layers if hasattr(layer.mlp, "experts")]
        with contextlib.ExitStack() as stack:
            for router in routers:
                stack.callback(router.register_forward_hook(watch).remove)
            stack.enter_context(self.precision())
            for _ in range(steps):
                out = self.model(input_ids=ids, use_cache=True, cache=cache)
                cache = out.cache
                top = out.logits[:, -1].topk(2)
                tokens.append(top.indices[:, 0])
                margins.append(top.values[:, 0] - top.values[:, 1])
                ids = top.indices[:, :1]
        return torch.stack(tokens, 1).numpy().astype(np.int32), torch.stack(margins, 1).double().numpy(), closest.numpy()

    def inverse_frequencies(self) -> torch.Tensor:
        return self.decoder.rotary_emb.inv_freq.clone()


def cache_entries(run: Run) -> dict[str, torch.Tensor]:
    """What an engine's KV cache and Gated DeltaNet slots hold after the run, by entry name."""
    out = {"k": [], "v": [], "gdn.state": [], "gdn.conv": []}
    for layer in run.cache.layers:
        if getattr(layer, "keys", None) is not None:
            out["k"].append(layer.keys[0])
            out["v"].append(layer.values[0])
        else:
            out["gdn.state"].append(layer.recurrent_states[0][0])
            out["gdn.conv"].append(layer.conv_states[0][0])
    return {name: torch.stack(parts).contiguous() for name, parts in out.items() if parts}


def read_json(path: Path):
    return json.loads(path.read_text())
