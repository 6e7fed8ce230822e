"""tessera sample. How to run it: cli.py."""
import array
import json
import re
import struct
import pathlib

from cli import RuntimeTest, main, run

MODEL = "gpt:layers=1,hidden=8,heads=2,seq=8,vocab=256"


class Sample(RuntimeTest):
    def weights(self, name="model.safetensors", preferred=None):
        """Zeros, so that all tokens are equally likely; `preferred`: a model that likes one token best after any."""
        header, data = {}, b""
        for found in re.finditer(r'(?m)^parameter %([\w.]+) \[([^\]]*)\] float32', self.expect_text("inspect", MODEL, "--text")):
            shape = [int(size) for size in re.findall(r"=(\d+)", found[2])]
            size = 1
            for extent in shape:
                size *= extent
            values = array.array("f", [0.0] * size)
            if preferred is not None and found[1] == "final.ln.bias":
                values[0] = 1.0
            if preferred is not None and found[1] == "embed.token.weight":
                values[preferred * shape[1]] = 50.0
            header[found[1]] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + 4 * size]}
            data += values.tobytes()
        text = json.dumps(header).encode()
        path = pathlib.Path(self.folder, name)
        path.write_bytes(struct.pack("<Q", len(text)) + text + data)
        return str(path)

    def test_text_of_a_model_of_bytes(self):
        weights = self.weights(preferred=ord("x"))
        text = self.expect_text("sample", MODEL, "--weights", weights, "--prompt", "To be", "--count", "12", "--temperature", "0")
        self.assertEqual(text, "To be" + "x" * 12 + "\n")
        ids = self.expect_text("sample", MODEL, "--weights", weights, "--tokens", "1,2", "--count", "3", "--ids",
                               "--plan", "tensor_parallel(2)")
        self.assertEqual(ids, "120 120 120\n")

    def test_draws_are_functions_of_the_seed(self):
        weights = self.weights()
        def tokens(*more):
            found = self.expect_json("sample", MODEL, "--weights", weights, "--count", "40", "--json", *more)
            self.assertEqual(list(found), ["prompt", "tokens", "text"])
            self.assertEqual((found["prompt"], len(found["tokens"])), ([10], 40))
            return found["tokens"]
        first = tokens()
        self.assertEqual(tokens(), first)
        self.assertNotEqual(tokens("--seed", "2"), first)
        self.assertGreater(len(set(first)), 20)
        self.assertLess(max(tokens("--top-k", "3")), 3)  # of equal logits the lowest tokens count as likelier

    def test_errors(self):
        weights = self.weights()
        self.expect_error(2, "sample: expected --prompt or --tokens, found both",
                          "sample", MODEL, "--weights", weights, "--prompt", "a", "--tokens", "1")
        self.expect_error(2, "sample: expected --tokens, for a model whose tokens are not bytes (vocab = 256), found none",
                          "sample", MODEL.replace("256", "300"), "--weights", weights)
        answer = run("sample", MODEL, "--weights", self.folder + "/none")
        self.assertEqual((answer.code, answer.err.count("\n")), (2, 1), answer.err)
        self.assertIn("/none", answer.err)


if __name__ == "__main__":
    main()
