#!/usr/bin/env python3
"""`sterling quantize` output in other people's readers: transformers (fp8 with blocks), ModelOpt (fp8, nvfp4), compressed-tensors (nvfp4).

  interop_test.py --binary build/release/sterling [unittest arguments]

A reader that is not installed skips its tests and says so; without torch all of it is skipped (exit 77). None of them is installed by ./test,
because torch alone takes a gigabyte. With them in a virtual environment: cmake -DSTERLING_INTEROP_PYTHON=VENV/bin/python, then ctest -R makers_interop.

    pip install torch transformers compressed-tensors nvidia-modelopt safetensors numpy ml_dtypes"""

import argparse
import contextlib
import importlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import warnings

BINARY = None
# Rows and columns are multiples of 128: transformers takes the number of scales for that of equal blocks, where the last one may be short.
DENSE = {
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": 256, "hidden_size": 256, "intermediate_size": 384,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "rms_norm_eps": 1e-6, "hidden_act": "silu",
    "max_position_embeddings": 512, "rope_theta": 1e6, "attention_bias": False, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip
MOE = DENSE | {
    "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "num_experts": 4, "num_experts_per_tok": 2,
    "moe_intermediate_size": 128, "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": [],
}  # fmt: skip
E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6]


def reader(name):
    """A module of a reader, or a skip that says why."""
    try:
        with warnings.catch_warnings(), open(os.devnull, "w") as quiet, contextlib.redirect_stdout(quiet):
            warnings.simplefilter("ignore")
            return importlib.import_module(name)
    except ImportError as problem:
        raise unittest.SkipTest(f"{name} can't be imported here: {problem}") from problem


def read_model(folder):
    out = {}
    for path in sorted(folder.glob("*.safetensors")):
        out |= safetensors_torch.load_file(path)
    return out


def codes_of(packed):
    """E2M1 values of packed codes, the earlier in the low half."""
    both = torch.stack([packed & 15, packed >> 4], -1).reshape(packed.shape[0], -1).long()
    return torch.tensor(E2M1 + [-v for v in E2M1], dtype=torch.float64)[both]


def decode(tensors, module):
    """What a stored matrix means, formed in double: the definition that Sterling's own decoder is held to, rounded once."""
    weight = tensors[module + ".weight"]
    if weight.dtype == torch.uint8:
        scale = tensors[module + ".weight_scale"].double() * tensors[module + ".weight_scale_2"].double()
        return codes_of(weight) * scale.repeat_interleave(16, 1)
    if module + ".weight_scale_inv" in tensors:
        scale = tensors[module + ".weight_scale_inv"].double().repeat_interleave(128, 0).repeat_interleave(128, 1)
        return weight.double() * scale[: weight.shape[0], : weight.shape[1]]
    if module + ".weight_scale" in tensors:
        return weight.double() * tensors[module + ".weight_scale"].double()
    return weight.double()


class Interop(unittest.TestCase):
    def setUp(self):
        self.home = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def run_it(self, *arguments):
        done = subprocess.run([BINARY, *map(str, arguments)], capture_output=True, text=True, timeout=600)
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)

    def make(self, config, target):
        """-> folder, source tensors, quantised tensors, quantised modules."""
        source, out = self.home / "source", self.home / target
        if not source.exists():
            (self.home / "config.json").write_text(json.dumps(config))
            self.run_it("synth", "--config", self.home / "config.json", "--out", source)
        self.run_it("quantize", source, "--to", target, "--out", out)
        tensors = read_model(out)
        modules = [n.removesuffix(".weight") for n, t in tensors.items() if t.dtype in (torch.uint8, torch.float8_e4m3fn) and n.endswith(".weight")]
        self.assertTrue(modules)
        return out, read_model(source), tensors, modules

    def same(self, found, expected, message):
        self.assertEqual(found.shape, expected.shape, message)
        self.assertTrue(torch.equal(found, expected), f"{message}: {(found != expected).sum()} of {expected.numel()} values differ")


class Transformers(Interop):
    def load(self, folder):
        transformers = reader("transformers")
        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        config = transformers.FineGrainedFP8Config(dequantize=True)
        model, report = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, quantization_config=config, output_loading_info=True
        )
        for kind in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs"):
            self.assertFalse(report.get(kind), kind)
        return model

    def test_fp8_block(self):
        folder, _, tensors, modules = self.make(DENSE, "fp8-block")
        model = self.load(folder)
        state = model.state_dict()
        for module in modules:
            self.same(state[module + ".weight"], decode(tensors, module).float(), module)
        for name, value in tensors.items():
            if name.endswith(".weight") and name.removesuffix(".weight") not in modules:
                self.same(state[name], value.float(), name)
        with torch.no_grad():
            self.assertTrue(torch.isfinite(model(torch.arange(8)[None]).logits).all())

    def test_fp8_block_experts(self):
        folder, _, tensors, modules = self.make(MOE, "fp8-block")
        state = self.load(folder).state_dict()
        checked = 0
        for layer in range(MOE["num_hidden_layers"]):
            prefix = f"model.layers.{layer}.mlp.experts"
            for expert in range(MOE["num_experts"]):
                parts = [decode(tensors, f"{prefix}.{expert}.{part}_proj").float() for part in ("gate", "up", "down")]
                self.same(state[f"{prefix}.gate_up_proj"][expert], torch.cat(parts[:2]), f"{prefix}.{expert}")
                self.same(state[f"{prefix}.down_proj"][expert], parts[2], f"{prefix}.{expert}")
                checked += 3
        for module in modules:
            if ".experts." not in module:
                self.same(state[module + ".weight"], decode(tensors, module).float(), module)
                checked += 1
        self.assertEqual(checked, len(modules))


class ModelOpt(Interop):
    def test_nvfp4_decoded(self):
        nvfp4 = reader("modelopt.torch.quantization.qtensor.nvfp4_tensor")
        _, _, tensors, modules = self.make(MOE, "nvfp4")
        for module in modules:
            packed, scale, whole = (tensors[module + suffix] for suffix in (".weight", ".weight_scale", ".weight_scale_2"))
            shape = (packed.shape[0], packed.shape[1] * 2)
            values = nvfp4.NVFP4QTensor(shape, torch.float32, packed).dequantize(
                dtype=torch.float32, scale=scale, double_scale=whole, block_sizes={-1: 16}
            )
            # Theirs rounds the product of the two scales to FP32 and then the value; ours rounds the value alone.
            rounded_twice = codes_of(packed).float() * (scale.float() * whole).repeat_interleave(16, 1)
            self.same(values, rounded_twice, module)
            exact = decode(tensors, module)
            self.assertLessEqual(((values.double() - exact).abs() - exact.abs() * 2.0**-23).max().item(), 0, module)

    def test_nvfp4_encoded_alike(self):
        nvfp4 = reader("modelopt.torch.quantization.qtensor.nvfp4_tensor")
        _, source, tensors, modules = self.make(DENSE, "nvfp4")
        for module in modules:
            made, scale, _ = nvfp4.NVFP4QTensor.quantize(
                source[module + ".weight"].float(), 16, weights_scaling_factor_2=tensors[module + ".weight_scale_2"], try_tensorrt=False
            )
            self.same(scale.view(torch.uint8), tensors[module + ".weight_scale"].view(torch.uint8), module)
            self.same(made._quantized_data, tensors[module + ".weight"], module)

    def test_fp8_decoded(self):
        fp8 = reader("modelopt.torch.quantization.qtensor.fp8_tensor")
        _, _, tensors, modules = self.make(MOE, "fp8")
        for module in modules:
            codes = tensors[module + ".weight"]
            values = fp8.FP8QTensor(codes.shape, torch.float32, codes).dequantize(
                dtype=torch.float32, scale=tensors[module + ".weight_scale"], block_sizes=None
            )
            self.same(values, decode(tensors, module).float(), module)


class CompressedTensors(Interop):
    def test_nvfp4_decoded(self):
        compressor = reader("compressed_tensors.compressors.nvfp4.base").NVFP4PackedCompressor
        scheme = reader("compressed_tensors.quantization").preset_name_to_scheme("NVFP4A16", ["Linear"])
        _, _, tensors, modules = self.make(DENSE, "nvfp4")
        for module in modules:
            # Its layout: another name for the codes, and a global scale that divides.
            state = {
                "weight_packed": tensors[module + ".weight"],
                "weight_scale": tensors[module + ".weight_scale"],
                "weight_global_scale": (1 / tensors[module + ".weight_scale_2"]).reshape(1),
            }
            values = compressor.decompress(state, scheme)["weight"]
            self.assertEqual(values.dtype, torch.bfloat16)
            # It rounds the scale and the value to BF16: twice 2^-9, and the FP32 reciprocal.
            exact = decode(tensors, module)
            self.assertLessEqual(((values.double() - exact).abs() - exact.abs() * 2.0**-7.99).max().item(), 0, module)
            self.assertTrue(torch.equal(values == 0, exact == 0), module)


def main():
    global BINARY, torch, safetensors_torch
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True)
    args, rest = parser.parse_known_args()
    BINARY = os.path.abspath(args.binary)
    os.environ["HF_HUB_OFFLINE"] = "1"
    try:
        import safetensors.torch as safetensors_torch
        import torch
    except ImportError as problem:
        print(f"skipped: {problem}; the readers of other projects are not installed by ./test")
        return 77
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)


if __name__ == "__main__":
    sys.exit(main())
