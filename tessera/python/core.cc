// The extension module tessera._core: the planning half in the process of a Python program. It is
// thin: a command is called with the arguments of the command line and answers with the JSON that
// it prints, so that the package and the program have one meaning, one schema and one price for
// each question (docs/adr/0128-python-calls-commands.md). The package around it is in tessera/.
//
//   call = _core.Call(["simulate", "gpt:layers=4", "--plan", "fsdp(8)", ..., "--json"])
//   code = call.run()       # without the GIL, on a thread of the package
//   call.stop()             # on another thread: end with the best answer so far
//   call.answer, call.notes
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "arrays.h"
#include "raise.h"
#include "tessera/base/broken_invariant.h"
#include "tessera/cli/cli.h"
#include "tessera/cli/libraries/caller.h"
#include "tessera/import/pt2.h"
#include "tessera/import/pt2/state.h"
#include "tessera/models/model_name.h"

namespace nb = nanobind;

namespace tessera {
namespace {

// One call of a command. Its texts are read when run() has returned, its progress at any time.
class PythonCall final : public cli::Caller {
 public:
  explicit PythonCall(std::vector<std::string> arguments) : arguments_(std::move(arguments)) {}

  int run() {
    const ChecksThrow
        checks;  // a broken invariant is an exception, not the end of the user's process
    return cli::run(arguments_, *this);
  }
  void stop() { stopped_ = true; }
  const std::string& kept_answer() const { return answer_; }
  const std::string& kept_notes() const { return notes_; }
  // Returns the best answer so far; "" if there is none.
  std::string best_so_far() const {
    const std::lock_guard lock(mutex_);
    return best_;
  }
  // Returns what the command said last, once; "" if nothing is new.
  std::string take_progress() {
    const std::lock_guard lock(mutex_);
    return std::exchange(progress_, "");
  }

  Status answer(std::string_view text) override {
    answer_ += text;
    return {};
  }
  void note(std::string_view text) override { notes_ += text; }
  void progress(std::string_view what) override {
    const std::lock_guard lock(mutex_);
    progress_ = what;
  }
  void best_so_far(std::string_view text) override {
    const std::lock_guard lock(mutex_);
    best_ = text;
  }
  bool stopped() const override { return stopped_; }
  bool has_terminal() const override { return false; }

 private:
  std::vector<std::string> arguments_;
  std::string answer_, notes_, progress_, best_;
  mutable std::mutex mutex_;  // of progress_ and best_
  std::atomic<bool> stopped_ = false;
};

// Runs the program as its command does, on the terminal.
int run_on_terminal(const std::vector<std::string>& arguments) {
  return cli::run(arguments, cli::terminal());
}

void check_model(const std::string& text) {
  const auto named = resolve_model(text);
  if (!named) raise(named.error());
}

// Returns what _torch.py makes a model of: the graph's text, those arrays of the state_dict that are
// parameters of the graph as (name, parameter, shape), the names of the other ones, and a safetensors
// file of parameters that the import has computed.
nb::tuple read_module(const std::string& path, const std::string& keys, int64_t batch) {
  const auto module = [&] {
    const nb::gil_scoped_release release;
    return archived_module(path, keys, batch);
  }();
  if (!module) raise(module.error());
  nb::list state;
  for (const pt2::StateArray& array : module->state)
    state.append(nb::make_tuple(array.name, array.parameter, array.shape));
  return nb::make_tuple(module->graph, state, module->others,
                        nb::bytes(module->constants.data(), module->constants.size()));
}

}  // namespace
}  // namespace tessera

NB_MODULE(_core, module) {
  using namespace tessera;
  nb::class_<PythonCall>(module, "Call")
      .def(nb::init<std::vector<std::string>>(), nb::arg("arguments"))
      .def("run", &PythonCall::run, nb::call_guard<nb::gil_scoped_release>())
      .def("stop", &PythonCall::stop)
      .def("take_progress", &PythonCall::take_progress)
      .def("best_so_far",
           static_cast<std::string (PythonCall::*)() const>(&PythonCall::best_so_far))
      .def_prop_ro("answer", &PythonCall::kept_answer)
      .def_prop_ro("notes", &PythonCall::kept_notes);
  module.def("run_on_terminal", &run_on_terminal, nb::arg("arguments"),
             nb::call_guard<nb::gil_scoped_release>());
  module.def("check_model", &check_model, nb::arg("text"));
  module.def("read_module", &read_module, nb::arg("path"), nb::arg("keys"), nb::arg("batch"));
  add_arrays(module);
  module.attr("version") = TESSERA_VERSION;
}
