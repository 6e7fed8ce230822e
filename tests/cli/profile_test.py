"""tessera profile of a plan. How to run it: cli.py."""
import json

from cli import RuntimeTest, main, run

SMALL = "gpt:layers=1,hidden=32,heads=2,seq=16,vocab=64"
EMPTY = {"format": 1, "device": "a machine", "version": "1", "date": "2026-01-02", "ranks": 2, "scalars": {}, "families": {}}


class Profile(RuntimeTest):
    def measured_share(self, path):
        answer = run("simulate", SMALL, "--plan", "data_parallel(2)", "--batch", "4", "--cluster", "local:2", env={"TESSERA_PROFILE": path})
        self.assertEqual((answer.code, answer.err), (0, ""))
        return answer.out.split("costs from")[1].splitlines()[0]

    def test_the_kernels_of_a_plan_are_added_and_priced_as_measured(self):
        path = self.write("profile.json", json.dumps(EMPTY))
        self.assertNotIn("measured", self.measured_share(path))
        out = self.expect_text("profile", "--model", SMALL, "--batch", "4", "--plan", "data_parallel(2)", "--quick", "--out", path)
        self.assertRegex(out, rf"^{path}: \d+ sizes of {SMALL} under data_parallel\(2\) measured\n$")
        with open(path, encoding="utf-8") as file:
            families = json.load(file)["families"]
        self.assertTrue(families and all(name.endswith("@2") for name in families), families.keys())
        # All but what is exchanged, which a step's kernels do not tell.
        self.assertRegex(self.measured_share(path), r"measured [5-9]\d\.\d %")

    def test_wrong_questions_are_one_line(self):
        path = self.write("profile.json", json.dumps(EMPTY))
        self.expect_error(2, "profile: --model: expected --batch, the sequences of a step", "profile", "--model", SMALL, "--out", path)
        self.expect_error(2, f"profile: --model: expected a profile to add to, found no file {path}.none; tessera profile writes it",
                          "profile", "--model", SMALL, "--batch", "4", "--out", path + ".none")
        for option, value in (("--plan", "data_parallel(2)"), ("--batch", "4")):
            self.expect_error(2, f"profile: {option}: expected --model, whose step is measured, found none; without both the whole machine is measured",
                              "profile", option, value, "--out", path)
        answer = run("profile", "--model", SMALL, "--batch", "4", "--plan", "nothing(2)", "--out", path)
        self.assertEqual((answer.code, answer.out, answer.err.count("\n")), (2, "", 1))


if __name__ == "__main__":
    main()
