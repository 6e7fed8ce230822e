"""tessera check: what a configuration of another framework does on a machine. How to run it: cli.py."""
import json

from cli import CliTest, main, run

SIZES = "llama:layers=4,hidden=256,heads=8,kv_heads=4,seq=128,ffn=512,vocab="
MODEL = SIZES + "1024"


class Check(CliTest):
    def configuration(self, name, target, plan):
        path = self.write(name, "")
        self.expect_text("export", MODEL, "--plan", plan, "--to", target, "--precision", "bfloat16", "--batch", "16", "--out", path,
                         "--json")
        return path

    def findings(self, *arguments, code=0):
        answer = run("check", *arguments, "--json")
        self.assertEqual((answer.code, answer.err), (code, ""))
        found = json.loads(answer.out)
        return found, {finding["of"]: (finding["ok"], finding["text"]) for finding in found["findings"]}

    def test_a_configuration_that_uses_all_devices(self):
        path = self.configuration("job.sh", "megatron", "megatron(tp=2,dp=4,zero=1)")
        found, of = self.findings(MODEL, "--megatron", path, "--cluster", "dgx-a100:1")
        self.assertEqual((found["from"], found["ranks"], found["batch"]), ("megatron", 8, 16))
        self.assertEqual(of["divides"], (True, "all sizes divide"))
        self.assertEqual(of["idle"], (True, "all 8 devices work"))
        self.assertEqual(of["verified"], (True, "the verifier accepts its programs"))
        self.assertRegex(of["memory"][1], r"^this fits by \d")
        # The step is that of the same plan in tessera simulate.
        plan = self.write("plan.toml", found["plan"])
        simulated = self.expect_json("simulate", MODEL, "--plan", plan, "--cluster", "dgx-a100:1", "--batch", "16", "--precision",
                                     "bfloat16", "--style", "megatron-core", "--json")
        self.assertAlmostEqual(found["step_time_s"] / simulated["step_time_s"], 1, 12)

    def test_idle_devices_and_sizes_that_do_not_divide(self):
        path = self.configuration("job.sh", "megatron", "megatron(tp=2,dp=2)")
        _, of = self.findings(SIZES + "1001", "--megatron", path, "--ranks", "4", "--cluster", "dgx-a100:1")
        self.assertEqual(of["idle"], (False, "this leaves 4 of the 8 devices of a node idle"))
        self.assertEqual(of["divides"], (False, "this does not divide: vocab = 1001 over tp = 2; the largest piece has 501"))

    def test_a_plan_that_does_not_fit_has_exit_code_1(self):
        path = self.configuration("zero.json", "deepspeed", "zero(stage=1,dp=8)")
        large = "llama:layers=80,hidden=8192,heads=64,kv_heads=8,seq=128,ffn=28672,vocab=32000"
        _, of = self.findings(large, "--deepspeed", path, "--cluster", "dgx-a100:1", code=1)
        self.assertRegex(of["memory"][1], r"^this does not fit: it misses \d")

    def test_wrong_input_is_one_line(self):
        path = self.write("bad.json", '{"zero_optimization": {"stag": 2}}')
        self.expect_error(2, f"{path}: deepspeed: unknown key 'zero_optimization.stag', did you mean 'zero_optimization.stage'?",
                          "check", MODEL, "--deepspeed", path, "--cluster", "dgx-a100:1")
        self.expect_error(2, "check: expected one of --torchtitan, --megatron, --deepspeed with a file", "check", MODEL, "--cluster",
                          "dgx-a100:1")


if __name__ == "__main__":
    main()
