"""tessera cache. How to run it: cli.py."""
import shlex

from cli import ROOT, CliTest, main


class Cache(CliTest):
    ZIPF = "zipf:rows=5000,batches=40,batch=256,seed=3"

    def test_the_page_shows_what_the_command_prints(self):
        page = (ROOT / "docs/strategies/row-cache.md").read_text(encoding="utf-8")
        block = page.split("\n```\n$ tessera ")[1].split("\n```\n")[0]
        command, _, shown = block.partition("\n")
        self.assertEqual(self.expect_text(*shlex.split(command)), shown + "\n")

    def test_a_trace_of_text_is_replayed(self):
        trace = self.write("trace.txt", "# four batches\n0 1 1\n2\n0 1\n2 2\n")
        found = self.expect_json("cache", trace, "--slots", "2,3", "--policy", "lru,belady", "--row-bytes", "100", "--json")
        self.assertEqual((found["rows"], found["batches"]), (3, 4))
        lru, belady, fits, _ = found["caches"]
        # 2 evicts 1, which evicts 2, which evicts 1, under both policies.
        self.assertEqual((lru["policy"], lru["slots"], lru["lookups"], lru["rows"]), ("lru", 2, 8, 6))
        self.assertEqual((lru["row_misses"], lru["rows_in"], lru["rows_out"], lru["lookup_misses"]), (5, 5, 3, 7))
        self.assertEqual((belady["row_misses"], belady["hit_rate"]), (5, 1 / 8))
        self.assertEqual((fits["row_misses"], fits["rows_out"], fits["bytes_in"], fits["bytes_out"]), (3, 0, 300, 0))

    def test_options_change_what_they_say(self):
        def misses(*options):
            found = self.expect_json("cache", self.ZIPF, "--slots", "200", "--json", *options)
            return {cache["policy"]: cache["row_misses"] for cache in found["caches"]}
        plain = misses()
        self.assertEqual(list(plain), ["dataset", "lfu", "lfu-forgetting", "lru", "lookahead", "belady"])
        self.assertEqual(plain["belady"], min(plain.values()))
        self.assertEqual(misses("--window", "0")["lookahead"], plain["dataset"])
        self.assertEqual(misses("--window", "40")["lookahead"], plain["belady"])
        self.assertLess(misses("--warm", "1")["dataset"], plain["dataset"])
        self.assertEqual(misses("--counted", "0", "--policy", "dataset,lru")["lru"], plain["lru"])
        self.assertGreater(misses("--counted", "0", "--policy", "dataset")["dataset"], plain["dataset"])
        found = self.expect_json("cache", self.ZIPF, "--slots", "200", "--json", "--read-only")
        self.assertEqual({cache["rows_out"] for cache in found["caches"]}, {0})
        found = self.expect_json("cache", self.ZIPF, "--slots", "10", "--json", "--policy", "lookahead")
        self.assertGreater(found["caches"][0]["overflow_rows"], 0)

    def test_clicks_are_a_trace_of_all_tables(self):
        clicks = self.folder + "/a.clicks"
        self.expect_text("data", "generate", "--samples", "100", "--rows", "50,20", "--out", clicks)
        found = self.expect_json("cache", clicks, "--slots", "70", "--batch", "30", "--policy", "lru", "--json")
        self.assertEqual((found["rows"], found["batches"]), (70, 4))
        self.assertEqual(found["caches"][0]["lookups"], 200)
        shown = self.expect_json("data", "show", clicks, "--json")
        self.assertEqual(found["caches"][0]["row_misses"], sum(feature["rows_used"] for feature in shown["features"]))

    def test_wrong_input_is_one_line(self):
        trace = self.write("bad.txt", "0 1\n2 x\n")
        self.expect_error(2, f"{trace}:2: expected an id from 0 to 4294967293, found 'x'", "cache", trace, "--slots", "2")
        self.expect_error(2, "expected a cache policy: dataset, lfu, lfu-forgetting, lru, lookahead, belady, found 'fifo'",
                          "cache", self.ZIPF, "--slots", "2", "--policy", "fifo")
        self.expect_error(2, "cache: expected --rows of at least 5000, as the trace has, found 10",
                          "cache", self.ZIPF, "--slots", "2", "--rows", "10")
        self.expect_error(2, "zipf: unknown key 'row', did you mean 'rows'?", "cache", "zipf:row=3", "--slots", "2")
        self.expect_error(2, "zipf: expected exponent from 0 to 10, found '-1'", "cache", "zipf:rows=3,exponent=-1", "--slots", "2")
        self.expect_error(2, "expected 'zipf:rows=N,...', found 'zipf:batch=3'", "cache", "zipf:batch=3", "--slots", "2")
        self.expect_error(2, "zipf: expected rows from 1 to 2147483648, found '0'", "cache", "zipf:rows=0", "--slots", "2")


if __name__ == "__main__":
    main()
