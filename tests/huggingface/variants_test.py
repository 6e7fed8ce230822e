"""Folders of Hugging Face that leave keys out, spell them in another way, or whose arrays say otherwise than config.json, compute
what `transformers` computes of them; so does what is exported again, as each of its versions reads it.

Usage: variants_test.py TESSERA STEP [unittest options]; STEP is tests/support/steps_on_weights.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

os.environ["HF_HUB_OFFLINE"] = "1"  # nothing is looked up
import numpy
import safetensors.torch
import torch
import transformers

import models
import variants

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import huggingface_defaults

TESSERA, STEP = "", ""
TOLERANCE = 1e-5  # relative to the largest element, in float32
CLASSES = {"bert": transformers.BertForMaskedLM, "vit": transformers.ViTForImageClassification,
           "t5": transformers.T5ForConditionalGeneration, "gemma3": transformers.Gemma3ForConditionalGeneration,
           "llama4": transformers.Llama4ForConditionalGeneration}
KINDS = {"bert": "masked", "vit": "image", "t5": "pair"}


def class_of(config):
    return CLASSES.get(config["model_type"], transformers.AutoModelForCausalLM)


def kind_of(config):
    return KINDS.get(config["model_type"], "text")


def run(*arguments):
    return subprocess.run([TESSERA, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=120)


def randomise(model):
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for _, parameter in sorted(model.named_parameters()):
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.2)
    return model.eval()


def inputs_of(variant):
    generator = torch.Generator().manual_seed(7)
    config, kind = variant.config.get("text_config", variant.config), kind_of(variant.config)
    if kind == "image":
        labels = transformers.AutoConfig.for_model(**config).num_labels
        return {"images": torch.randn((variant.batch, models.IMAGE, models.IMAGE, 3), generator=generator),
                "targets": torch.randint(0, labels, (variant.batch,), generator=generator)}
    tokens = lambda: torch.randint(1, config["vocab_size"], (variant.batch, variant.seq), generator=generator)
    inputs = {"tokens": tokens(), "targets": tokens()}
    if kind == "pair":
        inputs["source"] = tokens()
    if kind == "masked":
        inputs["segments"] = torch.randint(0, config.get("type_vocab_size", 2), (variant.batch, variant.seq), generator=generator)
        keep = torch.arange(variant.seq) < models.MASKED
        inputs["targets"] = torch.where(keep, inputs["targets"], -1)
    return inputs


def logits_of(config, model, inputs):
    with torch.no_grad():
        return models.logits_of(models.Case("", None, None, kind_of(config)), model, inputs)


def loss_of(variant, model, inputs, logits):
    if not variant.loss_of_theirs:
        return models.loss_of(logits, inputs).item()
    with torch.no_grad():  # their labels are shifted inside; these are not
        done = model(inputs["tokens"], output_router_logits=None)
        loss = models.loss_of(logits, inputs).item()
        return loss if done.aux_loss is None else loss + model.config.router_aux_loss_coef * done.aux_loss.item()


class Variants(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory(prefix="tessera_variants_test_")
        cls.addClassCleanup(temporary.cleanup)
        cls.folder = pathlib.Path(temporary.name)
        torch.set_num_threads(1)
        transformers.utils.logging.set_verbosity(transformers.logging.CRITICAL)
        transformers.utils.logging.disable_progress_bar()
        cls.expected, cls.imported, jobs = {}, {}, []
        for variant in variants.VARIANTS:
            jobs += cls.prepare(variant)
        (cls.folder / "jobs").write_text("".join("\t".join(map(str, job)) + "\n" for job in jobs))
        done = subprocess.run([STEP, str(cls.folder / "jobs")], capture_output=True, text=True, check=False, timeout=250)
        assert done.returncode == 0, done.stderr

    @classmethod
    def place(cls, variant, name):
        return cls.folder / f"{variant.name}_{name}"

    @classmethod
    def prepare(cls, variant):
        place = lambda name: cls.place(variant, name)
        theirs = place("theirs")
        theirs.mkdir()
        config = theirs / "config.json"
        config.write_text(json.dumps(variant.config))
        auto = transformers.AutoConfig.from_pretrained(theirs)
        made = class_of(variant.config)
        torch.manual_seed(1)
        model = randomise(made(auto) if hasattr(made, "base_model_prefix") else made.from_config(auto))
        model.save_pretrained(theirs)
        file = theirs / "model.safetensors"
        safetensors.torch.save_file(variant.change(safetensors.torch.load_file(file)), file, {"format": "pt"})
        config.write_text(json.dumps(variant.config))
        read = made.from_pretrained(theirs).eval()
        inputs = inputs_of(variant)
        safetensors.torch.save_file(inputs, place("inputs"))
        logits = logits_of(variant.config, read, inputs)
        cls.expected[variant.name] = logits, loss_of(variant, read, inputs, logits)
        done = run("import", theirs, "--out", place("ours"))
        cls.imported[variant.name] = done
        if done.returncode != 0:
            return []
        spec = f"{place('ours')}/config.json" + (f":{variant.keys}" if variant.keys else "")
        return [(spec, place("ours"), place("inputs"), "serial", "float32", 1, place("step"), "logits")]

    def close(self, found, expected):
        self.assertEqual(found.shape, expected.shape)
        self.assertLess(((found - expected).abs().max() / expected.abs().max()).item(), TOLERANCE)

    def each(self):
        for variant in variants.VARIANTS:
            with self.subTest(variant=variant.name):
                done = self.imported[variant.name]
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                yield variant

    def test_logits_and_losses_equal_those_of_transformers(self):
        for variant in self.each():
            logits, loss = self.expected[variant.name]
            self.close(safetensors.torch.load_file(f"{self.place(variant, 'step')}.logits")["logits"], logits)
            found = safetensors.torch.load_file(f"{self.place(variant, 'step')}.losses")["loss.1"].item()
            self.assertAlmostEqual(found / loss, 1, delta=TOLERANCE)

    # transformers 4 knows rope_theta and rope_scaling, 5 prefers rope_parameters: with either spelling taken away what is left
    # says the same. 4 divides T5's head exactly if it is tied, which it is exactly if the configuration says so.
    def test_exports_mean_the_same_in_both_spellings(self):
        for variant in self.each():
            out = self.place(variant, "back")
            done = run("export", self.place(variant, "ours"), "--to", "hf", "--model",
                       f"{self.place(variant, 'ours')}/config.json", "--out", out)
            self.assertEqual(done.returncode, 0, done.stderr)
            config = json.loads((out / "config.json").read_text())
            inputs = safetensors.torch.load_file(self.place(variant, "inputs"))
            spellings = [()]
            if "rope_parameters" in config:
                spellings += [("rope_parameters",), ("rope_theta", "rope_scaling")]
            for left_out in spellings:
                (out / "config.json").write_text(json.dumps({k: v for k, v in config.items() if k not in left_out}))
                read = class_of(config).from_pretrained(out).eval()
                self.close(logits_of(variant.config, read, inputs), self.expected[variant.name][0])
            if variant.config["model_type"] == "t5" and variant.name != "t5_scaled_with_another_head":
                self.assertEqual(config["tie_word_embeddings"], config["scale_decoder_outputs"])
                self.assertEqual("lm_head.weight" in safetensors.torch.load_file(out / "model.safetensors"),
                                 not config["tie_word_embeddings"])
            if variant.name == "t5_scaled_with_another_head":
                self.assertIn("is read by transformers 5 only", done.stdout)
            else:
                self.assertNotIn("note", done.stdout)

    def test_what_has_no_counterpart_is_refused_in_one_line(self):
        for number, (config, message) in enumerate(variants.REFUSED):
            with self.subTest(message=message):
                folder, out = self.folder / f"refused_{number}", self.folder / f"refused_{number}_ours"
                folder.mkdir()
                (folder / "config.json").write_text(json.dumps(config))
                done = run("import", folder, "--out", out)
                self.assertEqual((done.returncode, done.stdout, done.stderr.count("\n")), (2, "", 1))
                self.assertIn(f"config.json: {message}", done.stderr)
                self.assertFalse(out.exists())

    def test_defaults_are_those_of_the_installed_transformers(self):
        self.assertEqual(huggingface_defaults.FILE.read_text(), huggingface_defaults.text(),
                         "write it anew with scripts/huggingface_defaults.py")

    def test_experts_in_four_bits_are_those_that_transformers_unpacks(self):
        from transformers.integrations.mxfp4 import convert_moe_packed_tensors

        config = transformers.GptOssConfig(
            vocab_size=models.VOCAB, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, head_dim=8, num_local_experts=3, num_experts_per_tok=2, pad_token_id=None, eos_token_id=2,
            max_position_embeddings=models.SEQ, rope_parameters={"rope_type": "default", "rope_theta": 1e4})
        theirs, ours, back = (self.folder / name for name in ("packed", "packed_ours", "packed_back"))
        model = randomise(transformers.GptOssForCausalLM(config)).to(torch.bfloat16)
        model.save_pretrained(theirs)
        arrays, generator, expected = safetensors.torch.load_file(theirs / "model.safetensors"), torch.Generator().manual_seed(3), {}
        for name in [name for name in arrays if name.endswith(("gate_up_proj", "down_proj"))]:
            experts, columns, rows = arrays.pop(name).shape
            pair = {f"{name}_blocks": torch.randint(0, 256, (experts, rows, columns // 32, 16), generator=generator).to(torch.uint8),
                    f"{name}_scales": torch.randint(110, 130, (experts, rows, columns // 32), generator=generator).to(torch.uint8)}
            expected[name] = convert_moe_packed_tensors(pair[f"{name}_blocks"], pair[f"{name}_scales"])
            arrays.update(pair)
        self.assertEqual(len(expected), 4)
        safetensors.torch.save_file(arrays, theirs / "model.safetensors", metadata={"format": "pt"})
        text = json.loads((theirs / "config.json").read_text())
        (theirs / "config.json").write_text(json.dumps({**text, "quantization_config": {"quant_method": "mxfp4"}}))
        done = run("import", theirs, "--out", ours)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("note", done.stdout)
        done = run("export", ours, "--to", "hf", "--model", ours / "config.json", "--out", back)
        self.assertEqual(done.returncode, 0, done.stderr)
        found = safetensors.torch.load_file(back / "model.safetensors")
        for name, value in expected.items():
            self.assertTrue(torch.equal(found[name], value), name)
        self.assertNotIn("quantization_config", json.loads((back / "config.json").read_text()))
        transformers.GptOssForCausalLM.from_pretrained(back)
        # A pair without its scales.
        scales = next(name for name in arrays if name.endswith("_scales"))
        safetensors.torch.save_file({name: value for name, value in arrays.items() if name != scales}, theirs / "model.safetensors")
        done = run("import", theirs, "--out", self.folder / "packed_half")
        self.assertEqual((done.returncode, done.stderr.count("\n"), (self.folder / "packed_half").exists()), (2, 1, False))
        self.assertIn("a scale for each block", done.stderr)

    def test_a_mixture_that_does_not_normalise_one_weight_is_not_exported(self):
        ours, out = self.folder / "mixtral_top1_ours", self.folder / "switch"
        done = run("export", ours, "--to", "hf", "--model", f"{ours}/config.json:normalize=0", "--out", out)
        self.assertEqual((done.returncode, out.exists()), (2, False))
        self.assertIn("mixtral has normalize=1, found 0", done.stderr)

    # The vocabulary's last token is one like others in arrays; an imported model is masked with its tokenizer's token.
    def test_masks_of_bert(self):
        variant = next(one for one in variants.VARIANTS if one.name == "bert_with_little_said")
        theirs, ours = self.place(variant, "theirs"), self.folder / "masked"
        vocabulary = ["[PAD]", "[UNK]", "[MASK]"] + [f"word{i}" for i in range(3, models.VOCAB)]
        (theirs / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
        done = run("import", theirs, "--out", ours)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads((ours / "config.json").read_text())["mask_token_id"], 2)
        tokens = numpy.full((4, models.SEQ), 5, "i8")
        tokens[0, 0] = models.VOCAB - 1
        targets = numpy.where(numpy.arange(models.SEQ) < 2, 7, -1) + 0 * tokens
        for name, array in (("tokens", tokens), ("targets", targets), ("segments", 0 * tokens)):
            numpy.save(self.folder / f"{name}.npy", array)
        read = transformers.BertForMaskedLM.from_pretrained(theirs).eval()
        with torch.no_grad():
            logits = read(torch.from_numpy(tokens)).logits
            expected = torch.nn.functional.cross_entropy(logits.reshape(-1, models.VOCAB), torch.from_numpy(targets).reshape(-1),
                                                         ignore_index=-1).item()
        arrays = ", ".join(f'{name} = "{self.folder}/{name}.npy"' for name in ("tokens", "targets", "segments"))
        done = run("evaluate", f"{ours}/config.json", "--weights", ours, "--data", f"{{ arrays = {{ {arrays} }} }}", "--batch", 4,
                   "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertAlmostEqual(json.loads(done.stdout)["loss"] / expected, 1, delta=TOLERANCE)


def main():
    global TESSERA, STEP
    TESSERA, STEP = (os.path.abspath(sys.argv.pop(1)) for _ in range(2))
    unittest.main()


if __name__ == "__main__":
    main()
