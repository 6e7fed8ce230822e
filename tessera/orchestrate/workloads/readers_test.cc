// Readers of workloads on small files, good and damaged.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "tessera/base/text.h"
#include "tessera/orchestrate/share/admission.h"
#include "tessera/orchestrate/share/random.h"
#include "tessera/orchestrate/workloads/workload.h"
#include "tessera/test/all_cases.h"

namespace tessera::share {
namespace {

class Folder {
 public:
  Folder() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "tessera_readers_XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string write(const std::string& name, const std::string& text) const {
    const std::filesystem::path path = std::filesystem::path(path_) / name;
    std::filesystem::create_directories(path.parent_path());
    EXPECT_TRUE(write_file(path.string(), text).has_value());
    return path.string();
  }

 private:
  std::string path_;
};

struct Sample {
  std::string name, text;                     // of the workload
  std::map<std::string, std::string> beside;  // further files
};

const std::vector<Sample>& samples() {
  static const std::vector<Sample> kSamples = {
      {"w/jobs.csv",
       "name,time,application,num_replicas,batch_size\na,5,net,2,8\nb,70,net,1,16\n",
       {{"traces/net/placements.csv",
         "placement,local_bsz,step_time,sync_time\n1,4,0.1,0.01\n1,8,0.15,0.01\n2,4,0.1,0.02\n"
         "2,8,0.2,0.02\n11,4,0.3,0.1\n11,8,0.4,0.1\n"},
        {"traces/net/scalability.csv",
         "num_nodes,num_replicas,local_bsz,step_time,sync_time\n6,6,4,0.5,0.3\n6,12,8,0.6,0.3\n"},
        {"traces/net/validation-8.csv",
         "progress,iteration,metric,grad_sqr,grad_var\n10,10,0.5,1,2\n20,20,0.6,1,2\n"},
        {"traces/net/validation-16.csv",
         "progress,iteration,metric,grad_sqr,grad_var\n11,6,0.5,1,2\n22,12,0.6,1,2\n"}}},
      {"jobs.csv",
       "name,submission_time,duration,application,num_gpus,num_cpus,bandwidth,exec_plan,steps\n"
       "a,0,10,net,2,8,0,ga,50\nb,9,10,net,4,8,0,144,70\n",
       {{"throughput/net.csv", "exec_plan,placement,iter_time\nga,2,1.5\nga,4,1\n144,22,2\n"}}},
      {"philly.csv",
       "timestamp,duration,num_gpus\n2017-10-09 07:01:55,60,1\n2017-10-09 06:00:00,0,2\n1,9,1\n",
       {}},
      {"log.sacct",
       "JobID|Submit|Elapsed|State|AllocTRES\n1|2026-01-01T00:00:00|00:05:00|COMPLETED|gres/gpu=2\n"
       "1.0|2026-01-01T00:00:00|00:05:00|COMPLETED|gres/gpu=2\n",
       {}},
      {"flow.csv",
       "name,submit_s,model,global_batch_size,iterations,gpus,deadline_s\na,0,net,64,10,1,500\n",
       {{"net.csv", "global_batch_size,1,2,4\n64,1,1.9,\n128,nan,1,0\n"}}},
      {"t/jobs.trace",
       "net\trun\tnet\t--steps\t1\t3000\t2\t1\t-1\t0\n",
       {{"simulation_throughputs.json", "{\"gpu\": {\"('net', 2)\": {\"null\": 3.0}}}"}}},
  };
  return kSamples;
}

TEST(Readers, EachReadsItsFormat) {
  for (const Sample& sample : samples()) {
    const Folder folder;
    for (const auto& [name, text] : sample.beside) folder.write(name, text);
    const auto read =
        read_workload(folder.write(sample.name, sample.text), {.machines = *parse_machines("2x4")});
    ASSERT_TRUE(read.has_value()) << read.error().message;
    EXPECT_FALSE(read->jobs.empty()) << sample.name;
    EXPECT_TRUE(check_jobs(read->jobs, *parse_machines("2x4"), sample.name).has_value());
  }
}

// Some editors begin a file with the mark of the byte order.
TEST(Readers, AMarkOfTheByteOrderChangesNothing) {
  for (const Sample& sample : samples()) {
    const Folder folder;
    for (const auto& [name, text] : sample.beside) folder.write(name, "\xEF\xBB\xBF" + text);
    const ReadOptions options{.machines = *parse_machines("2x4")};
    const std::string path = folder.write(sample.name, sample.text);
    const auto plain = read_workload(path, options);
    folder.write(sample.name, "\xEF\xBB\xBF" + sample.text);
    const auto marked = read_workload(path, options);
    ASSERT_TRUE(plain.has_value()) << plain.error().message;
    ASSERT_TRUE(marked.has_value()) << marked.error().message;
    EXPECT_EQ(marked->format, plain->format);
    ASSERT_EQ(marked->jobs.size(), plain->jobs.size());
    EXPECT_EQ(marked->jobs.front().name, plain->jobs.front().name);
    EXPECT_EQ(marked->jobs.front().application, plain->jobs.front().application);
  }
}

TEST(Readers, NumbersThatNoClusterHasAreRefusedInOneLine) {
  const auto expect = [](const std::string& name, const std::string& text,
                         const std::string& message) {
    const Folder folder;
    const std::string path = folder.write(name, text);
    folder.write("net.csv", "global_batch_size,1,2\n64,1,1.9\n");
    folder.write("gavel.json", "{\"gpu\": {\"('net', 2)\": {\"null\": 3.0}}}");
    ReadOptions options{.machines = *parse_machines("2x4")};
    if (name.ends_with(".trace")) options.traces = path.substr(0, path.rfind('/')) + "/gavel.json";
    const auto read = read_workload(path, options);
    ASSERT_FALSE(read.has_value());
    EXPECT_EQ(read.error().code, ErrorCode::kInvalidInput);
    EXPECT_EQ(read.error().message, path + message);
  };
  expect("philly.csv", "timestamp,duration,num_gpus\n1,1e300,1\n",
         ":2: duration: expected a number of at most 1e+18, found '1e300'");
  expect(
      "philly.csv", "timestamp,duration,num_gpus\n1e300,1,1\n",
      ":2: timestamp: expected a time as 2026-01-31 14:20:00, or seconds of at most 1e+18, found "
      "'1e300'");
  expect(
      "flow.csv",
      "name,submit_s,model,global_batch_size,iterations,gpus,deadline_s\na,0,net,64,10,1,1e300\n",
      ":2: deadline_s: expected a number of at most 1e+18, found '1e300'");
  expect("log.sacct",
         "JobID|Submit|Elapsed|State|AllocTRES\n"
         "1|2026-01-01T00:00:00|9000000000000000-00:05:00|COMPLETED|gres/gpu=2\n",
         ":2: Elapsed: expected a duration as 1-02:03:04, found '9000000000000000-00:05:00'");
  expect(
      "jobs.trace", "net\trun\tnet\t--steps\t1\t1e300\t2\t1\t-1\t0\n",
      ":1: expected positive steps, GPUs and weight, an arrival of at least 0, and no number above "
      "1e+18, found '1e300', '2', '1', '-1', '0'");
}

// A damaged file is read, or refused in one line; whatever is read can be run or is refused.
TEST(Readers, DamagedFilesAreRefusedInOneLine) {
  Random random(17);
  const int rounds = cases(15, 400);
  for (const Sample& sample : samples()) {
    const Folder folder;
    for (int round = 0; round < rounds; ++round) {
      std::map<std::string, std::string> files = sample.beside;
      files[sample.name] = sample.text;
      auto damaged = files.begin();
      std::advance(damaged, static_cast<std::ptrdiff_t>(random.below(files.size())));
      for (int k = 0; k < 3; ++k) {
        constexpr std::string_view kCharacters = "0129,-.e\n\"|\tx\xff";
        damaged->second[random.below(damaged->second.size())] =
            kCharacters[random.below(kCharacters.size())];
      }
      std::string path;
      for (const auto& [name, text] : files) {
        const std::string written = folder.write(name, text);
        if (name == sample.name) path = written;
      }
      const Machines machines = *parse_machines("2x4");
      const auto read = read_workload(path, {.machines = machines});
      if (!read) {
        ASSERT_EQ(read.error().code, ErrorCode::kInvalidInput);
        ASSERT_EQ(read.error().message.find('\n'), std::string::npos) << read.error().message;
      }
    }
  }
}

// The policy sees the plan that is predicted to be the fastest; the job runs that plan at its measured
// speed.
TEST(Readers, PredictedRowsAreBelievedAndMeasuredOnesAreTrue) {
  const Folder folder;
  folder.write("throughput/net.csv", "exec_plan,placement,iter_time\nga,4,1.5\nzero,4,1\n");
  const std::string ours =
      folder.write("ours/net.csv", "exec_plan,placement,iter_time\nga,4,0.5\nzero,4,0.8\n");
  const std::string jobs = folder.write(
      "jobs.csv",
      "name,submission_time,duration,application,num_gpus,exec_plan,steps\na,0,10,net,4,zero,50\n");
  const Machines machines = *parse_machines("2x4");
  const auto read = read_workload(
      jobs,
      {.predicted = std::filesystem::path(ours).parent_path().string(), .machines = machines});
  ASSERT_TRUE(read.has_value()) << read.error().message;
  const JobSpec& job = read->jobs.front();
  const Shape shape{{4}, 0};
  ASSERT_TRUE(job.believed);
  EXPECT_DOUBLE_EQ(job.believed->rate({}, shape, BatchRule::kKnown), 1 / 0.5);
  EXPECT_DOUBLE_EQ(job.model->rate({}, shape, BatchRule::kKnown), 1 / 1.5);
  EXPECT_DOUBLE_EQ(job.believed->rate({}, shape, BatchRule::kAsked), 1 / 0.8);
  EXPECT_DOUBLE_EQ(job.model->rate({}, shape, BatchRule::kAsked), 1);
}

TEST(Generators, EqualSeedsDrawEqualJobs) {
  const Machines machines = *parse_machines("16x4");
  const auto a = read_workload("ones:jobs=20", {.seed = 4, .machines = machines});
  const auto b = read_workload("ones:jobs=20", {.seed = 4, .machines = machines});
  const auto c = read_workload("ones:jobs=20", {.seed = 5, .machines = machines});
  ASSERT_TRUE(a && b && c);
  for (size_t i = 0; i < 20; ++i) {
    EXPECT_EQ(a->jobs[i].name, b->jobs[i].name);
    EXPECT_EQ(a->jobs[i].submit_s, b->jobs[i].submit_s);
  }
  EXPECT_NE(a->jobs[5].submit_s, c->jobs[5].submit_s);
}

}  // namespace
}  // namespace tessera::share
