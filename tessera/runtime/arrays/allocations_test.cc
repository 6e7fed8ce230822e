// Counts a step's heap allocations once the kernels are prepared. docs/concepts.md has the figures.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "tessera/compile/compile.h"
#include "tessera/runtime/data/inputs.h"
#include "tessera/runtime/step/interpreter.h"
#include "tessera/runtime/testing.h"

namespace tessera {
namespace {

using testing::allocations;

// Forwards to another communicator and counts the allocations inside its calls.
class Counting final : public comm::Communicator {
 private:
  template <class F>
  auto count(F&& f) {
    const int64_t before = allocations;
    const auto result = f();
    inside += allocations - before;
    return result;
  }

 public:
  explicit Counting(comm::Communicator& inner) : inner_(inner) {}
  int64_t inside = 0, calls = 0;

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  int group(const std::vector<int>& members) override { return inner_.group(members); }
  comm::Handle issue(int group, std::vector<comm::Item> items, const comm::Label& label) override {
    ++calls;
    return count([&] { return inner_.issue(group, std::move(items), label); });
  }
  comm::Handle issue_send(int to, int64_t tag, DType dtype, comm::ArrayView from,
                          const comm::Label& label) override {
    ++calls;
    return count([&] { return inner_.issue_send(to, tag, dtype, std::move(from), label); });
  }
  comm::Handle issue_recv(int from, int64_t tag, DType dtype, comm::ArrayView into,
                          const comm::Label& label) override {
    ++calls;
    return count([&] { return inner_.issue_recv(from, tag, dtype, std::move(into), label); });
  }
  void wait(comm::Handle handle) override {
    count([&] {
      inner_.wait(handle);
      return 0;
    });
  }
  void barrier() override { inner_.barrier(); }
  void abort(const std::string& reason) override { inner_.abort(reason); }
  comm::Counters& counters() override { return inner_.counters(); }

 private:
  comm::Communicator& inner_;
};

struct Step {
  int64_t all = 0, communicator = 0, calls = 0;
};

// Returns the allocations of steps 2 to 4, by rank.
std::vector<std::vector<Step>> measure(const Compiled& compiled) {
  const auto programs = lower_and_verify(*compiled.lowering);
  EXPECT_TRUE(programs) << (programs ? "" : programs.error().message);
  std::vector<std::vector<Step>> steps(programs->size());
  const LoadFunction load = [](const Tensor& tensor, const Box&, const kernels::Array& to) {
    int64_t bytes = dtype_bytes(to.dtype);
    for (const int64_t size : to.shape) bytes *= size;
    std::fill_n(to.data, bytes, std::byte{0});
    if (tensor.name == "step") *reinterpret_cast<float*>(to.data) = 1;
  };
  const Status ran = comm::run_threads(compiled.ranks(), {}, [&](comm::Communicator& world) {
    Counting counting(world);
    const auto rank = static_cast<size_t>(world.rank());
    auto executor = RankExecutor::create(compiled.graph(), (*programs)[rank], counting, {});
    ASSERT_TRUE(executor);
    (*executor)->initialise();
    for (int64_t step = 1; step <= 4; ++step) {
      const int64_t before = allocations;
      counting.inside = counting.calls = 0;
      (*executor)->run_step(step, load);
      if (step > 1) steps[rank].push_back({allocations - before, counting.inside, counting.calls});
    }
  });
  EXPECT_TRUE(ran) << (ran ? "" : ran.error().message);
  return steps;
}

Result<Compiled> compiled(const char* plan) {
  return compile({"gpt:layers=2,hidden=32,heads=4,seq=16,vocab=64,dropout=0.1", plan});
}

// Returns, by op kind, the most allocations of a kernel in a run after its first.
std::map<std::string, int64_t> of_kernels(const Graph& graph) {
  testing::Workspace work(graph);
  work.initialise();
  const kernels::ThreadScope scope(1);
  std::map<std::string, int64_t> counts;
  for (const Op& op : graph.ops()) {
    kernels::KernelCall call{&op, {}, {}, {}, {}, &work.context()};
    for (const OpDim& dim : op.annotation.dims) call.box.dims.push_back({0, dim.size});
    const auto whole = [&](TensorId id) {
      return work.view(id, Box::whole(graph.tensor(id).shape()));
    };
    for (const TensorId id : op.inputs) call.inputs.push_back(whole(id));
    for (const TensorId id : op.outputs) call.outputs.push_back(whole(id));
    call.add.assign(op.outputs.size(), false);
    const kernels::Kernel kernel = kernels::prepare_kernel(call);
    if (!kernel) continue;
    kernel();
    const int64_t before = allocations;
    kernel();
    const int64_t made = allocations - before;
    int64_t& most = counts[op.kind];
    most = std::max(most, made);
  }
  return counts;
}

// Kernels of our own use memory that they took when they were prepared.
TEST(Allocations, HandWrittenKernelsMakeNone) {
  const auto c = compiled("serial");
  ASSERT_TRUE(c) << c.error().message;
  const auto counts = of_kernels(c->graph());
  for (const char* kind :
       {"adamw", "clip_coefficient", "cross_entropy", "cross_entropy_grad", "dropout", "embedding",
        "embedding_grad", "gelu", "gelu_grad", "layer_norm", "layer_norm_grad", "sum_squares"}) {
    ASSERT_TRUE(counts.contains(kind)) << kind;
    EXPECT_EQ(counts.at(kind), 0) << kind;
  }
  for (const auto& [kind, count] : counts)
    RecordProperty(kind, static_cast<int>(count));  // what libtorch makes in one call of a kernel
}

// On one rank only kernels of libtorch allocate: a step allocates no more than its kernels do one
// by one.
TEST(Allocations, TheInterpreterMakesNone) {
  const auto c = compiled("serial");
  ASSERT_TRUE(c) << c.error().message;
  const auto counts = of_kernels(c->graph());
  const auto programs = lower_and_verify(*c->lowering);
  ASSERT_TRUE(programs) << programs.error().message;
  int64_t of_libtorch = 0;
  for (const auto& [ref, block] : programs->front().blocks) {
    for (const Instruction& instruction : block) {
      if (const auto* compute = std::get_if<Compute>(&instruction.body)) {
        const auto found = counts.find(compute->kind);
        of_libtorch += found == counts.end() ? 0 : found->second;
      }
    }
  }
  const auto steps = measure(*c);
  for (const Step& step : steps.front()) {
    EXPECT_LE(step.all, of_libtorch);
    EXPECT_EQ(step.all, steps.front().front().all) << "steps differ";
  }
}

// Between ranks the communicator allocates too, in each of the calls that a rank's step makes.
TEST(Allocations, OfAStepOnFourRanks) {
  const auto c = compiled("megatron(tp=2,dp=2)");
  ASSERT_TRUE(c) << c.error().message;
  for (const auto& rank : measure(*c)) {
    for (const Step& step : rank) {
      EXPECT_GT(step.calls, 0);
      EXPECT_LE(step.communicator, 40 * step.calls);
      EXPECT_EQ(step.all - step.communicator, rank.front().all - rank.front().communicator);
      RecordProperty("all", static_cast<int>(step.all));
      RecordProperty("communicator", static_cast<int>(step.communicator));
      RecordProperty("calls", static_cast<int>(step.calls));
    }
  }
}

}  // namespace
}  // namespace tessera
