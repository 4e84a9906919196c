#!/usr/bin/env python3
"""`sterling synth` and `sterling quantize` as programs: layouts read by the reference safetensors library, values against numpy and ml_dtypes.

  makers_test.py --binary build/release/sterling [unittest arguments]

Exit 77: skipped, a package is not installed."""

import argparse
import fnmatch
import json
import os
import pathlib
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
import unittest

BINARY = None
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "quant"))

DENSE = {
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": 260, "hidden_size": 160, "intermediate_size": 208,
    "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 48, "rms_norm_eps": 1e-6, "hidden_act": "silu",
    "max_position_embeddings": 512, "rope_theta": 1e6, "attention_bias": False, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip
KINDS = ["linear_attention", "linear_attention", "full_attention", "linear_attention"]
HYBRID = {
    "architectures": ["Qwen3_5MoeForConditionalGeneration"], "model_type": "qwen3_5_moe", "tie_word_embeddings": False,
    "image_token_id": 250, "video_token_id": 251, "vision_start_token_id": 252, "vision_end_token_id": 253,
    "text_config": {
        "model_type": "qwen3_5_moe_text", "vocab_size": 256, "hidden_size": 64, "num_hidden_layers": 4, "layer_types": KINDS,
        "full_attention_interval": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "linear_num_key_heads": 2,
        "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16, "linear_conv_kernel_dim": 4,
        "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 48,
        "mtp_num_hidden_layers": 1, "rms_norm_eps": 1e-6, "hidden_act": "silu", "max_position_embeddings": 512, "attn_output_gate": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25, "mrope_interleaved": True, "mrope_section": [2, 1, 1]},
    },
    "vision_config": {"depth": 2, "hidden_size": 16, "intermediate_size": 24, "num_heads": 2, "out_hidden_size": 64, "patch_size": 4,
                      "num_position_embeddings": 16, "in_channels": 3, "temporal_patch_size": 2, "spatial_merge_size": 2},
}  # fmt: skip


def types():
    return {"BF16": ml_dtypes.bfloat16, "F32": np.float32, "F8_E4M3": ml_dtypes.float8_e4m3fn, "U8": np.uint8}


def read_shard(path):
    """-> {name: array}, by the format's description."""
    raw = path.read_bytes()
    size = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + size])
    assert header.pop("__metadata__") == {"format": "pt"}
    out = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        out[name] = np.frombuffer(raw[8 + size + begin : 8 + size + end], types()[entry["dtype"]]).reshape(entry["shape"])
    return out


def read_model(folder):
    out = {}
    for path in sorted(folder.glob("*.safetensors")):
        out |= read_shard(path)
    return out


def e2m1(packed):
    codes = np.stack([packed & 15, packed >> 4], -1).reshape(packed.shape[0], -1)
    return codes.astype(np.uint8).view(ml_dtypes.float4_e2m1fn).astype(np.float64)


def decode(tensors, module):
    """The exact values of a stored matrix."""
    weight = tensors[module + ".weight"]
    if weight.dtype == np.uint8:
        scale = tensors[module + ".weight_scale"].astype(np.float64) * float(tensors[module + ".weight_scale_2"])
        return e2m1(weight) * np.repeat(scale, 16, 1)
    if module + ".weight_scale_inv" in tensors:
        scale = tensors[module + ".weight_scale_inv"].astype(np.float64)
        scale = scale.repeat(128, 0).repeat(128, 1)[: weight.shape[0], : weight.shape[1]]
        return weight.astype(np.float64) * scale
    if module + ".weight_scale" in tensors:
        return weight.astype(np.float64) * float(tensors[module + ".weight_scale"])
    return weight.astype(np.float64)


def split_experts(tensors):
    out = {}
    for name, value in tensors.items():
        if name.endswith("experts.gate_up_proj"):
            half = value.shape[1] // 2
            for e in range(len(value)):
                prefix = name.removesuffix("gate_up_proj") + str(e)
                out[prefix + ".gate_proj.weight"], out[prefix + ".up_proj.weight"] = value[e, :half], value[e, half:]
        elif name.endswith("experts.down_proj"):
            out |= {f"{name.removesuffix('down_proj')}{e}.down_proj.weight": v for e, v in enumerate(value)}
        else:
            out[name] = value
    return out


class MakersTest(unittest.TestCase):
    def setUp(self):
        self.home = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        for name, config in (("dense", DENSE), ("hybrid", HYBRID)):
            (self.home / name).mkdir()
            (self.home / name / "config.json").write_text(json.dumps(config))

    def run_it(self, *arguments, code=0, **more):
        done = subprocess.run([BINARY, *map(str, arguments)], capture_output=True, text=True, timeout=600, **more)
        self.assertEqual(done.returncode, code, done.stderr + done.stdout)
        return done

    def synth(self, name, *arguments, config="dense", **more):
        out = self.home / name
        done = self.run_it("synth", "--config", self.home / config, "--out", out, "--json", *arguments, **more)
        return out, json.loads(done.stdout)

    def quantize(self, source, name, *arguments, **more):
        out = self.home / name
        done = self.run_it("quantize", source, "--out", out, "--json", *arguments, **more)
        return out, json.loads(done.stdout)

    def fails(self, says, *arguments, code=2, **more):
        done = self.run_it(*arguments, code=code, **more)
        self.assertIn(says, done.stderr)
        self.assertEqual(len(done.stderr.strip().splitlines()), 1, done.stderr)

    def contents(self, folder):
        return {path.name: path.read_bytes() for path in folder.iterdir()}

    def check_layout(self, folder):
        """What the reference library and published files require; -> tensors."""
        tensors = {}
        for path in sorted(folder.glob("*.safetensors")):
            with safetensors.safe_open(path, "np") as opened:
                self.assertEqual(set(opened.keys()), set(read_shard(path)))
                self.assertEqual(opened.metadata(), {"format": "pt"})
            tensors |= read_shard(path)
        index = folder / "model.safetensors.index.json"
        if index.exists():
            document = json.loads(index.read_text())
            self.assertEqual(set(document["weight_map"]), set(tensors))
            self.assertEqual(list(document["weight_map"]), sorted(document["weight_map"]))
            self.assertEqual(document["metadata"]["total_size"], sum(t.nbytes for t in tensors.values()))
            for name, shard in document["weight_map"].items():
                self.assertRegex(shard, r"^model-\d{5}-of-\d{5}\.safetensors$")
        inspection = json.loads(self.run_it("inspect", folder, "--json").stdout)
        self.assertEqual([finding for finding in inspection["lint"] if finding["severity"] == "error"], [])
        self.assertTrue(inspection.get("loadable", True))
        return tensors

    def check_excludes(self, folder, tensors):
        """Every pattern matches a module, none of the quantised ones; every plain Linear is matched."""
        config = json.loads((folder / "config.json").read_text())["quantization_config"]
        hf = folder / "hf_quant_config.json"
        patterns = config.get("ignore", config.get("modules_to_not_convert"))
        if hf.exists():
            self.assertEqual(json.loads(hf.read_text())["quantization"]["exclude_modules"], patterns)
        modules = {n.removesuffix(".weight"): t for n, t in split_experts(tensors).items() if n.endswith(".weight") and t.ndim > 1}
        quantised = {m for m, t in modules.items() if t.dtype in (np.uint8, ml_dtypes.float8_e4m3fn)}
        self.assertTrue(quantised)
        for pattern in patterns:
            hits = {m for m in modules if fnmatch.fnmatchcase(m, pattern)}
            self.assertTrue(hits, pattern)
            self.assertFalse(hits & quantised, pattern)
        linear = {m for m in modules if not re.search("embed_tokens|pos_embed", m)}
        for module in linear - quantised:
            self.assertTrue(any(fnmatch.fnmatchcase(module, p) for p in patterns), module)
        return quantised


class Synth(MakersTest):
    def test_same_seed_same_files(self):
        for weights in ("bf16", "nvfp4", "fp8", "fp8-block"):
            common = ("--weights", weights, "--shard-size", "100KB")
            one, _ = self.synth(weights + "1", *common, "--threads", "1", config="hybrid")
            three, _ = self.synth(weights + "3", *common, "--threads", "3", config="hybrid")
            self.assertEqual(self.contents(one), self.contents(three))
        other, _ = self.synth("other", "--seed", "1", "--shard-size", "100KB", config="hybrid")
        mine, theirs = read_model(self.home / "bf161"), read_model(other)
        self.assertEqual(mine.keys(), theirs.keys())
        self.assertFalse(np.array_equal(mine["lm_head.weight"], theirs["lm_head.weight"]))
        # Where shards end changes no value.
        whole, _ = self.synth("whole", config="hybrid")
        self.assertEqual(len(list(whole.glob("*.safetensors"))), 1)
        for name, value in read_model(whole).items():
            np.testing.assert_array_equal(value.view(np.uint8), mine[name].view(np.uint8), err_msg=name)

    def test_published_layouts(self):
        for config in ("dense", "hybrid"):
            for weights in ("bf16", "nvfp4", "fp8", "fp8-block"):
                with self.subTest(config=config, weights=weights):
                    out, report = self.synth(f"{config}-{weights}", "--weights", weights, "--shard-size", "150KB", config=config)
                    tensors = self.check_layout(out)
                    self.assertEqual(report["tensors"], len(tensors))
                    self.assertEqual(sorted(report["files"]), sorted(p.name for p in out.iterdir()))
                    if weights == "bf16":
                        self.assertFalse((out / "hf_quant_config.json").exists())
                        continue
                    quantised = self.check_excludes(out, tensors)
                    self.assertEqual(report["quantised_modules"], len(quantised))
                    if config == "hybrid" and weights == "nvfp4":
                        self.assertTrue(all(".mlp.experts." in m for m in quantised))
                    for module in quantised:
                        values = decode(tensors, module)
                        self.assertAlmostEqual(values.std() * values.shape[1] ** 0.5, 1, delta=0.25 if weights == "fp8-block" else 0.12, msg=module)
                        self.assertEqual(module + ".input_scale" in tensors, weights != "fp8-block")

    def test_hybrid_tensors(self):
        tensors = read_model(self.synth("t", config="hybrid")[0])
        p = "model.language_model.layers.0."
        self.assertEqual(tensors[p + "mlp.experts.gate_up_proj"].shape, (6, 64, 64))
        self.assertEqual(tensors[p + "mlp.experts.down_proj"].shape, (6, 64, 32))
        self.assertEqual(tensors[p + "linear_attn.A_log"].dtype, np.float32)
        self.assertEqual(tensors[p + "linear_attn.dt_bias"].dtype, ml_dtypes.bfloat16)
        self.assertEqual(tensors["mtp.fc.weight"].shape, (64, 128))
        self.assertEqual(sum(n.startswith("mtp.") for n in tensors), 19)  # as published
        self.assertEqual(sum(n.startswith("model.visual.") for n in tensors), 12 * 2 + 9)
        self.assertLess(abs(tensors[p + "input_layernorm.weight"].astype(float)).max(), 0.5)  # zero-centred
        self.assertGreater(tensors[p + "linear_attn.norm.weight"].min(), 0.5)
        small = read_model(self.synth("small", "--no-mtp", "--no-vision", "--layers", "2", config="hybrid")[0])
        self.assertFalse([n for n in small if n.startswith(("mtp.", "model.visual.")) or ".layers.2." in n])
        config = json.loads((self.home / "small" / "config.json").read_text())["text_config"]
        self.assertEqual((config["num_hidden_layers"], config["layer_types"]), (2, KINDS[:2]))
        self.check_layout(self.home / "small")

    def test_a_quantised_config_is_taken_for_its_model(self):
        first, _ = self.synth("first", "--weights", "nvfp4")
        plain, _ = self.synth("plain", config="first")
        self.assertNotIn("quantization_config", json.loads((plain / "config.json").read_text()))
        self.assertTrue(all(t.dtype != np.uint8 for t in read_model(plain).values()))
        self.assertTrue(first.exists())

    def test_refusals(self):
        out = self.home / "out"
        base = ("synth", "--config", self.home / "dense")
        self.fails("--weights", *base, "--out", out, "--weights", "int4")
        self.fails("--config", "synth", "--out", out)
        self.fails("--out", *base)
        self.fails("no such file", "synth", "--config", self.home / "absent.json", "--out", out, code=1)
        self.fails("--layers 9", *base, "--out", out, "--layers", "9")
        (self.home / "dense" / "other.json").write_text(json.dumps(DENSE | {"architectures": ["OtherModel"]}))
        self.fails("OtherModel", "synth", "--config", self.home / "dense" / "other.json", "--out", out, code=1)
        (self.home / "dense" / "broken.json").write_text("{")
        self.fails("broken.json:1", "synth", "--config", self.home / "dense" / "broken.json", "--out", out, code=1)
        self.assertFalse(out.exists())
        self.fails("not empty", *base, "--out", self.home / "dense")
        self.fails("a file of this name", *base, "--out", self.home / "dense" / "config.json")
        big = DENSE | {"vocab_size": 1 << 24, "hidden_size": 1 << 16}
        (self.home / "dense" / "big.json").write_text(json.dumps(big))
        self.fails("are free on this disk", "synth", "--config", self.home / "dense" / "big.json", "--out", out, code=1)
        self.assertFalse(out.exists())

    def test_a_full_disk_leaves_nothing(self):
        def limited():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (78_000, 78_000))

        out = self.home / "out" / "deep"
        for size in ("70KB", "5GB"):  # in a later shard, in the first
            self.fails("can't be written", "synth", "--config", self.home / "dense", "--out", out, "--shard-size", size, code=1, preexec_fn=limited)
            self.assertFalse((self.home / "out").exists())

    def test_interrupted(self):
        (self.home / "dense" / "large.json").write_text(json.dumps(DENSE | {"vocab_size": 400_000, "hidden_size": 1024}))
        out = self.home / "out"
        arguments = ["synth", "--config", self.home / "dense" / "large.json", "--out", out, "--shard-size", "1MB"]
        running = subprocess.Popen([BINARY, *map(str, arguments)], stderr=subprocess.PIPE, text=True)
        while not out.exists() and running.poll() is None:
            time.sleep(0.005)
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=60)
        self.assertEqual(running.returncode, 1, errors)
        self.assertIn("nothing was kept", errors)
        self.assertFalse(out.exists())


class Quantize(MakersTest):
    def setUp(self):
        super().setUp()
        self.source, _ = self.synth("source", "--shard-size", "200KB")
        self.hybrid, _ = self.synth("hybrid-source", config="hybrid")
        (self.source / "tokenizer.json").write_text('{"a": 1}')
        (self.source / "notes.md").symlink_to(self.source / "tokenizer.json")
        (self.source / "pytorch_model.bin").write_text("weights")

    def share(self, source, modules):
        """The largest magnitude over matrices that share a scale."""
        out = {}
        for module in modules:
            group = re.sub(r"(in_proj_qkv|in_proj_z)$", "in", re.sub(r"(gate|up)_proj$", "gu", re.sub(r"[qkv]_proj$", "qkv", module)))
            out.setdefault(group, []).append(module)
        largest = {}
        for group in out.values():
            top = max(np.abs(source[m + ".weight"].astype(np.float32)).max() for m in group)
            largest |= {m: top for m in group}
        return largest

    def check(self, source_folder, target, *arguments):
        out, report = self.quantize(source_folder, f"{source_folder.name}-{target}-{len(arguments)}", "--to", target, *arguments)
        tensors, source = self.check_layout(out), split_experts(read_model(source_folder))
        quantised = self.check_excludes(out, tensors)
        self.assertEqual({m["module"] for m in report["modules"]}, quantised)
        # Everything else is as it was.
        for name, value in tensors.items():
            if name.removesuffix(".weight") not in quantised and not re.search(r"\.(weight_scale(_2|_inv)?|input_scale)$", name):
                original = read_model(source_folder)[name]
                self.assertEqual(value.dtype, original.dtype)
                np.testing.assert_array_equal(value.view(np.uint8), original.view(np.uint8), err_msg=name)
        # The error report, in numpy.
        for entry in report["modules"]:
            original = source[entry["module"] + ".weight"].astype(np.float64)
            error = decode(tensors, entry["module"]) - original
            self.assertAlmostEqual(entry["max_abs_error"], np.abs(error).max(), delta=1e-12)
            self.assertAlmostEqual(entry["relative_rms_error"], (np.square(error).sum() / np.square(original).sum()) ** 0.5, delta=1e-9)
            self.assertAlmostEqual(entry["sqnr_db"], 10 * np.log10(np.square(original).sum() / np.square(error).sum()), delta=1e-6)
        return out, tensors, source, quantised

    def test_nvfp4(self):
        for folder in (self.source, self.hybrid):
            out, tensors, source, quantised = self.check(folder, "nvfp4")
            largest = self.share(source, quantised)
            for module in quantised:
                weight = source[module + ".weight"].astype(np.float32)
                scale2 = largest[module] / np.float32(2688)
                blocks = weight.reshape(-1, 16)
                scale = np.abs(blocks).max(1) / (np.float32(6) * scale2)
                scale8 = np.clip(scale, np.float32(2.0**-9), np.float32(448)).astype(ml_dtypes.float8_e4m3fn)
                codes = fixtures.fp4_codes(blocks / (scale8.astype(np.float32) * scale2)[:, None])
                self.assertEqual(tensors[module + ".weight_scale_2"], scale2)
                np.testing.assert_array_equal(tensors[module + ".weight_scale"].view(np.uint8).ravel(), scale8.view(np.uint8))
                np.testing.assert_array_equal(tensors[module + ".weight"].ravel(), (codes[:, 0::2] | codes[:, 1::2] << 4).ravel())
            config = json.loads((out / "hf_quant_config.json").read_text())["quantization"]
            self.assertEqual((config["quant_algo"], config["group_size"]), ("W4A16_NVFP4", 16))

    def test_nvfp4_search(self):
        _, plain, source, quantised = self.check(self.source, "nvfp4")
        _, searched, _, _ = self.check(self.source, "nvfp4", "--search", "mse")
        for module in quantised:
            original = source[module + ".weight"].astype(np.float64).reshape(-1, 16)
            errors = [np.square(decode(t, module).reshape(-1, 16) - original).sum(1) for t in (plain, searched)]
            self.assertTrue((errors[1] <= errors[0] * (1 + 1e-12)).all())
            self.assertLess(errors[1].sum(), 0.9 * errors[0].sum())

    def test_fp8(self):
        for folder in (self.source, self.hybrid):
            _, tensors, source, quantised = self.check(folder, "fp8")
            largest = self.share(source, quantised)
            for module in quantised:
                scale = largest[module] / np.float32(448)
                codes = np.clip(source[module + ".weight"].astype(np.float32) / scale, -448, 448).astype(ml_dtypes.float8_e4m3fn)
                self.assertEqual(tensors[module + ".weight_scale"], scale)
                self.assertEqual(tensors[module + ".input_scale"], 1)
                np.testing.assert_array_equal(tensors[module + ".weight"].view(np.uint8), codes.view(np.uint8))

    def test_fp8_block(self):
        for folder in (self.source, self.hybrid):
            out, tensors, source, quantised = self.check(folder, "fp8-block")
            self.assertFalse((out / "hf_quant_config.json").exists())
            for module in quantised:
                weight = source[module + ".weight"].astype(np.float32)
                for r in range(0, weight.shape[0], 128):
                    for c in range(0, weight.shape[1], 128):
                        block = weight[r : r + 128, c : c + 128]
                        scale = (np.abs(block).max() / np.float32(448)).astype(ml_dtypes.bfloat16)
                        self.assertEqual(tensors[module + ".weight_scale_inv"][r // 128, c // 128], scale)
                        codes = np.clip(block / scale.astype(np.float32), -448, 448).astype(ml_dtypes.float8_e4m3fn)
                        np.testing.assert_array_equal(tensors[module + ".weight"][r : r + 128, c : c + 128].view(np.uint8), codes.view(np.uint8))

    def test_exclusions_and_side_files(self):
        out, tensors, _, quantised = self.check(self.source, "nvfp4", "--exclude", "*.layers.0.*", "--exclude", "*.down_proj")
        self.assertFalse([m for m in quantised if ".layers.0." in m or m.endswith("down_proj")])
        self.assertEqual((out / "tokenizer.json").read_text(), '{"a": 1}')
        self.assertEqual((out / "notes.md").read_text(), '{"a": 1}')
        self.assertFalse((out / "notes.md").is_symlink())
        self.assertFalse((out / "pytorch_model.bin").exists())

    def test_threads_and_shards_change_nothing(self):
        for target in ("nvfp4", "fp8-block"):
            one, _ = self.quantize(self.hybrid, target + "1", "--to", target, "--threads", "1")
            three, _ = self.quantize(self.hybrid, target + "3", "--to", target, "--threads", "3")
            shards, _ = self.quantize(self.hybrid, target + "s", "--to", target, "--shard-size", "64KB")
            self.assertEqual(self.contents(one), self.contents(three))
            self.assertGreater(len(list(shards.glob("*.safetensors"))), 3)
            mine, theirs = read_model(one), read_model(shards)
            self.assertEqual({n: t.tobytes() for n, t in mine.items()}, {n: t.tobytes() for n, t in theirs.items()})

    def test_weights_of_zeros(self):
        path = self.source / sorted(p.name for p in self.source.glob("*.safetensors"))[0]
        name = next(n for n in read_shard(path) if n.endswith("q_proj.weight"))
        self.overwrite(path, name, 0)
        for target in ("nvfp4", "fp8", "fp8-block"):
            out, report = self.quantize(self.source, target, "--to", target)
            self.assertTrue((decode(read_model(out), name.removesuffix(".weight")) == 0).all())
            entry = next(m for m in report["modules"] if m["module"] + ".weight" == name)
            self.assertEqual((entry["max_abs_error"], entry["sqnr_db"]), (0, None))

    def overwrite(self, path, name, value):
        raw = bytearray(path.read_bytes())
        size = int.from_bytes(raw[:8], "little")
        begin, end = json.loads(raw[8 : 8 + size])[name]["data_offsets"]
        raw[8 + size + begin : 8 + size + end] = np.full((end - begin) // 2, value, ml_dtypes.bfloat16).tobytes()
        path.write_bytes(raw)

    def test_refusals(self):
        out = self.home / "out"
        base = ("quantize", self.source, "--out", out)
        self.fails("accepted: nvfp4, fp8, fp8-block", *base)
        self.fails("--to", *base, "--to", "int4")
        self.fails("--out", "quantize", self.source, "--to", "fp8")
        self.fails("not empty", "quantize", self.source, "--to", "fp8", "--out", self.source)
        self.fails("--exclude no*such", *base, "--to", "fp8", "--exclude", "no*such")
        self.fails("--search mse", *base, "--to", "fp8", "--search", "mse")
        self.fails("all are excluded", *base, "--to", "fp8", "--exclude", "*")
        self.fails("there are no weights", "quantize", self.home / "dense", "--out", out, "--to", "fp8", code=1)
        done, _ = self.quantize(self.source, "done", "--to", "fp8")
        self.fails("quantised already", "quantize", done, "--out", out, "--to", "nvfp4", code=1)
        path = self.source / sorted(p.name for p in self.source.glob("*.safetensors"))[0]
        name = next(n for n in read_shard(path) if n.endswith("q_proj.weight"))
        self.overwrite(path, name, float("inf"))
        for target in ("nvfp4", "fp8", "fp8-block"):
            self.fails(name + " holds NaN or infinity", *base, "--to", target, code=1)
            self.assertFalse(out.exists())
        path.unlink()
        self.fails(path.name, *base, "--to", "fp8", code=1)

    def test_table(self):
        done = self.run_it("quantize", self.hybrid, "--to", "nvfp4", "--out", self.home / "table")
        self.assertIn("mlp.experts.*.gate_proj", done.stdout)
        self.assertRegex(done.stdout, r"(?m)^all +72 ")


def main():
    global BINARY, np, ml_dtypes, safetensors, fixtures
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", required=True)
    options, rest = parser.parse_known_args()
    BINARY = os.path.abspath(options.binary)
    try:
        import ml_dtypes
        import numpy as np
        import safetensors
        import make_encode_fixtures as fixtures
    except ImportError as missing:
        print(f"skipped: the Python package {missing.name} is not installed", file=sys.stderr)
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *rest])


if __name__ == "__main__":
    main()
