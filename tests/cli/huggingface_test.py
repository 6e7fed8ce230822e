"""tessera import and tessera export --to hf at the command line: a folder of Hugging Face in and out again. That its models
compute the same is in tests/huggingface."""
import json
import os
import pathlib
import struct

from cli import CliTest, has_runtime, main, run

CONFIG = {"model_type": "llama", "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2,
          "num_key_value_heads": 1, "max_position_embeddings": 4, "vocab_size": 10}
LAYER = "model.layers.0."
SHAPES = {"model.embed_tokens.weight": [10, 8], "model.norm.weight": [8], "lm_head.weight": [10, 8],
          LAYER + "input_layernorm.weight": [8], LAYER + "post_attention_layernorm.weight": [8],
          LAYER + "self_attn.q_proj.weight": [8, 8], LAYER + "self_attn.k_proj.weight": [4, 8],
          LAYER + "self_attn.v_proj.weight": [4, 8], LAYER + "self_attn.o_proj.weight": [8, 8],
          LAYER + "mlp.gate_proj.weight": [12, 8], LAYER + "mlp.up_proj.weight": [12, 8], LAYER + "mlp.down_proj.weight": [8, 12]}


def arrays(path):
    """{name: (shape, bytes)} of a safetensors file."""
    data = pathlib.Path(path).read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    return {name: (entry["shape"], data[8 + length:][slice(*entry["data_offsets"])])
            for name, entry in header.items() if name != "__metadata__"}


class HuggingFace(CliTest):
    def make(self, shapes, config=None):
        """A folder with numbers that count up."""
        folder = os.path.join(self.folder, "theirs")
        os.makedirs(folder, exist_ok=True)
        header, data = {}, b""
        for name, shape in shapes.items():
            count, begin = 1, len(data)
            for size in shape:
                count *= size
            data += struct.pack(f"<{count}f", *range(begin // 4, begin // 4 + count))
            header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, len(data)]}
        text = json.dumps(header).encode()
        pathlib.Path(folder, "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
        pathlib.Path(folder, "config.json").write_text(json.dumps(config or CONFIG))
        return folder

    def test_there_and_back(self):
        theirs, ours, back = self.make(SHAPES), os.path.join(self.folder, "ours"), os.path.join(self.folder, "back")
        done = run("import", theirs, "--out", ours)
        self.assertEqual((done.code, done.err), (0, ""))
        self.assertEqual(done.out, f"{theirs} (huggingface): 664 parameters in 12 arrays, 3.55 KiB\n"
                         f"model    {ours}/config.json\nweights  {ours}/model.safetensors\n")
        self.assertEqual(arrays(ours + "/model.safetensors")["blocks.0.mlp.up.weight"][0], [8, 12])
        done = run("export", ours, "--to", "hf", "--model", ours + "/config.json", "--out", back, "--json")
        self.assertEqual((done.code, done.err), (0, ""))
        report = json.loads(done.out)
        self.assertEqual((report["arrays"], report["parameters"]), (12, 664))
        self.assertEqual(arrays(back + "/model.safetensors"), arrays(theirs + "/model.safetensors"))

    def test_files_of_the_tokenizer_go_along_byte_by_byte(self):
        theirs, ours, back = self.make(SHAPES), os.path.join(self.folder, "ours"), os.path.join(self.folder, "back")
        names = ["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.json", "merges.txt", "vocab.txt",
                 "generation_config.json"]
        for number, name in enumerate(names):  # no JSON: they are not read
            if name != "vocab.txt":
                pathlib.Path(theirs, name).write_bytes(bytes(range(256)) * number + b"\r\n\xff no text")
        os.symlink("vocab.json", os.path.join(theirs, "vocab.txt"))  # as in the cache of Hugging Face
        pathlib.Path(theirs, "training_args.bin").write_bytes(b"not of the model")
        done = run("import", theirs, "--out", ours)
        self.assertEqual((done.code, done.err), (0, ""))
        self.assertEqual(done.out.splitlines()[3], "beside   " + ", ".join(names))
        weights = os.path.join(self.folder, "trained.safetensors")  # elsewhere, as those of a checkpoint
        os.rename(os.path.join(ours, "model.safetensors"), weights)
        done = run("export", weights, "--to", "hf", "--model", ours + "/config.json", "--out", back, "--json")
        self.assertEqual((done.code, done.err), (0, ""))
        self.assertEqual(json.loads(done.out)["carried"], names)
        for folder in (ours, back):
            self.assertEqual(set(os.listdir(folder)) - {"model.safetensors"}, {"config.json", *names})
            for name in names:
                self.assertEqual(pathlib.Path(folder, name).read_bytes(), pathlib.Path(theirs, name).read_bytes(), name)
        changed = os.path.join(self.folder, "changed")
        done = run("export", weights, "--to", "hf", "--model", ours + "/config.json:seq=2", "--out", changed)
        self.assertEqual((done.code, done.err), (0, ""))
        self.assertEqual(sorted(os.listdir(changed)), sorted(os.listdir(back)))

    def test_bad_input_is_one_line_and_leaves_nothing(self):
        ours = os.path.join(self.folder, "ours")
        theirs = self.make({**SHAPES, LAYER + "mlp.up_proj.weight": [8, 12]})
        for arguments, message in [
            (["import", theirs, "--out", ours],
             f"{theirs}: '{LAYER}mlp.up_proj.weight': expected [12, 8] (blocks.0.mlp.up.weight), found [8, 12]"),
            (["import", self.folder, "--out", ours],
             f"import: {self.folder}: expected one of: "),
            (["export", theirs, "--to", "hf", "--out", ours],
             "export: --to hf needs --model, the model of the weights, and --out, the folder to write"),
            (["export", theirs, "--to", "hf", "--model", "mlp", "--out", ours],
             "model 'mlp': expected a family of one of Hugging Face's model types gpt2, llama, mistral,"),
            (["export", theirs, "--to", "hf", "--model", "llama", "--out", ours, "--plan", "fsdp(4)"],
             "export: --plan goes with a plan, not with --to hf, which writes weights"),
            (["export", "llama:layers=2", "--to", "megatron", "--plan", "fsdp(4)", "--model", "llama"],
             "export: --model goes with weights; a plan's model is the first argument"),
        ]:
            done = run(*arguments)
            self.assertEqual((done.code, done.out, done.err.count("\n")), (2, "", 1), arguments)
            self.assertTrue(done.err.startswith(f"tessera: {message}"), done.err)
        self.assertEqual(os.listdir(self.folder), ["theirs"])

    def test_a_configuration_that_has_no_counterpart(self):
        theirs = self.make(SHAPES, {**CONFIG, "rope_scaling": {"rope_type": "dynamic", "factor": 4.0}})
        done = run("import", theirs, "--out", os.path.join(self.folder, "ours"))
        self.assertEqual((done.code, done.out, done.err),
                         (2, "", f'tessera: {theirs}/config.json: expected a model that can be computed exactly, found one that is '
                          'approximated: rotary frequencies are not scaled (rope_type "dynamic") (planning takes it: inspect, simulate, '
                          'plan, report, export of plans)\n'))

NEMOTRON = {**CONFIG, "model_type": "nemotron", "max_position_embeddings": 16384, "torch_dtype": "bfloat16"}
NORMS = "norms are RMS norms, not layer norms with biases"
LONG = "sequence length 16,384 from config.json; say :seq=4096 for shorter ones"


class Planned(CliTest):
    """Model types that are only approximated: planning says so once, what computes with weights refuses them."""

    def setUp(self):
        super().setUp()
        self.nemotron = self.write("config.json", json.dumps(NEMOTRON))

    def test_planning_commands_say_what_is_approximate(self):
        plan = ["--plan", "fsdp(dp=2)"]
        machine = ["--cluster", "dgx-a100", "--batch", "4"]
        for arguments in (["inspect", "MODEL"], ["inspect", "MODEL", *plan], ["simulate", "MODEL", *plan, *machine],
                          ["plan", "fsdp(dp=2)", "--model", "MODEL"],
                          ["plan", "MODEL", *machine, "--planner", "recipes", "--fix", "devices=2"],
                          ["report", "MODEL", *plan, *machine, "--out", os.path.join(self.folder, "page.html")],
                          ["export", "MODEL", "--plan", "fsdp(dp=2,prefetch=1)", "--to", "torchtitan", "--batch", "4"]):
            for keys, long in (("", [LONG]), (":seq=8", [])):
                done = run(*(self.nemotron + keys if one == "MODEL" else one for one in arguments))
                self.assertEqual(done.code, 0, (arguments, done.err))
                lines = done.err.splitlines()
                self.assertEqual(lines[:len(long) + 1], [f"approximate: {NORMS}", *long], arguments)
                self.assertEqual(done.err.count("approximate: "), 1, arguments)

    def test_an_exact_model_says_nothing(self):
        config = self.write("exact.json", json.dumps(CONFIG))
        self.assertEqual(self.expect_json("inspect", config, "--json")["parameters"], 664)

    def test_commands_that_compute_with_weights_refuse_it(self):
        refusal = (f"{self.nemotron}: expected a model that can be computed exactly, found one that is approximated: {NORMS} (planning takes it: "
                   "inspect, simulate, plan, report, export of plans)")
        self.write("run.toml", f'model = "{self.nemotron}:seq=4"\ndata = "random"\nbatch = 2\nsteps = 1\n')
        if has_runtime():
            self.expect_error(2, refusal, "train", os.path.join(self.folder, "run.toml"))
        else:
            print("the refusal by train is skipped: this build has no runtime (libtorch)")
        self.expect_error(2, refusal, "import", self.folder, "--out", os.path.join(self.folder, "ours"))
        self.expect_error(2, refusal, "export", self.folder, "--to", "hf", "--model", self.nemotron, "--out", os.path.join(self.folder, "back"))

    def test_a_mixture_is_planned_with_an_even_spread(self):
        config = self.write("mixture.json", json.dumps({**CONFIG, "model_type": "mixtral", "num_local_experts": 8}))
        done = run("inspect", config, "--json")
        self.assertEqual((done.code, done.err), (0, "approximate: tokens are spread evenly over the experts (capacity_factor=1)\n"))
        self.assertIn(",capacity_factor=1,", json.loads(done.out)["model"])
        self.assertEqual(run("inspect", config + ":capacity_factor=4", "--json").err, "")


if __name__ == "__main__":
    main()
