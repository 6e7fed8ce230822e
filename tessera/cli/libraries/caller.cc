#include "tessera/cli/libraries/caller.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace tessera::cli {
namespace {

class Terminal final : public Caller {
 public:
  Status answer(std::string_view text) override {
    errno = 0;
    std::fwrite(text.data(), 1, text.size(), stdout);
    if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return {};
    return fault(fmt::format("cannot write to standard output: {}", std::strerror(errno)));
  }
  void note(std::string_view text) override { std::fwrite(text.data(), 1, text.size(), stderr); }
  void progress(std::string_view) override {}
  void best_so_far(std::string_view) override {}
  bool stopped() const override { return false; }
  bool has_terminal() const override { return true; }
};

thread_local Call* called = nullptr;

}  // namespace

Caller& terminal() {
  static Terminal one;
  return one;
}

Call& this_call() {
  static Call of_terminal{&terminal()};
  return called == nullptr ? of_terminal : *called;
}

Calling::Calling(Caller& caller) : call_{&caller}, outer_(called) {
  called = &caller == &terminal() ? nullptr : &call_;
  if (called == nullptr) this_call() = call_;
}

Calling::~Calling() { called = outer_; }

}  // namespace tessera::cli
