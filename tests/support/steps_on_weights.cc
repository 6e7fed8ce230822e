// Runs steps of plans on given weights and inputs, for comparison with another framework. Ranks are
// threads.
//
//   steps_on_weights JOBS
//
// A line of the file JOBS is a job: MODEL, WEIGHTS, INPUTS, PLAN, PRECISION, STEPS and OUT with
// tabs between them. WEIGHTS and INPUTS are safetensors under the names of the graph; the first dim
// of the inputs is the batch. Every step reads the same inputs and takes an AdamW step (rate 1e-2,
// betas 0.9 and 0.95, epsilon 1e-6, no decay, no clipping). Two further columns may change this:
// the word logits or nothing, and keys of `optimizer` of a run file with blanks between them
// ("kind=sgd lr=0.1 momentum=0.5"; no clipping unless they say so). The results are three files:
// OUT.losses has "loss.1", "loss.2", ...; OUT.gradients the gradients of the first step and
// OUT.parameters the parameters after the last, under the parameters' names.
#include <fmt/format.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "tessera/base/text.h"
#include "tessera/comm/communicator.h"
#include "tessera/compile/compile.h"
#include "tessera/runtime/data/inputs.h"
#include "tessera/runtime/run_config.h"
#include "tessera/runtime/step/interpreter.h"
#include "tessera/state/safetensors.h"
#include "tessera/state/source.h"

namespace tessera {
namespace {

// Puts whole arrays together from the regions that ranks hold.
class Gathered {
 public:
  void add(const std::string& name, const std::vector<int64_t>& shape, const HostArray& held) {
    const std::lock_guard lock(mutex_);
    std::vector<std::byte>& data = data_[name];
    const int64_t bytes = dtype_bytes(held.dtype);
    if (data.empty()) {
      arrays_[name] = {.name = name, .dtype = held.dtype, .shape = shape};
      data.resize(static_cast<size_t>(Box::whole(shape).volume() * bytes));
    }
    const std::byte* from = held.data.data();
    for (const ByteRange& range : byte_ranges(shape, bytes, held.region)) {
      std::memcpy(data.data() + range.begin, from, static_cast<size_t>(range.bytes));
      from += range.bytes;
    }
  }

  bool write(const std::string& path) const {
    std::vector<ArrayEntry> entries;
    for (const auto& [name, entry] : arrays_) entries.push_back(entry);
    const SafetensorsLayout layout = layout_safetensors(std::move(entries));
    std::ofstream out(path, std::ios::binary);
    out << layout.head;
    for (const ArrayEntry& entry : layout.arrays)
      out.write(reinterpret_cast<const char*>(data_.at(entry.name).data()), entry.bytes);
    return out.good();
  }

 private:
  std::mutex mutex_;
  std::map<std::string, ArrayEntry> arrays_;
  std::map<std::string, std::vector<std::byte>> data_;
};

[[noreturn]] void stop(const std::string& message) { throw comm::CommFault{message}; }

std::vector<std::byte> read_region(const TensorSource& source, const Tensor& tensor,
                                   const Box& region) {
  const SourceArray* const array = source.find(tensor.name);
  if (array == nullptr || array->shape != tensor.shape())
    stop(fmt::format("{}: expected '{}' {}", source.where(), tensor.name, describe(tensor.dims)));
  std::vector<std::byte> data(static_cast<size_t>(region.volume() * dtype_bytes(tensor.dtype)));
  if (const Status read = source.read(*array, region, tensor.dtype, data.data()); !read)
    stop(read.error().message);
  return data;
}

void load_input(const TensorSource& inputs, double rate, int64_t step, const Tensor& tensor,
                const Box& region, const kernels::Array& to) {
  if (tensor.init.kind == Init::Kind::kLearningRate) return load_scalar(rate, to);
  if (tensor.init.kind == Init::Kind::kStep) return load_scalar(static_cast<double>(step), to);
  const std::vector<std::byte> data = read_region(inputs, tensor, region);
  const auto bytes = static_cast<size_t>(dtype_bytes(tensor.dtype));
  std::vector<int64_t> at(region.rank(), 0);
  for (int64_t i = 0; i < region.volume(); ++i) {
    int64_t offset = 0;
    for (size_t d = 0; d < at.size(); ++d) offset += at[d] * to.strides[d];
    std::memcpy(to.data + static_cast<size_t>(offset) * bytes,
                data.data() + static_cast<size_t>(i) * bytes, bytes);
    for (size_t d = at.size(); d-- > 0 && ++at[d] == region.dims[d].size;) at[d] = 0;
  }
}

struct Outcome {
  Gathered losses, logits, gradients, parameters;
};
struct Run {
  const Compiled& compiled;
  const TensorSource& weights;
  const TensorSource& inputs;
  int64_t steps;
  double rate;
  std::string logits;  // the name of the tensor; "": not wanted
  Outcome& outcome;
};

void run_rank(const Run& run, const Program& program, comm::Communicator& world) {
  const Graph& graph = run.compiled.graph();
  const auto executor = RankExecutor::create(graph, program, world, {});
  if (!executor) stop(executor.error().message);
  (*executor)->initialise();
  for (const Home& home : program.homes) {
    const Tensor& tensor = graph.tensor(home.tensor);
    if (tensor.role != Role::kParameter || home.region.empty()) continue;
    (*executor)->write(home, {home.tensor, home.region, tensor.dtype,
                              read_region(run.weights, tensor, home.region)});
  }
  for (int64_t step = 1; step <= run.steps; ++step) {
    (*executor)->run_step(step,
                          [&](const Tensor& tensor, const Box& region, const kernels::Array& to) {
                            load_input(run.inputs, run.rate, step, tensor, region, to);
                          });
    for (const Home& home : program.fetches) {
      const Tensor& tensor = graph.tensor(home.tensor);
      const bool loss = home.tensor == graph.loss;
      if (home.region.empty() || (!loss && step > 1)) continue;
      if (tensor.name == run.logits) {
        run.outcome.logits.add("logits", tensor.shape(), (*executor)->read(home));
      } else if (loss) {
        run.outcome.losses.add(fmt::format("loss.{}", step), tensor.shape(),
                               (*executor)->read(home));
      } else if (tensor.of.valid()) {
        run.outcome.gradients.add(graph.tensor(tensor.of).name, tensor.shape(),
                                  (*executor)->read(home));
      }
    }
  }
  for (const Home& home : program.homes) {
    const Tensor& tensor = graph.tensor(home.tensor);
    if (tensor.role == Role::kParameter && !home.region.empty())
      run.outcome.parameters.add(tensor.name, tensor.shape(), (*executor)->read(home));
  }
}

Result<OptimizerConfig> optimizer_of(const std::vector<std::string>& job) {
  RunConfig run;
  run.optimizer.lr = 1e-2;
  run.optimizer.eps = 1e-6;
  run.optimizer.weight_decay = 0;
  run.optimizer.clip = 0;
  if (job.size() < 9) return run.optimizer;
  for (const std::string& word : split_text(job[8], ' '))
    TESSERA_TRY_VOID(set_run_key(run, "optimizer." + word));
  return run.optimizer;
}

Status run(const std::vector<std::string>& job) {
  const bool with_logits = job.size() >= 8 && job[7] == "logits";
  if (job.size() < 7 || job.size() > 9 || (job.size() > 7 && !with_logits && !job[7].empty())) {
    return invalid_input(
        "expected MODEL, WEIGHTS, INPUTS, PLAN, PRECISION, STEPS, OUT and possibly the word "
        "logits, or nothing, and keys of an optimizer");
  }
  TESSERA_TRY(const OptimizerConfig optimizer, optimizer_of(job));
  TESSERA_TRY(const auto weights, open_source(job[1]));
  TESSERA_TRY(const auto inputs, open_source(job[2]));
  if (inputs->arrays().empty()) return invalid_input("expected inputs, found none");
  TESSERA_TRY(const int64_t steps, parse_int(job[5]));
  CompileTexts texts{job[0], job[3], inputs->arrays().front().shape.front(), job[4]};
  texts.optimizer = specification(optimizer);
  texts.fetch_gradients = true;
  if (with_logits) {
    TESSERA_TRY(const Model model, build_model(texts.model, texts.batch));
    const std::vector<TensorId> logits = compared_with_targets(model.graph);
    if (logits.empty()) return invalid_input("expected a model with the input targets");
    texts.fetch = {model.graph.tensor(logits.front()).name};
  }
  TESSERA_TRY(const Compiled compiled, compile(texts));
  TESSERA_TRY(const std::vector<Program> programs, lower_and_verify(*compiled.lowering));
  Outcome outcome;
  const Run all{compiled, *weights,     *inputs,
                steps,    optimizer.lr, with_logits ? texts.fetch.front() : "",
                outcome};
  TESSERA_TRY_VOID(comm::run_threads(compiled.ranks(), {}, [&](comm::Communicator& world) {
    run_rank(all, programs[static_cast<size_t>(world.rank())], world);
  }));
  const bool written = outcome.losses.write(job[6] + ".losses") &&
                       (!with_logits || outcome.logits.write(job[6] + ".logits")) &&
                       outcome.gradients.write(job[6] + ".gradients") &&
                       outcome.parameters.write(job[6] + ".parameters");
  if (!written) return fault(fmt::format("{}: cannot write", job[6]));
  return {};
}

Status run_all(const std::string& path) {
  TESSERA_TRY(const std::string text, read_file(path));
  for (const std::string& line : split_text(text, '\n')) {
    if (line.empty()) continue;
    if (Status done = run(split_text(line, '\t')); !done) {
      done.error().message = fmt::format("{}: {}", line, done.error().message);
      return done;
    }
  }
  return {};
}

}  // namespace
}  // namespace tessera

int main(int count, char** texts) {
  const tessera::Status status =
      count == 2 ? tessera::run_all(texts[1]) : tessera::invalid_input("expected a file of jobs");
  if (status) return 0;
  fmt::print(stderr, "steps_on_weights: {}\n", status.error().message);
  return 2;
}
