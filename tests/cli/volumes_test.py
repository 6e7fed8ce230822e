"""Networks of convolutions under plans in space: what fits, plans finer than a halo, wrong inputs. How to run it: cli.py."""
import json

from cli import CliTest, RuntimeTest, main, run

# A convolution of a map of 6 x 7 with a kernel of KERNEL x 3 and a padding.
CONVOLUTION = """graph "convolution"
input %x [batch=2, channels=2, height=6, width=7] float32
parameter %w [filters=3, channels=2, kernel_height={kernel}, kernel_width=3] float32 init=normal(0.5)
activation %y [batch=2, filters=3, height={height}, width=5] float32
activation %squares [batch=2, filters=3, height={height}, width=5] float32
activation %loss [] float32
forward op "conv" %y = conv(%x, %w) {{padding="{padding} 0"}}
forward op "square" %squares = mul(%y, %y)
forward op "loss" %loss = reduce_sum(%squares) {{dims="batch filters height width", factor=0.1}}
loss %loss
"""


class Fits(CliTest):
    """A volume of 512^3 with four channels on devices of 16 GB: not on one, but on two, of whose memory it takes nine tenths."""

    def test_512_cubed_is_cut_for_devices_of_16_gb(self):
        simulated = ("simulate", "cosmoflow:width=512", "--cluster", "dgx-v100-16:1", "--batch", "1", "--json")
        peaks = {}
        for pieces in (1, 2, 4, 8):
            answer = run(*simulated, "--plan", f"spatial(d={pieces})" if pieces > 1 else "serial")
            shown = json.loads(answer.out)
            peaks[pieces] = shown["peak_memory_bytes"]
            self.assertEqual((answer.code, shown["fits"]), (1, False) if pieces == 1 else (0, True), (pieces, answer.err))
        # Each rank has its part of the activations and their gradients, halos, and parameters and buffers of the libraries whole.
        for pieces in (2, 4, 8):
            self.assertLess(peaks[pieces], 1.2 * peaks[pieces // 2] / 2, peaks)


class WrongInputs(CliTest):
    def test_a_kernel_larger_than_the_padded_map(self):
        graph = self.write("wrong.graph", CONVOLUTION.format(kernel=9, padding=1, height=1))
        self.expect_error(2, f"{graph}:7: expected a window that fits dim 'height' of 6, found kernel 9 with padding 1", "inspect", graph)

    def test_pieces_that_a_map_does_not_have(self):
        model = "cosmoflow:width=16,channels=1,filters=2,outputs=2"
        self.expect_error(2, "recipe spatial: d = 16 leaves no op whose dim 'depth' has 32 elements", "inspect", model, "--plan",
                          "spatial(d=16)", "--batch", "2")
        self.expect_error(2, "recipe spatial: d = 2: the model has the 2 spatial dims height, width only", "inspect",
                          "resnet:layers=18", "--plan", "spatial(d=2)", "--batch", "32")


class WithTheRuntime(RuntimeTest):
    def test_a_halo_wider_than_a_piece_comes_of_several_neighbours(self):
        """Rows of six over four ranks have one or two rows each; a kernel of five rows reads two on each side."""
        graph = self.write("fine.graph", CONVOLUTION.format(kernel=5, padding=2, height=6))
        plan = self.write("fine.toml", 'mesh = { h = 4 }\nsplit = [ { ops = "*", dim = "height", over = "h" } ]\n')
        answer = self.expect_json("verify", graph, "--plan", plan, "--batch", "2", "--json")
        self.assertTrue(answer["ok"])
        self.assertEqual(answer["bytes"]["predicted"], answer["bytes"]["counted"])

    def test_arrays_of_other_shapes(self):
        wrong = self.write("run.toml", 'model = "cosmoflow:width=8,channels=1,filters=2,outputs=2"\nbatch = 2\nsteps = 1\n'
                           'data = { arrays = { volume = "universes(width=16,samples=4):volumes", '
                           'targets = "universes(width=16,samples=4):parameters" } }\n')
        answer = run("train", wrong)
        self.assertEqual((answer.code, answer.out), (2, ""))
        self.assertIn("expected the shape [samples, 1, 8, 8, 8] for the input 'volume', found [4, 16, 16, 16]", answer.err)
        self.assertEqual(answer.err.count("\n"), 1)


if __name__ == "__main__":
    main()
