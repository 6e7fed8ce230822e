"""tessera cluster. How to run it: cli.py."""
import json
import os
import random

from cli import CliTest, main, run

POLICIES = ["fifo", "sjf", "srtf", "tiresias", "tiresias-gittins", "default", "pollux", "sia", "gavel", "elasticflow", "ones",
            "optimus"]
PHILLY = "timestamp,duration,num_gpus,gpu_time,cluster\n"
SACCT = "JobID|JobName|Submit|Elapsed|State|AllocTRES\n"


class Cluster(CliTest):
    def simulate(self, trace, *more, cluster="2x4", policy="fifo"):
        return ["cluster", "simulate", trace, "--cluster", cluster, "--policy", policy, *more]

    def philly(self, *rows, name="jobs.csv"):
        return self.write(name, PHILLY + "".join(f"{time},{duration},{gpus},{duration * gpus},a\n" for time, duration, gpus in rows))


class Answers(Cluster):
    def test_metrics_of_a_run_that_can_be_checked_by_hand(self):
        # Two jobs fill the cluster; the third waits for the first, which ends at 60 + 600 s.
        trace = self.philly((0, 600, 4), (0, 1200, 4), (10, 100, 4))
        found = self.expect_json(*self.simulate(trace, "--json"))
        self.assertEqual(found["format"], "philly")
        ends = [job["end_s"] for job in found["jobs"]]
        self.assertEqual(ends, [660, 1260, 760])
        self.assertAlmostEqual(found["mean_jct_s"], (660 + 1260 + 750) / 3)
        self.assertEqual((found["median_jct_s"], found["makespan_s"]), (750, 1260))
        self.assertAlmostEqual(found["gpu_h"], 4 * 1900 / 3600)
        self.assertAlmostEqual(found["utilisation"], 4 * 1900 / (8 * 1260))
        waits = found["jobs"][2]
        self.assertEqual((waits["start_s"], waits["restarts"], waits["waited_s"]), (660, 0, 600))
        self.assertEqual(waits["waits_for"], "asks for 4 GPUs, 0 are free; earliest start 00:11 when job philly-0 ends")

    def test_scattered_gpus_are_a_reason_of_their_own(self):
        trace = self.philly((0, 600, 3), (0, 600, 3), (0, 900, 1), (60, 60, 4), (61, 60, 1), name="scattered.csv")
        text = self.expect_text(*self.simulate(trace, "--jobs", cluster="2x4"))
        self.assertRegex(text, r"(?m)^mean JCT +\d+\.\d{3} s$")
        self.assertIn("Why they waited\n", text)

    def test_every_policy_answers_twice_the_same(self):
        for policy in POLICIES:
            question = self.simulate("ones:jobs=6", "--json", "--seed", "2", cluster="4x4", policy=policy)
            first = self.expect_json(*question)
            again = self.expect_json(*question)
            for answer in (first, again):  # times of this machine
                answer.pop("longest_decision_s")
                answer.pop("decisions_s")
            self.assertEqual(first, again, policy)
            self.assertEqual(len(first["jobs"]), 6)
            for job in first["jobs"]:
                self.assertLessEqual(job["submit_s"], job["start_s"])
                self.assertLess(job["start_s"], job["end_s"])

    def test_prices_and_deadlines(self):
        trace = self.philly((0, 3600, 8))
        found = self.expect_json(*self.simulate(trace, "--price", "2.5", "--json"))
        self.assertAlmostEqual(found["cost_usd"], 8 * 2.5)
        self.write("net.csv", "global_batch_size,1,2,4,8\n64,1,1.9,3.5,6\n")
        jobs = self.write("flow.csv", "name,submit_s,model,global_batch_size,iterations,gpus,deadline_s\n"
                                      "a,0,net,64,1000,1,500\nb,0,net,64,1000,1,\n")
        found = self.expect_json(*self.simulate(jobs, "--json", policy="elasticflow"))
        self.assertEqual((found["deadlines"], found["missed_deadlines"]), (1, 0))
        found = self.expect_json(*self.simulate(jobs, "--json", policy="fifo"))
        self.assertEqual(found["missed_deadlines"], 1)

    def test_the_least_cost_under_a_deadline(self):
        # A step takes 1 s on one GPU and 0.6 s on two: one GPU is cheaper, two end sooner.
        self.write("net.csv", "global_batch_size,1,2\n64,1,1.6666666\n")
        head = "name,submit_s,model,global_batch_size,iterations,gpus,deadline_s\n"
        for deadline_s, objective, gpus in ((2000, "cost", 1), (2000, "time", 2), (700, "cost", 2)):
            jobs = self.write("flow.csv", head + f"a,0,net,64,1000,1,{deadline_s}\n")
            found = self.expect_json(*self.simulate(jobs, "--json", "--switch", "0", "--price", "2", "--objective", objective,
                                                    policy="default"))
            self.assertEqual(found["missed_deadlines"], 0)
            self.assertAlmostEqual(found["jobs"][0]["gpu_s"], 1000 if gpus == 1 else 1200, delta=1)
        self.expect_error(2, "--objective cost: expected --price TYPE=USD for each type, found none",
                          *self.simulate(jobs, "--objective", "cost", policy="default"))
        self.expect_error(2, "--objective cost: expected the policy default, found 'fifo'",
                          *self.simulate(jobs, "--objective", "cost", "--price", "2"))

    def test_types_of_gpus(self):
        table = {kind: {"('net', 2)": {"null": speed}} for kind, speed in (("old", 1.0), ("new", 3.0))}
        throughputs = self.write("speeds.json", json.dumps(table))
        jobs = self.write("jobs.trace", "".join(f"net\trun\tnet\t--steps\t1\t3000\t2\t1\t-1\t{time}\n" for time in (0, 0, 100)))
        question = self.simulate(jobs, "--throughputs", throughputs, "--json", cluster="old:1x2,new:1x2", policy="gavel")
        found = self.expect_json(*question)
        self.assertEqual(found["format"], "gavel")
        self.assertGreater(found["makespan_s"], 3000 * 3 / 4)
        message = (f"{throughputs}: expected the types of the cluster, as --cluster old:9x4, of new, old, found 'gpu'")
        self.expect_error(2, message, *self.simulate(jobs, "--throughputs", throughputs))

    def test_the_page_holds_all_parts(self):
        page = os.path.join(self.folder, "run.html")
        self.expect_text(*self.simulate("ones:jobs=8", "-o", page, cluster="2x4", policy="default"))
        with open(page, encoding="utf-8") as file:
            text = file.read()
        for part in ("Nodes over time", "Sizes of jobs over time", "The queue", "Why jobs waited", "<svg", "node 1"):
            self.assertIn(part, text)
        self.assertNotIn("http", text)


class Readers(Cluster):
    def test_a_log_of_slurm_is_read_and_what_is_left_out_is_said(self):
        log = self.write("log.txt", SACCT +
                         "10|train|2026-11-01T10:00:00|00:10:00|COMPLETED|billing=8,cpu=8,gres/gpu=4,node=1\n"
                         "10.batch|batch|2026-11-01T10:00:00|00:10:00|COMPLETED|cpu=8,gres/gpu=4\n"
                         "11|shell|2026-11-01T10:01:00|01:00:00|COMPLETED|cpu=8\n"
                         "12|long|2026-11-01T09:59:00|1-00:00:00|TIMEOUT|cpu=8,gres/gpu:a100=2\n"
                         "13|gone|2026-11-01T10:01:00|00:00:00|CANCELLED|\n"
                         "14|now|2026-11-01T10:01:00|00:02:00|RUNNING|gres/gpu=1\n")
        found = self.expect_json(*self.simulate(log, "--json"))
        self.assertEqual([(job["name"], job["gpus"], job["submit_s"]) for job in found["jobs"]], [("12", 2, 0), ("10", 4, 60)])
        self.assertEqual(found["left_out"], ["1 jobs that had not ended", "1 jobs that never ran", "1 jobs without GPUs",
                                             "1 steps of jobs, which their jobs hold"])

    def test_jobs_that_change_their_plan(self):
        os.mkdir(os.path.join(self.folder, "throughput"))
        self.write("throughput/net.csv", "exec_plan,placement,iter_time,forward,overlap_sync,optimize\n"
                                         "ga,1,4,1,1,1\nga,4,1.5,1,1,1\nzero-dp,4,1,1,1,1\n")
        jobs = self.write("jobs.csv", "name,submission_time,duration,application,num_gpus,num_cpus,bandwidth,exec_plan,steps,is_sla\n"
                                      "a,0,900,net,4,8,0,ga,600,0\n")
        asked = self.expect_json(*self.simulate(jobs, "--json", "--switch", "0"))["jobs"][0]
        ours = self.expect_json(*self.simulate(jobs, "--json", "--switch", "0", policy="default"))["jobs"][0]
        self.assertEqual((asked["end_s"], ours["end_s"]), (60 + 600 * 1.5, 60 + 600 * 1))


    def test_pauses_follow_from_the_bytes_of_a_jobs_state(self):
        # A replica of 20 GB on each GPU. Job a has both nodes, gives one to b and gets it back when b ends.
        os.mkdir(os.path.join(self.folder, "throughput"))
        head = "exec_plan,placement,iter_time,state_bytes,gpu_state_bytes\n"
        self.write("throughput/net.csv", head + "ga,4,1,20e9,20e9\nga,44,0.8,20e9,20e9\n")
        jobs = self.write("jobs.csv", "name,submission_time,duration,application,num_gpus,exec_plan,steps\n"
                                      "a,0,900,net,4,ga,3000\nb,600,900,net,4,ga,500\n")
        found = self.expect_json(*self.simulate(jobs, "--json", "--switch", "5", "--links", "dgx-a100", policy="default"))
        self.assertEqual(found["moved_bytes"], 4 * 20e9)
        self.assertEqual([job["moved_bytes"] for job in found["jobs"]], [4 * 20e9, 0])
        node = 8 * 25e9  # bytes a second of the network cards of a dgx-a100
        grows_s = found["jobs"][1]["end_s"]
        grows_s += -grows_s % 60  # the end of the round
        steps = (600 - 60 - 5) / 0.8 + (grows_s - 600) / 1  # shrinking moves nothing
        self.assertAlmostEqual(found["jobs"][0]["end_s"], grows_s + 4 * 20e9 / node + (3000 - steps) * 0.8, delta=1e-3)
        # What is not known in bytes is said, and pauses for the constant.
        trace = self.philly((0, 600, 4), (0, 600, 8))
        found = self.expect_json(*self.simulate(trace, "--json", "--links", "dgx-a100"))
        self.assertEqual(found["left_out"], ["links, for 2 jobs whose bytes of state are not known: a pause is that of --switch or "
                                             "of the format"])
        self.expect_error(2, "--links: expected a machine of equal nodes with network cards, as a800, found 'local'",
                          *self.simulate(trace, "--links", "local"))

    def test_a_policy_decides_by_predicted_speeds_and_jobs_advance_by_measured_ones(self):
        for folder in ("throughput", "ours"):
            os.mkdir(os.path.join(self.folder, folder))
        self.write("throughput/net.csv", "exec_plan,placement,iter_time\nga,4,1.5\nzero-dp,4,1\n")
        self.write("ours/net.csv", "exec_plan,placement,iter_time\nga,4,0.9\nzero-dp,4,1\n")
        jobs = self.write("jobs.csv", "name,submission_time,duration,application,num_gpus,exec_plan,steps\na,0,900,net,4,zero-dp,600\n")
        predicted = ["--predicted", os.path.join(self.folder, "ours")]
        for policy, more, step_s in (("default", [], 1), ("default", predicted, 1.5), ("fifo", predicted, 1)):
            found = self.expect_json(*self.simulate(jobs, "--json", "--switch", "0", *more, policy=policy))
            self.assertEqual(found["jobs"][0]["end_s"], 60 + 600 * step_s, policy)
        self.write("net.csv", "global_batch_size,1,2\n64,1,1.9\n")
        self.write("ours/net.csv", "global_batch_size,1,2\n64,1,1\n")
        flow = self.write("flow.csv", "name,submit_s,model,global_batch_size,iterations,gpus\na,0,net,64,600,1\n")
        for more, gpus in (([], 2), (predicted, 1)):
            job = self.expect_json(*self.simulate(flow, "--json", "--switch", "0", *more, policy="default"))["jobs"][0]
            self.assertAlmostEqual(job["gpu_s"] / (job["end_s"] - job["start_s"]), gpus)
        self.expect_error(2, "--predicted: expected a workload with throughputs (pollux, morphling, gavel, elasticflow), found "
                          "one of philly", *self.simulate(self.philly((0, 600, 4)), *predicted))


class Speeds(Cluster):
    GPT = "gpt:layers=4,hidden=256,heads=4,seq=256,vocab=4096"

    def speeds(self, *more, model=GPT, cluster="dgx-a100:2", batch=16):
        return ["cluster", "speeds", model, "--cluster", cluster, "--batch", str(batch), *more]

    def test_are_those_of_simulate(self):
        found = self.expect_json(*self.speeds("--gpus", "1,4", "--placements", "22,16", "--json", "--plan", "ga=data_parallel({})"))
        self.assertEqual([row["placement"] for row in found["rows"]], [[2, 2], [6, 1], [1], [4]])
        self.assertEqual(found["left_out"], [])
        for row, devices in zip(found["rows"], ("0,1,8,9", "0,1,2,3,4,5,8", "0", "0,1,2,3")):
            ranks = sum(row["placement"])
            step = self.expect_json("simulate", self.GPT, "--cluster", "dgx-a100:2", "--batch", "16", "--json", "--plan",
                                    f'data_parallel({ranks}, device_order="{devices}")', "--style", "torchtitan")
            priced = self.expect_json(*self.speeds("--placements", "".join(map(str, row["placement"])), "--json", "--style",
                                                   "torchtitan", "--plan", "ga=data_parallel({})"))
            self.assertAlmostEqual(priced["rows"][0]["step_time_s"], step["step_time_s"])

    def test_are_a_table_for_simulate(self):
        os.mkdir(os.path.join(self.folder, "throughput"))
        table = os.path.join(self.folder, "throughput", "net.csv")
        plans = self.write("plans.toml", 'ga = "data_parallel({})"\n12 = "megatron(tp=2)"\n')
        text = self.expect_text(*self.speeds("--gpus", "1,2", "--plans", plans, "-o", table))
        self.assertRegex(text, r"(?m)^2 +12 .* megatron\(tp=2\)$")
        jobs = self.write("jobs.csv", "name,submission_time,duration,application,num_gpus,exec_plan,steps\na,0,900,net,2,12,60000\n")
        rows = {tuple(row["placement"]): row for row in
                self.expect_json(*self.speeds("--gpus", "1,2", "--plans", plans, "--json"))["rows"] if row["plan"] == "12"}
        end_s = self.expect_json(*self.simulate(jobs, "--json", "--switch", "0"))["jobs"][0]["end_s"]
        self.assertAlmostEqual(end_s, 60 + 60000 * rows[(2,)]["step_time_s"], delta=0.01)

    def test_the_state_of_a_plan_is_counted_in_bytes(self):
        # GPT with tied embeddings: per layer 12 h^2 + 13 h, tables 4096 h and 256 h, last norm 2 h; 12 bytes a parameter with AdamW.
        hidden = 256
        whole = 12 * (4 * (12 * hidden**2 + 13 * hidden) + (4096 + 256) * hidden + 2 * hidden)
        found = self.expect_json(*self.speeds("--gpus", "1,4", "--json", "--plan", "ga=data_parallel({})", "--plan", "zero=zero(stage=3,dp={})"))
        for row in found["rows"]:
            self.assertAlmostEqual(row["state_bytes"] / whole, 1, delta=1e-4, msg=row)
            share = row["placement"][0] if row["plan"] == "zero" else 1
            self.assertAlmostEqual(row["gpu_state_bytes"] * share / whole, 1, delta=1e-4, msg=row)

    def test_micro_batches_are_as_few_as_fit(self):
        model = "gpt:layers=12,hidden=768,heads=12,seq=1024"
        found = self.expect_json(*self.speeds("--gpus", "1", "--json", "--plan", "ga=data_parallel({}, micro_batches={micro})",
                                              "--plan", "whole=data_parallel({})", model=model, cluster="2080ti:1", batch=64))
        self.assertEqual([row["plan"] for row in found["rows"]], ["ga"])
        self.assertRegex(found["rows"][0]["text"], r"micro_batches=(8|16|32|64)\)")
        self.assertRegex(found["left_out"][0], r"^whole on 1: needs [0-9.]+ GiB of [0-9.]+ GiB a device$")

    def test_the_planner_finds_plans(self):
        found = self.expect_json(*self.speeds("--gpus", "2", "--json", "--plan", "auto", "--plan", "ga=data_parallel({})"))
        auto, ga = found["rows"]
        self.assertLessEqual(auto["step_time_s"], ga["step_time_s"] * 1.001)
        self.assertIn("\n", auto["text"])

    def test_wrong_input_is_one_line(self):
        self.expect_error(2, "cluster speeds: --batch is required (tessera cluster speeds --help)",
                          "cluster", "speeds", self.GPT, "--cluster", "a800:1")
        self.expect_error(2, "cluster speeds: MODEL is required (tessera cluster speeds --help)", "cluster", "speeds", "--cluster", "a800:1")
        self.expect_error(2, "cluster speeds: expected placements on at most 2 nodes of 8 GPUs, those of dgx-a100, found '111'",
                          *self.speeds("--placements", "111"))
        self.expect_error(2, "--placements: expected a digit from 1 to 9 for each node, as 233, or numbers, as 16+16, found '2x'",
                          *self.speeds("--placements", "2x"))
        self.expect_error(2, "--gpus: expected at most 16 GPUs, those of dgx-a100, found 17", *self.speeds("--gpus", "17"))
        self.expect_error(2, "--plan: expected a name for each plan, found two plans 'zero'",
                          *self.speeds("--plan", "zero(stage=2,dp={})", "--plan", "zero(stage=3,dp={})"))
        answer = run(*self.speeds("--gpus", "2", "--plan", "ga=data_paralel({})"))
        self.assertEqual(answer.code, 2)
        self.assertRegex(answer.err, r"^tessera: --plan ga: .*data_parallel.*\n$")
        answer = run(*self.speeds("--gpus", "1", "--plan", "ga=data_parallel({})", model="llama-2-70b", batch=1))
        self.assertEqual(answer.code, 1)
        self.assertRegex(answer.err, r"no plan runs on any of the placements: ga on 1: needs .* a device\n$")


class WrongInput(Cluster):
    def test_is_one_line(self):
        trace = self.philly((0, 600, 16))
        self.expect_error(2, f"{trace}: job 'philly-0': expected at most 8 GPUs, those of the cluster, found 16",
                          *self.simulate(trace))
        missing = self.write("missing.csv", "timestamp,duration,num_gpu\n0,1,1\n")
        self.expect_error(2, f"{missing}:1: expected the columns timestamp, duration, num_gpus, found no num_gpus",
                          *self.simulate(missing, "--format", "philly"))
        negative = self.philly((-5, 600, 4))
        self.expect_error(2, f"{negative}:2: timestamp: expected a time as 2026-01-31 14:20:00, or seconds of at least 0, found '-5'",
                          *self.simulate(negative))
        self.expect_error(2, "--cluster: expected nodes x GPUs, as 16x4, or types with them, as k80:4x4,v100:8x4, found '16'",
                          *self.simulate(trace, cluster="16"))
        self.expect_error(2, "--price: expected TYPE=USD an hour, as gpu=2.5, where the types are gpu, found 'a100=1'",
                          *self.simulate(trace, "--price", "a100=1"))
        other = self.write("other.csv", "a,b\n1,2\n")
        self.expect_error(2, f"{other}:1: expected a workload (pollux, morphling, philly, gavel, elasticflow, sacct, ones), found 'a,b'",
                          *self.simulate(other))
        self.expect_error(2, "ones:jobs=x: expected jobs and interval as positive numbers, or kept=asked, found 'jobs=x'",
                          *self.simulate("ones:jobs=x"))

    def test_names_and_order(self):
        self.write("net.csv", "global_batch_size,1,2\n64,1,1.9\n")
        head = "name,submit_s,model,global_batch_size,iterations,gpus\n"
        twice = self.write("twice.csv", head + "a,0,net,64,10,1\na,5,net,64,10,1\n")
        self.expect_error(2, f"{twice}: expected a name for each job, found two jobs 'a'", *self.simulate(twice))
        unsorted = self.write("unsorted.csv", head + "a,9,net,64,10,1\nb,5,net,64,10,1\n")
        self.expect_error(2, f"{unsorted}: job 'b': expected jobs in order of submission, found 5 s after 9 s",
                          *self.simulate(unsorted))
        batch = self.write("batch.csv", head + "a,9,net,65,10,1\n")
        self.expect_error(2, f"{batch}:2: global_batch_size: expected a batch of the table of 'net', as 64, found 65",
                          *self.simulate(batch))

    def test_damaged_files_never_end_in_a_crash(self):
        good = self.philly(*((60 * i, 600, 1 + i % 4) for i in range(20)))
        with open(good, encoding="utf-8") as file:
            text = file.read()
        draw = random.Random(5)
        for _ in range(40):
            damaged = list(text)
            for _ in range(3):
                damaged[draw.randrange(len(damaged))] = draw.choice("x,-9.\n\"")
            answer = run(*self.simulate(self.write("damaged.csv", "".join(damaged))))
            self.assertIn(answer.code, (0, 1, 2), answer.err)
            self.assertLessEqual(answer.err.count("\n"), 1)


if __name__ == "__main__":
    main()
