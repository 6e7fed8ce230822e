"""tessera shard. How to run it: cli.py."""
import csv
import json
import os

from cli import ALL_CASES, CliTest, main, run

HEADER = "name,rows,dim,pooling_factor\n"
TABLES = HEADER + "user,4000000,64,1\nitem,400000,64,30\nshop,1000,16,2\nword,100000,128,80\n"


class Shard(CliTest):
    def tables(self, text=TABLES):
        return self.write("tables.csv", text)

    def question(self, *more, devices="2", memory="4 GiB", text=TABLES):
        return ["shard", self.tables(text), "--devices", devices, "--memory", memory, *more]

    def test_the_answer_covers_all_tables_and_is_the_same_each_time(self):
        answer = self.expect_json(*self.question("--json"))
        self.assertEqual((answer["found"], answer["planner"], answer["cost"], answer["devices"]), (True, "auto", "closed", 2))
        self.assertGreaterEqual(answer["ms"], answer["bound_ms"])
        numbers = {}
        for piece in answer["placement"]:
            self.assertIn(piece["device"], (0, 1))
            numbers[piece["table"]] = numbers.get(piece["table"], 0) + piece["rows"] * piece["columns"]
        for row in csv.DictReader(TABLES.splitlines()):
            self.assertIn(numbers[row["name"]], [int(row["rows"]) * int(row["dim"]) * copies for copies in (1, 2)])
        slowest = max(load["compute_ms"] + load["backward_ms"] + load["forward_ms"] for load in answer["load"])
        self.assertAlmostEqual(answer["ms"], slowest)
        self.assertEqual(answer, self.expect_json(*self.question("--json")))
        text = self.expect_text(*self.question())
        self.assertRegex(text, r"(?m)^cost +[0-9.]+ ms a step by closed$")
        self.assertRegex(text, r"(?m)^bound +no placement is faster than [0-9.]+ ms, gap [0-9.]+ %$")

    def test_placements_are_written_edited_and_priced_again(self):
        path = os.path.join(self.folder, "placement.csv")
        found = self.expect_json(*self.question("--json", "--out", path))
        again = self.expect_json(*self.question("--json", "--placement", path))
        self.assertAlmostEqual(again["ms"], found["ms"])
        head = "table,kind,device,first_row,rows,first_column,columns\n"
        whole = ["user,table,0,0,4000000,0,64", "item,table,0,0,400000,0,64", "shop,table,1,0,1000,0,16"]
        self.write("placement.csv", head + "\n".join(whole) + "\n")
        self.expect_error(1, "shard: by hand: does not fit: table 'word': its pieces do not cover the table",
                          *self.question("--placement", path))
        self.write("placement.csv", head + whole[0].replace("64", "65") + "\n")
        self.expect_error(2, f"{path}:2: columns: expected a whole number from 1 to 64, found '65'",
                          *self.question("--placement", path))

    def test_every_planner_answers_and_ours_is_the_best(self):
        rows = self.expect_json(*self.question("--compare", "--json"))["planners"]
        self.assertEqual([row["planner"] for row in rows],
                         ["auto", "neuroshard", "torchrec", "dim", "size", "lookup", "size-lookup", "random"])
        self.assertEqual(min(row["ms"] for row in rows), rows[0]["ms"])
        self.assertRegex(self.expect_text(*self.question("--compare")), r"(?m)^size-lookup +[0-9.]+ ms")

    def test_cost_models_by_name_and_by_file(self):
        # The worked example of docs/theory/zionex-dlrm.md section 6: 3 * 3.2746e-4 + 2 * 6.3578e-5 ms.
        text = HEADER + "t,100,10,1\n"
        answer = self.expect_json(*self.question("--cost", "torchrec", "--planner", "dim", "--json", text=text))
        self.assertAlmostEqual(answer["ms"], 3 * 3.2746e-4 + 2 * 6.3578e-5, delta=1e-8)
        model = self.write("model.json", json.dumps({"model": "torchrec", "batch": 1024}))
        double = self.expect_json(*self.question("--cost", model, "--planner", "dim", "--json", text=text))
        self.assertAlmostEqual(double["ms"], 2 * answer["ms"])
        self.write("model.json", json.dumps({"model": "torchrec", "bach": 1024}))
        self.expect_error(2, f"{model}: bach: unknown key, did you mean 'batch'?", *self.question("--cost", model))
        self.write("model.json", '{"model": "neural", "compute": {"mean": [NaN]}}')
        self.expect_error(2, f"{model}:1: expected a finite number, found 'NaN'", *self.question("--cost", model))

    def test_random_tables_are_written_and_read_back(self):
        path = os.path.join(self.folder, "random.csv")
        options = ["--devices", "4", "--memory", "4 GiB", "--planner", "lookup", "--json"]
        first = self.expect_json("shard", "random:max_dim=16,seed=3", *options, "--write-tables", path)
        self.assertEqual(self.expect_json("shard", path, *options), first)

    def test_hot_rows_of_tables_whose_frequencies_are_known(self):
        head = HEADER.strip() + ",zipf\n"
        text = head + "user,4000000,4,80,1.05\nitem,1000000,8,40,1.05\nword,1000000,16,10,1.05\ntag,2000000,4,20,1.05\n"
        path = os.path.join(self.folder, "placement.csv")
        question = self.question("--json", "--out", path, devices="4", memory="2 GiB", text=text)
        found = self.expect_json(*question)
        if ALL_CASES:  # a search of some seconds
            without = self.expect_json(*question[:-2], "--splits", "columns,rows,replicas")
            self.assertLess(found["ms"], 0.9 * without["ms"])
        hot = [piece for piece in found["placement"] if piece["table"] == "user" and piece["kind"] == "replicated"]
        self.assertEqual([piece["device"] for piece in hot], [0, 1, 2, 3])
        self.assertLess(hot[0]["rows"], 100000)
        again = self.expect_json(*question[:-2], "--placement", path)
        self.assertAlmostEqual(again["ms"], found["ms"])
        self.assertRegex(self.expect_text(*question[:-3], "--placement", path), r"(?m)^  user \(4000000 x 4\), hot rows.*: rows 0-\d+ on every device, ")
        file = self.tables(HEADER.strip() + ",ordered,zipf\nx,10,4,1,1,\n")
        self.expect_error(2, f"{file}:2: ordered: expected how often the rows of table 'x' are looked up (bin_0 .. bin_16, or zipf), "
                             "found neither", "shard", file, "--devices", "2", "--memory", "1 GB")
        file = self.tables(head + "x,10,4,1,-1\n")
        self.expect_error(2, f"{file}:2: zipf: expected a number from 0 to 10, found '-1'",
                          "shard", file, "--devices", "2", "--memory", "1 GB")

    def test_what_does_not_fit_is_exit_code_1(self):
        answer = run(*self.question(memory="200 MB"))
        self.assertEqual((answer.code, answer.out), (1, ""))
        self.assertRegex(answer.err, r"^tessera: shard: auto: does not fit: 4 tables need 1\.10 GiB .*; the largest table, "
                                     r"'user', needs 976\.56 MiB .*\n$")
        answer = run(*self.question("--json", memory="200 MB"))
        self.assertEqual((answer.code, answer.err), (1, ""))
        self.assertFalse(json.loads(answer.out)["found"])

    def test_wrong_input_is_one_line(self):
        path = self.tables("name,rows\nx,1\n")
        self.expect_error(2, f"{path}:1: expected the columns name, rows, dim, pooling_factor, found no dim, pooling_factor",
                          "shard", path, "--devices", "2", "--memory", "1 GB")
        self.expect_error(2, "--memory: expected a size with a unit, as '80 GB', found '4' without one", *self.question(memory="4"))
        self.expect_error(2, "--devices: expected at most 1024, found 4096", *self.question(devices="4096"))
        self.expect_error(2, "cost model: expected closed, torchrec or a file .json, found 'simulator'",
                          *self.question("--cost", "simulator"))
        path = self.tables(HEADER + "x,10,4,many\n")
        self.expect_error(2, f"{path}:2: pooling_factor: expected a number from 0 to 1000000000, found 'many'",
                          "shard", path, "--devices", "2", "--memory", "1 GB")


if __name__ == "__main__":
    main()
