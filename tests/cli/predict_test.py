"""tessera predict, accuracy and reproduce. How to run it: cli.py."""
import json
import os

from cli import CliTest, ROOT, main, run


class Predict(CliTest):
    HEADER = ("row_id,source,model,params,layers,hidden,heads,kv_heads,ffn,seq,vocab,gpu,n_gpus,gpus_per_node,tp,pp,vpp,dp,cp,"
              "ep,zero,microbatch,global_batch,recompute,dtype")
    ROW = "r1,Megatron-LM,,,2,256,4,,,128,1024,A100-80GB,4,8,2,1,1,2,1,1,0,1,4,none,fp16"

    def test_rows_get_figures_or_a_reason(self):
        rows = self.write("rows.csv", "\n".join([self.HEADER, self.ROW, self.ROW.replace("r1", "r2").replace("A100-80GB", "abacus")]))
        lines = self.expect_text("predict", rows).splitlines()
        self.assertEqual(lines[0], "row_id,step_time_s,mem_GB,relative_uncertainty,style,reason")
        self.assertRegex(lines[1], r'^r1,[0-9.e-]+,[0-9.]+,[0-9.]+,"?megatron-2022,')
        self.assertEqual(lines[2], 'r2,,,,,"the GPU \'abacus\' is not known, did you mean \'habana\'?"')
        self.assertEqual(self.expect_text("predict", rows, "--threads", "2").splitlines(), lines)
        self.assertIn("recipe      megatron(dp=2,tp=2,micro_batches=2,precision=float16)", self.expect_text("predict", rows, "--explain", "r1"))

    def test_accuracy_writes_both_figures_and_holds_a_page_to_them(self):
        header = self.HEADER + ",tflops_per_gpu,tokens_per_s_per_gpu,step_time_s,mem_GB,notes,quality"
        rows = self.write("rows.csv", header + "\n" + self.ROW + ",,,0.5,3,,A\n")
        each, page = os.path.join(self.folder, "each.csv"), os.path.join(self.folder, "page.md")
        self.assertEqual(self.expect_text("accuracy", rows, "--each", each, "-o", page), "")
        with open(each, encoding="utf-8") as file:
            lines = file.read().splitlines()
        self.assertEqual(lines[0], "row_id,source,group,quality,reported_s,predicted_s,others_constants_s,unnamed_s,reported_bytes,"
                         "predicted_bytes")
        predicted = self.expect_text("predict", rows).splitlines()[1].split(",")[1]
        self.assertRegex(lines[1], rf"^r1,Megatron-LM,Megatron-LM\|\|4\|4,A,0.5,{predicted},{predicted},[0-9.e+-]+,3e\+09,[0-9.e+]+$")
        self.assertEqual(self.expect_text("accuracy", rows, "--check", page), "")
        with open(page, encoding="utf-8") as file:
            text = file.read()
        self.write("page.md", text.replace("1 of 1 rows", "2 of 1 rows"))
        line = text.splitlines()[4]
        changed = line.replace("1 of 1 rows", "2 of 1 rows")
        place = line.index("1 of 1 rows") - 40  # what is shown begins 40 characters before the first difference
        shown = [f"...{text[place:place + 120]}..." for text in (line, changed)]
        self.expect_error(1, f"{page}:5: expected '{shown[0]}', found '{shown[1]}'; make accuracy writes it anew",
                          "accuracy", rows, "--check", page)

    def test_accuracy_may_hide_the_names_of_sources(self):
        header = self.HEADER + ",tflops_per_gpu,tokens_per_s_per_gpu,step_time_s,mem_GB,notes,quality"
        row = self.ROW.replace("Megatron-LM", "Megatron-DeepSpeed")
        rows = self.write("rows.csv", header + "\n" + row + ",,,0.5,,,A\n")
        named, unnamed = (self.expect_json("accuracy", rows, "--json", *hidden) for hidden in ((), ("--unnamed",)))
        self.assertEqual(list(unnamed["others_constants"]["sources"]), ["Megatron-DeepSpeed"])
        self.assertNotEqual(named["others_constants"]["macro_mape"], unnamed["others_constants"]["macro_mape"])
        self.assertIn("**Without the names of sources**", self.expect_text("accuracy", rows, "--unnamed"))

    def test_wrong_input_is_one_line(self):
        rows = self.write("rows.csv", self.HEADER.replace(",hidden", "") + "\n")
        self.expect_error(2, f"{rows}:1: expected the column 'hidden', found none; nearest: 'model'", "predict", rows)
        good = self.write("good.csv", self.HEADER + "\n" + self.ROW + "\n")
        self.expect_error(2, "predict: no row 'r9', did you mean 'r1'?", "predict", good, "--explain", "r9")
        self.expect_error(2, "expected [SCOPE.]KEY=VALUE, found 'jitter'", "predict", good, "--style-set", "jitter")
        self.expect_error(2, f"{good}:1: expected the column 'step_time_s', found none", "accuracy", good)
        self.expect_error(2, "expected ROWS.csv or --reality FILE, found neither", "accuracy")

    def test_accuracy_shows_steps_measured_on_a_machine_alone(self):
        pair = {"model": "small", "plan": "serial", "transport": "threads", "ranks": 1, "runs": [0.1, 0.12], "bytes": 0,
                "memory": 4096, "predicted": {"step_time_s": 0.121, "bytes": 0, "memory": 4096}, "error": ""}
        measured = {"date": "2026-01-02", "command": "run", "machine": {}, "models": {}, "pairs": [pair],
                    "title": "Steps of a machine", "method": "Both were timed.", "target_error": 0.1, "target_tau": 0.8}
        file = self.write("reality.json", json.dumps(measured))
        self.assertIn("## Steps of a machine\nMeasured on 2026-01-02 by `run`: Both were timed. ",
                      self.expect_text("accuracy", "--reality", file))
        self.expect_error(2, "--reality: expected ROWS.csv beside more than one file, found none", "accuracy", "--reality", file,
                          "--reality", file)
        self.assertIn("| small | `serial` | 1 threads | 110.0 | 121.0 | +10.0 % |",
                      self.expect_text("accuracy", "--reality", file))
        scores = self.expect_json("accuracy", "--reality", file, "--json")
        self.assertEqual((scores["pairs"], scores["exact"], scores["failed"]), (1, 1, 0))
        self.expect_error(2, "--each: expected ROWS.csv, found none", "accuracy", "--reality", file, "--each", "each.csv")
        self.assertFalse(os.path.exists("each.csv"))
        text = self.write("text.json", "{}")
        self.expect_error(2, f"{text}: expected a file of benchmarks/run_reality.py or run_slow_links.py, found: "
                             "[json.exception.out_of_range.403] key 'date' not found", "accuracy", "--reality", text)


class Reproduce(CliTest):
    def test_worked_examples_instances_and_claims(self):
        answer = self.expect_text("reproduce", "terapipe")
        self.assertIn("worked example", answer)
        self.assertRegex(answer, r"(?m)^terapipe_slices +\d+ +0$")
        found = self.expect_json("reproduce", "galvatron", "tests/reproduce/galvatron_chain.json", "--json")
        self.assertEqual([case["answer"].get("seconds") for case in found["cases"]], [None, 60, 49, 42, 39, 35, 30])
        self.assertEqual(found["differences"], [])
        claims = self.expect_json("reproduce", "--list", "--json")
        self.assertEqual([system["name"] for system in claims["systems"]],
                         ["galvatron", "alpa", "terapipe", "opfence", "rannc", "dtfm", "splitbrain"])
        self.assertIn("not reproducible: ", self.expect_text("reproduce", "--list"))

    def test_cbc_finds_the_cost_that_our_own_solver_finds(self):
        for name in ("alpa_strategies_chain", "alpa_strategies_memory"):
            instance = json.loads((ROOT / "tests" / "reproduce" / f"{name}.json").read_text())
            for case in [instance] + instance.get("cases", []):  # of several answers of one cost either may be found
                case.pop("expected", None)
            costs = []
            for solver in ("own", "cbc"):
                path = self.write(f"{solver}.json", json.dumps(instance | {"solver": solver}))
                answer = run("reproduce", "alpa", path, "--json")
                if "built without CBC" in answer.err:
                    self.assertEqual(answer.code, 2)
                    return
                self.assertEqual(answer.code, 0, answer.err)
                found = json.loads(answer.out)
                costs.append([case["answer"].get("cost") for case in found.get("cases", [found])])
            self.assertEqual(costs[0], costs[1])
            self.assertIsNotNone(costs[0][-1])
        path = self.write("x.json", json.dumps(instance | {"solver": "simplex"}))
        self.expect_error(2, f'{path}: cases[0]: solver: expected one of auto, own, cbc, found "simplex"', "reproduce", "alpa", path)

    def test_another_answer_than_expected_is_exit_code_1(self):
        path = self.write("x.json", '{"ask": "strategies", "devices": 8, "expected": {"strategies": 23}}')
        answer = run("reproduce", "galvatron", path)
        self.assertEqual(answer.code, 1)
        self.assertIn("expected.strategies: expected 23, found 22", answer.out)
        self.assertEqual(answer.err, f"tessera: reproduce: {path}: 1 value of what is expected found otherwise; "
                                     "expected.strategies: expected 23, found 22\n")

    def test_wrong_input_is_one_line(self):
        path = self.write("x.json", '{"length": 64, "stages": "many"}')
        self.expect_error(2, f'{path}: stages: expected a whole number of at least 1, found "many"', "reproduce", "terapipe", path)
        self.expect_error(2, "reproduce: expected --list, or a system (tessera reproduce --help)", "reproduce")


if __name__ == "__main__":
    main()
