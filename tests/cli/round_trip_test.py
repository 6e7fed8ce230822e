"""Exports read back: a drawn plan is written for a framework (`export`), read back (`import`), and both plans are priced
(`simulate`): the step and the memory are equal to 1 %. What a framework cannot say comes back as docs/reference/export-limits.md
states, and in no other way. The quick test draws a few cases, by TESSERA_SEED if it is set. How to run it: cli.py."""
import json
import os
import random
import re

from cli import ALL_CASES, CliTest, ROOT, main, run

MODELS = ["llama:layers=8,hidden=2048,heads=16,kv_heads=8,ffn=5632,vocab=32000,seq=2048",
          "gpt:layers=8,hidden=1536,heads=16,seq=1024,vocab=50304",
          "mixtral:layers=8,hidden=1024,heads=16,kv_heads=8,ffn=3584,vocab=32000,seq=2048,experts=8",
          "bert:layers=8,hidden=1024,heads=16,seq=512,vocab=30528",
          "t5:layers=6,hidden=1024,heads=16,seq=512,source=512,vocab=32128",
          "meta-llama/Meta-Llama-3-8B:seq=4096", str(ROOT / "tests/models/configs/qwen3_moe.json") + ":layers=8,seq=2048"]
STYLES = {"torchtitan": "torchtitan", "megatron": "megatron", "nemo": "nemo", "deepspeed": "deepspeed", "fsdp2": "fsdp",
          "accelerate": "fsdp", "transformers": "fsdp"}
ENDINGS = {"torchtitan": ".py", "fsdp2": ".py", "megatron": ".sh", "nemo": ".sh", "accelerate": ".yaml"}
# Settings that come back otherwise than the plan has them, as the page says.
OTHERWISE = {"megatron": {"recompute"}, "nemo": {"recompute"}, "accelerate": {"gradient"}, "transformers": {"gradient"}}
MOST = 0.01


def drawn_plan(draw, experts):
    """A recipe call, most of which some framework can express."""
    micro, again = draw.choice([1, 1, 2, 4, 8]), draw.choice(["none", "none", "full", "selective"])
    tokens, two_or_more = draw.choice(["true", "false"]), lambda: draw.choice([2, 4, 8])
    kind = draw.choice(["fsdp", "fsdp", "megatron", "megatron", "zero", "ddp", "ulysses", "rings"] + ["experts"] * (4 * experts))
    if kind == "fsdp":
        return (f"fsdp({two_or_more()},tp={draw.choice([1, 1, 2])},replicas={draw.choice([1, 1, 2])},micro_batches={micro},"
                f"recompute={again},sequence_shard={tokens},reshard={draw.choice(['true', 'true', 'false'])})")
    if kind == "megatron":
        while True:
            tp, pp, dp, cp = (draw.choice([1, 2, 4]), draw.choice([1, 2, 4]), draw.choice([1, 2, 4]), draw.choice([1, 1, 1, 2]))
            if tp * pp * dp * cp <= 16:
                break
        schedule = draw.choice(["1f1b", "1f1b", "interleaved", "gpipe", "zb_v"]) if pp > 1 else "1f1b"
        chunks = 2 if schedule in ("interleaved", "zb_v") else 1
        zero = draw.choice([0, 0, 1, 2, 3]) if dp > 1 else 0
        return (f"megatron(tp={tp},pp={pp},dp={dp},cp={cp},zero={zero},micro_batches={max(micro, 2 * pp)},schedule={schedule},"
                f"chunks={chunks},recompute={again},sequence_shard={tokens})")
    if kind == "zero":
        return f"zero(stage={draw.choice([1, 2, 3])},dp={two_or_more()},micro_batches={micro})"
    if kind == "ddp":
        return f"ddp({two_or_more()},micro_batches={micro})"
    if kind in ("ulysses", "rings"):
        name = "ulysses" if kind == "ulysses" else "ring_attention"
        return f"{name}({draw.choice([2, 4])},dp={draw.choice([1, 2, 4])},zero={draw.choice([0, 1, 3])})"
    pp, tp = draw.choice([1, 1, 2]), draw.choice([1, 1, 2])
    return (f"expert_parallel({draw.choice([2, 4])},dp={draw.choice([1, 2])},tp={tp},pp={pp},zero={draw.choice([0, 1, 3])},"
            f"micro_batches={max(micro, 2 * pp)},recompute={again},sequence_shard={tokens})")


class RoundTrip(CliTest):
    def write_for(self, target, model, plan):
        """The export as JSON; None if the framework cannot express the plan, which one line says."""
        answer = run("export", model, "--plan", plan, "--to", target, "--cluster", "dgx-a100:2", "--batch", "64", "--precision",
                     "bfloat16", "--json")
        if answer.code == 0:
            return json.loads(answer.out)
        self.assertEqual(answer.code, 2)
        self.assertRegex(answer.err, r"^(approximate: .*\n)?tessera: .*\n$")
        return None

    def read(self, target, model, exported):
        job, plan = self.write("job" + ENDINGS.get(target, ".json"), exported["text"]), os.path.join(self.folder, "plan.toml")
        back = run("import", job, "--model", model, "--ranks", str(exported["ranks"]), "--framework", target, "--out", plan)
        self.assertEqual(back.code, 0, back.err)
        return plan

    def price(self, target, model, plan, *options):
        """Step time and memory in the framework's style."""
        answer = run("simulate", model, "--plan", plan, "--cluster", "dgx-a100:2", "--batch", "64", "--style", STYLES[target],
                     "--json", *options)
        self.assertIn(answer.code, (0, 1), answer.err)  # 1: it does not fit
        found = json.loads(answer.out)
        return found["step_time_s"], max(role["memory"]["high_bytes"] for role in found["roles"])

    def expect_equal(self, priced, again):
        for one, other, what in zip(priced, again, ("step", "memory")):
            self.assertLess(abs(other / one - 1), MOST, f"{what} {one} comes back as {other}")

    def there_and_back(self, target, model, plan):
        """The settings that come back otherwise; None if the framework cannot express the plan."""
        exported = self.write_for(target, model, plan)
        if exported is None:
            return None
        notes = " ".join(note for note in exported["notes"] if note.startswith("the plan has "))
        otherwise = set(re.findall(r"(\w+)=", notes))
        read = self.read(target, model, exported)
        priced = self.price(target, model, read)
        if not otherwise:
            self.expect_equal(self.price(target, model, plan, "--precision", "bfloat16"), priced)
            return otherwise
        self.assertLessEqual(otherwise, OTHERWISE.get(target, set()))
        # What came back comes back as itself.
        with open(read, encoding="utf-8") as file:
            kept = self.write("kept.toml", file.read())
        again = self.write_for(target, model, kept)
        self.assertEqual([note for note in again["notes"] if note.startswith("the plan has ")], [])
        self.expect_equal(priced, self.price(target, model, self.read(target, model, again)))
        return otherwise

    def test_step_and_memory_come_back(self):
        draw = random.Random(int(os.environ.get("TESSERA_SEED", "42")))
        models = MODELS if ALL_CASES else MODELS[:4]
        seen = {target: set() for target in STYLES}
        for i in range(140 if ALL_CASES else 10):
            target = list(STYLES)[i % len(STYLES)]
            otherwise = None
            while otherwise is None:
                model = draw.choice(models)
                plan = drawn_plan(draw, "mixtral" in model or "moe" in model)
                with self.subTest(target=target, model=model, plan=plan):
                    otherwise = set()  # also after a failure
                    otherwise = self.there_and_back(target, model, plan)
            seen[target] |= otherwise
        if ALL_CASES:  # each exception is one
            self.assertEqual({target: names for target, names in seen.items() if names}, OTHERWISE)

    def test_the_page_has_what_comes_back_otherwise(self):
        page = (ROOT / "docs/reference/export-limits.md").read_text(encoding="utf-8")
        rows = re.findall(r"^\| [^|]*\| ([^|]*) \| `(\w+)` \|", page.partition("## What comes back otherwise")[2], re.MULTILINE)
        found = {}
        for targets, setting in rows:
            for target in re.findall(r"`(\w+)`", targets):
                found.setdefault(target, set()).add(setting)
        self.assertEqual(found, OTHERWISE)


if __name__ == "__main__":
    main()
