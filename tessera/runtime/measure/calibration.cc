#include "tessera/runtime/measure/calibration.h"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <mutex>
#include <thread>

#include "tessera/base/statistics.h"
#include "tessera/compile/compile.h"
#include "tessera/program/instructions.h"
#include "tessera/runtime/data/inputs.h"
#include "tessera/runtime/step/interpreter.h"
#include "tessera/runtime/step/ranks.h"

namespace tessera {
namespace {

double at_share(const std::vector<double>& sorted, double share) {
  const double place = share * static_cast<double>(sorted.size() - 1);
  const auto low = static_cast<size_t>(place);
  const size_t high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (place - static_cast<double>(low)) * (sorted[high] - sorted[low]);
}

int64_t now_ns(RecordClock clock) {
  timespec now{};
  clock_gettime(clock == RecordClock::kSteady ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

// Returns how many seconds the reading of the clock adds to a measured time: the median time
// between two readings with nothing between.
double clock_cost(RecordClock clock) {
  std::vector<double> costs;
  for (int i = 0; i < 1000; ++i) {
    const int64_t begin = now_ns(clock);
    costs.push_back(static_cast<double>(now_ns(clock) - begin) * 1e-9);
  }
  return median(std::move(costs));
}

// Runs a case on one rank.
class CaseRun {
 public:
  CaseRun(const Compiled& compiled, const Program& program, comm::Communicator& world,
          int64_t ranks, int threads, std::string device)
      : compiled_(compiled),
        program_(program),
        world_(world),
        ranks_(ranks),
        threads_(threads),
        device_(std::move(device)) {}

  Status run(int steps, Repeats& repeats, CaseTimes& times) {
    const bool alone = threads_ == 1 && device_ == "cpu";
    clock_ = alone ? RecordClock::kProcessor : RecordClock::kSteady;
    ExecutorOptions options{1, threads_};
    options.device = device_;
    TESSERA_TRY(executor_, RankExecutor::create(compiled_.graph(), program_, world_, options));
    executor_->initialise();
    const double cost = clock_cost(clock_);
    step(nullptr);
    step(nullptr);
    std::vector<double> plain, sums;
    std::vector<Executed> recorded;
    for (int i = 0; i < steps; ++i) {
      const int64_t begin = now_ns(clock_);
      step(nullptr);
      plain.push_back(static_cast<double>(now_ns(clock_) - begin) * 1e-9);
      step(&recorded);
      double sum = 0;
      for (const Executed& one : recorded) {
        const double seconds =
            std::max(static_cast<double>(one.end_ns - one.start_ns) * 1e-9 - cost, 1e-9);
        sum += seconds;
        file(one, seconds, repeats);
      }
      sums.push_back(sum);
    }
    times = {median(plain), median(sums), static_cast<int64_t>(recorded.size())};
    return {};
  }

 private:
  void step(std::vector<Executed>* recorded) {
    world_.barrier();
    executor_->record(recorded, clock_);
    ++step_;
    executor_->run_step(step_,
                        [&](const Tensor& tensor, const Box& region, const kernels::Array& to) {
                          if (tensor.init.kind == Init::Kind::kLearningRate)
                            return load_scalar(1e-4, to);
                          if (tensor.init.kind == Init::Kind::kStep)
                            return load_scalar(static_cast<double>(step_), to);
                          load_random(*compiled_.model, 1, step_, tensor, region, to);
                        });
  }

  void file(const Executed& one, double seconds, Repeats& repeats) const {
    const Instruction& instruction =
        program_.block(one.block)[static_cast<size_t>(one.instruction)];
    FamilyKey key;
    match(
        instruction,
        [&](const Compute& compute) { key = family_of(compiled_.graph(), program_, compute); },
        [&](const Copy& copy) {
          if (copy.handle < 0) key = family_of(program_, copy);
        },
        [](const OneOf<Issue, Send, Recv, Wait, Load, Free, FetchRows, ReleaseRows> auto&) {});
    if (!key.name.empty()) repeats.add(key, ranks_, seconds, clock_ == RecordClock::kSteady);
  }

  const Compiled& compiled_;
  const Program& program_;
  comm::Communicator& world_;
  const int64_t ranks_;
  const int threads_;
  const std::string device_;
  RecordClock clock_ = RecordClock::kSteady;
  std::unique_ptr<RankExecutor> executor_;
  int64_t step_ = 0;
};

}  // namespace

void Repeats::add(const std::string& family, const std::vector<std::string>& names,
                  const std::vector<double>& size, double seconds) {
  One& one = families_[family];
  one.names = names;
  one.seconds[size].push_back(seconds);
}

void Repeats::add(const FamilyKey& key, int64_t ranks, double seconds, bool by_clock) {
  const std::string name = fmt::format("{}@{}", key.name, ranks);
  add(name, size_names(key), key.size, seconds);
  if (by_clock) families_[name].share = 0.25;
}

void Repeats::merge(const Repeats& other) {
  for (const auto& [family, one] : other.families_) {
    families_[family].names = one.names;
    families_[family].share = one.share;
    for (const auto& [size, seconds] : one.seconds) {
      std::vector<double>& all = families_[family].seconds[size];
      all.insert(all.end(), seconds.begin(), seconds.end());
    }
  }
}

void Repeats::write(Profile& profile) const {
  for (const auto& [name, one] : families_) {
    Family& family = profile.families[name];
    family.sizes = one.names;
    for (const auto& [size, repeats] : one.seconds) {
      std::vector<double> sorted = repeats;
      std::sort(sorted.begin(), sorted.end());
      const double middle = at_share(sorted, 0.5);
      const Sample sample{size, at_share(sorted, one.share),
                          (at_share(sorted, 0.9) - at_share(sorted, 0.1)) / middle};
      const auto place =
          std::lower_bound(family.samples.begin(), family.samples.end(), sample,
                           [](const Sample& a, const Sample& b) { return a.size < b.size; });
      if (place != family.samples.end() && place->size == size) {
        *place = sample;
      } else {
        family.samples.insert(place, sample);
      }
    }
  }
}

size_t Repeats::sizes() const {
  size_t out = 0;
  for (const auto& [name, one] : families_) out += one.seconds.size();
  return out;
}

namespace {

std::vector<CalibrationCase> accelerator_cases(int64_t ranks, bool quick) {
  std::vector<CalibrationCase> cases;
  const auto add = [&](std::string model, int64_t batch, const std::string& plan) {
    for (const char* precision : {"float32", "bfloat16"})
      cases.push_back({model, batch, plan, precision});
  };
  const auto transformer = [&](std::string_view family, int64_t hidden, int64_t seq, int64_t vocab,
                               int64_t batch, const std::string& plan) {
    add(fmt::format("{}:layers=2,hidden={},heads={},seq={},vocab={}", family, hidden, hidden / 64,
                    seq, vocab),
        batch, plan);
  };
  transformer("gpt", 128, 64, 512, 2, "serial");
  if (ranks > 1) transformer("gpt", 128, 64, 512, 4, fmt::format("tensor_parallel({})", ranks));
  if (quick) return cases;
  transformer("gpt", 1024, 1024, 16384, 8, "serial");
  transformer("gpt", 2048, 2048, 50304, 4, "recompute(full,micro_batches=2)");
  transformer("gpt", 4096, 1024, 50304, 4, "serial");
  transformer("llama", 2048, 2048, 32000, 4, "serial");
  transformer("llama", 4096, 4096, 32000, 2, "recompute(full,micro_batches=2)");
  transformer("bert", 1024, 512, 30592, 32, "serial");
  if (ranks > 1) {
    transformer("gpt", 2048, 1024, 50304, 8, fmt::format("tensor_parallel({})", ranks));
    transformer("llama", 4096, 2048, 32000, 4,
                fmt::format("tensor_parallel({},sequence_shard=true)", ranks));
    transformer("gpt", 2048, 1024, 50304, 8, fmt::format("zero(3,{})", ranks));
  }
  add("mixtral:layers=2,hidden=1024,heads=16,seq=1024,vocab=32000,ffn=3584,experts=8", 8, "serial");
  add("resnet:layers=50,width=64,image=224,classes=1000,ghost=8", 64, "serial");
  for (const int64_t rows : {512, 4096, 32768}) {
    for (const char* widths : {"in=1024,hidden=4096,out=1024", "in=4096,hidden=16384,out=4096",
                               "in=8192,hidden=2048,out=8192"}) {
      add(fmt::format("mlp:{},layers=2,activation=gelu", widths), rows, "serial");
    }
  }
  return cases;
}

}  // namespace

std::vector<CalibrationCase> calibration_cases(int64_t ranks, bool quick, bool accelerated) {
  if (accelerated) return accelerator_cases(ranks, quick);
  std::vector<CalibrationCase> cases;
  // Whole models, because their kernels are those of real steps. The sizes range from kernels that
  // fit in a core's cache to kernels that fit in no cache.
  const auto transformer = [&](std::string_view family, int64_t hidden, int64_t heads, int64_t seq,
                               int64_t vocab, int64_t batch, std::string_view more,
                               std::string plan) {
    cases.push_back({fmt::format("{}:layers=2,hidden={},heads={},seq={},vocab={}{}", family, hidden,
                                 heads, seq, vocab, more),
                     batch, std::move(plan)});
  };
  transformer("gpt", 128, 4, 128, 256, 4, "", "serial");
  transformer("gpt", 256, 8, 256, 1024, 4, "", "recompute(full,micro_batches=2)");
  transformer("llama", 128, 4, 64, 512, 8, ",kv_heads=2", "serial");
  if (ranks > 1) {
    transformer("gpt", 128, 4, 128, 256, 8, "", fmt::format("tensor_parallel({})", ranks));
    transformer("llama", 256, 8, 128, 1024, 4, "",
                fmt::format("tensor_parallel({},sequence_shard=true)", ranks));
    transformer("gpt", 256, 8, 64, 512, 8, "", fmt::format("zero(3,{})", ranks));
  }
  if (!quick) {
    transformer("gpt", 64, 2, 64, 256, 4, "", "serial");
    transformer("gpt", 96, 4, 32, 320, 8, "", "recompute(full,micro_batches=2)");
    transformer("gpt", 384, 6, 256, 512, 4, "", "serial");
    transformer("gpt", 512, 8, 128, 4096, 2, "", "recompute(selective,micro_batches=2)");
    transformer("gpt", 128, 2, 512, 256, 2, "", "serial");
    transformer("llama", 64, 2, 128, 256, 4, "", "recompute(full,micro_batches=2)");
    transformer("llama", 256, 8, 256, 2048, 2, ",kv_heads=4", "serial");
    transformer("llama", 512, 8, 64, 512, 4, "", "recompute(selective,micro_batches=2)");
    transformer("bert", 128, 4, 128, 512, 8, "", "serial");
    transformer("bert", 256, 4, 128, 2048, 4, "", "recompute(full,micro_batches=2)");
    transformer("mixtral", 128, 4, 128, 256, 4, ",ffn=256,experts=4", "serial");
    transformer("mixtral", 256, 4, 64, 512, 4, ",ffn=512,experts=8",
                "recompute(full,micro_batches=2)");
    // Under rsa(1) attention is computed by products and a softmax, so that these are measured.
    transformer("gpt", 128, 4, 128, 256, 4, "", "rsa(1)");
    transformer("bert", 192, 4, 96, 512, 8, "", "rsa(1)");
    transformer("bert", 64, 2, 64, 256, 4, "", "rsa(1)");
    transformer("llama", 128, 2, 512, 256, 2, "", "rsa(1)");
    transformer("gpt", 256, 8, 256, 512, 2, "", "rsa(1)");
    cases.push_back(
        {"nemotron_h:pattern=M-M*,hidden=128,heads=4,kv_heads=2,seq=256,vocab=512,"
         "ffn=256,ssm_heads=8,ssm_head_dim=32,ssm_groups=2,state=32,chunk=64",
         4, "serial"});
    cases.push_back({"resnet:layers=18,width=16,image=64,classes=100,ghost=4", 8, "serial"});
    cases.push_back({"resnet:layers=50,width=16,image=96,classes=100,ghost=2", 4,
                     "recompute(full,micro_batches=2)"});
    // Models with small maps and many channels, because the kernels of their weight gradients take
    // other times than those of large maps.
    cases.push_back({"resnet:layers=18,width=24,image=32,classes=100,ghost=4", 8, "serial"});
    cases.push_back({"resnet:layers=18,width=12,image=32,classes=100,ghost=4", 48, "serial"});
    if (ranks > 1) {
      transformer("bert", 128, 4, 128, 512, 8, "", fmt::format("megatron({})", ranks));
      transformer("mixtral", 128, 4, 64, 256, 8, ",ffn=256,experts=4",
                  fmt::format("expert_parallel({})", ranks));
      // Plans that cut the softmax of routers, and plans that leave few channels or filters to
      // a convolution.
      transformer("mixtral", 128, 4, 64, 256, 8, ",ffn=256,experts=8",
                  fmt::format("per_op(a{},\"*=batch:a;blocks.*.moe.*=experts:a\")", ranks));
      for (const char* recipe : {"channel_parallel", "filter_parallel"}) {
        cases.push_back({"resnet:layers=18,width=16,image=32,classes=100,ghost=4", 32,
                         fmt::format("{}({})", recipe, ranks)});
      }
    }
  }
  // Matrix products of many shapes: a linear layer and its two gradients need a product in each of
  // its three transposes.
  struct Widths {
    int64_t in, hidden, out;
  };
  const std::vector<Widths> widths =
      quick ? std::vector<Widths>{{64, 256, 1024}, {1024, 256, 64}}
            : std::vector<Widths>{{48, 64, 160},    {64, 192, 768},   {192, 48, 1536},
                                  {768, 192, 64},   {1536, 384, 384}, {192, 768, 1536},
                                  {384, 1536, 192}, {1024, 1024, 256}};
  for (const Widths& w : widths) {
    for (const int64_t rows :
         quick ? std::vector<int64_t>{128, 1024} : std::vector<int64_t>{32, 128, 512, 2048}) {
      cases.push_back({fmt::format("mlp:in={},hidden={},out={},layers=2,activation=gelu", w.in,
                                   w.hidden, w.out),
                       rows, rows == 512 ? "recompute(none,micro_batches=2)" : "serial"});
    }
  }
  return cases;
}

Result<CaseTimes> run_case(const CalibrationCase& one, int64_t ranks, int steps, Repeats& repeats,
                           int threads, const std::string& device) {
  TESSERA_TRY(const Compiled compiled, compile({one.model, one.plan, one.batch, one.precision}));
  TESSERA_TRY(const std::vector<Program> programs, lower_and_verify(*compiled.lowering));
  if (ranks == 0) ranks = static_cast<int64_t>(programs.size());
  if (programs.size() != 1 && static_cast<int64_t>(programs.size()) != ranks) {
    return invalid_input(
        fmt::format("plan {}: expected {} ranks, found {}", one.plan, ranks, programs.size()));
  }
  std::vector<CaseTimes> times(static_cast<size_t>(ranks));
  std::mutex mutex;
  TESSERA_TRY_VOID(comm::run_threads(static_cast<int>(ranks), {}, [&](comm::Communicator& world) {
    const auto rank = static_cast<size_t>(world.rank());
    Repeats mine;
    const Program& program = programs[programs.size() == 1 ? 0 : rank];
    const Status status =
        CaseRun(compiled, program, world, ranks, threads, device).run(steps, mine, times[rank]);
    if (!status) throw comm::CommFault{status.error().message, status.error().code};
    const std::lock_guard lock(mutex);
    repeats.merge(mine);
  }));
  return times[0];
}

}  // namespace tessera
