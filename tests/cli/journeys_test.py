"""Journeys from a model's config to launch text and back: a plan for a framework (`plan --for`), its launch text read back
(`import`), and the plan that was read back priced (`simulate`). No model and machine is refused where the framework could run it.
The quick test draws a few cases, by TESSERA_SEED if it is set; the slow one takes all 12 x 3 x 4. How to run it: cli.py."""
import json
import os
import random

from cli import ALL_CASES, CliTest, ROOT, main, run

CONFIGS = ROOT / "tests/models/configs"
# Published names, and configurations of types that have no name in the table or differ from it.
MODELS = ["meta-llama/Meta-Llama-3-8B", "llama-3-70b", "mistral-7b", "mixtral-8x7b",
          *(str(CONFIGS / f"{name}.json") for name in ("qwen3_moe", "deepseek_v2", "gpt_oss", "gemma2", "gemma3_text", "olmo2", "phi3", "smollm3"))]
MACHINES = {"dgx-a100:1": 64, "dgx-h100:8": 256, "dgx-b200:2": 128}  # with sequences a step
TARGETS = {"torchtitan": ".py", "fsdp2": ".py", "megatron": ".sh", "deepspeed": ".json"}
# What a target may say when no plan of it is there: nothing fits, or it does not train this kind of model.
ANSWERS = ("nothing that", "runs none of")


class Journeys(CliTest):
    def play(self, model, machine, target):
        """Returns "launched", or the reason for which the target has no plan."""
        question = [model + ":seq=4096", "--cluster", machine, "--batch", str(MACHINES[machine])]
        answer = run("plan", *question, "--for", target, "--json")
        if answer.code == 1:
            self.assertTrue(any(words in answer.err for words in ANSWERS), (model, machine, target, answer.err))
            return answer.err
        self.assertEqual(answer.code, 0, (model, machine, target, answer.err))
        found = json.loads(answer.out)
        job = self.write("job" + TARGETS[target], found["text"])
        plan = os.path.join(self.folder, "plan.toml")
        back = run("import", job, "--model", question[0], "--ranks", str(devices_of(machine)), "--framework", target, "--out", plan)
        self.assertEqual(back.code, 0, (model, machine, target, back.err))
        priced = run("simulate", *question, "--plan", plan, "--style", found["style"].split(",")[0], "--json")
        self.assertIn(priced.code, (0, 1), (model, machine, target, priced.err))
        again = json.loads(priced.out)
        self.assertLess(abs(again["step_time_s"] / found["best"]["step_time_s"] - 1), .01, (model, machine, target))
        need = max(role["memory"]["high_bytes"] for role in again["roles"])
        self.assertLess(abs(need / found["best"]["memory_bytes"] - 1), .01, (model, machine, target))
        return "launched"

    def test_drawn_journeys(self):
        cases = [(model, machine, target) for model in MODELS for machine in MACHINES for target in TARGETS]
        if not ALL_CASES:
            random.seed(int(os.environ.get("TESSERA_SEED", "7")))
            cases = random.sample([case for case in cases if case[1] == "dgx-a100:1"], 4)
        launched = {}
        for case in cases:
            with self.subTest(case=case):
                launched.setdefault(case[2], []).append(self.play(*case) == "launched")
        if ALL_CASES:
            for target, answers in launched.items():
                print(f"{target}: {sum(answers)} of {len(answers)} launched")


def devices_of(machine):
    return 8 * int(machine.split(":")[1])


if __name__ == "__main__":
    main()
